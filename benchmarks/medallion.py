"""A medallion of fifteen views in three layers: a commit of some thousand rows, and Spark batch.

Bronze cleans orders, their items and customers; silver joins and sums them; gold reports. Customers
move between segments, so that a commit reaches back into history. Batch computes the same fifteen
queries from Parquet files, each written to a Parquet file that the layer above reads.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.epochs import JOB, NARROW, opened, ratio

if TYPE_CHECKING:
    from benchmarks.epochs import Bench, Size
    from headrace.interfaces.database import Database

ORDERS, ITEMS, CUSTOMERS = 1_000, 3_500, 350
"""The rows of a commit: 4,850."""
STREAMS = {
    "orders": "id BIGINT, customer INT, status STRING, at TIMESTAMP",
    "items": "order_id BIGINT, product INT, quantity INT, price DECIMAL(10,2)",
}
TABLES = {"customers": "id INT, segment STRING, country STRING"}
"""The columns of tables, whose primary key is the first one."""
VIEWS = {
    "bronze_orders": "SELECT id, customer, upper(status) AS status, CAST(at AS DATE) AS day"
    " FROM orders WHERE customer IS NOT NULL",
    "bronze_items": "SELECT order_id, product, quantity, price,"
    " CAST(quantity * price AS DECIMAL(18,2)) AS amount FROM items WHERE quantity > 0",
    "bronze_customers": "SELECT id, upper(segment) AS segment, country FROM customers",
    "silver_totals": "SELECT order_id, count(*) AS lines, sum(amount) AS amount"
    " FROM bronze_items GROUP BY order_id",
    "silver_orders": "SELECT o.id, o.customer, o.status, o.day, c.segment, c.country"
    " FROM bronze_orders o JOIN bronze_customers c ON o.customer = c.id",
    "silver_sales": "SELECT o.id, o.customer, o.segment, o.country, o.day, t.lines, t.amount"
    " FROM silver_orders o JOIN silver_totals t ON o.id = t.order_id WHERE o.status <> 'CANCELLED'",
    "silver_lines": "SELECT i.order_id, i.product, i.quantity, i.amount, o.segment, o.day"
    " FROM bronze_items i JOIN silver_orders o ON i.order_id = o.id",
    "gold_days": "SELECT day, segment, count(*) AS orders, sum(amount) AS amount"
    " FROM silver_sales GROUP BY day, segment",
    "gold_customers": "SELECT customer, count(*) AS orders, sum(amount) AS amount, max(day) AS last"
    " FROM silver_sales GROUP BY customer",
    "gold_countries": "SELECT country, sum(amount) AS amount, count(DISTINCT customer) AS customers"
    " FROM silver_sales GROUP BY country",
    "gold_products": "SELECT product, segment, sum(quantity) AS quantity, sum(amount) AS amount"
    " FROM silver_lines GROUP BY product, segment",
    "gold_best": "SELECT segment, product, amount FROM (SELECT *, row_number() OVER"
    " (PARTITION BY segment ORDER BY amount DESC, product) AS place FROM gold_products)"
    " WHERE place <= 10",
    "gold_buyers": "SELECT DISTINCT day, customer FROM silver_sales",
    "gold_active": "SELECT day, count(*) AS customers FROM gold_buyers GROUP BY day",
    "gold_idle": "SELECT c.id, c.segment FROM bronze_customers c"
    " LEFT ANTI JOIN silver_sales s ON c.id = s.customer",
}


class Rows:
    """Makes the rows of commits, of all that a commit has or of every ``share``-th row."""

    def __init__(self, share: int = 1) -> None:
        self._orders_each, self._items_each, self._customers_each = (
            number // share for number in (ORDERS, ITEMS, CUSTOMERS)
        )
        self._random = np.random.default_rng(1)
        self._orders = 0
        self._customers = 0
        self.made: dict[str, list[pa.Table]] = {"orders": [], "items": []}

    def commit(self, times: int = 1) -> dict[str, pa.Table]:
        """Return the rows of a commit by source, or as many as of several."""
        random, orders = self._random, self._orders_each * times
        first, self._orders = self._orders, self._orders + orders
        new = self._customers_each * times if not first else 0
        self._customers += new
        kinds = np.array(["open", "paid", "sent", "cancelled"])
        days = first // 500 + np.sort(random.integers(0, 1 + orders // 500, orders))
        at = 1_767_225_600_000_000 + days * 86_400_000_000
        ordered = pa.table(
            {
                "id": np.arange(first, first + orders),
                "customer": random.integers(0, self._customers, orders, np.int32),
                "status": pa.array(kinds[random.integers(0, 4, orders)]),
                "at": pa.array(at, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
            }
        )
        number = self._items_each * times
        cents = pa.array(random.integers(100, 100_000, number)).cast(pa.decimal128(19, 0))
        lines = pa.table(
            {
                "order_id": random.integers(first, first + orders, number),
                "product": random.integers(0, 200, number, np.int32),
                "quantity": random.integers(1, 9, number, np.int32),
                "price": cents.cast(pa.decimal128(10, 2)),
            }
        )
        if new:
            changed = np.arange(new, dtype=np.int32)
        else:
            moved = random.choice(self._customers, self._customers_each, replace=False)
            changed = moved.astype(np.int32)
        segments = [f"segment {number}" for number in random.integers(0, 8, len(changed))]
        countries = [f"country {number % 30}" for number in changed]
        people = pa.table({"id": changed, "segment": segments, "country": countries})
        self.made["orders"].append(ordered)
        self.made["items"].append(lines)
        return {"customers": people, "orders": ordered, "items": lines}


def measure(directory: Path, size: Size) -> dict[str, Any]:
    """Return how long commits take at each width, the first fill, and Spark batch of the same."""
    rows = Rows()
    with (
        tempfile.TemporaryDirectory(dir=directory, prefix="database-") as name,
        opened(Path(name) / "db", partitions=2) as bench,
    ):
        db = bench.db
        declare(db)
        loaded = rows.commit(max(1, size.loaded // 100))
        _insert(bench, loaded)
        begun = time.perf_counter()
        for view, query in VIEWS.items():
            db.sql(f"CREATE MATERIALIZED VIEW {view} AS {query}")
        db.flush()
        filled = time.perf_counter() - begun

        def act() -> None:
            _insert(bench, rows.commit())
            db.flush()

        taken = bench.compared(act, size, (NARROW, JOB))
        profile = bench.profile(act, 3)
        bench.verify()
        batch = _batch(bench, rows, Path(name))
    number = sum(table.num_rows for table in loaded.values())
    changed, least = ORDERS + ITEMS + CUSTOMERS, min(batch)
    work = f"medallion: a commit of {changed:,} rows to {number:,}"
    of_batch = {"p50_ms": least * 1000, "least_ms": least * 1000}
    of_fill = {"p50_ms": filled * 1000, "least_ms": filled * 1000}
    return {
        "ratios": [
            ratio(work, taken[NARROW], taken[JOB]),
            ratio(work, taken[NARROW], of_batch, "Spark batch", 0.05),
            ratio("medallion: its first fill", of_fill, of_batch, "Spark batch", 1.3),
        ],
        "profiles": {work: profile},
    }


def declare(db: Database) -> None:
    """Create the streams and tables."""
    for name, columns in STREAMS.items():
        db.sql(f"CREATE STREAM {name} ({columns})")
    for name, columns in TABLES.items():
        db.sql(f"CREATE TABLE {name} ({columns}, PRIMARY KEY (id))")


def _insert(bench: Bench, commit: dict[str, pa.Table]) -> None:
    for source, table in commit.items():
        bench.db.insert(source, table)


def _batch(bench: Bench, rows: Rows, folder: Path) -> list[float]:
    """Return the seconds of each of some runs of all queries in Spark batch."""
    spark = bench.db.parts.engine.spark.newSession()
    given = {name: pa.concat_tables(tables) for name, tables in rows.made.items()}
    given["customers"] = bench.db.sql("SELECT * FROM customers").to_arrow()
    for source in (*STREAMS, *TABLES):
        pq.write_table(given[source], folder / f"{source}.parquet")
        spark.read.parquet(str(folder / f"{source}.parquet")).createOrReplaceTempView(source)
    found = []
    for _ in range(3):
        begun = time.perf_counter()
        for view, query in VIEWS.items():
            path = str(folder / view)
            spark.sql(query).write.mode("overwrite").parquet(path)
            spark.read.parquet(path).createOrReplaceTempView(view)
        found.append(time.perf_counter() - begun)
    return found
