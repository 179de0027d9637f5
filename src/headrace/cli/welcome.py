"""The greeting of the shell."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from headrace.cli.listings import counted

if TYPE_CHECKING:
    from headrace.connecting import AnyDatabase

FIRST_STEPS = (
    "CREATE TABLE orders (id INT, name STRING, amount DECIMAL(10,2), PRIMARY KEY (id));",
    "CREATE MATERIALIZED VIEW totals AS SELECT name, sum(amount) AS sum FROM orders GROUP BY name;",
    "INSERT INTO orders VALUES (1, 'ann', 30), (2, 'bob', 12.50); SELECT * FROM totals;",
)
"""Three statements to try, in this order, in an empty database."""


def welcome(database: AnyDatabase, seconds: float) -> list[str]:
    """Return the lines that describe the opened database, and the first steps if it is empty."""
    relations, (kind, name) = counted(database), database.origin
    lines = [
        f'headrace {version("headrace")}, {kind} "{name}"',
        f"{relations or 'empty'}, epoch {database.last_epoch():,} (opened in {seconds:.1f} s)",
        r"Statements end with a semicolon. \? shows commands, \h statements, \q or Ctrl-D leaves.",
    ]
    if not relations:
        lines += ["", "Three things to try:", *(f"  {step}" for step in FIRST_STEPS)]
    return lines
