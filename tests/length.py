"""How long tests take: short in `make test`, which everybody waits for, long in `make suites`.

The long ones have more epochs, more rows, more seeds, more ways to read, and of many queries all,
where a short run has one of each kind: what `make test` leaves out, `make suites` proves.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

T = TypeVar("T")

_VARIABLE = "HEADRACE_THOROUGH"


def thorough() -> bool:
    """Whether this run takes its time."""
    return bool(os.environ.get(_VARIABLE))


def choose(short: T, long: T) -> T:
    """Return what suits the length of this run."""
    return long if thorough() else short


def some(queries: Mapping[str, T], names: str) -> dict[str, T]:
    """Return the queries of these names, one of each kind; a long run has all queries."""
    short = {name: queries[name] for name in names.split()}
    return choose(short, dict(queries))


def each(step: int, cases: Sequence[T]) -> Sequence[T]:
    """Return every ``step``-th of some cases; a long run has all of them."""
    return choose(cases[::step], cases)
