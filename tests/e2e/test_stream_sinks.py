"""Sinks of views into other systems, by SQL: what there is in the end is the view."""

from __future__ import annotations

import duckdb
import pytest

from asked import rows
from connectors.test_warehouse_sink import Loaded
from connectors.test_webhook_sink import receiving

pytestmark = pytest.mark.spark


@pytest.fixture
def shop(db):
    db.sql("""
        CREATE TABLE orders (id INT, buyer STRING, amount DECIMAL(8,2), PRIMARY KEY (id));
        INSERT INTO orders VALUES (1, 'ann', 10.00), (2, 'bob', 20.00), (3, 'ann', 5.50);
        CREATE MATERIALIZED VIEW spent AS SELECT buyer, sum(amount) AS s FROM orders GROUP BY buyer
    """)
    return db


def test_a_webhook_is_sent_the_changes_of_a_view(shop, monkeypatch):
    monkeypatch.setenv("PAGE_TOKEN", "Bearer x")
    shop.sql("CREATE SECRET page FROM ENV 'PAGE_TOKEN'")
    with receiving() as server:
        shop.sql(
            f"CREATE CONNECTION web TO WEBHOOK (URL '{server.url}', AUTHORIZATION SECRET page)"
        )
        made = shop.sql(
            "CREATE SINK page FROM spent INTO CONNECTION web (FORMAT 'json-lines')"
            " WITH ('request.rows' = 1)"
        )
        assert "at least once" in made.message
        shop.sql(
            "FLUSH; DELETE FROM orders WHERE id = 2; INSERT INTO orders VALUES (4, 'cid', 1.25)"
        )
        shop.sql("FLUSH")
        total = {}
        for headers, change in server.changes:
            assert headers["authorization"] == "Bearer x"
            row = change["row"]["buyer"], change["row"]["s"]
            total[row] = total.get(row, 0) + change["weight"]
        found = sorted(row for row, weight in total.items() if weight)
        assert found == [(b, str(s)) for b, s in rows(shop, "SELECT * FROM spent ORDER BY buyer")]
        shop.sql("DROP SINK page")


@pytest.mark.long
def test_files_of_parquet_add_up_to_the_view(shop):
    made = shop.sql(
        "CREATE SINK f FROM spent WITH (connector = 'file', path = 'f', format = 'parquet',"
        " partition_by = 'buyer')"
    )
    assert "exactly once: one directory per epoch" in made.message
    shop.sql(
        "CREATE SINK g FROM spent WITH (connector = 'file', path = 'g', format = 'parquet',"
        " content = 'snapshot')"
    )
    shop.sql("FLUSH; DELETE FROM orders WHERE id = 2; INSERT INTO orders VALUES (4, 'cid', 1.25)")
    shop.sql("FLUSH")
    newest = max((shop.directory / "sinks/g").glob("epoch=*"))
    whole = duckdb.sql(
        "SELECT buyer, s FROM read_parquet(?) ORDER BY buyer", params=[f"{newest}/*.parquet"]
    )
    assert whole.fetchall() == rows(shop, "SELECT * FROM spent ORDER BY buyer")
    found = duckdb.sql(
        "SELECT buyer, s FROM read_parquet(?) GROUP BY ALL HAVING sum(__weight) > 0 ORDER BY buyer",
        params=[str(shop.directory / "sinks/f/*/*/*.parquet")],
    ).fetchall()
    assert found == rows(shop, "SELECT * FROM spent ORDER BY buyer")


@pytest.mark.long
def test_a_table_of_delta_is_the_view(shop):
    deltalake = pytest.importorskip("deltalake")
    made = shop.sql("CREATE SINK d FROM spent WITH (connector = 'delta', path = 'd')")
    assert "exactly once: one commit per epoch" in made.message
    shop.sql("FLUSH; DELETE FROM orders WHERE id = 2; INSERT INTO orders VALUES (4, 'cid', 1.25)")
    shop.sql("FLUSH")
    there = deltalake.DeltaTable(shop.directory / "sinks/d")
    found = sorted(tuple(row.values()) for row in there.to_pyarrow_table().to_pylist())
    assert found == rows(shop, "SELECT * FROM spent ORDER BY buyer")
    there.delete("buyer = 'ann'")
    assert rows(shop, "RECONCILE SINK d")[0][2:] == (2, 1, 0, 0, 0, "repaired")
    there.update_incremental()
    assert there.count() == 2


@pytest.mark.long
def test_a_table_of_iceberg_is_the_view(shop):
    sql = pytest.importorskip("pyiceberg.catalog.sql")
    made = shop.sql(
        "CREATE SINK i FROM spent WITH (connector = 'iceberg', path = 'lake', table = 'shop.spent')"
    )
    assert "exactly once: one commit per epoch" in made.message
    shop.sql("FLUSH; DELETE FROM orders WHERE id = 2; INSERT INTO orders VALUES (4, 'cid', 1.25)")
    shop.sql("FLUSH")
    place = shop.directory / "sinks/lake"
    catalogue = sql.SqlCatalog(
        "headrace", uri=f"sqlite:///{place}/catalog.db", warehouse=str(place)
    )
    there = catalogue.load_table("shop.spent").scan().to_arrow().to_pylist()
    found = sorted(tuple(row.values()) for row in there)
    assert found == rows(shop, "SELECT * FROM spent ORDER BY buyer")
    assert rows(shop, "RECONCILE SINK i")[0][2:] == (2, 0, 0, 0, 0, "equal")
    catalogue.close()


@pytest.mark.long
def test_merges_are_staged_for_a_warehouse(shop):
    made = shop.sql(
        "CREATE SINK w FROM spent WITH (connector = 'warehouse', warehouse = 'snowflake',"
        " path = 'w', table = 'shop.spent', location = '@files/w/')"
    )
    assert "exactly once: a merge has an effect only after the one before it" in made.message
    shop.sql("FLUSH; DELETE FROM orders WHERE id = 2; INSERT INTO orders VALUES (4, 'cid', 1.25)")
    shop.sql("FLUSH")
    loaded = Loaded(shop.directory / "sinks/w")
    for name in loaded.epochs:
        loaded.run(name)
    assert sorted(loaded.rows()) == rows(shop, "SELECT * FROM spent ORDER BY buyer")
