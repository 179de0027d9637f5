"""Branches of a database in an object store through Spark, opened where nothing of it has been."""

from __future__ import annotations

import pytest

import headrace
from headrace.algebra.spine import forget_runs
from headrace.errors import Code, HeadraceError
from headrace.files import ObjectStore
from headrace.interfaces.settings import Settings
from headrace.storage.log.segments import forget_segments
from headrace.tools.cli.command import main
from servers.s3 import served_bucket

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def bucket():
    with served_bucket("branched") as options:
        yield options


@pytest.fixture
def url(bucket, monkeypatch, tmp_path):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", bucket["access_key_id"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", bucket["secret_access_key"])
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    place = f"s3://branched/{tmp_path.name}"
    return f"{place}?endpoint={bucket['endpoint']}&region={bucket['region']}"


SUMS = "SELECT * FROM sums ORDER BY k"


def verified(db):
    return {row[-1] for row in db.sql("VERIFY").fetchall()} == {"equal to batch"}


def test_a_branch_in_a_store_is_opened_anywhere(tmp_path, url, postgres_url, spark, monkeypatch):
    opening = {"spark": spark, "ledger": postgres_url, "continuous": False}
    with headrace.connect(url, **opening) as db:
        db.sql("CREATE STREAM e (k INT, v INT); CREATE TABLE i (k INT PRIMARY KEY, name STRING)")
        db.sql(
            "CREATE MATERIALIZED VIEW sums AS SELECT i.name, e.k, sum(e.v) AS s FROM e JOIN i"
            " ON e.k = i.k GROUP BY i.name, e.k"
        )
        db.insert("i", [(k, f"n{k}") for k in range(4)])
        db.insert("e", [(n % 4, n) for n in range(100)])
        before = db.sql(SUMS).fetchall()
        then = db.last_epoch()
        assert str(db.sql("CREATE BRANCH b")) == f"created branch b at epoch {then}"
        db.insert("e", [(n % 4, n) for n in range(50)])
        after = db.sql(SUMS).fetchall()
        db.sql(f"CREATE BRANCH old FROM EPOCH {then}")
        monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "another"))
        forget_runs()
        forget_segments()
        with headrace.connect(url, branch="b", **opening) as branch:
            assert branch.sql(SUMS).fetchall() == before
            branch.sql("INSERT INTO e VALUES (1, 1000)")
            branch.sql("CREATE MATERIALIZED VIEW most AS SELECT k, max(v) AS m FROM e GROUP BY k")
            assert verified(branch)
            theirs = branch.sql(SUMS).fetchall()
            with pytest.raises(HeadraceError) as error:
                db.sql("DROP BRANCH b")
            assert error.value.code is Code.CONFLICT
        with headrace.connect(url, branch="old", **opening) as branch:
            assert branch.sql(SUMS).fetchall() == before
            assert verified(branch)
        assert db.sql(SUMS).fetchall() == after
        assert verified(db)
        db.compact()
        with headrace.connect(url, branch="b", **opening) as branch:
            assert branch.sql(SUMS).fetchall() == theirs
        ledger = ["--ledger", postgres_url]
        assert main(["--data", url, *ledger, "--branch", "b", "doctor"]) == 0
        with pytest.raises(HeadraceError, match='branch "c" does not exist'):
            headrace.connect(url, branch="c", **opening)
        db.sql("DROP BRANCH b; DROP BRANCH old")
        assert db.sql("SHOW BRANCHES").fetchall() == []
    store = ObjectStore.at(Settings.store_address(url))
    assert not [name for name, _ in store.names() if name.startswith("branches/")]


def test_a_store_without_a_ledger_in_postgres_has_no_branches(tmp_path, url, spark):
    with headrace.connect(tmp_path / "data", store=url, spark=spark, continuous=False) as db:
        db.sql("CREATE TABLE t (k INT PRIMARY KEY)")
        with pytest.raises(HeadraceError, match="are not supported") as error:
            db.sql("CREATE BRANCH b")
        assert error.value.code is Code.UNSUPPORTED
        assert db.sql("SHOW BRANCHES").fetchall() == []
