"""The Python API as its users meet it."""

from __future__ import annotations

import json
from decimal import Decimal

import pandas as pd
import pyarrow as pa
import pytest

import headrace
from headrace.errors import Code, HeadraceError

READINGS = "CREATE STREAM readings (sensor STRING, area STRING, reading INT)"
AVERAGES = """CREATE MATERIALIZED VIEW averages AS
  SELECT sensor, avg(reading) AS avg, count(*) AS n FROM readings GROUP BY sensor"""


def test_a_session_reads_its_own_writes(db):
    db.sql(READINGS)
    db.sql(AVERAGES)
    for i in range(1, 6):
        db.sql(f"INSERT INTO readings VALUES ('a', 'x', {i})")
        assert db.sql("SELECT n FROM averages WHERE sensor = 'a'").fetchall() == [(i,)]


def test_rows_are_inserted_from_arrow_pandas_dicts_and_tuples(db):
    db.sql(READINGS)
    db.sql(AVERAGES)
    assert db.insert("readings", pa.table({"sensor": ["a"], "reading": [1]})) == 1
    assert db.insert("readings", pd.DataFrame({"Sensor": ["a", "b"], "reading": [2, 3]})) == 2
    assert db.insert("readings", [{"sensor": "b", "area": None, "reading": 5}]) == 1
    assert db.insert("readings", [("c", "x", 7)]) == 1
    assert sorted(db.sql("SELECT * FROM averages")) == [("a", 1.5, 2), ("b", 4.0, 2), ("c", 7.0, 1)]


def test_an_insert_that_is_repeated_takes_effect_once(db):
    db.sql(READINGS)
    for _ in range(3):
        db.insert("readings", [("a", "x", 1)], producer="p", sequence=1)
    db.insert("readings", [("a", "x", 1)], producer="p", sequence=2)
    assert db.sql("SELECT count(*) FROM readings").fetchall() == [(2,)]


def test_results_come_in_every_form_and_say_their_epoch(db):
    db.sql(READINGS)
    db.sql(AVERAGES)
    db.sql("INSERT INTO readings VALUES ('a', 'x', 1)")
    result = db.sql("SELECT * FROM averages")
    assert result.to_arrow().to_pylist() == [{"sensor": "a", "avg": 1.0, "n": 1}]
    assert list(result.to_pandas()["n"]) == [1]
    assert result.columns == ("sensor", "avg", "n")
    assert result.epoch == db.flush()
    assert result.freshness.pending == 0
    assert "sensor" in repr(result)
    assert "<table>" in result._repr_html_()


def test_a_script_runs_though_nobody_takes_its_results(db):
    db.script(f"{READINGS}; INSERT INTO readings VALUES ('a', 'x', 1)")
    assert len(db.sql("SELECT * FROM readings")) == 1
    db.results("INSERT INTO readings VALUES ('b', 'x', 1)")
    assert [r.kind for r in db.results("FLUSH; SELECT * FROM readings")] == ["done", "rows"]
    assert len(db.sql("SELECT * FROM readings")) == 1


def test_subscribe_takes_a_statement_that_follows_changes(db):
    db.sql(f"{READINGS}; INSERT INTO readings VALUES ('a', 'x', 1)")
    db.sql(AVERAGES)
    db.flush()
    with db.subscribe("SUBSCRIBE averages WITH (SNAPSHOT = false)") as changes:
        assert changes.poll() is None
    with db.subscribe("PRINT readings FROM BEGINNING LIMIT 1") as changes:
        assert [change.row["sensor"] for change in changes] == ["a"]
    with db.subscribe("SUBSCRIBE averages") as changes:
        assert changes.epoch == 0
        assert len(changes.poll()) == 1
        after = changes.epoch
    with db.subscribe("SUBSCRIBE averages", after=after) as resumed:
        assert resumed.poll() is None
    with db.subscribe("SUBSCRIBE averages WITH (SNAPSHOT = false)", after=0) as again:
        assert len(again.poll()) == 1
    with pytest.raises(HeadraceError, match="only a query can be followed"):
        db.subscribe("INSERT INTO readings VALUES ('a', 'x', 1)")


