"""The server tells its readers everything, asks nothing of the writer, and serves nobody whom it should not."""

import base64
import hashlib
import http.client
import json
import re
import socket
import time
from importlib.resources import files
from threading import Thread

import numpy as np
import pytest

from epf.errors import SettingError
from epf.run.watch import _server
from epf.run.watch._board import Board, Seen, news
from epf.run.watch._server import Server
from epf.run.watch._track import Layout, Track

LABEL = '<script>alert("a\\b")</script>'
LAYOUT = Layout.of((LABEL,), 1, 1)


def numbers(t):
    one = {"label": LABEL, "mean": 0.5, "sd": None, "quantiles": {}, "error_of_mean": 0.1, "error_of_sd": 0.2}
    verdict = {"word": "good", "level": 0, "reasons": [[0, "Fine."]]}
    return {"t": t, "model": "M", "method": "EPF", "parameters": [one], "verdict": verdict, "ess": 20.0, "live": True}


def longer(track, count):
    first = int(track.times[-1, 1]) + 1 if len(track.times) else 1
    t = np.arange(first, first + count)
    values = np.random.default_rng(first).normal(size=(count, len(LAYOUT.columns)))
    return track.after(t, 1.0 * t, values)


@pytest.fixture
def board():
    return Board(numbers(0))


@pytest.fixture
def server(board):
    server = Server(board, 0, "127.0.0.1", None)
    yield server
    server.stop()


def ask(server, path, method="GET", host="127.0.0.1", **headers):
    connection = http.client.HTTPConnection(host, server.server_port, timeout=10)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    body = answer.read() if path.split("?")[0] != "/events" or answer.status != 200 else b""
    connection.close()
    return answer, body.decode()


class Reader:
    """What a browser does: it listens, and keeps the track."""

    def __init__(self, server, token=""):
        self.connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=10)
        self.connection.request("GET", f"/events{token}")
        self.answer = self.connection.getresponse()
        self.times, self.rows, self.columns, self.sizes = np.zeros((0, 3)), None, None, []

    def next(self):
        while not (line := self.answer.readline()).startswith(b'data: {"now"'):
            assert line, "the server hung up"
        self.sizes.append(len(line))
        message = json.loads(line[6:])
        if "track" in message:
            part = message["track"]
            self.columns = part.get("columns", self.columns)
            times = np.frombuffer(base64.b64decode(part["times"])).reshape(-1, 3)
            rows = np.frombuffer(base64.b64decode(part["rows"])).reshape(len(times), 3, -1)
            self.times = np.concatenate([self.times[: part["first"]], times])
            self.rows = rows if part["first"] == 0 else np.concatenate([self.rows[: part["first"]], rows])
        return message["now"]

    def until(self, t):
        while self.next()["t"] < t:
            pass

    def close(self):
        self.connection.close()
        self.answer.close()


def test_ten_readers_get_the_whole_track_and_then_what_is_new(board, server):
    track = longer(Track.empty(LAYOUT), 300)
    board.post(numbers(300), track)
    readers = [Reader(server) for _ in range(10)]
    for reader in readers:
        reader.until(300)
    for _ in range(30):
        track = longer(track, 7)  # past 400 steps neighbours are joined
        board.post(numbers(int(track.times[-1, 1])), track)
        time.sleep(0.005)
    for reader in [*readers, Reader(server)]:
        reader.until(510)
        np.testing.assert_array_equal(reader.times, track.times)
        np.testing.assert_array_equal(reader.rows, track.rows)
        assert tuple(reader.columns) == LAYOUT.columns
        reader.close()
    assert min(readers[0].sizes) < max(readers[0].sizes) / 10  # news are small


def test_a_reader_that_takes_nothing_holds_nobody_up(board, server):
    idle = socket.create_connection(("127.0.0.1", server.server_port))
    idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    idle.sendall(f"GET /events HTTP/1.0\r\nHost: 127.0.0.1:{server.server_port}\r\n\r\n".encode())
    track = longer(Track.empty(LAYOUT), 3000)
    other = Reader(server)
    for t in range(1, 200):
        board.post(numbers(t), track._replace(joined=t))  # all of the track each time: far more than a socket holds
    other.until(199)  # or time is out
    assert len(other.rows) == len(track.rows)
    other.close()
    idle.close()


