"""Sinks into tables in S3, by SQL: the tables are the view's rows, and no secret is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

import headrace
from asked import refused
from headrace import Code, HeadraceError
from servers.seaweed import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, WAREHOUSE

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from headrace.interfaces.database import Database
    from servers.seaweed import Seaweed

pytestmark = pytest.mark.spark
for _library in ("deltalake", "pyiceberg"):
    pytest.importorskip(_library)


@pytest.mark.long
def test_tables_in_s3_have_the_rows_of_a_view(
    db: Database, lake: Seaweed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_TEST_KEY_OF_S3", SECRET_KEY)
    monkeypatch.setenv("HEADRACE_TEST_WRONG_KEY_OF_S3", "canary-of-a-wrong-key")
    monkeypatch.setenv("HEADRACE_TEST_CLIENT_OF_ICEBERG", f"{ACCESS_KEY}:{SECRET_KEY}")
    name = f"t{uuid4().hex[:12]}"
    db.sql(f"""
        CREATE TABLE orders (id INT, user STRING, amount DECIMAL(8,2), PRIMARY KEY (id));
        INSERT INTO orders VALUES (1, 'ann', 10.00), (2, 'bob', 20.00);
        CREATE MATERIALIZED VIEW spent AS SELECT user, sum(amount) AS total FROM orders GROUP BY user;
        CREATE SECRET s3_key FROM ENV 'HEADRACE_TEST_KEY_OF_S3';
        CREATE SECRET wrong FROM ENV 'HEADRACE_TEST_WRONG_KEY_OF_S3';
        CREATE SECRET client FROM ENV 'HEADRACE_TEST_CLIENT_OF_ICEBERG';
        CREATE CONNECTION lake TO S3 (REGION '{REGION}', ENDPOINT '{lake.endpoint}',
          ACCESS KEY '{ACCESS_KEY}', SECRET KEY SECRET s3_key);
        CREATE CONNECTION catalogue TO ICEBERG (URI '{lake.catalogue}', WAREHOUSE '{WAREHOUSE}',
          CREDENTIAL SECRET client, REGION '{REGION}', ENDPOINT '{lake.endpoint}',
          ACCESS KEY '{ACCESS_KEY}', SECRET KEY SECRET s3_key)
    """)
    rights = f"REGION '{REGION}', ENDPOINT '{lake.endpoint}', ACCESS KEY '{ACCESS_KEY}'"
    wrong = refused(db, f"CREATE CONNECTION w TO S3 ({rights}, SECRET KEY SECRET wrong)")
    assert wrong.code is Code.INVALID
    assert "Correct the credentials" in (wrong.hint or "")
    wrong = refused(
        db, f"CREATE CONNECTION w TO ICEBERG (URI '{lake.catalogue}', CREDENTIAL SECRET wrong)"
    )
    assert wrong.code is Code.INVALID
    assert "canary" not in str(wrong)
    path = f"s3://{BUCKET}/{name}"
    for sql, primary in (
        (f"CONNECTION lake (PATH '{path}')", "needs the name of its connector"),
        (f"CONNECTION lake (CONNECTOR kafka, PATH '{path}')", "does not write over connection"),
        ("CONNECTION lake (CONNECTOR delta, PATH 's3://nobodys/t')", "cannot be written to"),
    ):
        error = refused(db, f"CREATE SINK d FROM spent INTO {sql}")
        assert primary in error.primary
        assert error.code is Code.INVALID
        assert error.span is not None
    made = db.sql(f"CREATE SINK d FROM spent INTO CONNECTION lake (CONNECTOR delta, PATH '{path}')")
    assert made.message.startswith("created sink d: exactly once")
    db.sql(f"CREATE SINK i FROM spent INTO CONNECTION catalogue (TABLE 'shop.{name}')")
    db.sql(f"""
        CREATE SINK c FROM spent WITH (connector = 'delta', path = '{path}_changes', mode = 'append',
          region = '{REGION}', endpoint = '{lake.endpoint}', 'access key' = '{ACCESS_KEY}',
          'secret key' = SECRET s3_key)
    """)
    db.sql(
        f"CREATE SINK f FROM spent INTO CONNECTION lake (CONNECTOR file, PATH '{path}_files',"
        " FORMAT parquet)"
    )
    db.sql(f"""
        CREATE TABLE copied (id INT PRIMARY KEY) WITH (connector = 'delta', path = '{path}_table',
          'aws.region' = '{REGION}', 'aws.endpoint' = '{lake.endpoint}',
          access_key = '{ACCESS_KEY}', secret_key = SECRET s3_key);
        INSERT INTO copied VALUES (7)
    """)
    for taken in (path, f"{path}/within", f"{path}_files"):
        sql = f"CREATE SINK e FROM spent INTO CONNECTION lake (CONNECTOR delta, PATH '{taken}')"
        assert refused(db, sql).code is Code.CONFLICT
    assert "is used by" in refused(db, "DROP CONNECTION lake").primary
    db.sql(
        "FLUSH; INSERT INTO orders VALUES (3, 'ann', 50.50); DELETE FROM orders WHERE id = 2; FLUSH"
    )
    assert _delta(lake, path) == [{"user": "ann", "total": "60.50"}]
    assert len(_delta(lake, f"{path}_changes")) == 5
    assert _delta(lake, f"{path}_table") == [{"id": "7"}]
    keys = lake.client().list_objects_v2(Bucket=BUCKET, Prefix=f"{name}_files/")["Contents"]
    assert [each["Key"][-12:] for each in keys] == [f"000{n}.parquet" for n in (1, 2, 3)]
    for sink in ("d", "i"):
        (found,) = db.sql(f"RECONCILE SINK {sink} CHECK").fetchall()
        assert found[2:] == (1, 0, 0, 0, 0, "equal")
    refused(db, "ALTER SINK d SET ('secret key' = SECRET wrong)")
    db.sql("ALTER SINK d SET ('secret key' = SECRET s3_key)")
    assert refused(db, f"ALTER SINK d SET (path = '{path}x')").code is Code.INVALID
    db.sql("RESET SINK d; INSERT INTO orders VALUES (4, 'eve', 1.00); FLUSH")
    assert len(_delta(lake, path)) == 2
    shown = [
        str(db.sql(f"SHOW CREATE {sink}").fetchall()) for sink in ("d", "i", "c", "f", "copied")
    ]
    shown += [
        str(db.sql(sql).fetchall()) for sql in ("SHOW CONNECTIONS", "SHOW SINKS", "SHOW SECRETS")
    ]
    assert not any(hidden in each for hidden in (SECRET_KEY, "canary") for each in shown)
    assert "s3_key" in shown[5]


def _delta(lake: Seaweed, path: str) -> list[dict[str, Any]]:
    from deltalake import DeltaTable

    storage = {
        "AWS_ENDPOINT_URL": lake.endpoint,
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
    }
    found = DeltaTable(path, storage_options=storage).to_pyarrow_table().to_pylist()
    return [{k: str(v) for k, v in row.items()} for row in found]


def test_sinks_write_below_configured_roots_outside_of_the_data_directory(
    tmp_path: Path, spark: SparkSession
) -> None:
    root = tmp_path / "shared"
    root.mkdir()
    with headrace.connect(
        tmp_path / "db", spark=spark, continuous=False, sink_roots=f"/nowhere:{root}"
    ) as db:
        db.sql("CREATE TABLE t (id INT PRIMARY KEY, n INT); INSERT INTO t VALUES (1, 2)")
        db.sql(f"CREATE SINK f FROM t WITH (connector = 'file', path = '{root}/f')")
        db.sql(f"CREATE SINK d FROM t WITH (connector = 'delta', path = '{root}/d')")
        db.sql(f"CREATE SINK i FROM t WITH (connector = 'iceberg', table = 'a.t', path = '{root}/i')")  # fmt: skip
        db.sql("FLUSH")
        assert {row[0]: row[4] for row in db.sql("SHOW SINKS")} == dict.fromkeys("fdi", "running")
        assert list((root / "d").glob("*.parquet"))
        assert len(list((root / "f").glob("*.jsonl"))) == 1
        assert list((root / "i").rglob("*.parquet"))
        with pytest.raises(HeadraceError, match="outside of the directories for sinks"):
            db.sql(f"CREATE SINK o FROM t WITH (connector = 'file', path = '{tmp_path}/o')")
        with pytest.raises(HeadraceError, match="changelog of sink"):
            db.sql(f"CREATE SINK o FROM t WITH (connector = 'file', path = '{root}/f/g')")
