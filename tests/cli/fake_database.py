"""A database that answers from a script of its own, with the results and errors of the real one."""

from __future__ import annotations

import threading
from dataclasses import fields
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from headrace.errors import Code, HeadraceError
from headrace.execution.serving import Change
from headrace.interfaces.session import Progress, Result, Subscription
from headrace.interfaces.session.parts import DatabaseParts
from headrace.planning.sql import split
from headrace.types import Epoch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

TOTALS = pa.table({"user": ["ann", None], "total": pa.array([30, 4], pa.int64())})
CHANGES = [
    [Change(1, "+I", 1, {"user": "ann", "total": 30})],
    [
        Change(2, "-U", -1, {"user": "ann", "total": 30}),
        Change(2, "+U", 1, {"user": "ann", "total": 1_000_000}),
        Change(2, "+I", 2, {"user": None, "total": 4}),
    ],
]


class FakeSubscription(Subscription):
    """Delivers epochs one poll at a time; then ``at_end`` is called at each poll."""

    columns = ("user", "total")
    epoch = Epoch(0)

    def __init__(self, epochs: Sequence[list[Change]], at_end: Callable[[], None]) -> None:
        super().__init__(None)
        self._epochs = list(epochs)
        self._at_end = at_end
        self.closed = False

    def _next(self, timeout: float) -> list[Change] | None:
        del timeout
        if self._epochs:
            return self._epochs.pop(0)
        self._at_end()
        return None

    def _release(self) -> None:
        self.closed = True


class FakeDatabase:
    """Knows a few words as statements; anything else is done and said to be done."""

    directory = "mill"
    parts = DatabaseParts(
        **{each.name: SimpleNamespace() for each in fields(DatabaseParts)}
        | {
            "access": SimpleNamespace(is_required=False),
            "reader": SimpleNamespace(
                published=SimpleNamespace(epoch=0), ledger=SimpleNamespace(spans=None)
            ),
        }
    )
    origin = ("data directory", directory)
    lost = None

    def __init__(self, at_end: Callable[[], None] = lambda: None) -> None:
        self.ran: list[str] = []
        self.closed = False
        self.ticks = 0
        self.answer = TOTALS
        self.verdicts = [("totals", 2, 0, "equal to batch")]
        self.at_end = at_end
        self.waiting = threading.Event()
        self.subscription: FakeSubscription | None = None
        self._cancelled = threading.Event()

    def results(
        self,
        text: str,
        *,
        file: str | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> Iterator[Any]:
        for source in split(text, file):
            self.ran.append(source.sql)
            yield self._run(source, progress)

    def sql(self, text: str, *, progress: Callable[[Progress], None] | None = None) -> Any:
        (result,) = self.results(text, progress=progress)
        return result

    def _run(self, source: Any, progress: Callable[[Progress], None] | None) -> Any:
        match source.sql.split()[0].upper():
            case "SELECT":
                return Result(self.answer, 7)
            case "VERIFY":
                names = ["view", "rows", "differences", "verdict"]
                columns = [pa.array([v[i] for v in self.verdicts]) for i in range(len(names))]
                return Result(pa.Table.from_arrays(columns, names), 7)
            case "BAD":
                raise HeadraceError(
                    Code.INVALID, "it is bad", hint="Make it good.", span=source.span
                )
            case "BUG":
                raise ZeroDivisionError("of nobody's making")
            case "WAIT":
                self._cancelled.clear()
                if progress is not None:
                    progress(Progress("waiting for Ctrl-C", 0, None, "rows"))
                self.waiting.set()
                self._cancelled.wait(60)
                raise HeadraceError(Code.CANCELLED, "the statement was cancelled")
            case "LONG":
                return Result(pa.table({"n": pa.array(range(200))}), 7)
            case "WIDE":
                return Result(pa.table({f"column{i}": ["x" * 60] for i in range(4)}), 7)
            case "TICK":
                self.ticks += 1
                return Result(pa.table({"ticks": [f"tick {self.ticks}"]}), 7)
            case "SAY":
                return Result(None, 7, f"said: {source.sql}")
            case "LOAD":
                if progress is not None:
                    progress(Progress("copying a.csv", 512, 2048, "bytes", 3))
                return Result(None, 7, "9 rows copied")
            case "SUBSCRIBE":
                self.subscription = FakeSubscription(CHANGES, self.at_end)
                return self.subscription
            case word:
                return Result(None, 7, f"{word.lower()} is done")

    def functions(self) -> list[str]:
        return ["grade"]

    def relations(self) -> list[tuple[str, str]]:
        return [("stream", "readings"), ("view", "totals")]

    def columns(self, name: str) -> list[tuple[str, str]]:
        return {"totals": [("user", "string"), ("total sum", "bigint")]}.get(name, [])

    def last_epoch(self) -> int:
        return 7

    def pending(self) -> int:
        return 0

    def session(self) -> FakeDatabase:
        return self

    def cancel(self) -> None:
        self._cancelled.set()

    def close(self) -> None:
        self.closed = True


def in_use(path: Path, *_: object, **_given: object) -> FakeDatabase:
    raise HeadraceError(Code.CONFLICT, f'data directory "{path}" is open for writing in process 7')
