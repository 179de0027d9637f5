"""Headrace: SQL views over streams and changing tables, kept correct, fresh and cheap to read.

>>> import headrace
>>> with headrace.connect("data") as db:  # doctest: +SKIP
...     db.sql("CREATE STREAM readings (sensor STRING, area STRING, reading INT)")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.errors import Code, HeadraceError
    from headrace.execution.serving import Change
    from headrace.interfaces.connecting import AnyDatabase, connect
    from headrace.interfaces.database import Database
    from headrace.interfaces.remote import RemoteDatabase, RemoteSession
    from headrace.interfaces.session import Session
    from headrace.interfaces.statements.results import Freshness, Progress, Result, Subscription
    from headrace.planning.functions import Function, fold, function


__version__ = "0.2.0"

__all__ = [
    "AnyDatabase",
    "Change",
    "Code",
    "Database",
    "Freshness",
    "Function",
    "HeadraceError",
    "Progress",
    "RemoteDatabase",
    "RemoteSession",
    "Result",
    "Session",
    "Subscription",
    "__version__",
    "connect",
    "fold",
    "function",
]

_HOMES = {
    "AnyDatabase": "headrace.interfaces.connecting",
    "Change": "headrace.execution.serving",
    "Code": "headrace.errors",
    "Database": "headrace.interfaces.database",
    "Freshness": "headrace.interfaces.statements.results",
    "Function": "headrace.planning.functions",
    "HeadraceError": "headrace.errors",
    "Progress": "headrace.interfaces.statements.results",
    "RemoteDatabase": "headrace.interfaces.remote",
    "RemoteSession": "headrace.interfaces.remote",
    "Result": "headrace.interfaces.statements.results",
    "Session": "headrace.interfaces.session",
    "Subscription": "headrace.interfaces.statements.results",
    "connect": "headrace.interfaces.connecting",
    "fold": "headrace.planning.functions",
    "function": "headrace.planning.functions",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use: importing Spark and Arrow takes a second."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """Return the public names, imported or not."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
