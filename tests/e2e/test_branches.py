"""Branches through Spark: views equal to batch over the branch's own events, the parent as it was."""

from __future__ import annotations

from collections import Counter

import pytest

import headrace
from headrace.errors import Code, HeadraceError
from headrace.interfaces.settings import Settings
from headrace.tools.cli.command import main
from served import served

pytestmark = pytest.mark.spark


def rows(db, name):
    return Counter(db.sql(f"SELECT * FROM {name}").fetchall())


def batch(db):
    """Compare all views with Spark batch over the database's own log."""
    found = db.sql("VERIFY").fetchall()
    assert found
    assert {row[-1] for row in found} == {"equal to batch"}, found


QUERIES = {
    "sums": "SELECT e.k, i.name, count(*) AS n, sum(e.v) AS s FROM e JOIN i ON e.k = i.k GROUP BY e.k, i.name",
    "missing": "SELECT i.k FROM i LEFT ANTI JOIN e ON e.k = i.k",
    "highest": "SELECT k, max(v) AS m FROM e GROUP BY k",
    "large": "SELECT name, s FROM sums WHERE s > 10",
    "big": "SELECT * FROM e WHERE v > 5",
}


def declare(oracle):
    oracle.stream("e", "k INT, v INT")
    oracle.table("i", "k INT, name STRING", key="k")
    for name, query in QUERIES.items():
        oracle.view(name, query)
    oracle.insert("i", [(1, "ann"), (2, "bob"), (3, "cid")])
    oracle.insert("e", [(1, 3), (1, 9), (2, 4)])
    oracle.epoch()


@pytest.mark.long
def test_a_branch_and_its_parent_go_their_own_ways(oracle):
    run = oracle()
    declare(run)
    run.db.sql("CREATE INDEX by_name ON sums (name)")
    said = str(run.db.sql("CREATE BRANCH b"))
    assert said == f"created branch b at epoch {run.db.last_epoch()}"
    before = {name: rows(run.db, name) for name in QUERIES}
    with headrace.connect(run.directory, branch="b", spark=run.spark, **run.settings) as branch:
        assert {name: rows(branch, name) for name in QUERIES} == before
        batch(branch)
        branch.sql("INSERT INTO e VALUES (3, 100), (1, 1)")
        branch.sql("DELETE FROM i WHERE k = 2")
        branch.sql(
            "ALTER MATERIALIZED VIEW highest AS SELECT k, max(v) AS m FROM e WHERE v < 50 GROUP BY k"
        )
        branch.sql("CREATE MATERIALIZED VIEW least AS SELECT k, min(v) AS m FROM e GROUP BY k")
        branch.sql("CREATE TABLE own (k INT PRIMARY KEY)")
        assert rows(branch, "least") == Counter([(1, 1), (2, 4), (3, 100)])
        assert rows(branch, "highest") == Counter([(1, 9), (2, 4)])
        assert branch.sql("SELECT s FROM sums WHERE name = 'cid'").fetchall() == [(100,)]
        batch(branch)
        theirs = {name: rows(branch, name) for name in (*QUERIES, "least")}
        # The oracle's own writes, and its comparison of each view with batch, at every epoch.
        run.insert("e", [(2, 8), (3, -4)])
        run.insert("i", [(2, "bea")])
        run.epoch()
        assert {name: rows(branch, name) for name in theirs} == theirs
        batch(branch)
    assert {name for _, name in run.db.relations()} == {"e", "i", *QUERIES}
    with headrace.connect(run.directory, branch="b", spark=run.spark, **run.settings) as branch:
        assert {name: rows(branch, name) for name in theirs} == theirs
        branch.sql("INSERT INTO e VALUES (1, 2)")
        branch.compact()
        batch(branch)
    run.db.sql("DROP BRANCH b")
    assert not (run.directory / "branches").exists()


