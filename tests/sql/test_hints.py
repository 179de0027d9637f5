"""Hints are true: each proposed statement is tried, in the case in which it is proposed.

A hint that names a statement has an entry here: what is refused, and what the hint proposes for it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from headrace.errors import HeadraceError
from headrace.planning.sql import STATEMENTS, parse
from headrace.planning.sql.refusals import REFUSALS

if TYPE_CHECKING:
    from headrace import Database

PROPOSED = {
    "ADD JAR x": ["COPY t FROM '{rows}'"],
    "RENAME TABLE t TO u": ["ALTER TABLE t RENAME TO renamed", "ALTER TABLE renamed RENAME TO t"],
    "ALTER VIEW v AS SELECT 1": [
        "ALTER MATERIALIZED VIEW v AS SELECT id, x + 1 AS x FROM t",
        "CREATE OR REPLACE VIEW named AS SELECT id FROM t",
    ],
    "ALTER SESSION SET x = 1": ["SET auto.offset.reset = 'earliest'"],
    "ANALYZE TABLE t": ["DESCRIBE EXTENDED t"],
    "ASSERT VIEW v": ["VERIFY", "VERIFY v"],
    "CACHE TABLE t": [
        "CREATE MATERIALIZED VIEW kept AS SELECT id, count(*) AS n FROM t GROUP BY id"
    ],
    "COPY INTO t FROM x": ["COPY t FROM '{rows}' WITH (format = 'csv')"],
    "CREATE CATALOG c": ["CREATE SCHEMA gold"],
    "CREATE CONNECTOR c": ["CREATE STREAM clicks (id INT)", "COPY clicks FROM '{ids}'"],
    "CREATE STREAMING TABLE d": ["CREATE STREAM d1 (id INT)", "CREATE TABLE d2 (id INT)"],
    "CREATE TRANSIENT TABLE d (id INT)": ["CREATE TABLE d3 (id INT)"],
    "CREATE UNIQUE INDEX i ON t (id)": ["CREATE TABLE d4 (id INT, PRIMARY KEY (id))"],
    "CREATE DEFAULT INDEX ON t": ["CREATE INDEX by_x ON t (x)"],
    "CREATE USER u": ["CREATE TOKEN u", "GRANT READER ON SCHEMA default TO u"],
    "COMMENT ON COLUMN t.x": ["CREATE TABLE d6 (id INT COMMENT 'the number')"],
    "DESCRIBE QUERY SELECT 1": ["EXPLAIN SELECT 1"],
    "EXPLAIN ANALYZE SELECT 1": ["EXPLAIN SELECT 1"],
    "EXPORT v": ["CREATE SINK lines FROM v WITH (connector = 'file', path = 'lines')"],
    "IMPORT x": ["COPY t FROM '{rows}' WITH (format = 'csv')"],
    "BEGIN": ["INSERT INTO t VALUES (11, 1), (12, 2)"],
    "INSERT OVERWRITE t SELECT 1": ["TRUNCATE wide", "INSERT INTO wide VALUES (1)"],
    "MAP x": ["SELECT id FROM t"],
    "MSCK t": ["FLUSH"],
    "REPLACE INTO t VALUES (1, 2)": [
        "CREATE OR REPLACE TABLE d6 (id INT)",
        "INSERT INTO t VALUES (1, 2)",
    ],
    "SHOW CATALOGS": ["SHOW STREAMS", "SHOW TABLES", "SHOW VIEWS", "DESCRIBE t"],
    "SHOW COLUMNS FROM t": ["DESCRIBE t"],
    "SHOW PARTITIONS t": ["DESCRIBE EXTENDED t"],
    "SHOW QUERIES": ["SHOW VIEWS", "SHOW JOBS"],
    "SHOW TOPICS": ["SHOW STREAMS"],
    "UPSERT INTO t VALUES (1, 2)": ["INSERT INTO t VALUES (1, 3)"],
    "TERMINATE ALL": ["SHOW JOBS", "TERMINATE lines"],
}

SETUP = """
    CREATE TABLE t (id INT PRIMARY KEY, x INT);
    CREATE TABLE wide (id INT);
    CREATE MATERIALIZED VIEW v AS SELECT id, x FROM t;
    CREATE STREAM s (id INT, m MAP<STRING, INT>, st ARRAY<STRUCT<f: INT>>, a ARRAY<INT>);
    INSERT INTO t VALUES (1, 1);
    INSERT INTO s VALUES (1, map('a', 1), array(named_struct('f', 7)), array(1)),
      (1, map('a', 2), array(), array(1, 2));
    CREATE MATERIALIZED VIEW base AS SELECT id FROM t;
    CREATE MATERIALIZED VIEW over AS SELECT id FROM base
