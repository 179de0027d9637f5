"""A client whose server drops connections, is busy, restarts, or is none at all."""

from __future__ import annotations

import base64
import inspect
import ssl
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pytest

import headrace
from headrace.algebra.zset import WEIGHT
from headrace.errors import Code, HeadraceError
from headrace.execution.serving import OPERATION
from headrace.interfaces.remote.connection import Server, is_url
from headrace.interfaces.remote.subscription import read, written
from headrace.tools.cli.command import main
from remote.fake_server import Exchange, FakeServer
from servers.certificates import authority

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROWS = pa.table({"x": pa.array([1, None], pa.int32())})
CONTENTS = ROWS
DELTA = pa.table(
    {
        "x": pa.array([1, 5], pa.int32()),
        WEIGHT: pa.array([-1, 1], pa.int64()),
        OPERATION: ["-U", "+U"],
    }
)
RESULT = {
    "kind": "rows",
    "message": "",
    "epoch": 7,
    "token": "7",
    "freshness": {"epoch": 7, "committed_at": 1.5, "pending": 2, "dirty": ["v"], "frontier": 6},
}


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as running:
        yield running


@pytest.fixture
def db(server: FakeServer) -> Iterator[headrace.RemoteDatabase]:
    with headrace.connect(server.url) as database:
        yield database


def rows(exchange: Exchange) -> None:
    whole = written(ROWS)
    exchange.begin_events()
    for part in (whole[:100], whole[100:]):
        exchange.event("rows", base64.b64encode(part))
    exchange.event("result", RESULT)
    exchange.end_events()


def dropped(exchange: Exchange) -> None:
    exchange.begin_events()
    exchange.event("rows", base64.b64encode(written(ROWS)[:40]))
    exchange.drop()


def done(exchange: Exchange) -> None:
    exchange.done()


def arrow(table: pa.Table) -> str:
    return base64.b64encode(written(table)).decode()


def follow(exchange: Exchange, limit: int | None = None, start: int | None = None) -> None:
    exchange.begin_events()
    asked = {"sql": "SELECT x FROM t", "after": None, "snapshot": True}
    exchange.event("follow", {**asked, "limit": limit, "start": start})
    exchange.end_events()


def following(exchange: Exchange, token: str | None, sent: list[Any], *, drop: bool = True) -> None:
    """Send events of a subscription, then lose the connection."""
    exchange.begin_events()
    exchange.event("columns", {"token": token, "arrow": arrow(CONTENTS.slice(0, 0))})
    for kind, epoch, part, last, table in sent:
        data = {"epoch": epoch, "part": part, "last": last, "arrow": arrow(table)}
        exchange.event(kind, {**data, "token": f"{epoch}~4"} if last else data)
    if drop:
        exchange.drop()


def failure(call: Any) -> HeadraceError:
    with pytest.raises(HeadraceError) as raised:
        call()
    return raised.value


def test_a_result_is_made_of_its_events(server: FakeServer, db: headrace.RemoteDatabase):
    reports = []

    def with_progress(exchange: Exchange) -> None:
        exchange.begin_events()
        report = {"what": "reading", "done": 1, "total": None, "unit": "rows", "rejected": 0}
        exchange.event("progress", report)
        exchange.sock.sendall(b"b\r\n: running\n\n\r\n")
        exchange.event("rows", base64.b64encode(written(ROWS)))
        exchange.event("result", RESULT)
        exchange.end_events()

    server.play = [with_progress]
    result = db.sql("SELECT x FROM t", progress=reports.append)
    assert isinstance(result, headrace.Result)
    assert result.to_arrow() == ROWS
    assert result.freshness == headrace.Freshness(7, 1.5, 2, ("v",), 6)
    assert reports == [headrace.Progress("reading", 1, None, "rows")]


def test_a_query_whose_answer_is_cut_is_asked_again(
    server: FakeServer, db: headrace.RemoteDatabase
):
    server.play = [dropped, lambda exchange: exchange.drop(), rows]
    result = db.sql("SELECT x FROM t")
    assert isinstance(result, headrace.Result)
    assert result.to_arrow() == ROWS
    assert len(server.of("POST", "/v1/sql")) == 3
    server.play = [dropped, dropped, dropped]
    assert failure(lambda: db.sql("SELECT x FROM t")).code is Code.UNAVAILABLE


def test_a_change_whose_answer_is_cut_is_not_asked_again(
    server: FakeServer, db: headrace.RemoteDatabase
):
    for sql in ("INSERT INTO t VALUES (1)", "DELETE FROM t", "COPY t FROM 'f.csv'", "DROP TABLE t"):
        server.play, before = [dropped, done], len(server.asked)
        error = failure(lambda sql=sql: db.sql(sql))
        assert error.code is Code.UNAVAILABLE
        assert "may have taken effect" in (error.detail or "")
        assert sum(each.path == "/v1/sql" for each in server.asked[before:]) == 1
        server.play.clear()


