"""Tests of views: rows in, rows and changes out, with a clock that the test moves.

With pytest, the fixture ``headrace_db`` is a :class:`TestDatabase`; ``headrace test`` runs files of
SQL with expected rows.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.testing.clock import ControlledClock
    from headrace.testing.database import TestDatabase


__all__ = ["ControlledClock", "TestDatabase"]

_HOMES = {
    "ControlledClock": "headrace.testing.clock",
    "TestDatabase": "headrace.testing.database",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use: pytest loads this package for every test run."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """Return the public names, imported or not."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
