"""Each request has an id, which its answer and the log have; the log has no user's data."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from headrace.interfaces.server.logs import JsonLines, RequestLog, request_id
from headrace.interfaces.server.requests import shown

if TYPE_CHECKING:
    from pathlib import Path


def ask(app: Any, headers: list[tuple[bytes, bytes]], path: str = "/v1/x") -> list[Any]:
    scope = {"type": "http", "method": "GET", "path": path, "query_string": b"key=secret"}
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.disconnect"}

    asyncio.run(RequestLog(app)({**scope, "headers": headers, "client": ("::1", 5)}, receive, send))
    return sent


async def answering(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"a", b"b")]})
    await send({"type": "http.response.body", "body": request_id().encode()})


@pytest.mark.parametrize("given", [b"7f3c", b"a.b_c-D" * 9])
def test_a_plausible_id_of_a_client_is_kept(given: bytes):
    start, body = ask(answering, [(b"x-request-id", given)])
    assert start["headers"] == [(b"a", b"b"), (b"x-request-id", given)]
    assert body["body"] == given


def test_an_answer_that_was_passed_on_has_its_id_once():
    inner = RequestLog(answering)
    start, _ = ask(inner, [(b"x-request-id", b"7f3c")])
    assert start["headers"] == [(b"a", b"b"), (b"x-request-id", b"7f3c")]
    start, body = ask(inner, [])
    assert [name for name, _ in start["headers"]] == [b"a", b"x-request-id"]
    assert start["headers"][1][1] == body["body"]


@pytest.mark.parametrize("given", [b"", b"a b", b"x" * 65, b"\r\nSet-Cookie: a", "\u00e4".encode()])
def test_any_other_request_gets_an_id_of_its_own(given: bytes):
    ids = {ask(answering, [(b"x-request-id", given)])[1]["body"] for _ in range(2)}
    assert len(ids) == 2
    assert given not in ids


def test_the_log_has_a_line_for_a_request_but_not_its_query(caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, "headrace.requests")
    ask(answering, [(b"x-request-id", b"7f3c")], "/v1/\nforged")
    (record,) = caplog.records
    assert record.getMessage().startswith("GET /v1/\\nforged: 200 in ")
    line = JsonLines().format(record)
    found = json.loads(line)
    assert "\n" not in line
    assert "secret" not in line
    assert (found["level"], found["request"], found["status"]) == ("info", "7f3c", 200)
    assert (found["method"], found["path"], found["client"]) == ("GET", "/v1/\nforged", "::1")


def test_a_defect_is_logged_under_the_id_that_the_client_is_shown(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    hints: list[str] = []

    async def failing(_scope: Any, _receive: Any, send: Any) -> None:
        hints.append(shown(ValueError("why"), tmp_path).hint or "")
        await send({"type": "http.response.start", "status": 500})

    ask(failing, [(b"x-request-id", b"7f3c")])
    (record,) = caplog.records
    found = json.loads(JsonLines().format(record))
    assert "7f3c" in hints[0]
    assert found["request"] == "7f3c"
    assert "ValueError: why" in found["error"]
