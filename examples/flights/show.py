"""Showing a replay: as a dashboard in a terminal, as plain lines anywhere else."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, Self
from zoneinfo import ZoneInfo

from replay import Replay
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

Row = tuple[Any, ...]

_NEW_YORK = ZoneInfo("America/New_York")
_SECONDS_BETWEEN_LINES = 5
_COLOURS = {"+I": "green", "+U": "green", "-U": "red", "-D": "red"}


class Lines:
    """Prints a line now and then."""

    def __init__(self, console: Console, replay: Replay) -> None:
        self._console = console
        self._replay = replay
        self._printed = time.perf_counter()

    def note(self, text: str) -> None:
        """Print a line by itself."""
        self._console.print(f"  {text}", soft_wrap=True)

    def tick(self) -> None:
        """Print how far the replay is, if it is time to."""
        if time.perf_counter() - self._printed >= _SECONDS_BETWEEN_LINES:
            self._printed = time.perf_counter()
            self.note(", ".join(_numbers(self._replay)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.note(", ".join(_numbers(self._replay)))


class Dashboard:
    """Draws the views as they are, a few times a second."""

    def __init__(self, console: Console, replay: Replay) -> None:
        self._replay = replay
        self._notes: list[str] = []
        self._rows = min(8, max(2, (console.height - 10) // 3 - 2))
        self._live = Live(get_renderable=self._screen, console=console, refresh_per_second=4)

    def note(self, text: str) -> None:
        """Show a line below the views."""
        self._notes.append(text)

    def tick(self) -> None:
        """Do nothing: it draws by itself."""

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def _screen(self) -> RenderableType:
        grid = Table.grid(expand=True, padding=(0, 1))
        grid.add_column(ratio=1)
        grid.add_column(ratio=1)
        with self._replay.lock:
            grid.add_row(self._carriers(), self._slow_routes())
            grid.add_row(self._makers(), self._changes())
            grid.add_row(self._departures(), self._weather())
        notes = Text("\n").join(Text(f"✎ {note}", style="yellow") for note in self._notes[-3:])
        return Group(self._header(), grid, notes)

    def _header(self) -> RenderableType:
        replay = self._replay
        inside = Table.grid(expand=True)
        inside.add_row(ProgressBar(replay.events.num_rows, replay.readable))
        for line in _numbers(replay):
            inside.add_row(Text(line, no_wrap=True, overflow="ellipsis"))
        return Panel(inside, title="[b]Headrace[/b]: the flights of New York, 2013")

    # -- one small table per view ----------------------------------------------------------

    def _carriers(self) -> Table:
        return self._table(
            "delay_by_carrier",
            {"carrier": str, "flights": _count, "cancelled": _count, "delay": _minutes},
            ((row[0], row[1], row[2], row[4]) for row in self._top("delay_by_carrier", 1)),
        )

    def _makers(self) -> Table:
        return self._table(
            "delay_by_airline_and_maker",
            {"airline": str, "maker": str, "flights": _count, "delay": _minutes},
            (
                (row[0], row[1], row[2], row[4])
                for row in self._top("delay_by_airline_and_maker", 2)
            ),
        )

    def _departures(self) -> Table:
        return self._table(
            "departures",
            {"3 hours from": _hour, "from": _code, "departed": _count, "late": _count},
            ((row[1], row[0], row[2], row[4]) for row in self._top("departures", 1)),
        )

    def _slow_routes(self) -> Table:
        return self._table(
            "slow_routes",
            {"from": _code, "to": str, "flights": _count, "delay": _minutes},
            self._top("slow_routes", 3),
        )

    def _weather(self) -> Table:
        return self._table(
            "delay_by_weather",
            {"conditions": str, "flights": _count, "cancelled": _count, "delay": _minutes},
            self._top("delay_by_weather", 3),
        )

    def _changes(self) -> Table:
        changes = sorted(
            self._replay.mirrors["slow_routes"].recent,
            key=lambda change: (change.epoch, change.operation in ("+I", "-D")),
        )[-self._rows :]
        return self._table(
            "slow_routes: changes",
            {"epoch": _code, "": _operation, "from": _code, "to": str, "delay": _minutes},
            ((change.epoch, change.operation, *_route(change.row)) for change in reversed(changes)),
            count=False,
        )

    def _top(self, view: str, by: int) -> list[Row]:
        """Return the rows of a view with the largest values in a column."""
        rows = self._replay.mirrors[view].rows
        return sorted(rows, key=lambda row: (row[by] is not None, row[by]), reverse=True)

    def _table(
        self,
        name: str,
        columns: dict[str, Callable[[Any], str | Text]],
        rows: Iterable[Row],
        *,
        count: bool = True,
    ) -> Table:
        rows = list(rows)
        title = f"{name} [dim]({len(rows):,} rows)[/dim]" if count else name
        table = Table(title=title, title_justify="left", title_style="bold", expand=True, box=None)
        for heading, shown in columns.items():
            table.add_column(
                heading,
                header_style="dim",
                justify="right" if shown in (_count, _minutes) else "left",
                width=_WIDTHS.get(shown),
                ratio=None if shown in _WIDTHS else 1,  # the rest of the width
                no_wrap=True,
            )
        for row in rows[: self._rows]:
            cells = zip(columns.values(), row, strict=True)
            table.add_row(*(shown(value) for shown, value in cells))
        for _ in range(self._rows - len(rows)):
            table.add_row()
        return table


def _numbers(replay: Replay) -> tuple[str, str]:
    """Return how far the replay is, and how fast and how fresh the views are."""
    total, pending = replay.events.num_rows, replay.sent - replay.readable
    far = f"{replay.readable:,} of {total:,} flights until {_clock(replay)}, {replay.rate:,.0f}/s"
    fresh = f"{replay.last_delay:.1f} s after the insert (median {replay.median_delay:.1f} s)"
    return far, f"epoch {replay.epoch}, {pending:,} pending, readable {fresh}"


def _clock(replay: Replay) -> str:
    if replay.readable == 0:
        return "now"
    return _hour(replay.events["scheduled"][replay.readable - 1].as_py())


def _route(row: dict[str, Any]) -> Row:
    return row["origin"], row["destination"], row["avg_delay"]


def _hour(value: datetime) -> str:
    return value.astimezone(_NEW_YORK).strftime("%d %b %H:%M")


def _count(value: int) -> str:
    return f"{value:,}"


def _minutes(value: float | None) -> str:
    return "" if value is None else f"{value:.1f} min"


def _operation(value: str) -> Text:
    return Text(value, style=_COLOURS[value])


def _code(value: object) -> str:
    return str(value)


_WIDTHS = {_operation: 2, _code: 5, _hour: 12, _count: 9, _minutes: 9}
"""How wide a column of a kind is."""
