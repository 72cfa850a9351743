"""The web server: one page, its events, and the same numbers for programs. It only reads.

It listens on this machine alone, unless it is told otherwise and then asks for a token. It answers only to names of this
machine, so that a page of the web cannot reach it under a name of its own (DNS rebinding). The page fetches nothing from
elsewhere.
"""

import hmac
import ipaddress
import secrets
import socket
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from socketserver import TCPServer
from threading import BoundedSemaphore, Thread
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from epf.errors import SettingError, kind, reason
from epf.model._settings import is_whole
from epf.run.watch._board import Board, Seen, View, news
from epf.run.watch._metrics import metrics

LOOPBACK = "127.0.0.1"
_CONNECTIONS = 64
_PATIENCE = 10.0  # seconds for a request, and for a reader that takes nothing in
_PULSE = 2.0  # seconds from one sign of life to the next
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_HTML = "text/html; charset=utf-8"
_PAGES = {  # one frame for both, with the scripts of each
    "index.html": ("uPlot.iife.min.js", "charts.js", "live.js", "app.js"),
    "panel.html": ("live.js", "panel.js"),
}
_TYPES = {"js": "text/javascript", "css": "text/css", "txt": "text/plain"}
_FILES = {
    f"/static/{name}": (name, f"{_TYPES[name.rpartition('.')[2]]}; charset=utf-8")
    for name in ("panel.js", "app.js", "live.js", "charts.js", "style.css", "uPlot.iife.min.js", "uPlot.min.css",
                 "LICENSE-uPlot.txt")
}  # fmt: skip


