"""Histories as data: epochs of changes that can happen, made before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from random import Random

    from generator.schemas import Relation, Row

Change = tuple[int, "Row"]
Changes = dict[str, tuple[Change, ...]]


@dataclass(frozen=True, slots=True)
class Epoch:
    """The changes of one epoch, by relation."""

    changes: Changes

    @property
    def size(self) -> int:
        """How many changes there are."""
        return sum(map(len, self.changes.values()))


@dataclass(frozen=True, slots=True)
class Restart:
    """Compaction, closing the database, and opening it again."""


class Writer:
    """What one relation holds, and what can happen to it next."""

    def __init__(self, relation: Relation, random: Random) -> None:
        self.relation = relation
        self.random = random
        self.rows: list[Row] = []

    def changes(self, count: int) -> tuple[Change, ...]:
        """Return so many changes: rows that are new, repeated, replaced, gone, or both at once."""
        found: list[Change] = []
        while len(found) < count:
            draw, row = self.random.random(), self.relation.row(self.random)
            if self.relation.stream:
                repeated = self.rows and draw < 0.15
                found.append((1, self.random.choice(self.rows) if repeated else row))
                self.rows.append(found[-1][1])
            elif self.rows and draw < 0.3:
                found.append((-1, self.rows.pop(self.random.randrange(len(self.rows)))))
            elif self.rows and draw < 0.45:
                found.append((1, self._varied(self.random.choice(self.rows), row)))
                self._put(found[-1][1])
            else:
                found.append((1, row))
                self._put(row)
                if draw > 0.9 and len(found) < count:
                    found.append((-1, self.rows.pop()))
        return tuple(found)

    def emptied(self) -> tuple[Change, ...]:
        """Return the deletion of every row; a stream has none."""
        if self.relation.stream:
            return ()
        gone, self.rows = self.rows, []
        return tuple((-1, row) for row in gone)

    def _put(self, row: Row) -> None:
        if self.relation.key:
            identity = self.relation.identity
            self.rows = [r for r in self.rows if identity(r) != identity(row)]
        self.rows.append(row)

    def _varied(self, row: Row, other: Row) -> Row:
        """Return the same row again or, by primary key, with other values."""
        if not self.relation.key:
            return row
        kept = self.relation.positions
        return tuple(row[i] if i in kept else value for i, value in enumerate(other))


def history(random: Random, relations: Iterable[Relation], most: int) -> list[Epoch | Restart]:
    """Return epochs of 1 to ``most`` changes, then everything deleted, and a new beginning."""
    writers = {r.name: Writer(r, random) for r in relations}
    sizes = [most // 2, random.choice((1, 3)), most, 0, 10]
    if random.random() < 0.3:
        sizes.insert(3, random.choice((1, 2, 10)))
    steps: list[Epoch | Restart] = []
    for size in sizes:
        if size:
            steps.append(_epoch(random, writers, size))
        else:
            gone = {name: writer.emptied() for name, writer in writers.items()}
            steps.append(Epoch({name: changes for name, changes in gone.items() if changes}))
    if random.random() < 0.1:
        steps.insert(random.randint(2, len(steps)), Restart())
    return [step for step in steps if isinstance(step, Restart) or step.size]


def _epoch(random: Random, writers: Mapping[str, Writer], size: int) -> Epoch:
    chosen = random.sample(sorted(writers), min(size, len(writers)))
    shares = (size * (i + 1) // len(chosen) - size * i // len(chosen) for i in range(len(chosen)))
    return Epoch(
        {name: writers[name].changes(share) for name, share in zip(chosen, shares, strict=True)}
    )


def possible(relations: Iterable[Relation], epochs: Iterable[Epoch]) -> list[Epoch]:
    """Return the epochs without the deletions of rows that are not there."""
    there: dict[str, dict[str, int]] = {r.name: {} for r in relations}
    by_name = {r.name: r for r in relations}
    made = []
    for epoch in epochs:
        kept: Changes = {}
        for name, changes in epoch.changes.items():
            relation, counts, left = by_name[name], there[name], []
            for weight, row in changes:
                identity = relation.identity(row)
                count = counts.get(identity, 0) + weight
                if count < 0:
                    continue
                counts[identity] = min(count, 1) if relation.key else count
                left.append((weight, row))
            if left:
                kept[name] = tuple(left)
        made.append(Epoch(kept))
    return made
