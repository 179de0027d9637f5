"""Orders and customers of PostgreSQL, joined as they change: `make example-postgres`.

Starts a server for itself. Every transaction there is seen whole here; at the end the view equals
the same query run in PostgreSQL.
"""

from __future__ import annotations

import random
import sys
import time
from pathlib import Path

from following import Followed, run

from servers.postgres import postgres

STATEMENTS = Path(__file__).with_name("statements.sql")
ORDERS = 200
SPENT = """SELECT c.name, count(*), sum(o.amount) FROM orders o
JOIN customers c ON o.customer = c.id GROUP BY c.name ORDER BY c.name"""


def shop(example: Followed) -> None:
    """Change the tables in transactions, and follow the view."""
    server = example.open.enter_context(postgres(example.folder / "postgres"))
    there = example.open.enter_context(server.connect())
    there.execute("CREATE TABLE customers (id int PRIMARY KEY, name text)")
    there.execute("CREATE TABLE orders (id int PRIMARY KEY, customer int, amount numeric(10, 2))")
    there.execute("CREATE PUBLICATION headrace FOR TABLE customers, orders")
    there.execute("INSERT INTO customers VALUES (1, 'ann'), (2, 'bob'), (3, 'eve')")
    example.db.sql(STATEMENTS.read_text(encoding="utf-8").format(port=server.port))
    rng = random.Random(7)
    for number in range(ORDERS):
        with there.transaction():
            order = (number, rng.randint(1, 3), rng.randint(1, 9999) / 100)
            there.execute("INSERT INTO orders VALUES (%s, %s, %s)", order)
            if number % 10 == 9:
                there.execute("DELETE FROM orders WHERE id = %s", (number - 5,))
                there.execute("UPDATE orders SET amount = amount / 2 WHERE id = %s", (number - 1,))
        time.sleep(example.seconds / ORDERS)
        example.show("SELECT * FROM spent ORDER BY name")
    example.wait("SELECT count(*) FROM orders", ORDERS - ORDERS // 10)
    example.show("SELECT * FROM spent ORDER BY name", at_once=True)
    found = example.db.sql("SELECT * FROM spent ORDER BY name").fetchall()
    same = found == there.execute(SPENT).fetchall()
    print(f"PostgreSQL says {'the same' if same else 'something else'}")


if __name__ == "__main__":
    sys.exit(run("postgres", shop))
