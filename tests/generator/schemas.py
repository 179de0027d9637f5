"""Relations of a few columns whose names and small domains are shared, so that keys meet."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from generator.syntax import Kind

if TYPE_CHECKING:
    from random import Random

Row = tuple[Any, ...]

NULLS = 0.12
TEXTS = ("", "a", "b", "ab", "A b", "ß", "日本", "x'y", "null", "0", "7")
_DOUBLES = (0.0, 1.5, -2.25, float("nan"), float("inf"), float("-inf"), 1e300, 0.1)
"""Without -0.0, which equals 0.0: which of the two min() returns is Spark's choice."""
_EPOCH = datetime(2024, 2, 28, 23, 0, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Column:
    """A column; whole numbers are ``scale`` times a number from ``domain``."""

    name: str
    kind: Kind
    domain: int = 8
    scale: int = 1

    @property
    def bound(self) -> int:
        """The largest magnitude of a number."""
        return self.domain * self.scale + 1

    def value(self, random: Random, *, nullable: bool) -> Any:
        """Return a random value."""
        if nullable and random.random() < NULLS:
            return None
        drawn = random.randrange(self.domain)
        match self.kind:
            case Kind.INT | Kind.LONG:
                return (drawn - 1) * self.scale
            case Kind.DECIMAL:
                return Decimal(drawn * 25 - 75).scaleb(-2)
            case Kind.TEXT:
                return TEXTS[drawn % len(TEXTS)]
            case Kind.DATE:
                return date(2024, 2, 27) + timedelta(days=drawn % 5)
            case Kind.TIME:
                return _EPOCH + timedelta(minutes=random.randrange(90))
            case Kind.OF_DAY:
                return time(drawn * 3, drawn % 5 * 12, 0, drawn % 2 * 500_000)
            case Kind.BOOL:
                return drawn % 2 == 0
            case Kind.DOUBLE:
                return _DOUBLES[drawn % len(_DOUBLES)]
            case Kind.LIST:
                raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Relation:
    """A stream, or a table with or without a primary key."""

    name: str
    stream: bool
    columns: tuple[Column, ...]
    key: tuple[str, ...] = ()

    @property
    def columns_sql(self) -> str:
        """The columns as SQL declares them."""
        return ", ".join(f"{c.name} {c.kind}" for c in self.columns)

    @property
    def positions(self) -> tuple[int, ...]:
        """Where the columns of the key are."""
        return tuple(i for i, c in enumerate(self.columns) if c.name in self.key)

    def row(self, random: Random) -> Row:
        """Return a random row."""
        return tuple(c.value(random, nullable=c.name not in self.key) for c in self.columns)

    def identity(self, row: Row) -> str:
        """Return what a deletion goes by: the key, or the whole row."""
        return repr(tuple(row[i] for i in self.positions) if self.key else row)


def relations(random: Random, size: int) -> tuple[Relation, ...]:
    """Return two to four random relations for histories of about ``size`` rows."""
    domain = max(4, min(24, size // 8))
    pool = [
        Column("g", Kind.INT, 4),
        Column("v", Kind.INT, domain),
        Column("n", Kind.LONG, domain, random.choice((1, 1, 1_000_000_007))),
        Column("s", Kind.TEXT, 11),
        Column("m", Kind.DECIMAL, 12),
        Column("d", Kind.DATE, 5),
        Column("at", Kind.TIME, 90),
        Column("b", Kind.BOOL, 2),
    ]
    if random.random() < 0.25:
        pool.append(Column("c", Kind.OF_DAY, 8))
    if random.random() < 0.15:
        pool.append(Column("x", Kind.DOUBLE))
    made = []
    for i in range(random.choice((2, 2, 3, 3, 4))):
        chosen = random.sample(pool, random.randint(2, 4))
        columns = [Column("k", Kind.INT, domain), *sorted(chosen, key=pool.index)]
        made.append(_relation(random, i, size, columns))
    return tuple(made)


def _relation(random: Random, i: int, size: int, columns: list[Column]) -> Relation:
    draw = random.random()
    if draw < 0.25:
        return Relation(f"s{i}", stream=True, columns=tuple(columns))
    if draw < 0.5:
        return Relation(f"b{i}", stream=False, columns=tuple(columns))
    if draw < 0.85:
        id_ = Column("id", Kind.INT, max(6, size // 2))
        return Relation(f"t{i}", False, (id_, *columns), ("id",))  # noqa: FBT003
    if draw < 0.92:
        return Relation(f"t{i}", False, tuple(columns), ("k",))  # noqa: FBT003
    with_key = [c for c in columns if c.kind in (Kind.INT, Kind.TEXT, Kind.DATE, Kind.OF_DAY)]
    key = tuple(c.name for c in with_key[:2])
    return Relation(f"t{i}", False, tuple(columns), key)  # noqa: FBT003
