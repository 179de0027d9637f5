"""The columns of a Z-set's table, by role: hash, identity, sums."""

from __future__ import annotations

import base64
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import pyarrow as pa

from headrace.errors import Code, HeadraceError
from headrace.zset.order import OrderBy, orderable

HASH = "__hash"
"""The column of int64 hashes of the key; different keys may have equal hashes."""

DUE = "__due"
"""The column with the time of a move, in the unit of the clock, of what waits for the clock."""

WEIGHT = "__weight"
"""The column of int64 weights: how often a row was inserted minus how often it was retracted."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a Z-set, in physical order: ``__hash``, the identity, the sums.

    ``key`` names the columns that the hash is computed from, in the order of the key.
    ``columns`` are the identity: rows that agree in all of them are the same row. May be empty.
    ``summed`` are added when rows are merged: ``__weight`` and any further int64 or decimal128
    accumulators. They are never NULL.
    ``order`` names identity columns: in a consolidated Z-set, the rows of one hash are sorted by
    them. If it is empty, the order of these rows is unspecified.
    ``stored`` are the names of the identity columns in run files, which never change; if it is
    empty, they are their present names. Runs that were written before the columns were altered may
    lack some of them, have others, and have narrower types.
    """

    key: tuple[str, ...]
    columns: pa.Schema
    summed: pa.Schema
    order: tuple[OrderBy, ...] = ()
    stored: tuple[str, ...] = field(default=(), metadata={"digest": False})
    schema: pa.Schema = field(init=False, repr=False, compare=False)
    """The physical schema of a table of this layout."""
    names: list[str] = field(init=False, repr=False, compare=False)
    """The names of all columns, in physical order."""
    types: list[pa.DataType] = field(init=False, repr=False, compare=False)
    """Their types."""
    _no_rows: list[pa.Table] = field(
        default_factory=list, init=False, repr=False, compare=False, hash=False
    )
    _stored_schema: list[tuple[pa.Schema, bytes]] = field(
        default_factory=list, init=False, repr=False, compare=False, hash=False
    )

    def __post_init__(self) -> None:
        names = [HASH, *self.columns.names, *self.summed.names]
        if len(set(names)) != len(names):
            raise _malformed("two columns have the same name", names)
        if not set(self.key) <= set(self.columns.names):
            raise _malformed("a key column is not an identity column", list(self.key))
        if self.stored:
            files = [HASH, *self.stored, *self.summed.names]
            if len(self.stored) != len(self.columns) or len(set(files)) != len(files):
                raise _malformed("stored names are not those of its columns", list(self.stored))
        for by in self.order:
            if by.name not in self.columns.names:
                raise _malformed("an order column is not an identity column", [by.name])
            if not orderable(self.columns.field(by.name).type):
                raise _malformed("the type of an order column is not orderable", [by.name])
        if WEIGHT not in self.summed.names or self.summed.field(WEIGHT).type != pa.int64():
            raise _malformed("the summed columns include no int64 weight", self.summed.names)
        for total in self.summed:
            if not (pa.types.is_int64(total.type) or pa.types.is_decimal128(total.type)):
                raise _malformed("a summed column is neither int64 nor decimal128", [str(total)])
        columns = [
            pa.field(HASH, pa.int64(), nullable=False),
            *self.columns,
            *(total.with_nullable(nullable=False) for total in self.summed),
        ]
        # Computed once: every operation on a table of this layout needs them.
        object.__setattr__(self, "schema", pa.schema(columns))
        object.__setattr__(self, "names", self.schema.names)
        object.__setattr__(self, "types", self.schema.types)

    @property
    def no_rows(self) -> pa.Table:
        """The table of this layout without rows, made once."""
        if not self._no_rows:
            self._no_rows.append(self.schema.empty_table())
        return self._no_rows[0]

    @property
    def stored_names(self) -> list[str]:
        """The names of all columns in run files, in physical order."""
        return [HASH, *self.stored, *self.summed.names] if self.stored else self.names

    @property
    def stored_schema(self) -> tuple[pa.Schema, bytes]:
        """The schema of small runs in files, and the bytes that such a run begins with."""
        if not self._stored_schema:
            named = zip(self.stored_names, self.schema, strict=True)
            schema = pa.schema([each.with_name(name) for name, each in named])
            self._stored_schema.append((schema, schema.serialize().to_pybytes()))
        return self._stored_schema[0]

    @property
    def in_files(self) -> Layout:
        """The layout with the names in run files as those of its columns."""
        if not self.stored:
            return self
        to = dict(zip(self.columns.names, self.stored, strict=True))
        columns = [each.with_name(to[each.name]) for each in self.columns]
        order = tuple(replace(by, name=to[by.name]) for by in self.order)
        key = tuple(to[name] for name in self.key)
        return Layout(key, pa.schema(columns), self.summed, order)

    def shown(self, stored: str) -> str:
        """Return the present name of a column by its name in run files.

        Raises:
            HeadraceError: ``conflict`` if no column is stored under the name: it was dropped.
        """
        if stored in self.stored_names:
            return str(self.names[self.stored_names.index(stored)])
        raise HeadraceError(
            Code.CONFLICT,
            f'column "{stored}" was altered meanwhile',
            hint="Run the statement again.",
        )

    def with_summed(self, *fields: pa.Field) -> Layout:
        """Return the layout with further summed columns."""
        summed = pa.schema([*self.summed, *fields])
        return Layout(self.key, self.columns, summed, self.order, self.stored)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON value that :meth:`of_json` reads."""
        value = {
            "key": list(self.key),
            "columns": _encoded(self.columns),
            "summed": _encoded(self.summed),
        }
        order = {"order": [asdict(by) for by in self.order]} if self.order else {}
        return value | order | ({"stored": list(self.stored)} if self.stored else {})

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> Layout:
        """Return the layout that :meth:`to_json` wrote."""
        order = tuple(OrderBy(**by) for by in value.get("order", ()))
        return cls(
            tuple(value["key"]),
            _decoded(value["columns"]),
            _decoded(value["summed"]),
            order,
            tuple(value.get("stored", ())),
        )


def _encoded(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode("ascii")


def _decoded(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def _malformed(why: str, names: list[str]) -> HeadraceError:
    return HeadraceError(
        Code.INTERNAL, f"malformed layout: {why}", detail=f"The columns are {', '.join(names)}."
    )
