"""What is in the tables of a suite while it changes, and the changes of the next epoch."""

from __future__ import annotations

from collections import defaultdict
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from bags import Row
    from harness import Oracle


class Changes:
    """Writes rows that come, go and are revised, by primary key; all follows from the seed."""

    def __init__(self, run: Oracle, seed: int) -> None:
        self.run = run
        self.random = Random(seed)
        self.live: dict[str, dict[tuple[Any, ...], Row]] = defaultdict(dict)
        self._changes: dict[str, list[tuple[int, Row]]] = defaultdict(list)

    def write(self) -> None:
        """Append the changes so far, for one epoch to take."""
        for name, changes in self._changes.items():
            self.run.log(name, changes)
        self._changes.clear()

    def delete_everything(self) -> None:
        """Delete all rows of all tables, in one epoch."""
        for name in list(self.live):
            for row in list(self.live[name].values()):
                self.drop(name, row)
        self.write()

    def put(self, name: str, row: Row) -> None:
        """Insert a row, or replace that of its key."""
        self.live[name][self._slot(name, row)] = row
        self._changes[name].append((1, row))

    def drop(self, name: str, row: Row) -> None:
        """Delete a row."""
        del self.live[name][self._slot(name, row)]
        self._changes[name].append((-1, row))

    def revise(self, name: str, revisions: dict[str, Callable[[Any], Any]]) -> int:
        """Change columns of some row; return how many rows there were to choose from."""
        rows = list(self.live[name].values())
        if rows:
            row = list(self.random.choice(rows))
            for column, revised in revisions.items():
                at = self.position(name, column)
                row[at] = revised(row[at])
            self.put(name, tuple(row))
        return len(rows)

    def position(self, name: str, column: str) -> int:
        """Return the place of a column."""
        return self.run.models[name].names.index(column)

    def _slot(self, name: str, row: Row) -> tuple[Any, ...]:
        return tuple(row[self.position(name, column)] for column in self.run.models[name].key)