def test_rows_are_sent_again_under_the_same_number(server: FakeServer, db: headrace.RemoteDatabase):
    def appended(exchange: Exchange) -> None:
        exchange.answer({"rows": 2, "token": "7"})

    server.play = [lambda exchange: exchange.drop(), appended, appended]
    assert db.insert("t", ROWS) == 2
    assert db.insert("t", ROWS) == 2
    sent = server.of("POST", "/v1/streams/t")
    first, again, other = [each.path for each in sent]
    assert first == again != other
    assert read([sent[0].body]) == ROWS == read([sent[1].body])
    assert "sequence=1&" in first
    assert "sequence=2&" in other
    assert "session=s1" in first


def test_pairs_are_sent_again_and_their_answer_has_its_freshness(
    server: FakeServer, db: headrace.RemoteDatabase
):
    pairs = pa.table({"x": pa.array([1, None], pa.int32()), "at": ["2026-03-01", None]})
    fresh = {"Headrace_Committed_At": "1.5", "Headrace_Pending": "2", "Headrace_Dirty": "a, b%2C"}

    def found(exchange: Exchange) -> None:
        exchange.answer(
            written(ROWS),
            kind="application/vnd.apache.arrow.stream",
            Headrace_Epoch="7",
            Headrace_Frontier="6",
            **fresh,
        )

    server.play = [lambda exchange: exchange.drop(), found]
    result = db.as_of(pairs, {"v": {"y": "z"}, "w": None}, time="at")
    assert result.to_arrow() == ROWS
    assert result.epoch == 7
    assert result.freshness == headrace.Freshness(7, 1.5, 2, ("a", "b,"), 6)
    first, again = server.of("POST", "/v1/as_of")
    assert first.path == again.path
    assert read([again.body]) == pairs
    asked = parse_qs(urlsplit(again.path).query)
    assert asked == {"view": ["`v`(`y` AS `z`)", "`w`"], "time": ["at"], "session": ["s1"]}
    server.play = [lambda exchange: exchange.answer({"ok": True})]
    assert failure(lambda: db.as_of(pairs, "v", time="at")).code is Code.INVALID


def test_a_busy_server_is_asked_again_when_it_says_unless_that_could_change_something_twice(
    server: FakeServer, db: headrace.RemoteDatabase
):
    def busy(exchange: Exchange) -> None:
        exchange.error(503, "unavailable", "the server had too much to do", Retry_After="0")

    server.play = [busy, rows]
    assert len(db.sql("SELECT x FROM t")) == 2
    server.play = [busy, done]
    error = failure(lambda: db.sql("INSERT INTO t VALUES (1)"))
    assert error.primary == "the server had too much to do"


def test_a_server_that_has_restarted_gets_a_new_session_with_the_settings(
    server: FakeServer, db: headrace.RemoteDatabase
):
    def gone(exchange: Exchange) -> None:
        exchange.error(410, "invalid", "this session does not exist")

    def set_again(exchange: Exchange) -> None:
        exchange.answer({"kind": "done"})

    server.play = [done, done, done, gone, set_again, done]
    db.sql("SET a = 1; SET b = 2; RESET b")
    db.sql("INSERT INTO t VALUES (1)")
    sent = [(each.json["sql"], each.json["session"]) for each in server.of("POST", "/v1/sql")][3:]
    assert sent == [
        ("INSERT INTO t VALUES (1)", "s1"),
        ("SET a = 1", "s2"),
        ("INSERT INTO t VALUES (1)", "s2"),
    ]


def test_errors_are_at_their_place_in_the_script(server: FakeServer, db: headrace.RemoteDatabase):
    def wrong(exchange: Exchange) -> None:
        span = {"text": exchange.asked.json["sql"], "start": 7, "end": 10, "file": None, "line": 1}
        error = {"code": "invalid", "primary": "no", "detail": None, "hint": "yes", "span": span}
        exchange.begin_events()
        exchange.event("error", {"error": error})
        exchange.end_events()

    server.play = [done, wrong]
    script = "DROP TABLE t;\nSELECT nme FROM t WHERE a = ? AND b = 2"
    error = failure(lambda: db.sql(script, ["it's"], file="f.sql"))
    assert error.span is not None
    assert (error.span.source, error.span.position, error.span.text) == ("nme", (2, 8), script)
    assert (
        server.of("POST", "/v1/sql")[1].json["sql"]
        == "SELECT nme FROM t WHERE a =  'it''s'  AND b = 2"
    )


