"""A table is the sum of its changes, and its changes are the steps between: `make example-duality`.

It prints each change of the balances as it happens, then the balances:

    + u-001 0
    - u-001 0
    + u-001 100
    - u-001 100
    + u-001 450
    - u-001 450
    + u-001 350
    + u-002 120
    u-001  350
    u-002  120
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from printed import changes, main, show

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace import Database

STEPS = [("u-001", 0), ("u-001", 100), ("u-001", 350), ("u-001", -100), ("u-002", 120)]


def example(connect: Callable[..., Database]) -> None:
    """Insert one step after another, and follow the sums."""
    with connect() as db:
        db.sql("""
            CREATE STREAM steps (user STRING, amount INT);
            CREATE MATERIALIZED VIEW balances AS
            SELECT user, sum(amount) AS balance FROM steps GROUP BY user""")
        with db.subscribe("SELECT * FROM balances") as followed:
            followed.poll()
            for step in STEPS:
                db.insert("steps", [step])
                db.flush()
                changes(followed)
        show(db.sql("SELECT * FROM balances"))


if __name__ == "__main__":
    main(example)