@pytest.mark.long
def test_a_branch_of_an_earlier_epoch_is_filled_again_and_goes_on(oracle):
    run = oracle()
    declare(run)
    run.insert("e", [(2, 6), (3, 7)])
    run.epoch()
    then = run.db.last_epoch()
    expected = {name: rows(run.db, name) for name in QUERIES}
    events = rows(run.db, "e")
    for n in range(12):
        run.insert("e", [(n % 4, n), (1, -n)])
        run.epoch()
        run.db.compact()
    run.db.sql("CREATE MATERIALIZED VIEW later AS SELECT k FROM e")
    said = str(run.db.sql(f"CREATE BRANCH old FROM EPOCH {then}"))
    assert "it fills again" in said
    now = {name: rows(run.db, name) for name in QUERIES}
    assert now != expected
    with headrace.connect(run.directory, branch="old", spark=run.spark, **run.settings) as branch:
        assert {name: rows(branch, name) for name in QUERIES} == expected
        assert rows(branch, "e") == events
        assert branch.sql("SHOW DIRTY").fetchall() == []
        batch(branch)
        at = Counter(branch.sql(f"SELECT * FROM sums AS OF EPOCH {then}").fetchall())
        assert at == expected["sums"]
        with pytest.raises(HeadraceError, match="later"):
            branch.sql("SELECT * FROM later")
        branch.sql("INSERT INTO e VALUES (3, 1), (2, 50)")
        branch.sql("UPDATE i SET name = 'dan' WHERE k = 3")
        assert rows(branch, "sums")[3, "dan", 2, 8] == 1
        batch(branch)
        branch.compact()
        changed = {name: rows(branch, name) for name in QUERIES}
    # The parent's vacuum does not take what the branch reads.
    for n in range(12):
        run.insert("e", [(n % 4, n)])
        run.epoch()
        run.db.compact()
    with headrace.connect(run.directory, branch="old", spark=run.spark, **run.settings) as branch:
        assert {name: rows(branch, name) for name in QUERIES} == changed
        batch(branch)
    run.db.sql("DROP BRANCH old")


def test_a_time_names_the_epoch_committed_by_then(tmp_path, spark):
    times = [1_700_000_000_000_000]
    with headrace.connect(
        tmp_path / "db", spark=spark, continuous=False, clock=lambda: times[0]
    ) as db:
        db.sql("CREATE TABLE t (k INT PRIMARY KEY); INSERT INTO t VALUES (1); FLUSH")
        times[0] += 60_000_000
        db.sql("INSERT INTO t VALUES (2); FLUSH")
        db.sql("CREATE BRANCH before FROM TIMESTAMP '2023-11-14 22:13:30'")
        with headrace.connect(
            tmp_path / "db", branch="before", spark=spark, continuous=False
        ) as branch:
            assert branch.sql("SELECT * FROM t").fetchall() == [(1,)]
        with pytest.raises(HeadraceError, match="is not a timestamp"):
            db.sql("CREATE BRANCH other FROM TIMESTAMP 'yesterday'")
        with pytest.raises(HeadraceError, match="does not exist yet"):
            db.sql("CREATE BRANCH other FROM EPOCH 900")


def test_a_branch_has_no_sinks_and_sources_of_its_parent(tmp_path, spark):
    with headrace.connect(tmp_path / "db", spark=spark, continuous=False) as db:
        db.sql(
            "CREATE STREAM made (n BIGINT) WITH (connector = 'datagen', 'rows-per-second' = 1);"
            "CREATE TABLE t (k INT PRIMARY KEY, v INT);"
            "CREATE MATERIALIZED VIEW sums AS SELECT v, count(*) AS n FROM t GROUP BY v;"
            "CREATE SINK out FROM sums WITH (connector = 'file', path = 'out');"
            "CREATE TABLE copied (v INT PRIMARY KEY, n BIGINT);"
            "CREATE SINK inside INTO copied FROM sums;"
            "INSERT INTO t VALUES (1, 1); FLUSH"
        )
        said = str(db.sql("CREATE BRANCH b"))
        assert said.endswith(", without sink out, the source of stream made")
        earlier = str(db.sql(f"CREATE BRANCH e FROM EPOCH {db.last_epoch()}"))
        assert "without sink inside, sink out, the source of stream made" in earlier
        written = sorted(path.name for path in (tmp_path / "db/sinks/out").rglob("*"))
        with headrace.connect(tmp_path / "db", branch="b", spark=spark, continuous=False) as branch:
            assert [row[0] for row in branch.sql("SHOW SINKS").fetchall()] == ["inside"]
            branch.sql("INSERT INTO made VALUES (-1)")
            assert branch.sql("SELECT count(*) FROM made WHERE n = -1").fetchall() == [(1,)]
            branch.sql("INSERT INTO t VALUES (2, 1), (3, 2); FLUSH")
            batch(branch)
        with headrace.connect(tmp_path / "db", branch="e", spark=spark, continuous=False) as branch:
            assert branch.sql("SHOW SINKS").fetchall() == []
            batch(branch)
        assert sorted(path.name for path in (tmp_path / "db/sinks/out").rglob("*")) == written
        assert db.sql("SELECT count(*) FROM made WHERE n = -1").fetchall() == [(0,)]


