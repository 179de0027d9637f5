"""Headrace: SQL views over streams and changing tables, kept correct, fresh and cheap to read.

>>> import headrace
>>> with headrace.connect("data") as db:  # doctest: +SKIP
...     db.sql("CREATE STREAM readings (sensor STRING, area STRING, reading INT)")
"""

from headrace.database import Database, connect
from headrace.errors import Code, HeadraceError
from headrace.serving import Change
from headrace.session import Freshness, Progress, Result, Subscription

__version__ = "0.1.0"

__all__ = [
    "Change",
    "Code",
    "Database",
    "Freshness",
    "HeadraceError",
    "Progress",
    "Result",
    "Subscription",
    "__version__",
    "connect",
]