"""

ON_DATA = {
    "SELECT a[1] FROM s": ["SELECT get(a, 1) FROM s", "SELECT try_element_at(a, 2) FROM s"],
    "SELECT EXPLODE(st)->f FROM s": [
        "SELECT element.f FROM s LATERAL VIEW explode(st) x AS element"
    ],
    "CREATE TABLE two (a INT PRIMARY KEY, b INT PRIMARY KEY)": [
        "CREATE TABLE two (a INT, b INT, PRIMARY KEY (a, b))"
    ],
    "CREATE OR REPLACE MATERIALIZED VIEW base AS SELECT x FROM t": [
        "SHOW CREATE over",
        "DROP MATERIALIZED VIEW base CASCADE",
        "CREATE MATERIALIZED VIEW base AS SELECT x AS id FROM t",
        "CREATE MATERIALIZED VIEW over AS SELECT id FROM base",
    ],
    "DROP MATERIALIZED VIEW base": ["DROP MATERIALIZED VIEW base CASCADE"],
    "DROP SINK v": ["DROP MATERIALIZED VIEW v"],
    "CREATE TABLE t (id INT)": ["CREATE TABLE IF NOT EXISTS t (id INT)"],
    "SELECT 1 / 0": ["SELECT try_divide(1, 0)"],
    "SELECT CAST('x' AS INT)": ["SELECT try_cast('x' AS INT)"],
    "CREATE TABLE g (x INT, y INT GENERATED ALWAYS AS (x || '1'))": [
        "CREATE TABLE g (x INT, y INT GENERATED ALWAYS AS (CAST(x || '1' AS INT)))"
    ],
}


def hint_of(text: str) -> str:
    with pytest.raises(HeadraceError) as caught:
        parse(text)
    assert caught.value.hint is not None
    return caught.value.hint


def statements_in(hint: str) -> set[str]:
    """Return the statements that a hint names, by their first words."""
    return {word for word in re.findall(r"\b[A-Z]{3,}\b", hint) if word in STATEMENTS} - {
        "FROM",
        "TABLE",
        "VALUES",
        "WITH",
    }


@pytest.mark.parametrize("text", PROPOSED)
def test_what_a_hint_proposes_is_a_statement(text: str) -> None:
    begun = {proposal.split()[0] for proposal in PROPOSED[text]}
    assert statements_in(hint_of(text)) <= begun | {"SUBSCRIBE", "SELECT", "CREATE"}
    for proposal in PROPOSED[text]:
        assert parse(proposal)


def test_each_hint_of_a_refusal_that_names_a_statement_is_tried() -> None:
    tried = {hint_of(text) for text in PROPOSED}
    untried = {each.hint for each in REFUSALS if statements_in(each.hint)} - tried
    assert untried <= {
        "Use a view, or SUBSCRIBE to one.",
        "A dropped object cannot be restored: CREATE it again from its sources.",
        "Use CREATE SINK name FROM view WITH (connector = 'file', ...).",
    }


@pytest.mark.parametrize("words", ["configured root", "where Headrace is started", "spark.sql."])
def test_no_hint_names_what_there_is_not(words: str) -> None:
    assert not [each for each in REFUSALS if words in each.hint]


@pytest.mark.long
def test_what_hints_propose_can_be_done(db: Database, tmp_path) -> None:
    (tmp_path / "rows.csv").write_text("id,x\n21,1\n")
    (tmp_path / "ids.csv").write_text("id\n1\n")
    files = {"rows": tmp_path / "rows.csv", "ids": tmp_path / "ids.csv"}
    db.sql(SETUP)
    for proposals in PROPOSED.values():
        for proposal in proposals:
            db.sql(proposal.format_map(files))
    for refused, proposals in ON_DATA.items():
        with pytest.raises(HeadraceError) as caught:
            db.sql(refused)
        assert caught.value.hint is not None, refused
        assert "spark." not in str(caught.value)
        for proposal in proposals:
            db.sql(proposal)
