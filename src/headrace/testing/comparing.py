"""Rows compared as bags, with a difference that can be read."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from headrace.serving.python_values import python_values
from headrace.testing.text_rows import aligned, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

_SHOWN: Final = 20
"""The most rows of a difference that are shown."""
_PAIRED: Final = 200
"""The most rows among which similar ones are looked for."""
_NAN: Final = "NaN"
_MISSING, _UNEXPECTED, _CHANGED = "-", "+", "~"

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class RowDifference:
    """The rows by which two bags differ.

    ``changed`` are pairs of an expected and an actual row that are of one key, or alike. ``equal``
    is how many rows agree.
    """

    columns: tuple[str, ...]
    missing: tuple[Row, ...]
    unexpected: tuple[Row, ...]
    changed: tuple[tuple[Row, Row], ...]
    equal: int

    def __bool__(self) -> bool:
        """Whether the bags differ."""
        return bool(self.missing or self.unexpected or self.changed)

    def __str__(self) -> str:
        """Return the difference as a summary and a table, each line with a mark."""
        lines: list[tuple[str, list[str]]] = [
            *((_MISSING, list(map(shown, row))) for row in self.missing),
            *((_UNEXPECTED, list(map(shown, row))) for row in self.unexpected),
            *(
                (_CHANGED, [_change(a, b) for a, b in zip(expected, actual, strict=True)])
                for expected, actual in self.changed
            ),
        ]
        cut = len(lines) - _SHOWN
        table = aligned([list(self.columns), *(cells for _, cells in lines[:_SHOWN])])
        marks = [" ", *(mark for mark, _ in lines[:_SHOWN])]
        text = [f"  {mark} {line}" for mark, line in zip(marks, table, strict=True)]
        more = [f"    ... and {cut} more"] if cut > 0 else []
        return "\n".join([self._summary(), *text, *more])

    def _summary(self) -> str:
        found = [
            (len(self.missing), "missing (-)"),
            (len(self.unexpected), "not expected (+)"),
            (len(self.changed), "changed (~ expected → actual)"),
        ]
        parts = [f"{_rows(count)} {what}" for count, what in found if count]
        return f"{', '.join(parts)}; {_rows(self.equal)} equal"


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count} rows"


def _change(expected: Any, actual: Any) -> str:
    if identity(expected) == identity(actual):
        return shown(actual)
    return f"{shown(expected)} → {shown(actual)}"


def identity(value: Any) -> Any:
    """Return something hashable that is equal for values that SQL's ``IS NOT DISTINCT`` is."""
    if isinstance(value, float):
        return _NAN if math.isnan(value) else value + 0.0
    if isinstance(value, dict):
        return tuple((key, identity(each)) for key, each in value.items())
    if isinstance(value, list | tuple):
        return tuple(map(identity, value))
    return value


def rows_of(table: pa.Table) -> list[Row]:
    """Return the rows of an Arrow table as tuples of Python values; entries of maps are sorted."""
    import pyarrow as pa  # noqa: PLC0415  (its types alone)

    columns = [
        [None if v is None else sorted(v, key=repr) for v in python_values(column)]
        if pa.types.is_map(column.type)
        else python_values(column)
        for column in table.columns
    ]
    return list(zip(*columns, strict=True)) if columns else []


def difference(
    columns: Sequence[str],
    expected: Sequence[Row],
    actual: Sequence[Row],
    *,
    key: Iterable[str] = (),
    fixed: int = 0,
    tolerance: float = 0.0,
) -> RowDifference:
    """Compare rows as bags.

    ``key`` are columns by which rows that differ are paired, if both sides have one row of a key;
    otherwise, rows are that agree in the first ``fixed`` columns and in more than half of the
    others. Floats within ``tolerance``, relative or absolute, are equal.
    """
    wanted, found = Counter(map(identity, expected)), Counter(map(identity, actual))
    shown_rows = {identity(row): row for row in (*expected, *actual)}
    missing = sorted((wanted - found).elements(), key=_order)
    unexpected = sorted((found - wanted).elements(), key=_order)
    equal = (wanted & found).total()
    if tolerance:
        equal += _near(missing, unexpected, tolerance)
    places = [list(columns).index(name) for name in key if name in columns]
    pairs = _of_one_key(missing, unexpected, places) if places else []
    if max(len(missing), len(unexpected)) <= _PAIRED:
        pairs += _alike(missing, unexpected, fixed)
    return RowDifference(
        tuple(columns),
        tuple(shown_rows[row] for row in missing),
        tuple(shown_rows[row] for row in unexpected),
        tuple((shown_rows[a], shown_rows[b]) for a, b in pairs),
        equal,
    )


def _order(row: Row) -> tuple[Any, ...]:
    return tuple(
        (2, "", str(value)) if not isinstance(value, int | float) else (1, value, "")
        for value in row
    )


def _near(missing: list[Row], unexpected: list[Row], tolerance: float) -> int:
    """Remove the rows that agree within a tolerance from both lists; return how many."""
    count = 0
    for row in list(missing):
        for other in unexpected:
            if _close(row, other, tolerance):
                missing.remove(row)
                unexpected.remove(other)
                count += 1
                break
    return count


def _close(left: Any, right: Any, tolerance: float) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return math.isclose(left, right, rel_tol=tolerance, abs_tol=tolerance)
    if isinstance(left, tuple) and isinstance(right, tuple) and len(left) == len(right):
        return all(_close(a, b, tolerance) for a, b in zip(left, right, strict=True))
    return bool(left == right)


def _of_one_key(
    missing: list[Row], unexpected: list[Row], places: Sequence[int]
) -> list[tuple[Row, Row]]:
    """Take the pairs of rows with one key out of both lists."""

    def by_key(rows: list[Row]) -> dict[Row, list[Row]]:
        found: dict[Row, list[Row]] = {}
        for row in rows:
            found.setdefault(tuple(row[place] for place in places), []).append(row)
        return found

    left, right = by_key(missing), by_key(unexpected)
    pairs = [
        (rows[0], right[key][0])
        for key, rows in left.items()
        if len(rows) == 1 and len(right.get(key, ())) == 1
    ]
    for expected, actual in pairs:
        missing.remove(expected)
        unexpected.remove(actual)
    return pairs


def _alike(missing: list[Row], unexpected: list[Row], fixed: int) -> list[tuple[Row, Row]]:
    """Take the pairs of rows that are mostly equal out of both lists; see :func:`difference`."""
    pairs = []
    for row in list(missing):
        alike = [
            (sum(a == b for a, b in zip(row[fixed:], other[fixed:], strict=True)), other)
            for other in unexpected
            if row[:fixed] == other[:fixed]
        ]
        most, other = max(alike, key=lambda each: each[0], default=(0, None))
        if other is not None and 2 * most > len(row) - fixed:
            missing.remove(row)
            unexpected.remove(other)
            pairs.append((row, other))
    return pairs
