"""Nexmark's events: one person, three auctions and 46 bids in every fifty, arriving out of order.

Auctions and bids are those of the benchmarks' generator; its clock runs slower here, ten events a
second, so that a few hundred events fill several windows, and passes midnight.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any

from benchmarks.nexmark import BASE_TIME, CYCLE, FIRST_ID, PERSONS, auctions_of, bids_of

if TYPE_CHECKING:
    from bags import Row
    from harness import Oracle

_SLOWER = 1000
_BEGIN = datetime(2024, 12, 31, 23, 59, 40, tzinfo=UTC)
_MOST = 20_000
"""As many events there are; 100 seconds of them are a thousand."""

_FIRST = ("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter")
_LAST = ("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris")
_PLACES = (
    ("Portland", "OR"),
    ("Boise", "ID"),
    ("Los Angeles", "CA"),
    ("Phoenix", "AZ"),
    ("Seattle", "WA"),
    ("Cheyenne", "WY"),
)
_SIDE = 100


class Events:
    """Writes the events in the order in which they arrive; everything follows from the seed."""

    def __init__(self, run: Oracle, seed: int) -> None:
        self.run = run
        self.random = Random(seed)
        bids, auctions = (iter(_rows(make(0, _MOST, seed))) for make in (bids_of, auctions_of))
        numbered = [
            (number + self._delay(), number, *self._event(number, auctions, bids))
            for number in range(_MOST)
        ]
        self._arriving = iter([(name, row) for _, _, name, row in sorted(numbered)])

    def arrive(self, count: int) -> None:
        """Write so many events."""
        given: dict[str, list[Row]] = {}
        for _ in range(count):
            name, row = next(self._arriving)
            given.setdefault(name, []).append(row)
        for name, rows in given.items():
            self.run.insert(name, rows)

    def change_side_input(self, count: int) -> None:
        """Set so many values of the side input, by key."""
        keys = self.random.sample(range(_SIDE), count)
        self.run.insert("side_input", [(k, f"value {self.random.randrange(9)}") for k in keys])

    def _delay(self) -> int:
        """Return after how many later events one arrives: most at once, some much later."""
        return self.random.choice((0, 0, 5, 40)) + (self.random.random() < 0.02) * 400

    def _event(self, number: int, auctions: Any, bids: Any) -> tuple[str, Row]:
        place = number % CYCLE
        if place < PERSONS:
            return "persons", self._person(number)
        return ("auctions", next(auctions)) if place < PERSONS + 3 else ("bids", next(bids))

    def _person(self, number: int) -> Row:
        name = f"{self.random.choice(_FIRST)} {self.random.choice(_LAST)}"
        city, state = self.random.choice(_PLACES)
        card = " ".join(f"{self.random.randrange(10_000):04}" for _ in range(4))
        address = f"{name.replace(' ', '.').lower()}@example.com"
        time = _BEGIN + timedelta(milliseconds=number * 100)
        return (FIRST_ID + number // CYCLE, name, address, card, city, state, time, "")


def _rows(table: Any) -> list[Row]:
    columns = {
        name: [_slowed(text) for text in values] if name in ("dateTime", "expires") else values
        for name, values in table.to_pydict().items()
    }
    return list(zip(*columns.values(), strict=True))


def _slowed(text: str) -> datetime:
    base = datetime.fromtimestamp(BASE_TIME / 1000, UTC)
    return _BEGIN + (datetime.fromisoformat(text) - base) * _SLOWER