def test_a_subscription_gives_the_rows_and_then_their_changes(db):
    db.sql(READINGS)
    db.sql(AVERAGES)
    db.sql("INSERT INTO readings VALUES ('a', 'x', 1)")
    with db.subscribe("averages") as changes:
        first = changes.poll()
        assert [(c.operation, c.row["avg"]) for c in first] == [("+I", 1.0)]
        db.sql("INSERT INTO readings VALUES ('a', 'x', 3), ('b', 'x', 5)")
        db.flush()
        seen = sorted((c.operation, c.weight, c.row["avg"]) for c in changes.poll())
        assert seen == [("+I", 1, 5.0), ("+U", 1, 2.0), ("-U", -1, 1.0)]
        at = changes.epoch
    db.sql("INSERT INTO readings VALUES ('b', 'x', 7)")
    db.flush()
    with db.subscribe("averages", after=at) as resumed:
        assert sorted(c.operation for c in resumed.poll()) == ["+U", "-U"]


def test_a_subscription_to_any_query_leaves_nothing_behind(db):
    db.sql(READINGS)
    with db.subscribe("SELECT upper(sensor) AS s FROM readings WHERE reading > 1") as changes:
        assert changes.poll() == []
        db.sql("INSERT INTO readings VALUES ('a', 'x', 1), ('b', 'x', 2)")
        db.flush()
        assert [c.row for c in changes.poll()] == [{"s": "B"}]
    assert db.relations() == [("stream", "readings")]
    assert len(db.parts.reader.catalog) == 1


def test_tables_and_views_are_read_as_they_were(db):
    db.sql("CREATE TABLE prices (item STRING PRIMARY KEY, price DECIMAL(10,2))")
    db.sql("INSERT INTO prices VALUES ('tea', 2.50)")
    then = db.flush()
    db.sql("UPDATE prices SET price = price * 2 WHERE item = 'tea'")
    assert db.sql("SELECT price FROM prices").fetchall() == [(Decimal("5.00"),)]
    before = db.sql(f"SELECT price FROM prices AS OF EPOCH {then}")
    assert before.fetchall() == [(Decimal("2.50"),)]
    assert before.epoch == then
    with pytest.raises(HeadraceError, match="does not exist yet"):
        db.sql("SELECT price FROM prices AS OF EPOCH 9999")


def test_a_view_over_rows_that_are_there_is_filled_from_them(db):
    db.sql(READINGS)
    db.insert("readings", [(f"s{i % 5}", "x", i) for i in range(100)])
    seen = []
    db.sql(AVERAGES, progress=seen.append)
    assert db.sql("SELECT sum(n) FROM averages").fetchall() == [(100,)]
    assert (seen[-1].done, seen[-1].total, seen[-1].unit) == (100, 100, "rows")


