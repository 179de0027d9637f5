"""What the shell says first."""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

from headrace.cli.listings import counted

if TYPE_CHECKING:
    from headrace.database import Database

FIRST_STEPS = (
    "CREATE TABLE orders (id INT, name STRING, amount DECIMAL(10,2), PRIMARY KEY (id));",
    "CREATE MATERIALIZED VIEW totals AS SELECT name, sum(amount) AS sum FROM orders GROUP BY name;",
    "INSERT INTO orders VALUES (1, 'ann', 30), (2, 'bob', 12.50); SELECT * FROM totals;",
)
"""Three things to try, in their order, in an empty database."""


def welcome(database: Database, seconds: float) -> list[str]:
    """Return the lines that say what was opened, and what to do with it."""
    there = counted(database)
    lines = [
        f'headrace {version("headrace")}, data directory "{database.directory}"',
        f"{there or 'empty'}, epoch {database.last_epoch():,} (opened in {seconds:.1f} s)",
        r"Statements end with a semicolon. \? shows commands, \h statements, \q or Ctrl-D leaves.",
    ]
    if not there:
        lines += ["", "Three things to try:", *(f"  {step}" for step in FIRST_STEPS)]
    return lines