def test_readers_that_leave_are_forgotten(board, server):
    reader = Reader(server)
    reader.next()
    assert board.readers == 1
    reader.close()
    for t in range(100):
        board.post(numbers(t), None)
        time.sleep(0.02)
        if board.readers == 0:
            return
    pytest.fail("the reader is still there")


def test_readers_are_told_when_the_last_update_was_also_while_no_post_is_due(board, server, monkeypatch):
    monkeypatch.setattr(_server, "_PULSE", 0.05)
    reader = Reader(server)
    reader.next()
    for updated in (None, 1234.5):
        monkeypatch.setattr(board, "updated", lambda updated=updated: updated)
        for _ in range(20):
            line = reader.answer.readline()
            if line.startswith(b"data: ") and (pulse := json.loads(line[6:]))["updated"] == updated:
                assert abs(pulse["clock"] - time.time()) < 60.0
                break
        else:
            pytest.fail("no pulse came")
    reader.close()


def test_a_reader_that_missed_news_gets_them_later():
    track = longer(Track.empty(LAYOUT), 100)
    board = Board(numbers(0))
    board.post(numbers(100), track)
    _, seen = news(board.view, Seen())
    for _ in range(5):
        track = longer(track, 10)
        board.post(numbers(0), track)
    message, seen = news(board.view, seen)
    assert json.loads(message)["track"]["first"] == 99
    assert seen.buckets == 150
    other = track._replace(layout=LAYOUT._replace(states=0))
    board.post(numbers(0), other)
    assert json.loads(news(board.view, seen)[0])["track"]["first"] == 0


def test_a_late_value_costs_a_reader_few_buckets():
    """Only buckets from the amended one on are told again; after too many amendments, all."""
    track = longer(Track.empty(LAYOUT), 100)
    board = Board(numbers(100))
    board.post(numbers(100), track)
    _, seen = news(board.view, Seen())
    late = np.full(len(LAYOUT.columns), np.nan)
    track = longer(track, 10).amended(90, late + 1.0).amended(95, late + 2.0)
    board.post(numbers(110), track)
    message, seen = news(board.view, seen)
    assert json.loads(message)["track"]["first"] == 89  # step 90
    board.post(numbers(110), longer(track, 5))
    message, seen = news(board.view, seen)
    assert json.loads(message)["track"]["first"] == 109
    for t in range(20, 90):
        track = track.amended(t, late)
    board.post(numbers(110), track)
    assert json.loads(news(board.view, seen)[0])["track"]["first"] == 0


def test_programs_get_numbers(board, server):
    board.post(numbers(7), None)
    answer, body = ask(server, "/posterior.json")
    assert answer.headers["Content-Type"] == "application/json"
    assert json.loads(body) == numbers(7)
    answer, body = ask(server, "/metrics")
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    lines = body.splitlines()
    assert "epf_observations_total 7" in lines
    assert "epf_verdict 0" in lines
    assert 'epf_parameter_mean{parameter="<script>alert(\\"a\\\\b\\")</script>"} 0.5' in lines
    assert not any(line.startswith("epf_parameter_sd") for line in lines)  # not known
    for line in lines:
        assert line.startswith(("# HELP epf_", "# TYPE epf_", "epf_"))
    assert len(lines) == len(set(lines))


def test_it_only_reads_and_says_so(server):
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        answer, _ = ask(server, "/posterior.json", method)
        assert answer.status == 405
        assert answer.headers["Allow"] == "GET, HEAD"
    for path in ("/", "/posterior.json", "/metrics", "/events", "/static/app.js"):
        answer, body = ask(server, path, "HEAD")
        assert (answer.status, body) == (200, "")
    for path in ("/static/../_server.py", "/static/", "/etc/passwd", "/static/%2e%2e/_server.py"):
        assert ask(server, path)[0].status == 404


