"""Random histories of streams and tables: duplicates, NULLs, changes that cancel, from a seed."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as t

from length import choose, thorough

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from bags import Model, Row
    from harness import Oracle

NULLS = 0.12
_TEXTS = ("", "a", "b", "ab", "A b", "ß", "日本", "x'y", "null", "0")
_DOUBLES = (0.0, -0.0, 1.5, -2.25, float("nan"), float("inf"), float("-inf"), 1e300, 0.1)
_EPOCH = datetime(2024, 2, 28, 23, 0, tzinfo=UTC)
_BITS = {t.ByteType: 7, t.ShortType: 15, t.IntegerType: 31, t.LongType: 63}


class History:
    """Writes random changes to the relations of an oracle.

    Whole numbers are drawn from ``domain`` values, so that keys meet; decimals use all digits but
    the ones that ``head`` keeps free for sums.
    """

    def __init__(self, run: Oracle, seed: int, *, domain: int = 40, head: int = 4) -> None:
        self.run = run
        self.random = Random(seed)
        self.domain = domain
        self.head = head

    def epochs(self, names: Iterable[str], sizes: Iterable[int]) -> None:
        """Make one epoch per size, of that many changes in all, and check each.

        A short run makes two of them: the largest, and its neighbour.
        """
        among = list(names)
        for size in choose(_two_of, tuple)(list(sizes)):
            self.write(among, size)
            self.run.epoch()

    def write(self, names: list[str], size: int) -> None:
        """Write changes to several relations, about as many to each, on top of what is there."""
        self.run.epoch()
        chosen = self.random.sample(names, min(size, len(names)))
        for i, name in enumerate(chosen):
            share = size * (i + 1) // len(chosen) - size * i // len(chosen)
            self.run.log(name, self.changes(self.run.models[name], share))

    def life(self, names: Iterable[str], most: int = 1000, *, whole: bool = False) -> None:
        """Live through small and large epochs, delete everything, and begin again.

        A short run has one of the first epochs, unless it is to be the ``whole`` life, and deletes
        the rows of all tables in one epoch.
        """
        among = list(names)
        for size in (1, 10, most, 1) if whole else choose((most,), (1, 10, most, 1)):
            self.epochs(among, (size,))
        self.run.epoch()
        for name in among:
            model = self.run.models[name]
            if model.deletes and thorough():
                self.run.truncate(name)
            elif model.deletes:
                self.run.log(name, [(-1, row) for row in model.current()])
        self.run.epoch()
        self.epochs(among, (10,))

    def changes(self, model: Model, count: int) -> list[tuple[int, Row]]:
        """Return changes that can happen to the rows that are there."""
        rows, found = model.current(), []
        while len(found) < count:
            draw = self.random.random()
            if model.deletes and rows and draw < 0.3:
                at = self.random.randrange(len(rows))
                rows[at], rows[-1] = rows[-1], rows[at]
                found.append((-1, rows.pop()))
                continue
            if rows and draw < 0.45:
                row = self._varied(model, self.random.choice(rows))
            else:
                row = self.row(model)
            if model.key:
                rows = [r for r in rows if _key(model, r) != _key(model, row)]
            rows.append(row)
            found.append((1, row))
        return found

    def row(self, model: Model) -> Row:
        """Return a random row; its primary key is not NULL."""
        return tuple(
            self.value(f.dataType, nullable=f.nullable and f.name not in model.key)
            for f in model.schema
        )

    def _varied(self, model: Model, row: Row) -> Row:
        """Return the same row again, or, by primary key, with another value."""
        if not model.key:
            return row
        return tuple(
            old if f.name in model.key else new
            for f, old, new in zip(model.schema, row, self.row(model), strict=True)
        )

    def value(self, kind: t.DataType, *, nullable: bool = True) -> Any:
        """Return a random value of a type."""
        if nullable and self.random.random() < NULLS:
            return None
        return self._of(kind)(kind)

    def _of(self, kind: t.DataType) -> Callable[[Any], Any]:
        match kind:
            case t.ByteType() | t.ShortType() | t.IntegerType() | t.LongType():
                return self._whole
            case t.DecimalType():
                return self._decimal
            case t.ArrayType():
                return lambda k: [
                    self.value(k.elementType) for _ in range(self.random.randrange(4))
                ]
            case t.StructType():
                return lambda k: {f.name: self.value(f.dataType) for f in k}
            case t.MapType():
                return self._map
            case _:
                return self._plain

    def _whole(self, kind: t.DataType) -> int:
        return self.random.randrange(min(self.domain, 1 << _BITS[type(kind)])) - 2

    def _decimal(self, kind: t.DecimalType) -> Decimal:
        digits = max(1, kind.precision - self.head)
        return Decimal(self.random.randint(-(10**digits) + 1, 10**digits - 1)).scaleb(-kind.scale)

    def _map(self, kind: t.MapType) -> list[tuple[Any, Any]]:
        keys = {self.value(kind.keyType, nullable=False) for _ in range(self.random.randrange(3))}
        return [(key, self.value(kind.valueType)) for key in sorted(keys)]

    def _plain(self, kind: t.DataType) -> Any:
        moment = _EPOCH + timedelta(minutes=self.random.randrange(90))
        match kind:
            case t.StringType():
                return self.random.choice(_TEXTS)
            case t.DoubleType() | t.FloatType():
                single = isinstance(kind, t.FloatType)
                return self.random.choice(_DOUBLES[:6] if single else _DOUBLES)
            case t.BooleanType():
                return self.random.random() < 0.5
            case t.DateType():
                return date(2024, 2, 27) + timedelta(days=self.random.randrange(4))
            case t.TimestampType():
                return moment
            case t.TimestampNTZType():
                return moment.replace(tzinfo=None)
            case t.TimeType():
                return time(*divmod(self.random.randrange(5) * 337, 60), 0, 120_000)
            case t.DayTimeIntervalType():
                return timedelta(seconds=self.random.randrange(-90000, 90000), microseconds=7)
            case t.BinaryType():
                return self.random.choice((b"", b"\x00", b"\xff\xfe", b"abc"))
        raise NotImplementedError(kind)


def _two_of(sizes: list[int]) -> list[int]:
    """Return the largest size and the one after it, or else before it."""
    at = min(sizes.index(max(sizes)), max(0, len(sizes) - 2))
    return sizes[at : at + 2]


def _key(model: Model, row: Row) -> tuple[Any, ...]:
    return tuple(row[model.schema.names.index(name)] for name in model.key)
