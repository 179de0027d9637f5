"""Orders of PostgreSQL, by a view, in Redis and Cassandra and on a page: `make example-pipeline`.

Starts the three servers for itself. The page reads Redis alone, as an application would. At the
end PostgreSQL's own answer, both stores and the page agree. With ARGS='--seconds 600' there is time
to look at the page.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

from following import Followed, run

from servers.cassandra import cassandra
from servers.postgres import postgres
from servers.redis import redis_server

if TYPE_CHECKING:
    from collections.abc import Iterable

STATEMENTS = Path(__file__).with_name("statements.sql")
ORDERS = 120
USERS = ("ann", "bob", "cid", "eve")
REVENUE = """SELECT user_id, count(*), sum(amount) FROM orders WHERE status <> 'cancelled'
GROUP BY user_id ORDER BY user_id"""
KEYSPACE = """CREATE KEYSPACE shop WITH replication =
{'class': 'SimpleStrategy', 'replication_factor': 1}"""

CHANGES = {
    "UPDATE orders SET status = 'cancelled'": 1,
    "UPDATE orders SET amount = amount * 2": 2,
    "DELETE FROM orders": 3,
}
"""What happens to an order that is so many orders old."""

Revenue = list[tuple[str, str, str]]


def in_redis(client: Any) -> Revenue:
    """Return what each user has spent, as Redis has it."""
    items = (client.hgetall(key) for key in client.scan_iter("revenue:*"))
    return sorted((i["user_id"], i["orders"], i["total_revenue"]) for i in items)


def serve(example: Followed, client: Any) -> str:
    """Serve a page over Redis in the background; return its address."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            rows = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in in_redis(client))
            body = f"<meta http-equiv=refresh content=1><table>{rows}</table>".encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = example.open.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), Page))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    example.open.callback(server.shutdown)
    return f"http://127.0.0.1:{server.server_port}/"


def _cell(value: str) -> str:
    return f"<td>{escape(value)}</td>"


def shop(example: Followed) -> None:
    """Place, raise, cancel and delete orders, and follow the view."""
    there = example.open.enter_context(postgres(example.folder / "postgres"))
    store = example.open.enter_context(redis_server(example.folder / "redis"))
    node = example.open.enter_context(cassandra(example.folder / "cassandra"))
    node.query(KEYSPACE)
    session = example.open.enter_context(there.connect())
    session.execute("CREATE TABLE orders (order_id int PRIMARY KEY, user_id text NOT NULL,"
                    " amount numeric(10, 2) NOT NULL, status text NOT NULL)")  # fmt: skip
    session.execute("CREATE PUBLICATION headrace FOR TABLE orders")
    password = example.folder / "password"
    password.write_text("cassandra", encoding="utf-8")
    where = {"postgres": there.port, "redis": store.port, "cassandra": node.port}
    statements = STATEMENTS.read_text(encoding="utf-8").format(**where, password=password)
    example.db.sql(statements)
    page = serve(example, store.client())
    print(f"the page: {page}", flush=True)
    rng = random.Random(7)
    for number in range(ORDERS):
        order = (number, rng.choice(USERS), rng.randint(1, 9999) / 100)
        session.execute("INSERT INTO orders VALUES (%s, %s, %s, 'placed')", order)
        if number % 5 == 4:
            for change, age in CHANGES.items():
                session.execute(f"{change} WHERE order_id = %s", (number - age,))
        time.sleep(example.seconds / ORDERS)
        example.show("SELECT * FROM user_revenue ORDER BY user_id")
    wanted = _texts(session.execute(REVENUE).fetchall())
    example.wait("SELECT count(*) FROM orders", ORDERS - ORDERS // 5)
    example.db.flush()
    example.show("SELECT * FROM user_revenue ORDER BY user_id", at_once=True)
    example.show("SELECT name, guarantee FROM information_schema.sinks", at_once=True)
    columns = "user_id, orders, total_revenue"
    found = {
        "Redis": in_redis(store.client()),
        "Cassandra": _texts(node.query(f"SELECT {columns} FROM shop.user_revenue")),
    }
    for name, rows in found.items():
        print(f"{name} has {'the same as' if rows == wanted else 'something else than'} PostgreSQL")
    with urlopen(page) as answer:  # noqa: S310 - it is served above
        shown = answer.read().decode()
    complete = all(_cell(value) in shown for row in wanted for value in row)
    print(f"the page shows {'all of it' if complete else 'something else'}")
    if any(rows != wanted for rows in found.values()) or not complete:
        sys.exit(1)


def _texts(rows: Iterable[Any]) -> Revenue:
    return sorted((str(user), str(orders), str(total)) for user, orders, total in rows)


if __name__ == "__main__":
    sys.exit(run("pipeline", shop))