def test_a_view_that_fails_on_its_data_stops_alone_and_says_why(db):
    db.sql(READINGS)
    db.sql(AVERAGES)
    db.sql("CREATE MATERIALIZED VIEW aside AS SELECT 1 / reading AS r FROM readings")
    db.sql("CREATE MATERIALIZED VIEW ratios AS SELECT sensor, 100 / reading AS r FROM readings")
    db.sql("CREATE MATERIALIZED VIEW above AS SELECT r FROM ratios WHERE r > 1")
    db.sql("INSERT INTO readings VALUES ('a', 'x', 10)")
    assert db.sql("SELECT * FROM above").fetchall() == [(10.0,)]
    db.sql("INSERT INTO readings VALUES ('a', 'x', 0)")
    assert db.sql("SELECT n FROM averages WHERE sensor = 'a'").fetchall() == [(2,)]
    with pytest.raises(HeadraceError) as refused:
        db.sql("SELECT * FROM ratios")
    assert refused.value.code is Code.UNAVAILABLE
    assert "division by zero" in refused.value.detail.lower()
    with pytest.raises(HeadraceError, match='it reads view "ratios", whose') as over:
        db.sql("SELECT * FROM above")
    assert over.value.detail == refused.value.detail
    assert over.value.hint == refused.value.hint
    assert "CREATE OR REPLACE ratios" in over.value.hint
    db.sql("CREATE TABLE copies (r DOUBLE)")
    with pytest.raises(HeadraceError, match='view "above" stopped'):
        db.sql("INSERT INTO copies SELECT r FROM above")
    with pytest.raises(HeadraceError, match='view "ratios" stopped'):
        db.sql("DELETE FROM copies WHERE r IN (SELECT r FROM ratios)")
    stopped = {row[0]: (row[1], row[-1]) for row in db.sql("SHOW DIRTY")}
    assert {cause for cause, _ in stopped.values()} == {"stopped"}
    assert stopped.keys() == {"aside", "ratios", "above"}
    assert stopped["above"][1] == 'It reads view "ratios", which stopped.'
    db.sql("DROP VIEW aside")
    assert {row[3] for row in db.verify()} == {"equal to batch", "stopped"}
    db.sql("DROP VIEW ratios CASCADE")
    db.sql(
        "CREATE MATERIALIZED VIEW ratios AS "
        "SELECT sensor, try_divide(100, reading) AS r FROM readings"
    )
    assert len(db.sql("SELECT * FROM ratios")) == 2
    assert db.sql("SHOW DIRTY").fetchall() == []


@pytest.mark.long
def test_what_spark_raises_on_a_value_stops_its_view_alone(db):
    db.sql(READINGS)
    db.sql(AVERAGES)
    queries = {
        "parts": "SELECT slice(array(sensor), 1, CAST(reading AS INT)) AS x FROM readings",
        "steps": "SELECT sequence(1, CAST(reading AS INT), 1) AS x FROM readings",
        "texts": "SELECT format_string(sensor, area) AS x FROM readings",
        "matches": "SELECT area RLIKE sensor AS x FROM readings",
        "lines": "SELECT to_csv(struct(area), map('timestampFormat', 'YY')) AS x FROM readings",
        "rows": "SELECT sequence(1L, 3000000000L - CAST(reading AS INT)) AS x FROM readings"
        " WHERE area = 'x'",
        "paths": "SELECT xpath_string(sensor, 'a/b') AS x FROM readings",
    }
    for name, query in queries.items():
        db.sql(f"CREATE MATERIALIZED VIEW {name} AS {query}")
    db.sql("INSERT INTO readings VALUES ('%q[(', 'x', -1)")
    assert db.sql("SELECT n FROM averages").fetchall() == [(1,)]
    assert {row[0] for row in db.sql("SHOW DIRTY")} == {*queries}
    for name in queries:
        with pytest.raises(HeadraceError, match=f'view "{name}" stopped'):
            db.sql(f"SELECT * FROM {name}")


@pytest.mark.long
def test_a_view_whose_operator_fails_stops_alone_too(db):
    db.sql("CREATE STREAM s (k INT, x INT)")
    db.sql("CREATE TABLE other (k INT)")
    db.sql("CREATE MATERIALIZED VIEW least AS SELECT k, min(x) AS m FROM s GROUP BY k")
    db.sql("CREATE MATERIALIZED VIEW passed AS SELECT k, x FROM s WHERE k > 5")
    db.sql("CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS n FROM other")
    db.sql("INSERT INTO s VALUES (1, 1), (7, 7)")
    assert db.sql("SELECT * FROM least ORDER BY k").fetchall() == [(1, 1), (7, 7)]
    stream = db.parts.reader.catalog.resolve("s")
    never = pa.table({"k": pa.array([1], pa.int32()), "x": pa.array([1], pa.int32())})
    # No stream deletes, and the least value relies on it.
    db.parts.log.append(stream, never.append_column("__weight", pa.array([-1], pa.int64())))
    db.sql("INSERT INTO other VALUES (1)")
    assert db.sql("SELECT * FROM counted").fetchall() == [(1,)]
    assert db.sql("SELECT * FROM passed").fetchall() == [(7, 7)]
    with pytest.raises(HeadraceError, match='view "least" stopped') as refused:
        db.sql("SELECT * FROM least")
    assert "error[internal]: " in refused.value.detail
    assert [row[0] for row in db.sql("SHOW DIRTY")] == ["least"]


