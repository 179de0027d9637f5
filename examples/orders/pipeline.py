"""CQRS: one log of commands, and a read model for each question: `make example-orders`.

It prints the orders by user, the number by status, and the totals of each user; then the same once
an order was cancelled and another one was shipped:

    ann  ['o-1', 'o-3']
    bob  ['o-2']
    placed  3
    ann  {'orders': 2, 'open': 2, 'spent': 50}
    bob  {'orders': 1, 'open': 1, 'spent': 20}
    ann  ['o-1', 'o-3']
    bob  ['o-2']
    cancelled  1
    placed  1
    shipped  1
    ann  {'orders': 2, 'open': 1, 'spent': 40}
    bob  {'orders': 1, 'open': 0, 'spent': 20}
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from printed import main, show

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace import Database

STATEMENTS = """
CREATE STREAM commands (at INT, command STRING, order_id STRING, user STRING, status STRING,
    amount INT);
CREATE MATERIALIZED VIEW orders AS
SELECT order_id, max(user) AS user, max(amount) AS amount,
    max_by(CASE command WHEN 'place_order' THEN 'placed' WHEN 'cancel_order' THEN 'cancelled'
        ELSE status END, at) AS status
FROM commands GROUP BY order_id;
CREATE MATERIALIZED VIEW order_by_user AS
SELECT user, sort_array(collect_list(order_id)) AS orders FROM orders GROUP BY user;
CREATE MATERIALIZED VIEW order_by_status AS
SELECT status, count(*) AS orders FROM orders GROUP BY status;
CREATE MATERIALIZED VIEW user_dashboard AS
SELECT user, named_struct('orders', count(*), 'open', count_if(status = 'placed'),
    'spent', sum(CASE WHEN status <> 'cancelled' THEN amount ELSE 0 END)) AS totals
FROM orders GROUP BY user
"""


def example(connect: Callable[..., Database]) -> None:
    """Give commands, and show what each read model makes of them."""
    with connect() as db:
        db.sql(STATEMENTS)
        db.sql("""INSERT INTO commands VALUES (1, 'place_order', 'o-1', 'ann', NULL, 40),
            (2, 'place_order', 'o-2', 'bob', NULL, 20),
            (3, 'place_order', 'o-3', 'ann', NULL, 10)""")
        _show(db)
        db.sql("""INSERT INTO commands VALUES (4, 'cancel_order', 'o-3', NULL, NULL, NULL),
            (5, 'update_status', 'o-2', NULL, 'shipped', NULL)""")
        _show(db)


def _show(db: Database) -> None:
    for name in ("order_by_user", "order_by_status", "user_dashboard"):
        show(db.sql(f"SELECT * FROM {name}"))


if __name__ == "__main__":
    main(example)
