"""Calls of clients on the threads of a server: what those get that run when the server closes."""

from __future__ import annotations

import asyncio
import gc
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.errors import Code, HeadraceError
from headrace.interfaces.server.limits import Limits
from headrace.interfaces.server.running import Runner


async def connected() -> dict[str, str]:
    """A client that stays."""
    await asyncio.Event().wait()
    return {}


def cancelled() -> None:
    raise HeadraceError(Code.CANCELLED, "the statement was cancelled")


@pytest.mark.parametrize("calls", [1, 2])
def test_a_statement_that_a_closing_server_ends_may_be_tried_elsewhere(calls: int) -> None:
    runner, closing, session = Runner(Limits(statements=1)), threading.Event(), SimpleNamespace()

    def runs() -> None:
        assert closing.wait(30)
        cancelled()

    async def asked() -> list[Any]:
        begun = [asyncio.create_task(runner.run(session, runs, connected)) for _ in range(calls)]
        await asyncio.sleep(0)
        assert runner.running == calls
        runner.close()
        closing.set()
        return await asyncio.gather(*begun, return_exceptions=True)

    for error in asyncio.run(asked()):
        assert isinstance(error, HeadraceError)
        assert (error.code, error.primary) == (Code.UNAVAILABLE, "the server was stopping")


def test_a_statement_that_is_cancelled_while_the_server_goes_on_says_so() -> None:
    runner = Runner(Limits(statements=1))
    with pytest.raises(HeadraceError, match="was cancelled"):
        asyncio.run(runner.run(SimpleNamespace(), cancelled, connected))  # type: ignore[arg-type]
    runner.close()


def test_the_error_of_a_call_that_nobody_waits_for_is_not_logged() -> None:
    runner, unheard = Runner(Limits(statements=1)), []
    ended, begun = threading.Event(), threading.Event()

    def runs() -> None:
        begun.set()
        assert ended.wait(30)
        cancelled()

    async def asked() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: unheard.append(context["message"]))
        session = SimpleNamespace(cancel=lambda: None)
        waiting = asyncio.create_task(runner.run(session, runs, connected))
        await asyncio.to_thread(begun.wait, 30)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        del waiting
        ended.set()
        await asyncio.to_thread(runner._threads.shutdown)
        await asyncio.sleep(0)
        gc.collect()

    asyncio.run(asked())
    runner.close()
    assert unheard == []