def test_rejected_rows_of_a_file_are_kept_with_their_reason_and_the_rest_goes_in(db, tmp_path):
    file = tmp_path / "readings.json"
    lines = [json.dumps({"sensor": "a", "area": "x", "reading": i}) for i in range(5)]
    lines[1:1] = ['{"sensor": "a", "reading": "abc"}', "{broken"]
    file.write_text("\n".join(lines) + "\n")
    db.sql(READINGS)
    result = db.sql(f"COPY readings FROM '{file}'")
    assert result.message.startswith("5 rows copied, 2 rejected")
    kept = db.sql("SHOW REJECTS").fetchall()
    assert sorted((row[2], row[3]) for row in kept) == [(2, "reading"), (3, None)]
    assert db.sql("SELECT count(*) FROM readings").fetchall() == [(5,)]
    said = db.sql(f"ACKNOWLEDGE REJECTS {kept[0][7]} FOR readings").message
    assert said == "acknowledged 1 row of readings; 1 still ask for attention"
    noted = "SELECT id FROM information_schema.rejects WHERE acknowledged_at IS NOT NULL"
    assert db.sql(noted).fetchall() == [(kept[0][7],)]
    db.sql("ACKNOWLEDGE REJECTS FOR readings")
    assert all(row[8] is not None for row in db.sql("SHOW REJECTS").fetchall()), "they stay"


def test_csv_and_parquet_files_are_copied(db, tmp_path):
    rows = pd.DataFrame({"sensor": ["a", "b"], "area": ["x", None], "reading": [1, 2]})
    rows.to_csv(tmp_path / "r.csv", index=False)
    pa.parquet = __import__("pyarrow.parquet").parquet
    pa.parquet.write_table(pa.Table.from_pandas(rows), tmp_path / "r.parquet")
    db.sql(READINGS)
    db.sql(f"COPY readings FROM '{tmp_path / 'r.csv'}'")
    db.sql(f"COPY readings FROM '{tmp_path / 'r.parquet'}'")
    expected = [("a", "x", 1), ("a", "x", 1), ("b", None, 2), ("b", None, 2)]
    found = db.sql("SELECT * FROM readings").fetchall()
    assert sorted(found, key=str) == sorted(expected, key=str)


@pytest.mark.long
def test_a_database_that_is_opened_again_goes_on_where_it_was(tmp_path, spark):
    with headrace.connect(tmp_path / "d", spark=spark, continuous=False) as db:
        db.sql(READINGS)
        db.sql(AVERAGES)
        db.sql("INSERT INTO readings VALUES ('a', 'x', 1)")
        db.flush()
        db.sql("INSERT INTO readings VALUES ('a', 'x', 3)")
    with headrace.connect(tmp_path / "d", spark=spark, continuous=False) as db:
        assert db.pending() == 1
        db.flush()
        assert db.sql("SELECT avg FROM averages WHERE sensor = 'a'").fetchall() == [(2.0,)]
        assert {row[3] for row in db.verify()} == {"equal to batch"}


def test_a_read_after_reopening_sees_what_was_acknowledged(tmp_path, spark):
    with headrace.connect(tmp_path / "d", spark=spark, continuous=False) as db:
        db.sql("CREATE TABLE t (k INT PRIMARY KEY)")
        db.insert("t", [(1,), (2,)])
    with headrace.connect(tmp_path / "d", spark=spark, continuous=False) as db:
        assert db.sql("SELECT count(*) FROM t").fetchall() == [(2,)]


