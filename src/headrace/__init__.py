"""Headrace: SQL views over streams and changing tables, kept correct, fresh and cheap to read.

>>> import headrace
>>> with headrace.connect("data") as db:  # doctest: +SKIP
...     db.sql("CREATE STREAM readings (sensor STRING, area STRING, reading INT)")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.connecting import AnyDatabase, connect
    from headrace.database import Database
    from headrace.errors import Code, HeadraceError
    from headrace.functions import Function, fold, function
    from headrace.remote import RemoteDatabase, RemoteSession
    from headrace.serving import Change
    from headrace.session import Session
    from headrace.statements.results import Freshness, Progress, Result, Subscription

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
    "AnyDatabase": "headrace.connecting",
    "Change": "headrace.serving",
    "Code": "headrace.errors",
    "Database": "headrace.database",
    "Freshness": "headrace.statements.results",
    "Function": "headrace.functions",
    "HeadraceError": "headrace.errors",
    "Progress": "headrace.statements.results",
    "RemoteDatabase": "headrace.remote",
    "RemoteSession": "headrace.remote",
    "Result": "headrace.statements.results",
    "Session": "headrace.session",
    "Subscription": "headrace.statements.results",
    "connect": "headrace.connecting",
    "fold": "headrace.functions",
    "function": "headrace.functions",
}


def __getattr__(name: str) -> Any:
    """Import a public name on first use: importing Spark and Arrow takes a second."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """Return the public names, imported or not."""
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