def test_the_token_is_sent_and_is_shown_nowhere(server: FakeServer):
    with headrace.connect(server.url, token="hush") as db:  # noqa: S106
        assert server.asked[0].headers["authorization"] == "Bearer hush"
        assert "hush" not in repr(db) + repr(db._server)


@pytest.mark.parametrize(
    "play",
    [
        lambda exchange: exchange.answer(b"<html>", 200, "text/html"),
        lambda exchange: exchange.answer(b"<html>", 404, "text/html"),
        lambda exchange: exchange.answer({"error": "no"}, 404),
        lambda exchange: exchange.answer({"status": "ok"}),
    ],
)
def test_what_is_not_headrace_is_said_not_to_be(server: FakeServer, play: Any):
    server.catalog = play
    error = failure(lambda: headrace.connect(server.url))
    assert (error.code, "not a Headrace server" in error.primary) == (Code.INVALID, True)


def test_where_nobody_listens_is_said_with_the_address():
    error = failure(lambda: headrace.connect("http://127.0.0.1:1"))
    assert error.code is Code.UNAVAILABLE
    assert "http://127.0.0.1:1" in error.primary


@pytest.mark.parametrize(
    "url", ["http://", "http://h:x", "http://h/?q=1", "http://me:secret@h", "http://h:99999"]
)
def test_what_is_no_address_is_refused_without_its_password(url: str):
    error = failure(lambda: headrace.connect(url))
    assert error.code is Code.INVALID
    assert "secret" not in str(error)


def test_addresses_have_defaults_and_paths():
    assert Server.of("http://h").port == 8088
    assert Server.of("https://h/below/").prefix == "/below"
    assert Server.of("https://h").port == 443
    assert Server.of("http://[::1]:9").host == "::1"
    assert failure(lambda: Server.of("http://h", ca="x")).code is Code.INVALID
    assert failure(lambda: Server.of("https://h", ca="/nothing")).code is Code.INVALID
    assert not is_url("data")
    assert not is_url("s3://data")


def test_an_encrypted_connection_is_made_to_a_server_that_is_trusted(tmp_path: Path):
    trusted, key = authority(tmp_path, "mill")
    other, _ = authority(tmp_path, "other")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(key)
    with FakeServer(tls=context) as server:
        with headrace.connect(server.url, ca=trusted) as db:
            assert db.last_epoch() == 7
        for ca in (None, other):
            error = failure(lambda ca=ca: headrace.connect(server.url, ca=ca))
            assert (error.code, "is not trusted" in error.primary) == (Code.INVALID, True)
        plain = server.url.replace("https", "http")
        assert failure(lambda: headrace.connect(plain)).code is Code.UNAVAILABLE


def test_connecting_imports_nothing_of_an_open_database(server: FakeServer):
    code = (
        "import sys, headrace; headrace.connect(sys.argv[1]).close();"
        "print([m for m in sys.modules if m.startswith(('headrace.execution.engine.jobs.session', 'headrace.interfaces.database',"
        " 'headrace.interfaces.session', 'headrace.interfaces.server', 'starlette', 'pandas'))])"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, server.url], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]", found


def test_where_the_server_says_what_to_follow_it_is_asked_for_that(
    server: FakeServer, db: headrace.RemoteDatabase
):
    server.play = [follow, lambda exchange: following(exchange, None, [])]
    subscription = db.sql("PRINT 'topic'")
    assert isinstance(subscription, headrace.Subscription)
    assert (subscription.columns, subscription.epoch) == (("x",), 0)
    assert "sql=SELECT+x+FROM+t&snapshot=true" in server.asked[-1].path
    assert "rows=arrow" in server.asked[-1].headers["accept"]
    subscription.close()