@pytest.mark.parametrize("statement", ["CREATE TABLE t (k INT)", "CREATE VIEW v AS SELECT 1 AS x"])
def test_what_spark_rejects_at_the_last_moment_is_not_created(
    tmp_path, spark, monkeypatch, statement
):
    with headrace.connect(tmp_path / "db", spark=spark) as db:
        db.sql("CREATE VIEW kept AS SELECT 2 AS x")
        replacing = statement.replace("v AS", "kept AS").replace(
            "CREATE VIEW", "CREATE OR REPLACE VIEW"
        )
        with monkeypatch.context() as patched:
            patched.setattr(type(db.parts.queries), "declare", _rejected)
            for text in (statement, replacing):
                with pytest.raises(HeadraceError, match="Spark does not like it"):
                    db.sql(text)
        before = db.sql("SHOW TABLES").fetchall()
    with headrace.connect(tmp_path / "db", spark=spark) as db:
        assert db.sql("SHOW TABLES").fetchall() == before
        assert db.sql("SELECT x FROM kept").fetchall() == [(2,)]
        db.sql(statement)


def _rejected(*_, **__):
    raise HeadraceError(Code.INVALID, "Spark does not like it")


@pytest.mark.long
def test_a_time_that_python_has_no_value_for_is_text(db):
    found = db.sql("SELECT TIMESTAMP'0001-01-01 00:00:00' - INTERVAL 2 DAYS AS x")
    assert found.fetchall() == [("0000-12-30T00:00:00Z",)]
    assert found.to_arrow().num_rows == 1


@pytest.mark.long
def test_a_struct_may_be_null_though_its_fields_cannot(db):
    db.sql("CREATE TABLE t (id INT, st STRUCT<known: BOOLEAN, v: INT>)")
    assert db.sql("SELECT max(struct(id IS NULL, id)) AS m FROM t").fetchall() == [(None,)]
    db.sql("INSERT INTO t VALUES (1, NULL), (2, struct(true, 1))")
    read = db.sql("SELECT id, array(if(id > 1, struct(id IS NULL AS x), NULL)) AS a FROM t")
    assert sorted(read.fetchall()) == [(1, [None]), (2, [{"x": False}])]
    db.sql("UPDATE t SET st = CASE WHEN id = 1 THEN struct(id IS NULL, 3) END")
    assert sorted(db.sql("SELECT * FROM t")) == [(1, {"known": False, "v": 3}), (2, None)]


def test_a_directory_that_is_open_cannot_be_opened_again(tmp_path, spark):
    with (
        headrace.connect(tmp_path / "d", spark=spark, continuous=False),
        pytest.raises(HeadraceError) as refused,
    ):
        headrace.connect(tmp_path / "d", spark=spark)
    assert refused.value.code is Code.CONFLICT
    assert refused.value.primary.endswith("is open in this process already")
    assert "session()" in refused.value.hint


def test_the_background_makes_epochs_by_itself(tmp_path, spark):
    with headrace.connect(tmp_path / "d", spark=spark, continuous=True) as db:
        db.sql(READINGS)
        db.sql(AVERAGES)
        with db.subscribe("averages") as changes:
            assert changes.poll() == []
            db.insert("readings", [("a", "x", 1)])
            assert [c.row["n"] for c in changes.poll(timeout=60.0)] == [1]


@pytest.mark.parametrize("type_", ["DOUBLE", "STRUCT<a: FLOAT>", "MAP<STRING, INT>"])
def test_a_primary_key_needs_a_type_with_one_equality(db, type_):
    with pytest.raises(HeadraceError, match="primary key of type") as refused:
        db.sql(f"CREATE TABLE t (k {type_} PRIMARY KEY, x INT)")
    assert refused.value.code is Code.UNSUPPORTED
    assert refused.value.span is not None
    assert refused.value.span.text[refused.value.span.start :].startswith(type_)
    db.sql(f"CREATE TABLE t (k {type_}, x INT)")