class Server(ThreadingHTTPServer):
    """Serves a board until `stop`, in threads of its own.

    The board of a panel is a table; `find` gives the board of one series by its name, as in `/?series=...`, or None.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(
        self,
        board: Board,
        port: int,
        host: str,
        token: str | None,
        find: Callable[[str], Board | None] | None = None,
    ) -> None:
        if not is_whole(port) or not 0 <= port < 65536:
            raise SettingError(f"watch(port={port!r}): give a number from 0 (any free port) to 65535.")
        if not isinstance(host, str) or not host:
            raise SettingError(f"watch(host=...) is {kind(host)}: give a name or an address of this machine.")
        if not (
            token is None or (isinstance(token, str) and len(token) >= 16 and token.isascii() and token.isprintable())
        ):
            raise SettingError(
                "watch(token=...): give at least 16 printable ASCII characters, or None for a random one."
            )
        self.board, self.host, self.find = board, host, find
        self.local = _is_loopback(host)
        self.token = token if token is not None or self.local else secrets.token_urlsafe(16)
        self.room = BoundedSemaphore(_CONNECTIONS)
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), Handler)
        except (OSError, UnicodeError) as error:
            raise SettingError(
                f"The page cannot be served at {host}, port {port} ({reason(error)}): choose another port, or 0 for any."
            ) from None
        self._thread = Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.1}, name="epf watch server", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """Where to point a browser: all addresses of this machine are at its name."""
        host = socket.gethostname() if self.host in ("0.0.0.0", "::") else self.host
        name = f"[{host}]" if ":" in host else host
        return f"http://{name}:{self.server_port}/" + (f"?token={quote(self.token)}" if self.token else "")

    def server_bind(self) -> None:
        """Without the slow search for this machine's full name that HTTPServer makes."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = self.host, self.server_address[1]

    def answers_to(self, header: str | None) -> bool:
        """Whether the Host header is a name of this machine, with the right port."""
        try:
            parts = urlsplit(f"//{header or ''}")
            name, port = (parts.hostname or "").lower(), parts.port or 80
        except ValueError:
            return False
        if port != self.server_port or parts.username is not None or parts.path:
            return False
        if name == "localhost" or _is_loopback(name):
            return True
        # With a token, also this machine's name and any address: an address cannot be rebound.
        return not self.local and (name in (self.host.lower(), socket.gethostname().lower()) or _is_address(name))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away is no error."""

    def stop(self) -> None:
        self.board.close()
        self.shutdown()
        self.server_close()


class Handler(BaseHTTPRequestHandler):
    server: Server  # pyright: ignore[reportIncompatibleVariableOverride]
    timeout = _PATIENCE
    server_version, sys_version = "epf", ""

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def _refuse(self) -> None:
        self._send(HTTPStatus.METHOD_NOT_ALLOWED, "This page is read only.\n", more={"Allow": "GET, HEAD"})

    do_POST = do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = _refuse

    def _answer(self, body: bool) -> None:
        server = self.server
        if not server.answers_to(self.headers.get("Host")):
            return self._send(HTTPStatus.MISDIRECTED_REQUEST, "This server does not answer to that name.\n", body)
        if not server.room.acquire(blocking=False):
            return self._send(HTTPStatus.SERVICE_UNAVAILABLE, "Too many readers: try again later.\n", body)
        try:
            path = urlsplit(self.path).path
            if not path.startswith("/static/") and not self._is_allowed():  # the page's code is no secret
                return self._send(HTTPStatus.UNAUTHORIZED, "Give the token: add ?token=... to the address.\n", body)
            board, one = self._board()
            if path == "/":
                name = "index.html" if server.find is None or one is not None else "panel.html"
                return self._send(HTTPStatus.OK, _page(name), body, _HTML)
            if path in _FILES:
                name, type_ = _FILES[path]
                return self._send(HTTPStatus.OK, _static(name), body, type_)
            if board is None:
                return self._send(
                    HTTPStatus.NOT_FOUND, "There is no such series, or too many are being watched.\n", body
                )
            if path == "/posterior.json":
                return self._send(HTTPStatus.OK, board.view.text + "\n", body, "application/json")
            if path == "/metrics":
                text = metrics(board.view.numbers)
                return self._send(HTTPStatus.OK, text, body, "text/plain; version=0.0.4; charset=utf-8")
            if path == "/events":
                return self._events(body, board)
            return self._send(HTTPStatus.NOT_FOUND, "There is no such page.\n", body)
        finally:
            server.room.release()

    def _board(self) -> tuple[Board | None, str | None]:
        """The board that the address asks for, and the name of the series, if it has one."""
        named = parse_qs(urlsplit(self.path).query).get("series")
        if named is None or self.server.find is None:
            return self.server.board, None
        # Only numbers and events need the board; a page alone starts nothing.
        wanted = urlsplit(self.path).path in ("/events", "/posterior.json", "/metrics")
        return self.server.find(named[0]) if wanted else None, named[0]

    def _is_allowed(self) -> bool:
        token = self.server.token
        if token is None:
            return True
        given = parse_qs(urlsplit(self.path).query).get("token", [])
        given += [self.headers.get("Authorization", "").removeprefix("Bearer ")]
        return any(hmac.compare_digest(one.encode(), token.encode()) for one in given)

    def _events(self, body: bool, board: Board) -> None:
        """Server-sent events: all there is, and from then on what is new, as fast as this reader takes it."""
        self._head(HTTPStatus.OK, "text/event-stream; charset=utf-8", {})
        if not body:
            return
        version, seen = -1, Seen()
        board.join(1)
        try:
            self.wfile.write(b"retry: 1000\n\n")
            while not board.closed:
                view = board.wait(version, _PULSE)
                began = time.thread_time()
                self.wfile.write(f"event: pulse\ndata: {board.pulse()}\n\n".encode())
                if view.version > version:
                    version, seen = view.version, self._tell(view, seen)
                self.wfile.flush()
                board.told(time.thread_time() - began)
        except OSError:  # the browser has gone, or takes nothing in
            self.close_connection = True
        finally:
            board.join(-1)

    def _tell(self, view: View, seen: Seen) -> Seen:
        """What is new to this reader; what it has seen then."""
        message, seen = news(view, seen)
        self.wfile.write(b"data: " + message + b"\n\n")
        return seen

    def _send(
        self,
        status: HTTPStatus,
        content: str | bytes,
        body: bool = True,
        type_: str = "text/plain; charset=utf-8",
        more: dict[str, str] | None = None,
    ) -> None:
        content = content.encode() if isinstance(content, str) else content
        self._head(status, type_, {"Content-Length": str(len(content)), **(more or {})})
        if body:
            self.wfile.write(content)

    def _head(self, status: HTTPStatus, type_: str, more: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": type_, **_HEADERS, **more}.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Standard error belongs to the stream."""


def _static(name: str) -> str:
    return (files("epf.run.watch") / "static" / name).read_text("utf-8")


def _page(name: str) -> str:
    """A page in its frame."""
    scripts = "\n".join(f'<script src="/static/{script}" defer></script>' for script in _PAGES[name])
    return _static("frame.html").replace("<!-- scripts -->", scripts).replace("<!-- page -->", _static(name))


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_loopback(name: str) -> bool:
    return name == "localhost" or (_is_address(name) and ipaddress.ip_address(name).is_loopback)
