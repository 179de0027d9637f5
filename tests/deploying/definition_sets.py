"""Random sets of definitions, and sets that somebody could have made of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

TYPES = ("INT", "BIGINT", "STRING", "DATE")
WIDER = {"INT": "BIGINT"}


@dataclass(frozen=True)
class Column:
    """A column; ``was`` is the name that it had in the set before."""

    name: str
    type: str
    was: str | None = None
    is_new: bool = False

    @property
    def text(self) -> str:
        said = f" -- was {self.was}" if self.was else " -- new" if self.is_new else ""
        return f"{self.name} {self.type},{said}\n"


@dataclass(frozen=True)
class Input:
    """A stream, or a table with a key."""

    name: str
    is_table: bool
    columns: tuple[Column, ...]

    @property
    def text(self) -> str:
        kind, key = ("TABLE", " PRIMARY KEY") if self.is_table else ("STREAM", "")
        columns = "".join(each.text for each in self.columns)
        comma = columns.rindex(",")
        return f"CREATE {kind} {self.name} (id INT{key},\n{columns[:comma]}{columns[comma + 1 :]});"

    @property
    def outputs(self) -> dict[str, str]:
        """The type of each column by its name."""
        return {"id": "INT"} | {each.name: each.type for each in self.columns}


@dataclass(frozen=True)
class View:
    """A view over one relation: some of its columns under names of its own, or counts of one."""

    name: str
    kind: str
    over: str
    columns: tuple[tuple[str, str], ...]
    """Columns of what it reads, each with its own name."""
    counts: bool = False
    least: int = 0

    @property
    def text(self) -> str:
        (first, _), *_ = self.columns
        listed = ", ".join(f"{each} AS {own}" for each, own in self.columns)
        options = " WITH (refresh = 'manual')" if self.kind == "MANUAL" else ""
        kind = "VIEW" if self.kind == "VIEW" else "MATERIALIZED VIEW"
        query = f"SELECT {listed} FROM {self.over} WHERE {first} IS NOT NULL"
        if self.counts:
            query = f"SELECT {first} AS g, count(*) + {self.least} AS n FROM {self.over} GROUP BY {first}"
        return f"CREATE {kind} {self.name}{options} AS {query};"


@dataclass(frozen=True)
class DefinitionSet:
    """Inputs, views over these and each other, sinks over views, and indexes of tables."""

    inputs: tuple[Input, ...] = ()
    views: tuple[View, ...] = ()
    sinks: tuple[tuple[str, str], ...] = ()
    indexes: tuple[tuple[str, str, str], ...] = ()
    numbers: int = field(default=0)
    """How many names have been given."""

    @property
    def text(self) -> str:
        """The statements, in an order that does not count."""
        sinks = [
            f"CREATE SINK {name} FROM {over} WITH (connector = 'blackhole');"
            for name, over in self.sinks
        ]
        indexes = [f"CREATE INDEX {name} ON {on} ({by});" for name, on, by in self.indexes]
        defined = [each.text for each in (*self.views, *self.inputs)]
        return "\n".join([*sinks, *indexes, *defined])

    def outputs(self) -> dict[str, dict[str, str]]:
        """Return the types of columns by name, of each relation."""
        found = {each.name: each.outputs for each in self.inputs}
        for view in self.views:
            below = found[view.over]
            found[view.name] = (
                {"g": below[view.columns[0][0]], "n": "BIGINT"}
                if view.counts
                else {own: below[name] for name, own in view.columns}
            )
        return found


def first_set(random: Random) -> DefinitionSet:
    """Return a set of definitions of a new project."""
    made = DefinitionSet()
    for _ in range(2):
        made = _with_input(made, random)
    for _ in range(random.randint(2, 4)):
        made = _with_view(made, random)
    return _with_ends(made, random)


def next_set(before: DefinitionSet, random: Random) -> DefinitionSet:
    """Return a set of definitions after a day's work on another."""
    made = replace(before, inputs=tuple(_settled(each) for each in before.inputs))
    for _ in range(random.randint(1, 3)):
        made = random.choice(
            (_with_input, _with_view, _with_view, _other_columns, _other_columns, _other_queries,
             _other_queries, _without_view, _with_ends)
        )(made, random)  # fmt: skip
    return made


def _settled(given: Input) -> Input:
    columns = tuple(replace(each, was=None, is_new=False) for each in given.columns)
    return replace(given, columns=columns)


def _with_input(made: DefinitionSet, random: Random) -> DefinitionSet:
    number = made.numbers
    columns = tuple(Column(f"c{number + i + 1}", random.choice(TYPES)) for i in range(3))
    new = Input(f"i{number}", random.random() < 0.5, columns)
    return replace(made, inputs=(*made.inputs, new), numbers=number + 4)


