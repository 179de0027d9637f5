"""EXPLAIN CHANGE of ALTERs of columns: what goes on and what refuses, and nothing is changed."""

from __future__ import annotations

import pytest

from headrace.errors import Code, HeadraceError

pytestmark = pytest.mark.spark


def effects(db, statement):
    found = db.sql(f"EXPLAIN CHANGE ALTER {statement}").to_arrow().to_pylist()
    return {each["view"]: (each["path"], each["rule"]) for each in found}


@pytest.mark.long
@pytest.mark.parametrize("kind", ["TABLE", "STREAM"])
def test_what_becomes_of_each_view_is_said(db, kind):
    key = " PRIMARY KEY" if kind == "TABLE" else ""
    db.sql(f"CREATE {kind} t (k INT{key}, a INT, v INT, w INT)")
    db.sql("CREATE STREAM s (k INT)")
    db.sql("CREATE MATERIALIZED VIEW m AS SELECT s.k, t.v FROM s JOIN t ON s.k = t.k")
    db.sql("CREATE MATERIALIZED VIEW above AS SELECT count(*) AS n FROM m")
    db.sql("CREATE VIEW p AS SELECT k, a FROM t")
    db.sql("CREATE MATERIALIZED VIEW every AS SELECT * FROM t")
    db.sql("INSERT INTO t VALUES (1, 2, 3, 4)")
    db.sql("INSERT INTO s VALUES (1)")
    db.flush()
    epoch = db.parts.ledger.head.epoch

    found = effects(db, f"{kind} t ADD COLUMN x INT")
    assert found["t"][0] == "none"
    assert "its rows stay as they are stored" in found["t"][1]
    added = ("none", "unchanged; earlier rows have the default of the column, or NULL")
    assert found["m"] == found["above"] == found["p"] == added
    assert found["every"] == ("none", "unchanged; its query lists the columns that * means now")

    found = effects(db, f"{kind} t DROP COLUMN a")
    assert found["m"] == ("none", "unchanged")
    assert found["p"][0] == found["every"][0] == "refused"
    found = effects(db, f"{kind} t DROP COLUMN v")
    assert found["m"][0] == "refused"
    assert "above" not in found

    found = effects(db, f"{kind} t RENAME COLUMN v TO value")
    assert found["m"] == ("none", "unchanged; its query has the new name")
    assert found["above"] == found["p"] == ("none", "unchanged")
    assert found["every"][0] == "none"

    found = effects(db, f"{kind} t ALTER COLUMN v TYPE BIGINT")
    assert found["m"][0] == found["every"][0] == "refused"
    assert found["p"] == ("none", "unchanged")
    with pytest.raises(HeadraceError) as caught:
        effects(db, f"{kind} t ALTER COLUMN v TYPE STRING")
    assert caught.value.code is Code.UNSUPPORTED

    assert db.parts.ledger.head.epoch == epoch
    db.sql("INSERT INTO t VALUES (2, 2, 5, 4)")
    db.sql("INSERT INTO s VALUES (2)")
    assert sorted(db.sql("SELECT * FROM m").fetchall()) == [(1, 3), (2, 5)]
    assert db.sql("SELECT * FROM above").fetchall() == [(2,)]
    assert len(db.sql("SELECT * FROM p").fetchall()) == 2
    assert {row[3] for row in db.sql("VERIFY").fetchall()} == {"equal to batch"}
