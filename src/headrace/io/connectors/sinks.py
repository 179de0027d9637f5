"""Shared by all sink connectors: the context of a writer, common options, and keys.

Changes as lines of JSON: ``{"epoch": 7, "op": "+I", "weight": 1, "row": {...}}``.

A sink's mark in its target: the sink's identity, its last whole epoch and refused rows.

The inverse of :func:`headrace.execution.serving.values.text_column`: texts parsed into values.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as t

from headrace.algebra.zset import WEIGHT, row_codes
from headrace.algebra.zset.zset import column
from headrace.errors import Code, HeadraceError
from headrace.execution.runtime.deliveries import PART_ROWS, DeliverySettings
from headrace.execution.runtime.ports import RefusedRow, lost_changes
from headrace.execution.serving import OPERATION, with_operations
from headrace.execution.serving.values import Encoded, json_objects
from headrace.io.connectors.options import Alters, option, seconds
from headrace.io.formats.fitting import of_texts
from headrace.io.formats.values import cast_texts, from_json, from_text, parse_json
from headrace.types import to_arrow

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from headrace.io.connectors.secrets import Secrets
    from headrace.io.formats.values import Converter
    from headrace.types import Column, Epoch, Schema


_MOST_AT_ONCE: Final = 1024


@dataclass(frozen=True, slots=True)
class SinkContext:
    """The arguments for opening a sink's writer.

    ``directory`` is the data directory, ``schema`` that of the rows, and ``key`` the columns of
    their unique key, empty if it is unknown. ``identity`` is unique among the sinks of all
    databases: the target records epochs under it. With ``stops``, a refused row stops the sink; see
    :class:`headrace.execution.runtime.ports.SinkWriter`. If the sink ``exists``, nothing is created
    for it. ``moved``, after a change of address, is the last epoch that the target must already
    have. ``roots`` are directories outside the data directory below which sinks may write. With
    ``tries``, it is only asked whether the sink could be created: nothing is created for it, and
    with ``offline`` no other system is reached.
    """

    directory: Path
    schema: Schema
    key: tuple[str, ...]
    secrets: Secrets
    identity: str
    stops: bool = False
    exists: bool = False
    moved: Epoch | None = None
    roots: tuple[Path, ...] = ()
    tries: bool = False
    offline: bool = False


def at_once(text: str) -> int:
    """Parse how many rows are written concurrently."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= _MOST_AT_ONCE:
        raise HeadraceError(
            Code.INVALID,
            f"'{text}' rows cannot be written at once",
            hint=f"Write a whole number from 1 to {_MOST_AT_ONCE}.",
        )
    return int(text)


class TableContents(StrEnum):
    """What a table in another system contains."""

    UPSERT = "upsert"
    """The current rows of the view, by key."""
    APPEND = "append"
    """All changes of the view, with the columns ``CHANGE_COLUMNS``."""


class RefusalPolicy(StrEnum):
    """What happens when the target refuses a row."""

    DEAD_LETTER = "dead_letter"
    """The row is stored in the ledger, and delivery goes on."""
    STOP = "stop"
    """The sink stops until it is resumed."""


def number_of_rows(text: str) -> int:
    """Parse a number of rows, at least 1."""
    if not text.isascii() or not text.isdigit() or not int(text):
        raise HeadraceError(
            Code.INVALID, f"'{text}' is not a number of rows", hint="Write a whole number from 1."
        )
    return int(text)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of every sink: how changes are delivered to it.

    ``key`` are the columns of a unique key, separated by commas; by default the view's.
    ``snapshot``: whether the view's existing rows are written first. ``batch_rows`` is the most
    rows in a part. ``interval`` is the time between two writes in seconds, whose epochs are joined;
    with 0, each epoch is written at once.
    """

    key: str | None = option(default=None, alters=Alters.NEVER)
    snapshot: bool = option(default=True, alters=Alters.NEVER)
    on_error: RefusalPolicy = option(default=RefusalPolicy.DEAD_LETTER, alters=Alters.FREELY)
    batch_rows: int = option(default=PART_ROWS, convert=number_of_rows, alters=Alters.FREELY)
    max_rows_per_second: int | None = option(
        default=None, convert=number_of_rows, alters=Alters.FREELY
    )
    interval: float = option(default=0.0, convert=seconds, alters=Alters.FREELY)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns in option ``key``; empty without it."""
        return () if self.key is None else tuple(name.strip() for name in self.key.split(","))

    def settings(self, *, joins: bool) -> DeliverySettings:
        """Return the settings of the delivery; see :class:`DeliverySettings` for ``joins``."""
        return DeliverySettings(
            part_rows=self.batch_rows,
            rows_per_second=self.max_rows_per_second,
            interval=self.interval,
            joins=joins,
            snapshot=self.snapshot,
            stops=self.on_error is RefusalPolicy.STOP,
        )