def _with_view(made: DefinitionSet, random: Random) -> DefinitionSet:
    outputs = made.outputs()
    apart = {each.name for each in made.views if each.kind == "MANUAL"}
    over = random.choice([name for name in outputs if name not in apart])
    kind = random.choice(("MATERIALIZED", "MATERIALIZED", "VIEW", "MANUAL"))
    new = _query(View(f"v{made.numbers}", kind, over, ()), outputs[over], random)
    return replace(made, views=(*made.views, new), numbers=made.numbers + 1)


def _query(view: View, below: dict[str, str], random: Random) -> View:
    chosen = random.sample(sorted(below), random.randint(1, min(3, len(below))))
    columns = tuple((name, name) for name in chosen)
    return replace(view, columns=columns, counts=random.random() < 0.3, least=random.randint(0, 9))


def _other_columns(made: DefinitionSet, random: Random) -> DefinitionSet:
    """Add, drop, rename or widen a column; queries name what they named, if it is there."""
    given = random.choice(made.inputs)
    at = random.randrange(len(given.columns))
    old = given.columns[at]
    columns, number = list(given.columns), made.numbers
    names = {each: each for each in given.outputs}
    match random.choice(("add", "drop", "rename", "widen")):
        case "add":
            columns.append(Column(f"c{number}", random.choice(TYPES), is_new=True))
        case "drop" if len(columns) > 1:
            del columns[at]
            del names[old.name]
        case "rename" if old.was is None and not old.is_new:
            columns[at] = replace(old, name=f"c{number}", was=old.name)
            names[old.name] = f"c{number}"
        case "widen" if old.type in WIDER and not _is_read(made, given.name, old.name):
            columns[at] = replace(old, type=WIDER[old.type])
        case _:
            pass
    inputs = tuple(
        replace(each, columns=tuple(columns)) if each == given else each for each in made.inputs
    )
    indexes = tuple(
        (name, on, names[by] if on == given.name else by)
        for name, on, by in made.indexes
        if on != given.name or by in names
    )
    made = replace(made, inputs=inputs, indexes=indexes, numbers=number + 1)
    return _with_names(made, given.name, names)


def _with_names(made: DefinitionSet, over: str, names: dict[str, str]) -> DefinitionSet:
    """Return a set whose views over a relation use other names; those without any are dropped."""
    for view in [each for each in made.views if each.over == over]:
        columns = tuple((names[name], own) for name, own in view.columns if name in names)
        if view.counts and view.columns[0][0] not in names:
            columns = ()
        if not columns:
            made = _without(made, view.name)
            continue
        kept = {own: own for _, own in columns}
        other = replace(view, columns=columns)
        made = replace(made, views=tuple(other if v == view else v for v in made.views))
        if not view.counts and len(columns) < len(view.columns):
            made = _with_names(made, view.name, kept)
    return made


def _is_read(made: DefinitionSet, over: str, column: str) -> bool:
    read = any(v.over == over and column in dict(v.columns) for v in made.views)
    return read or any(on == over and by == column for _, on, by in made.indexes)


def _other_queries(made: DefinitionSet, random: Random) -> DefinitionSet:
    if not made.views:
        return made
    view = random.choice(made.views)
    other = _query(view, made.outputs()[view.over], random)
    views = tuple(other if each == view else each for each in made.views)
    own = ("g", "n") if other.counts else [name for _, name in other.columns]
    return _with_names(replace(made, views=views), view.name, {each: each for each in own})


def _without_view(made: DefinitionSet, random: Random) -> DefinitionSet:
    return _without(made, random.choice(made.views).name) if made.views else made


def _without(made: DefinitionSet, name: str) -> DefinitionSet:
    for above in [each.name for each in made.views if each.over == name]:
        made = _without(made, above)
    return replace(
        made,
        views=tuple(each for each in made.views if each.name != name),
        sinks=tuple(each for each in made.sinks if each[1] != name),
        indexes=tuple(each for each in made.indexes if each[1] != name),
    )


def _with_ends(made: DefinitionSet, random: Random) -> DefinitionSet:
    """Add a sink over a view that is maintained, and an index of a table."""
    number = made.numbers
    views = [each for each in made.views if each.kind == "MATERIALIZED"]
    sinks, indexes = made.sinks, made.indexes
    if views:
        sinks = (*sinks, (f"k{number}", random.choice(views).name))
    places = [
        (each.name, column.name)
        for each in made.inputs
        if each.is_table
        for column in each.columns
        if column.type != "DATE"
    ]
    if places:
        indexes = (*indexes, (f"x{number}", *random.choice(places)))
    return replace(made, sinks=sinks, indexes=indexes, numbers=number + 1)