def test_the_command_line_opens_a_branch(tmp_path, spark, capsys):
    data = tmp_path / "db"
    with headrace.connect(data, spark=spark, continuous=False) as db:
        db.sql("CREATE TABLE t (k INT PRIMARY KEY); INSERT INTO t VALUES (1); FLUSH")
        db.sql("CREATE BRANCH b; CREATE BRANCH IF NOT EXISTS b")
        with pytest.raises(HeadraceError, match="exists already") as error:
            db.sql("CREATE BRANCH b")
        assert error.value.code is Code.CONFLICT
        assert error.value.span is not None
        assert (
            main(["--data", str(data), "--branch", "b", "sql", "-c", "INSERT INTO t VALUES (2)"])
            == 0
        )
        assert main(["--data", str(data), "--branch", "b", "doctor"]) == 0
        assert main(["--data", str(data), "--branch", "c", "sql", "-c", "SELECT 1"]) == 1
        assert 'branch "c" does not exist' in capsys.readouterr().err
        assert main(["--data", str(data), "--branch", "b", "verify"]) == 0
        assert db.sql("SELECT count(*) FROM t").fetchall() == [(1,)]
        ((name, _, _, epoch, own, shared, used),) = db.sql("SHOW BRANCHES").fetchall()
        assert (name, used) == ("b", None)
        assert epoch >= db.last_epoch()
        assert own > 0
        assert shared > 0
        db.sql("DROP BRANCH b; DROP BRANCH IF EXISTS b")
        with pytest.raises(HeadraceError, match='branch "b" does not exist'):
            db.sql("DROP BRANCH b")
        with pytest.raises(HeadraceError, match="is qualified"):
            db.sql("CREATE BRANCH a.b")
    assert main(["--url", "http://127.0.0.1:1", "--branch", "b", "sql", "-c", "SELECT 1"]) == 2
    with pytest.raises(HeadraceError, match="branch of a database on a server"):
        headrace.connect("http://127.0.0.1:1", branch="b")


def test_a_client_of_a_server_makes_and_drops_branches(db):
    db.sql("CREATE TABLE t (k INT PRIMARY KEY)")
    with served(db) as running, headrace.connect(running.server.url) as remote:
        assert str(remote.sql("CREATE BRANCH b")).startswith("created branch b at epoch")
        assert [row[0] for row in remote.sql("SHOW BRANCHES").fetchall()] == ["b"]
        remote.sql("DROP BRANCH b")
    assert not (db.directory / "branches").exists()


def test_a_branch_has_no_ledger_elsewhere_and_sends_no_lineage(tmp_path):
    (tmp_path / "branches/b").mkdir(parents=True)
    (tmp_path / "branches/b/ledger.db").touch()
    given = Settings.of({"ledger": "postgresql://h/d", "openlineage": "client"}, {})
    place, settings = given.in_branch(tmp_path, "B")
    assert place == tmp_path / "branches/b"
    assert (settings.ledger, settings.store, settings.openlineage) == ("", "", "")