def require_key(context: SinkContext, what: str) -> None:
    """Refuse rows without a known key; ``what`` names the sink that needs one.

    Raises:
        HeadraceError: ``invalid``, with a hint on how to declare a key.
    """
    if not context.key:
        raise HeadraceError(
            Code.INVALID,
            f"{what} is written by key, and no unique key of the rows is known",
            hint=f"{declare_key()} A view with one row has a key if its query selects a constant,"
            " as in SELECT 1 AS id, and the option key of the sink names it.",
        )


def declare_key(columns: Sequence[str] = ("id",)) -> str:
    """Return a hint on how to declare a key."""
    key = ", ".join(columns)
    return (
        f"Declare it, as in CREATE MATERIALIZED VIEW name (PRIMARY KEY ({key})) AS ..., which is"
        " checked in each epoch; or keep the key of what the query reads among its columns."
    )


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of changes; an update is one change of two lines.

    ``starts`` has the index of each change's first line, then the number of lines.
    """

    texts: pa.StringArray
    starts: NDArray[np.int64]

    @property
    def changes(self) -> int:
        """The number of changes."""
        return len(self.starts) - 1

    def of_changes(self, start: int, stop: int) -> list[str]:
        """Return the lines of the changes in ``[start, stop)``."""
        first = int(self.starts[start])
        found: list[str] = self.texts.slice(first, int(self.starts[stop]) - first).to_pylist()
        return found

    def cut(self, changes: int) -> Iterator[Lines]:
        """Yield slices of at most ``changes`` changes."""
        for at in range(0, self.changes, changes):
            starts = self.starts[at : at + changes + 1]
            texts = self.texts.slice(int(starts[0]), int(starts[-1] - starts[0]))
            yield Lines(texts, starts - starts[0])


def change_lines(epoch: int, changes: pa.Table, key: Sequence[str]) -> Lines:
    """Return the lines of an epoch's changes, a table of rows with weights.

    A retraction and an insertion of one key are an update. Values are encoded as by
    :func:`headrace.execution.serving.values.json_value`: NaN and infinities as text, since JSON has
    no number for them.
    """
    ordered = with_operations(changes, key)
    rows = ordered.num_rows
    row = {n: ordered[n] for n in ordered.column_names if n not in (OPERATION, WEIGHT)}
    fields = {
        "epoch": pa.array(np.full(rows, epoch, np.int64)),
        "op": ordered[OPERATION],
        "weight": ordered[WEIGHT],
        "row": Encoded(json_objects(row, rows)),
    }
    begins = pc.not_equal(ordered[OPERATION], "+U").to_numpy().astype(bool)
    starts = np.append(np.flatnonzero(begins), rows)
    return Lines(json_objects(fields, rows), starts)


def json_lines(epoch: int, changes: pa.Table, key: Sequence[str]) -> Iterator[str]:
    """Yield the changes of an epoch as lines of JSON; see :func:`change_lines`."""
    yield from change_lines(epoch, changes, key).texts.to_pylist()


def lines_of_keys(epoch: int, changes: pa.Table, rows: pa.Table, key: Sequence[str]) -> list[str]:
    """Return, for each row of ``rows``, the last line among the changes of its key.

    ``rows`` has the columns of the key, and each key once; ``changes`` has all changes of these
    keys.
    """

    def codes(of: pa.Table) -> NDArray[np.int64]:
        both = pa.concat_tables([rows.select(list(key)), of.select(list(key))])
        return row_codes([column(both, name) for name in key], both.num_rows)

    found = codes(changes)
    wanted = found[: rows.num_rows]
    changed = changes.filter(pa.array(np.isin(found[rows.num_rows :], wanted)))
    texts = change_lines(epoch, changed, key).texts.to_pylist()
    ordered = codes(with_operations(changed, key))
    last = dict(zip(ordered[rows.num_rows :].tolist(), texts, strict=True))
    return [last[code] for code in ordered[: rows.num_rows].tolist()]


def belongs_to_another(what: str, removed: str) -> HeadraceError:
    """Return the error that another sink owns a target; ``removed`` is how to remove its mark."""
    return HeadraceError(
        Code.CONFLICT,
        f"{what} belongs to another sink",
        "It may be one of another database, or one that was dropped: what a sink wrote stays.",
        f"Write elsewhere. If that sink is gone, remove what it wrote, and its mark: {removed}.",
    )


def moved_on(what: str, there: Epoch | None, known: Epoch | None) -> HeadraceError:
    """Return the error that a target's epoch is not the one that this process last saw there.

    A later epoch was written by another process of this database. An earlier one means that
    written changes are lost: to go on would leave wrong rows permanently.
    """
    if known is not None and (there is None or there < known):
        return lost_changes(what, there, known)
    return HeadraceError(
        Code.UNAVAILABLE,
        f"{what} has changed since it was last looked at",
        f"It has epoch {there}: another process of this database has written to it.",
        "The delivery goes on after that epoch by itself.",
    )


def require_own(
    owner: str | None, context: SinkContext, what: str, removed: str, there: Epoch | None = None
) -> None:
    """Refuse a target that another sink owns, or, after a change of address, one never written.

    ``owner`` is the identity in the mark. Without one, ``there``, the epoch of the mark, shows
    whether the sink has written there.

    Raises:
        HeadraceError: ``conflict``.
    """
    if owner is not None and owner != context.identity:
        raise belongs_to_another(what, removed)
    if context.moved is not None and owner is None and (there or -1) < context.moved:
        raise HeadraceError(
            Code.CONFLICT,
            f"{what} does not contain what this sink has written",
            f"The sink has written epoch {context.moved}, and the target has no record of it.",
            "An address may change if it leads to the same rows. CREATE OR REPLACE the sink to"
            " write into another place.",
        )


def encoded(refused: Iterable[RefusedRow]) -> str:
    """Return refused rows and their reasons as JSON, for the mark."""
    return json.dumps([(each.row, each.why) for each in refused], ensure_ascii=False)


def decoded(text: str | None) -> list[RefusedRow]:
    """Return the rows that :func:`encoded` wrote."""
    return [RefusedRow(row, why) for row, why in json.loads(text or "[]")]


def pieces(text: str, most: int) -> list[str]:
    """Cut a text into pieces of at most ``most`` characters; none for an empty text."""
    return [text[start : start + most] for start in range(0, len(text), most)]


def refused_rows(
    epoch: Epoch, part: pa.Table, rows: pa.Table, key: Sequence[str], wrong: Mapping[int, str]
) -> list[RefusedRow]:
    """Return the refused rows with the reasons in ``wrong``, by index into ``rows``.

    ``rows`` has each key in the changes of ``part`` once; a refused row is shown as the last line
    of its key's changes.
    """
    if not wrong:
        return []
    places = sorted(wrong)
    lines = lines_of_keys(epoch, part, rows.take(pa.array(places, pa.int64())), key)
    return [RefusedRow(line, wrong[place]) for line, place in zip(lines, places, strict=True)]


def require_readable(schema: Schema, what: str) -> None:
    """Refuse columns whose text in the system ``what`` could not be parsed back and compared.

    Raises:
        HeadraceError: ``unsupported``, with the first such column.
    """
    for each in schema.columns:
        read = from_json if _has_json(each) else from_text
        try:
            read(each)
        except HeadraceError as error:
            given = f'column "{each.name}" of type {each.sql.upper()}'
            raise HeadraceError(
                Code.UNSUPPORTED,
                f"{given} cannot be written into {what}",
                hint="CAST it to STRING in the query.",
            ) from error


def values_of(texts: pa.StringArray, column: Column) -> pa.Array:
    """Parse texts into values of a column; a text that does not fit becomes NULL."""
    target = to_arrow(column.type)
    if _has_json(column):
        return of_texts(texts, target, None, lambda: _from_json_text(column)).values

    def whole(texts: pa.Array) -> pa.Array:
        return cast_texts(texts, column.type, target)

    return of_texts(texts, target, whole, lambda: from_text(column)).values


def _has_json(column: Column) -> bool:
    """Whether values have the text of their JSON form: JSON, or base64 for BINARY."""
    kinds = t.ArrayType | t.MapType | t.StructType | t.VariantType | t.BinaryType
    return isinstance(column.type, kinds)


def _from_json_text(column: Column) -> Converter:
    convert = from_json(column)
    if isinstance(column.type, t.BinaryType):
        return lambda text: convert(parse_json(f'"{text}"'))
    return lambda text: convert(parse_json(text))
