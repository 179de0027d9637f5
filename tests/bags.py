"""What a test wrote, in plain Python; and rows compared as bags, by value."""

from __future__ import annotations

import struct
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from pyspark.sql.variant_utils import VariantUtils

from headrace.types import is_variant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

Row = tuple[Any, ...]
Bag = Counter[Row]

_SHOWN = 8
_NAN = "NaN"


@dataclass
class Model:
    """A stream or table as a test wrote it: its changes, and its rows up to a position.

    ``rows`` maps a row (or its primary key, where there is one) to the row and its count.
    """

    name: str
    schema: StructType
    key: tuple[str, ...]
    log: list[tuple[int, Row]] = field(default_factory=list)
    position: int = 0
    deletes: bool = True
    stale: bool = True
    rows: dict[Any, tuple[Row, int]] = field(default_factory=dict)
    _unordered: list[range] = field(default_factory=list)

    @classmethod
    def of(cls, name: str, columns: str, key: str = "", *, deletes: bool = True) -> Model:
        """Return an empty model; ``columns`` and ``key`` as in SQL. Streams have no deletes."""
        names = tuple(part.strip() for part in key.split(",") if part.strip())
        return cls(name, StructType.fromDDL(columns), names, deletes=deletes)

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self.schema.names)

    def sql_type(self, name: str) -> str:
        """Return a column's type as SQL writes it."""
        return str(self.schema[name].dataType.simpleString())

    def arrow(self, rows: Iterable[Row]) -> pa.Table:
        """Return rows as an Arrow table."""
        schema = pa.schema(
            [f.with_nullable(True) for f in to_arrow_schema(self.schema, timezone="UTC")]  # noqa: FBT003
        )
        given = list(rows)
        columns = [pa.array([row[i] for row in given], f.type) for i, f in enumerate(schema)]
        return pa.Table.from_arrays(columns, schema=schema)

    def write(self, changes: Iterable[tuple[int, Row]], *, ordered: bool = True) -> None:
        """Note changes. Not ``ordered``: the log has them in an order that is Spark's choice."""
        begin = len(self.log)
        self.log.extend(changes)
        if not ordered:
            self._unordered.append(range(begin + 1, len(self.log)))

    @property
    def settled(self) -> bool:
        """Whether it is known what the rows up to the position are."""
        return not any(self.position in within for within in self._unordered)

    def advance(self, to: int) -> None:
        """Apply the changes up to a position of the log."""
        assert self.position <= to <= len(self.log), f"{self.name} was read too far"
        kinds = [f.type for f in self.arrow([]).schema]
        for weight, row in self.log[self.position : to]:
            self._apply(weight, row, kinds)
            self.stale = True
        self.position = to

    def current(self) -> list[Row]:
        """Return the rows, each as often as it is there."""
        return [row for row, count in self.rows.values() for _ in range(count)]

    def table(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        return self.arrow(self.current())

    def _apply(self, weight: int, row: Row, kinds: list[pa.DataType]) -> None:
        identity = tuple(canonical(v, k) for v, k in zip(row, kinds, strict=True))
        if self.key:
            positions = [self.schema.names.index(name) for name in self.key]
            slot = tuple(identity[i] for i in positions)
            self.rows.pop(slot, None)
            if weight > 0:
                self.rows[slot] = (row, 1)
            return
        count = self.rows.pop(identity, (row, 0))[1] + weight
        assert count >= 0, f"the test deletes {row} from {self.name}, which is not there"
        if count:
            self.rows[identity] = (row, count)


def canonical(value: Any, kind: pa.DataType) -> Any:
    """Return something hashable that is equal for the same values only.

    NaN is NaN, -0.0 is not 0.0, and the entries of a map have no order. A variant is given as its
    two parts or, as in a change, as a Python object.
    """
    if value is None:
        return None
    if is_variant(kind):
        if isinstance(value, dict) and value.keys() == {"value", "metadata"}:
            value = VariantUtils.to_python(**value)
        return None if value is None else repr(value)
    if isinstance(value, float):
        return _NAN if value != value else struct.pack(">d", value)  # noqa: PLR0124
    if pa.types.is_map(kind):
        pairs = value.items() if isinstance(value, dict) else value
        entries = [(canonical(k, kind.key_type), canonical(v, kind.item_type)) for k, v in pairs]
        return tuple(sorted(entries, key=repr))
    if pa.types.is_struct(kind):
        given = value if isinstance(value, dict) else dict(zip(kind.names, value, strict=True))
        return tuple(canonical(given[f.name], f.type) for f in kind.fields)
    if pa.types.is_list(kind):
        return tuple(canonical(element, kind.value_type) for element in value)
    return value


def bag_of(table: pa.Table) -> Bag:
    """Count the rows of a table."""
    columns = [_canonical_column(column) for column in table.columns]
    if not columns:
        return Counter({(): table.num_rows} if table.num_rows else {})
    return Counter(zip(*columns, strict=True))


def _canonical_column(column: pa.ChunkedArray) -> list[Any]:
    kind = column.type
    values = column.to_pylist()
    if pa.types.is_nested(kind) or pa.types.is_floating(kind):
        return [canonical(value, kind) for value in values]
    return values


def difference(actual: Bag, expected: Bag) -> str:
    """Say which rows are too many and which are missing."""
    extra, missing = Counter(actual), Counter(expected)
    extra.subtract(expected)
    missing.subtract(actual)
    lines = [f"  +{n} {row}" for row, n in _first(extra, lambda n: n > 0)]
    lines += [f"  -{n} {row}" for row, n in _first(missing, lambda n: n > 0)]
    return f"{len(actual)} rows, expected {len(expected)} (+ is too much, - is missing)\n" + (
        "\n".join(lines)
    )


def _first(bag: Bag, wanted: Callable[[int], bool]) -> Sequence[tuple[Row, int]]:
    found = [(row, n) for row, n in bag.items() if wanted(n)]
    return sorted(found, key=lambda pair: repr(pair[0]))[:_SHOWN]
