"""How long tests take: short in `make test`, which everybody waits for, long in `make suites`.

Both run the same tests over the same queries. The long ones have more epochs, more rows, more seeds
and more ways to read, so what is left out of `make test` is proved by `make suites`.
"""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")

_VARIABLE = "HEADRACE_THOROUGH"


def thorough() -> bool:
    """Whether this run takes its time."""
    return bool(os.environ.get(_VARIABLE))


def choose(short: T, long: T) -> T:
    """Return what suits the length of this run."""
    return long if thorough() else short
