"""A case: relations, then a script of epochs, views and restarts; from a seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from generator.changes import Epoch, Restart, history
from generator.queries import FUEL, Queries
from generator.schemas import Relation, relations
from generator.sources import Known, Made, Output

if TYPE_CHECKING:
    from generator.syntax import Query

OVER_VIEWS = 0.3
"""How often a view may read the views before it."""

_SIZES = (10, 40, 40, 40, 100, 100, 100, 100)


@dataclass(frozen=True, slots=True)
class View:
    """A view that is created when the script comes to it."""

    name: str
    query: Query

    @property
    def sql(self) -> str:
        """The query as text."""
        return self.query.body()


Step = View | Epoch | Restart


@dataclass(frozen=True, slots=True)
class Case:
    """What happens to one database."""

    relations: tuple[Relation, ...]
    steps: tuple[Step, ...]

    @property
    def views(self) -> tuple[View, ...]:
        """The views, in the order of their creation."""
        return tuple(step for step in self.steps if isinstance(step, View))

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """The epochs, in order."""
        return tuple(step for step in self.steps if isinstance(step, Epoch))


def random_case(seed: int, views: int) -> Case:
    """Return the case of a seed, with so many views."""
    random = Random(f"case {seed}")
    most = 1000 if random.random() < 0.02 else random.choice(_SIZES)
    tables = relations(random, most)
    known = [_known(relation, most * 3 // (2 * len(tables))) for relation in tables]
    earlier: list[Known] = []
    made: list[View] = []
    for i in range(views):
        over = earlier if random.random() < OVER_VIEWS else []
        found = Queries(random, [*known, *over, *over]).make(random.choice(FUEL))
        made.append(View(f"view{i}", found.query))
        earlier.append(_view(f"view{i}", found))
    steps = history(random, tables, most)
    filled = random.choice((0, 1, 1, 1, 2))
    return Case(tables, (*steps[:filled], *made, *steps[filled:]))


def _known(relation: Relation, rows: int) -> Known:
    outputs = tuple(Output(c.name, c.kind, c.bound) for c in relation.columns)
    return Known(relation.name, outputs, max(5, rows), relation.key)


def _view(name: str, made: Made) -> Known:
    return Known(name, made.outputs, max(5, made.rows))
