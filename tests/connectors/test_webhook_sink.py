"""Changes sent to an HTTP server: what it gets, refuses, and puts off, and what is told of it."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from connectors.sink_histories import POISON, Histories, Row, begun, context, prove, row, table
from headrace.errors import Code, HeadraceError, masked
from headrace.execution.runtime.deliveries import DeliverySettings
from headrace.io.connectors.options import Given, read_options
from headrace.io.connectors.webhook import BodyFormat, Method, Options, WebhookSink, opened
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NEW: Row = (1, "a", None, datetime(2026, 1, 1, tzinfo=UTC), True)


@dataclass
class Receiver:
    """A server that keeps the rows of the changes that it takes; ``answer`` says which it does."""

    url: str = ""
    taken: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    asked: int = 0
    answer: Callable[[bytes], tuple[int, dict[str, str]]] = lambda _body: (200, {})

    def receive(self, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str]]:
        """Take what a request says, unless the answer is another."""
        self.asked += 1
        status, more = self.answer(body)
        if status == 200:
            self.taken.append((headers, body))
        return status, more

    @property
    def changes(self) -> list[tuple[dict[str, str], dict[str, Any]]]:
        """The changes taken, in order, each with the headers of its request."""
        return [(head, change) for head, body in self.taken for change in changes(head, body)]

    @property
    def rows(self) -> dict[int, Row]:
        """The rows by key, after the changes taken."""
        found = {}
        for _, change in self.changes:
            if change["op"] in ("+I", "+U"):
                found[change["row"]["id"]] = of_json(change["row"])
            elif change["op"] == "-D":
                found.pop(change["row"]["id"], None)
        return found


def changes(headers: dict[str, str], body: bytes) -> list[dict[str, Any]]:
    if headers["content-type"] == "application/x-ndjson":
        return [json.loads(line) for line in body.decode().splitlines()]
    found: list[dict[str, Any]] = json.loads(body)["changes"]
    return found


def of_json(values: dict[str, Any]) -> Row:
    amount = values["amount"]
    at = datetime.fromisoformat(values["at"])
    return (
        values["id"],
        values["name"],
        None if amount is None else Decimal(amount),
        at,
        values["ok"],
    )


@contextmanager
def receiving(port: int = 0) -> Iterator[Receiver]:
    """Run a server on the loopback."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            named = {name.lower(): value for name, value in self.headers.items()}
            status, more = receiver.receive(named, body)
            said = b"" if status == 200 else b"no: the-password"
            self.send_response(status)
            for name, value in {**more, "Content-Length": str(len(said))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(said)

        do_PUT = do_POST  # noqa: N815 - the name that the library calls

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
        server.daemon_threads = True
        receiver.url = f"http://127.0.0.1:{server.server_port}/changes"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as running:
        yield running


def sink(receiver: Receiver, directory: Path, **options: Any) -> WebhookSink:
    secrets = {"token": "the-password", "sign": "whsec_" + base64.b64encode(b"key").decode()}
    return opened(Options(url=receiver.url, **options), context(directory, secrets))


@pytest.mark.parametrize("form", BodyFormat)
def test_a_server_that_keeps_rows_by_key_has_the_view(receiver, tmp_path, form) -> None:
    def poisoned(body: bytes) -> tuple[int, dict[str, str]]:
        return (422 if POISON.encode() in body else 200), {}

    receiver.answer = poisoned
    outlived = prove(
        lambda: sink(receiver, tmp_path, format=form, rows=3),
        lambda: Counter(receiver.rows.values()),
    )
    assert not outlived.refused


def test_a_request_is_cut_to_the_changes_that_the_server_refuses(receiver, tmp_path) -> None:
    receiver.answer = lambda body: (413 if len(body) > 600 or b"poison" in body else 200, {})
    rows = [((id_, "poison" if id_ in (3, 17) else "a", *NEW[2:]), 1) for id_ in range(20)]
    refused = sink(receiver, tmp_path).write(Epoch(5), [table(rows)])
    assert [json.loads(each.row)["row"]["id"] for each in refused] == [3, 17]
    assert {each.why for each in refused} == {"413: no: the-password"}  # no secret is in use
    assert sorted(receiver.rows) == [id_ for id_ in range(20) if id_ not in (3, 17)]


def test_an_update_is_never_cut_in_two(receiver, tmp_path) -> None:
    rows = [((id_, name, *NEW[2:]), w) for id_ in range(5) for name, w in (("a", -1), ("b", 1))]
    sink(receiver, tmp_path, rows=2).write(Epoch(5), [table(rows)])
    ops = [[change["op"] for change in changes(*each)] for each in receiver.taken]
    assert ops == [["-U", "+U", "-U", "+U"], ["-U", "+U", "-U", "+U"], ["-U", "+U"]]


def test_a_request_that_comes_again_has_the_same_key(receiver, tmp_path) -> None:
    parts = [table([(NEW, 1)]), table([((2, *NEW[1:]), 1)])]
    for _ in range(2):
        sink(receiver, tmp_path).write(Epoch(5), parts)
    sink(receiver, tmp_path).write(Epoch(6), parts[:1])
    keys = [headers["idempotency-key"] for headers, _ in receiver.taken]
    assert keys[:2] == keys[2:4]
    assert len(set(keys)) == 3


def test_secrets_are_sent_signed_with_and_never_shown(receiver, tmp_path) -> None:
    writer = sink(
        receiver,
        tmp_path,
        authorization="token",
        api_key="token",
        signing="sign",
        headers=(("header.x-tenant", "7"),),
        method=Method.PUT,
    )
    writer.write(Epoch(5), [table([(NEW, 1)])])
    ((headers, body),) = receiver.taken
    assert headers["authorization"] == headers["x-api-key"] == "the-password"
    assert headers["x-tenant"] == "7"
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    digest = hmac.new(b"key", signed, hashlib.sha256).digest()
    assert headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
    receiver.answer = lambda _body: (401, {})
    with pytest.raises(HeadraceError, match="does not take changes") as caught:
        writer.write(Epoch(6), [table([(NEW, 1)])])
    assert caught.value.code is Code.INVALID
    assert caught.value.detail == "It says: 401: no: ***."
    assert "secret" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("status", "code"), [(503, "UNAVAILABLE"), (404, "INVALID"), (302, "INVALID")]
)
def test_other_answers_are_failures_of_the_sink(receiver, tmp_path, status, code) -> None:
    receiver.answer = lambda _body: (status, {"Location": "http://127.0.0.1/"})
    with pytest.raises(HeadraceError, match="does not take changes") as caught:
        sink(receiver, tmp_path).write(Epoch(5), [table([(NEW, 1)])])
    assert caught.value.code is Code[code]
    assert receiver.asked == 1