def test_a_subscription_goes_on_after_lost_connections_without_gap_or_repetition(
    server: FakeServer, db: headrace.RemoteDatabase
):
    """Once in the middle of the snapshot, once between epochs, once in the middle of an epoch."""
    first, second = CONTENTS.slice(0, 1), CONTENTS.slice(1)
    server.play = [
        follow,
        lambda exchange: following(exchange, None, [("snapshot", 7, 0, False, first)]),
        lambda exchange: following(
            exchange,
            None,
            [("snapshot", 8, 0, False, first), ("snapshot", 8, 1, True, second)],
        ),
        lambda exchange: exchange.error(503, "unavailable", "it starts", Retry_After="0"),
        lambda exchange: following(
            exchange, "8~4", [("changes", 9, 0, True, DELTA), ("changes", 10, 0, False, DELTA)]
        ),
        lambda exchange: following(exchange, "9~4", [("changes", 10, 0, True, DELTA)]),
        lambda exchange: exchange.error(409, "conflict", "it was dropped"),
    ]
    subscription = db.subscribe("SELECT x FROM t")
    taken: list[headrace.Change] = []
    with pytest.raises(HeadraceError, match="it was dropped") as raised:
        taken.extend(subscription)
    assert raised.value.code is Code.CONFLICT
    shown = [(change.epoch, change.operation, change.weight, change.row["x"]) for change in taken]
    delta = [("-U", -1, 1), ("+U", 1, 5)]
    assert shown == [
        (8, "+I", 1, 1),
        (8, "+I", 1, None),
        *[(epoch, *each) for epoch in (9, 10) for each in delta],
    ]
    assert subscription.epoch == 10
    tokens = [each.path.partition("after=")[2] for each in server.of("GET", "/v1/subscribe")]
    assert tokens == ["", "", "8~4", "8~4", "9~4", "10~4"]


def test_the_limit_of_a_push_query_is_kept_and_closing_ends_the_connection(
    server: FakeServer, db: headrace.RemoteDatabase
):
    ended = threading.Event()

    def waits(exchange: Exchange) -> None:
        following(exchange, None, [("snapshot", 7, 0, True, CONTENTS)], drop=False)
        assert exchange.sock.recv(1) == b""
        ended.set()

    server.play = [lambda exchange: follow(exchange, limit=1), waits]
    subscription = db.sql("SELECT x FROM t EMIT CHANGES LIMIT 1")
    assert [change.row for change in subscription] == [{"x": 1}]
    assert ended.wait(20)
    assert not subscription.is_open


def test_what_cannot_be_followed_is_an_error_where_it_was_asked_for(
    server: FakeServer, db: headrace.RemoteDatabase
):
    def wrong(exchange: Exchange) -> None:
        span = {"text": "SELECT x FROM t", "start": 14, "end": 15, "file": None, "line": 1}
        error = {"code": "invalid", "primary": "no", "detail": None, "hint": None, "span": span}
        exchange.answer({"error": error}, 400)

    server.play = [lambda exchange: follow(exchange, start=13), wrong]
    script = "\n  SUBSCRIBE TO (SELECT x FROM t)"
    error = failure(lambda: db.sql(script))
    assert error.span is not None
    assert (error.span.text, error.span.start) == (script, 3 + 13 + 14)


def test_the_command_works_on_a_server_with_the_token_of_a_file_or_the_environment(
    server: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
):
    (tmp_path / "token").write_text("from a file\n")
    asked = ["--format", "csv", "-c", "SELECT x FROM t"]
    server.play = [rows, rows]
    assert main(["--url", server.url, "--token-file", str(tmp_path / "token"), "sql", *asked]) == 0
    assert server.asked[-2].headers["authorization"] == "Bearer from a file"
    monkeypatch.setenv("HEADRACE_URL", server.url)
    monkeypatch.setenv("HEADRACE_TOKEN", "from the environment")
    assert main(["sql", *asked]) == 0
    assert server.asked[-2].headers["authorization"] == "Bearer from the environment"
    assert capsys.readouterr().out == "x\r\n1\r\n\r\n" * 2
    (tmp_path / "token").write_text("")
    for wrong in (["--token-file", str(tmp_path / "token")], ["--functions", __file__]):
        assert main(["sql", "--url", server.url, *wrong, *asked]) == 1
    assert "is empty" in (said := capsys.readouterr().err)
    assert "--functions with --url is not supported" in said


@pytest.mark.parametrize(
    ("embedded", "remote", "own"),
    [
        (headrace.Database, headrace.RemoteDatabase, {"compact", "lost"}),
        (
            headrace.Session,
            headrace.RemoteSession,
            {"at_most_behind", "last_sequence", "pushed", "require", "run", "wait_for", "written"},
        ),
    ],
)
def test_a_remote_object_has_the_methods_of_an_embedded_one(embedded: Any, remote: Any, own: Any):
    """All but ``own``, which work on what is open in this process; with the same parameters."""

    def public(of: Any) -> dict[str, Any]:
        return {
            name: each for name, each in inspect.getmembers_static(of) if not name.startswith("_")
        }

    assert public(embedded).keys() - own == public(remote).keys()
    for name, each in public(remote).items():
        if callable(each) and name not in ("register", "session"):
            there, here = (inspect.signature(public(of)[name]) for of in (embedded, remote))
            assert list(there.parameters.values()) == [
                p.replace(annotation=there.parameters[p.name].annotation)
                for p in here.parameters.values()
            ]