def test_the_page_may_run_its_own_code_only_and_nobody_else_may_read_it(server):
    for path in ("/", "/posterior.json", "/static/app.js", "/none"):
        answer, _ = ask(server, path, Origin="http://example.org")
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert "*" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    page = ask(server, "/")[1]
    assert "://" not in page
    assert "onload=" not in page
    assert "<style" not in page
    assert page.count("<script") == page.count("<script src=")


def test_it_answers_to_its_own_name_only(server):
    port = server.server_port
    for name in (f"127.0.0.1:{port}", f"localhost:{port}", f"LOCALHOST:{port}", f"[::1]:{port}"):
        assert ask(server, "/posterior.json", Host=name)[0].status == 200, name
    for name in (f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", "127.0.0.1:1", "127.0.0.1", f"10.0.0.1:{port}",
                 f"a@127.0.0.1:{port}", f"127.0.0.1:{port}/x", "", "[", f"127.0.0.1:{port}0"):  # fmt: skip
        answer, body = ask(server, "/posterior.json", Host=name)
        assert answer.status == 421, name
        assert LABEL not in body


def test_others_need_the_token(board):
    server = Server(board, 0, "0.0.0.0", None)
    try:
        assert len(server.token) >= 16
        assert server.url.endswith(f"/?token={server.token}")
        for path in ("/", "/posterior.json", "/metrics", "/events", "/posterior.json?token=", "/metrics?token=wrong"):
            answer, body = ask(server, path)
            assert answer.status == 401
            assert LABEL not in body
        for path in ("/", "/posterior.json", "/metrics"):
            assert ask(server, f"{path}?token={server.token}")[0].status == 200
        assert ask(server, "/metrics", Authorization=f"Bearer {server.token}")[0].status == 200
        assert ask(server, "/metrics", Authorization="Bearer \xe9")[0].status == 401
        reader = Reader(server, f"?token={server.token}")
        assert reader.next()["t"] == 0
        reader.close()
        named = f"?token={server.token}"
        assert ask(server, f"/metrics{named}", Host=f"192.168.1.7:{server.server_port}")[0].status == 200
        assert ask(server, f"/metrics{named}", Host=f"evil.example:{server.server_port}")[0].status == 421
    finally:
        server.stop()
    own = Server(board, 0, "127.0.0.1", "a token of my own")  # also on this machine, if one wants
    try:
        assert ask(own, "/metrics")[0].status == 401
        assert ask(own, "/metrics?token=a%20token%20of%20my%20own")[0].status == 200
    finally:
        own.stop()


def test_what_cannot_be_served_is_said_in_one_sentence(board, server):
    with pytest.raises(SettingError, match="choose another port"):
        Server(board, server.server_port, "127.0.0.1", None)
    with pytest.raises(SettingError, match="to 65535"):
        Server(board, 70000, "127.0.0.1", None)
    with pytest.raises(SettingError, match="16 printable"):
        Server(board, 0, "0.0.0.0", "short")
    with pytest.raises(SettingError, match="cannot be served at no such host"):
        Server(board, 0, "no such host", None)
    with pytest.raises(SettingError, match="address of this machine"):
        Server(board, 0, None, None)


def test_the_plotting_library_is_the_published_one():
    folder = files("epf.run.watch") / "static"
    listed = re.findall(r"^([0-9a-f]{64})  (\S+)", (folder / "PROVENANCE.txt").read_text(), re.MULTILINE)
    assert {name for _, name in listed} == {path.name for path in folder.iterdir() if "uPlot" in path.name}
    for digest, name in listed:
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest


def test_too_many_readers_are_turned_away(board, server):
    readers = [Reader(server) for _ in range(64)]
    for reader in readers:
        reader.next()
    assert ask(server, "/metrics")[0].status == 503
    closing = Thread(target=lambda: [reader.close() for reader in readers])
    closing.start()
    closing.join()