@pytest.mark.parametrize(
    ("options", "secret", "said"),
    [
        ({"authorization": "token"}, "two\nlines", "header cannot be sent"),
        ({"api_key": "token"}, "\u20ac", "header cannot be sent"),
        ({"signing": "token"}, "whsec_*", "has to be base64"),
    ],
)
def test_secrets_that_cannot_be_used_are_said_and_not_shown(
    receiver, tmp_path, options, secret, said
) -> None:
    given = Options(url=receiver.url, **options)
    writer = opened(given, context(tmp_path, {"token": secret}))
    with pytest.raises(HeadraceError) as caught:
        writer.write(Epoch(5), [table([(NEW, 1)])])
    assert caught.value.code is Code.INVALID
    assert said in (caught.value.detail or "")
    assert secret not in str(caught.value)
    assert receiver.asked == 0


def test_a_server_that_does_not_speak_tls_is_no_https_server(receiver, tmp_path) -> None:
    given = Options(url=receiver.url.replace("http:", "https:"))
    with pytest.raises(HeadraceError) as caught:
        opened(given, context(tmp_path)).write(Epoch(5), [table([(NEW, 1)])])
    assert caught.value.code is Code.INVALID
    assert "ssl.ca.location" in (caught.value.hint or "")


@pytest.mark.parametrize("wait", ["600", "Wed, 21 Oct 2099 07:28:00 GMT"])
def test_a_server_that_wants_to_be_asked_later_is(receiver, tmp_path, wait) -> None:
    receiver.answer = lambda _body: (429, {"Retry-After": wait})
    writer = sink(receiver, tmp_path)
    for _ in range(3):
        with pytest.raises(HeadraceError) as caught:
            writer.write(Epoch(5), [table([(NEW, 1)])])
    assert receiver.asked == 1
    assert "It asked for the next attempt to be in" in (caught.value.detail or "")
    receiver.answer = lambda _body: (429, {"Retry-After": "soon"})
    again = sink(receiver, tmp_path)
    for _ in range(2):
        with pytest.raises(HeadraceError):
            again.write(Epoch(5), [table([(NEW, 1)])])
    assert receiver.asked == 3


def test_a_server_that_stops_is_caught_up_with_in_order(tmp_path) -> None:
    random_, histories = Random(3), Histories()
    histories.change({id_: row(random_, id_) for id_ in range(5)})
    with receiving() as first:
        port = int(first.url.rpartition(":")[2].partition("/")[0])
        delivery = begun(histories).delivery(
            sink(first, tmp_path, timeout=5.0), DeliverySettings(part_rows=4)
        )
        delivery.advance()
        delivery.writer.close()  # as a server that ends does
    for number in range(5):
        histories.change({number: row(random_, number)})
    with pytest.raises(HeadraceError) as caught:
        delivery.advance()
    assert caught.value.code is Code.UNAVAILABLE
    with receiving(port) as second:
        second.taken += first.taken
        delivery.advance()
        assert Counter(second.rows.values()) == histories.at(histories.last)
        epochs = [json.loads(body)["epoch"] for _, body in second.taken]
        assert epochs == [1, 1, 1, 2, 3, 4, 5, 6]
        delivery.close()


@pytest.mark.parametrize("url", ["ftp://x", "orders", "https://ann:secret@example.com/"])
def test_other_urls_are_refused(url) -> None:
    with pytest.raises(HeadraceError) as caught:
        read_options(Options, [Given("url", url)], "a webhook sink")
    assert caught.value.code is Code.INVALID
    assert "secret@" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"header.Authorization": "Bearer of-mine"}, "authorization = SECRET name"),
        ({"header.X-Api-Key": "of-mine"}, "'api.key.header' = 'x-api-key'"),
        ({"header.Cookie": "session=of-mine"}, "api.key = SECRET name"),
        ({"url": "https://example.com/in?access_token=of-mine"}, "Leave it out"),
        ({"url": "https://example.com/in?a=1&key=of-mine"}, "Leave it out"),
    ],
)
def test_secrets_that_would_be_shown_are_refused(given: dict[str, str], hint: str) -> None:
    options = {"url": "https://example.com/in?page=1", "header.X-Tenant": "7", **given}
    with pytest.raises(HeadraceError) as caught:
        read_options(Options, [Given(*each) for each in options.items()], "a webhook sink")
    assert caught.value.code is Code.INVALID
    assert hint in (caught.value.hint or "")
    assert "of-mine" not in str(caught.value)
    written = "CREATE SINK s WITH ('header.Authorization' = 'of-mine', authorization = 'of-mine')"
    assert "of-mine" not in masked(written)
