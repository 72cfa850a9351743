"""`--host` of both commands, with real servers: on loopback without it, and for those who have the token with it."""

import http.client
import json
import os
import signal
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qs, urlsplit

import pytest

import epf

pytest.importorskip("typer")
from epf.cli.app import app

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs a second address of loopback, 127.0.0.2")
METHOD = ["--method", "sir", "--particles", "20"]


def ask(port, path, name=None, address="127.0.0.2", **headers):
    """The status and the body, as if asked for under this name."""
    connection = http.client.HTTPConnection(address, port, timeout=20)
    connection.request("GET", path, headers={"Host": f"{name or address}:{port}", **headers})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


def until(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "nothing came"
        time.sleep(0.05)
    return found


def printed(capsys):
    """The address that the command printed."""
    said = []

    def url():
        said.append(capsys.readouterr().err)
        return "".join(said).partition("The page is at ")[2].partition("\n")[0]

    return urlsplit(until(url))


def beside(check, end):
    """Check in another thread what a command serves, which runs in this one until `end`."""

    def checked():
        try:
            check()
        finally:
            end()

    return ThreadPoolExecutor(1).submit(checked)


def check_token(address, token):
    """Every way in needs the token of the printed address, and a name of this machine."""
    port, path = address.port, f"/posterior.json?{address.query}"
    assert parse_qs(address.query) == {"token": [token]}
    assert address.hostname == socket.gethostname().lower()  # 0.0.0.0 is of no use to others
    for refused in ("/", "/posterior.json", "/metrics", "/events", "/posterior.json?token=wrong"):
        assert ask(port, refused)[0] == 401, refused
    assert ask(port, path)[0] == ask(port, f"/?{address.query}")[0] == 200
    assert ask(port, "/metrics", Authorization=f"Bearer {token}")[0] == 200
    assert ask(port, path, socket.gethostname())[0] == 200
    assert ask(port, path, "evil.example")[0] == 421


def test_a_stream_for_others_needs_the_token(tmp_path, capsys, monkeypatch):
    token, rows = "of my own & with + and #", tmp_path / "y.csv"
    monkeypatch.setenv("EPF_WATCH_TOKEN", token)
    os.mkfifo(rows)
    source = os.open(rows, os.O_RDWR)  # so that neither end waits for the other

    def check():
        address = printed(capsys)
        check_token(address, token)
        os.write(source, b"y\n0.1\n0.2\n")
        until(lambda: json.loads(ask(address.port, f"/posterior.json?{address.query}")[1])["t"] == 2)

    done = beside(check, lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(SystemExit):
        app(["stream", "sin", str(rows), *METHOD, "--watch", "0", "--host", "0.0.0.0"])
    os.close(source)
    done.result()


def test_a_file_for_others_needs_a_token_that_is_made_up_and_without_host_there_are_no_others(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.delenv("EPF_WATCH_TOKEN", raising=False)
    stream, path = epf.Stream(epf.zoo.Sin(), epf.SIR(20)), tmp_path / "run.epf"
    stream.update(0.1)
    stream.save(path)

    def check_others():
        address = printed(capsys)
        (token,) = parse_qs(address.query)["token"]
        assert len(token) >= 16
        check_token(address, token)
        stream.update(0.2)  # it is followed while it runs
        stream.save(path)
        until(lambda: json.loads(ask(address.port, f"/posterior.json?{address.query}")[1])["t"] == 2)

    def check_nobody():
        address = printed(capsys)
        assert (address.hostname, address.query) == ("127.0.0.1", "")
        assert ask(address.port, "/posterior.json", address="127.0.0.1")[0] == 200
        with pytest.raises(ConnectionRefusedError):
            ask(address.port, "/posterior.json")

    # With --quiet too: nobody could know a token that was made up otherwise.
    for host, check in ((["--host", "0.0.0.0", "--quiet"], check_others), ([], check_nobody)):
        done = beside(check, lambda: os.kill(os.getpid(), signal.SIGTERM))
        with pytest.raises(SystemExit) as ended:
            app(["watch", str(path), "--port", "0", *host])
        done.result()
        assert not ended.value.code
