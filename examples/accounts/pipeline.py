"""Event sourcing: a state is what its events make of it: `make example-accounts`.

The events of an account are folded by a Python function. A second read model, which is created
later, is made from the same events, from the beginning. It prints both, and then both again once an
event has arrived that happened before the others:

    a1  50  open
    a1  4  100
    a1  80  open
    a1  5  100
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from printed import main, show

import headrace

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace import Database

SIGN = {"deposited": 1, "withdrawn": -1}


@headrace.fold(
    key=["account"],
    order_by=["at"],
    returns="balance INT, state STRING",
    start={"balance": 0, "state": "unknown"},
)
def account_of(state: dict[str, Any], event: Any) -> dict[str, Any]:
    """Return the account after an event."""
    if event.kind == "opened":
        state["state"] = "open"
    state["balance"] += SIGN.get(event.kind, 0) * event.amount
    return state


def example(connect: Callable[..., Database]) -> None:
    """Replay an account, and make another read model of its events."""
    with connect(functions=[account_of]) as db:
        db.sql("""
            CREATE STREAM events (account STRING, at INT, kind STRING, amount INT);
            CREATE MATERIALIZED VIEW accounts AS SELECT * FROM account_of(TABLE events);
            INSERT INTO events VALUES ('a1', 1, 'opened', 0), ('a1', 3, 'deposited', 100),
                ('a1', 4, 'deposited', 50), ('a1', 5, 'withdrawn', 100);
            CREATE MATERIALIZED VIEW activity AS
            SELECT account, count(*) AS events, max(amount) AS largest FROM events
            GROUP BY account""")
        show(db.sql("SELECT * FROM accounts"))
        show(db.sql("SELECT * FROM activity"))
        db.sql("INSERT INTO events VALUES ('a1', 2, 'deposited', 30)")
        show(db.sql("SELECT * FROM accounts"))
        show(db.sql("SELECT * FROM activity"))


if __name__ == "__main__":
    main(example)
