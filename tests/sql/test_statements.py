from __future__ import annotations

import pickle
from typing import Any

import pytest

from headrace.errors import HeadraceError
from headrace.planning.sql import CreateStream, CreateTable, Query, parse, parse_statement, split
from sql.statement_text import one, plain, spans

STATEMENTS: list[tuple[str, dict[str, Any]]] = [
    # -- queries
    ("SELECT 1", {"is": "Query", "text": "SELECT 1"}),
    ("(SELECT 1) UNION (SELECT 2)", {"is": "Query", "text": "(SELECT 1) UNION (SELECT 2)"}),
    ("VALUES (1), (2)", {"is": "Query", "text": "VALUES (1), (2)"}),
    ("TABLE t", {"is": "Query", "text": "TABLE t"}),
    ("FROM t SELECT a", {"is": "Query", "text": "FROM t SELECT a"}),
    ("with x as (select 1) select *", {"is": "Query", "text": "with x as (select 1) select *"}),
    (
        "SELECT a -- why\n FROM t /* end */ emit /* ! */ changes -- now",
        {"is": "Query", "text": "SELECT a -- why\n FROM t", "emit_changes": True},
    ),
    (
        "SELECT * FROM t AS OF EPOCH 42",
        {"is": "Query", "text": "SELECT * FROM t", "as_of": {"is": "AsOfEpoch", "epoch": 42}},
    ),
    (
        "SELECT * FROM t AS OF TIMESTAMP '2026-01-01 00:00'",
        {
            "is": "Query",
            "text": "SELECT * FROM t",
            "as_of": {"is": "AsOfTimestamp", "timestamp": "2026-01-01 00:00"},
        },
    ),
    (
        "SELECT * FROM t EMIT CHANGES AS OF EPOCH 7",
        {
            "is": "Query",
            "text": "SELECT * FROM t",
            "emit_changes": True,
            "as_of": {"is": "AsOfEpoch", "epoch": 7},
        },
    ),
    (
        "SELECT * FROM t AS OF EPOCH 7 EMIT CHANGES",
        {
            "is": "Query",
            "text": "SELECT * FROM t",
            "emit_changes": True,
            "as_of": {"is": "AsOfEpoch", "epoch": 7},
        },
    ),
    (
        "SELECT * FROM e JOIN p FOR SYSTEM_TIME AS OF TIMESTAMP '2026-01-01'",
        {
            "is": "Query",
            "text": "SELECT * FROM e JOIN p FOR SYSTEM_TIME AS OF TIMESTAMP '2026-01-01'",
        },
    ),
    (
        "SELECT 'EMIT CHANGES', emit FROM t WHERE x = (SELECT emit changes)",
        {
            "is": "Query",
            "text": "SELECT 'EMIT CHANGES', emit FROM t WHERE x = (SELECT emit changes)",
        },
    ),
    (
        "SELECT transform(xs, x -> x + 1) AS y FROM a JOIN b USING (id)",
        {
            "is": "Query",
            "text": "SELECT transform(xs, x -> x + 1) AS y FROM a JOIN b USING (id)",
        },
    ),
    # -- create
    (
        (
            "create or replace stream s (id bigint, v string not null comment 'it''s',"
            " primary key (ID) not enforced)"
        ),
        {
            "is": "CreateStream",
            "name": "s",
            "columns": (
                {"is": "ColumnDefinition", "name": "id", "type": "BIGINT"},
                {
                    "is": "ColumnDefinition",
                    "name": "v",
                    "type": "STRING",
                    "not_null": True,
                    "comment": "it's",
                },
            ),
            "primary_key": ("id",),
            "or_replace": True,
        },
    ),
    (
        (
            'CREATE TABLE IF NOT EXISTS Gold."Users" (userId INT PRIMARY KEY, `key` STRING NULL,'
            " primary STRING, timestamp TIMESTAMP)"
        ),
        {
            "is": "CreateTable",
            "name": "gold.Users",
            "columns": (
                {"is": "ColumnDefinition", "name": "userId", "type": "INT"},
                {"is": "ColumnDefinition", "name": "key", "type": "STRING"},
                {"is": "ColumnDefinition", "name": "primary", "type": "STRING"},
                {"is": "ColumnDefinition", "name": "timestamp", "type": "TIMESTAMP"},
            ),
            "primary_key": ("userId",),
            "if_not_exists": True,
        },
    ),
    (
        "CREATE TABLE t (a INT, b INT, CONSTRAINT pk PRIMARY KEY (a, b))",
        {
            "is": "CreateTable",
            "name": "t",
            "columns": (
                {"is": "ColumnDefinition", "name": "a", "type": "INT"},
                {"is": "ColumnDefinition", "name": "b", "type": "INT"},
            ),
            "primary_key": ("a", "b"),
        },
    ),
    (
        (
            "CREATE STREAM s WITH (Kafka_Topic = 'x', 'Value.Format' = JSON, a.b-c = d.e-f,"
            " n = -1, m = +2, r = 0.5, yes = TRUE) AS SELECT 1 EMIT CHANGES"
        ),
        {
            "is": "CreateTableAs",
            "kind": "stream",
            "name": "s",
            "query": {"is": "Query", "text": "SELECT 1", "emit_changes": True},
            "options": (
                ("kafka_topic", "x"),
                ("Value.Format", "JSON"),
                ("a.b-c", "d.e-f"),
                ("n", "-1"),
                ("m", "2"),
                ("r", "0.5"),
                ("yes", "true"),
            ),
        },
    ),
    (
        "CREATE OR REPLACE MATERIALIZED VIEW v (A, b) WITH (refresh = '1 hour') AS (SELECT 1, 2)",
        {
            "is": "CreateMaterializedView",
            "name": "v",
            "query": {"is": "Query", "text": "(SELECT 1, 2)"},
            "columns": ("A", "b"),
            "options": (("refresh", "1 hour"),),
            "or_replace": True,
        },
    ),
    (
        "CREATE MATERIALIZED VIEW IF NOT EXISTS v AS WITH x AS (SELECT 1) SELECT * FROM x",
        {
            "is": "CreateMaterializedView",
            "name": "v",
            "query": {"is": "Query", "text": "WITH x AS (SELECT 1) SELECT * FROM x"},
            "if_not_exists": True,
        },
    ),
    (
        "CREATE VIEW v (a) AS SELECT 1",
        {
            "is": "CreateView",
            "name": "v",
            "query": {"is": "Query", "text": "SELECT 1"},
            "columns": ("a",),
        },
    ),
    # -- rows
    (
        "INSERT INTO t SELECT * FROM s",
        {"is": "Insert", "target": "t", "query": {"is": "Query", "text": "SELECT * FROM s"}},
    ),
    (
        "INSERT INTO TABLE t (SELECT 1)",
        {"is": "Insert", "target": "t", "query": {"is": "Query", "text": "(SELECT 1)"}},
    ),
    (
        "INSERT INTO t (from, `values`) VALUES (1, 'a;b')",
        {
            "is": "Insert",
            "target": "t",
            "columns": ("from", "values"),
            "query": {"is": "Query", "text": "VALUES (1, 'a;b')"},
        },
    ),
    (
        (
            "UPDATE g.t SET a = CASE WHEN x THEN 1 ELSE f(1, (2)) END, b = xs[1, 2], c = 'WHERE, x'"
            " /* c */ WHERE a IS DISTINCT FROM b AND z IN (SELECT y FROM w WHERE q) -- end"
        ),
        {
            "is": "Update",
            "target": "g.t",
            "assignments": (
                {
                    "is": "Assignment",
                    "column": "a",
                    "expression": "CASE WHEN x THEN 1 ELSE f(1, (2)) END",
                },
                {"is": "Assignment", "column": "b", "expression": "xs[1, 2]"},
                {"is": "Assignment", "column": "c", "expression": "'WHERE, x'"},
            ),
            "where": "a IS DISTINCT FROM b AND z IN (SELECT y FROM w WHERE q)",
        },
    ),
    (
        "UPDATE t SET limit = limit + 1 WHERE t.from = 2 OR end > having",
        {
            "is": "Update",
            "target": "t",
            "assignments": ({"is": "Assignment", "column": "limit", "expression": "limit + 1"},),
            "where": "t.from = 2 OR end > having",
        },
    ),
    ("DELETE FROM t", {"is": "Delete", "target": "t"}),
    ("DELETE FROM t WHERE a = 1", {"is": "Delete", "target": "t", "where": "a = 1"}),
    ("TRUNCATE t", {"is": "Truncate", "target": "t"}),
    ("TRUNCATE TABLE t", {"is": "Truncate", "target": "t"}),
    ("COPY t FROM 'a/b.csv'", {"is": "Copy", "target": "t", "path": "a/b.csv"}),
    (
        "COPY t (a, b) FROM 'x' WITH (format = csv, header = true)",
        {
            "is": "Copy",
            "target": "t",
            "path": "x",
            "columns": ("a", "b"),
            "options": (("format", "csv"), ("header", "true")),
        },
    ),
    (
        "COPY v TO 'x.csv'",
        {"is": "CopyTo", "source": "v", "path": "x.csv"},
    ),
    (
        "COPY a.`v w` (b, `c d`) TO 'x' WITH (format = json)",
        {
            "is": "CopyTo",
            "source": "a.v w",
            "columns": ("b", "c d"),
            "path": "x",
            "options": (("format", "json"),),
        },
    ),
    (
        "COPY (SELECT count(*) AS n FROM t WHERE (a)) TO 'x.parquet'",
        {
            "is": "CopyTo",
            "source": {"is": "Query", "text": "SELECT count(*) AS n FROM t WHERE (a)"},
            "path": "x.parquet",
        },
    ),
    # -- the rest
    ("FLUSH", {"is": "Flush"}),
    ("DROP STREAM s", {"is": "Drop", "kind": "stream", "name": "s"}),
    (
        "DROP MATERIALIZED VIEW IF EXISTS a.b CASCADE",
        {
            "is": "Drop",
            "kind": "materialized view",
            "name": "a.b",
            "if_exists": True,
            "cascade": True,
        },
    ),
    ("DROP TABLE t RESTRICT", {"is": "Drop", "kind": "table", "name": "t"}),
    ("DROP VIEW v", {"is": "Drop", "kind": "view", "name": "v"}),
    (
        "SELECT * FROM t EMIT CHANGES LIMIT 3",
        {"is": "Query", "text": "SELECT * FROM t", "emit_changes": True, "limit": 3},
    ),
    ("PRINT 'The-Topic'", {"is": "Print", "topic": "The-Topic"}),
    (
        "PRINT gold.t FROM BEGINNING LIMIT 10",
        {"is": "Print", "topic": "gold.t", "from_beginning": True, "limit": 10},
    ),
    ("PRINT `t` LIMIT 1", {"is": "Print", "topic": "t", "limit": 1}),
    ("SHOW STREAMS", {"is": "Show", "listing": "streams"}),
    ("SHOW TABLES LIKE 'o%'", {"is": "Show", "listing": "tables", "like": "o%"}),
    (
        (
            "CREATE SINK s INTO KAFKA CONNECTION Local (TOPIC 't', PARTITIONS 3) FROM v"
            " KEY (a, b) NOT ENFORCED FORMAT JSON ENVELOPE UPSERT WITH (snapshot = false)"
        ),
        {
            "is": "CreateSink",
            "name": "s",
            "source": "v",
            "into": {
                "is": "OverConnection",
                "name": "local",
                "options": (("topic", "t"), ("partitions", "3")),
                "kind": "kafka",
            },
            "options": (
                ("key", "a, b"),
                ("format", "json"),
                ("envelope", "upsert"),
                ("snapshot", "false"),
            ),
        },
    ),
    (
        "CREATE SINK s FROM v INTO CONNECTION pg",
        {
            "is": "CreateSink",
            "name": "s",
            "source": "v",
            "into": {"is": "OverConnection", "name": "pg", "options": ()},
        },
    ),
    (
        "CREATE SINK s INTO connection FROM v",
        {"is": "CreateSink", "name": "s", "source": "v", "into": "connection"},
    ),
    (
        "ALTER SINK a.s SET (batch_rows = 10)",
        {
            "is": "AlterSink",
            "name": "a.s",
            "options": (("batch_rows", "10"),),
        },
    ),
    ("PAUSE SINK s", {"is": "HandleSink", "action": "pause", "name": "s"}),
    ("RESUME SINK `S`", {"is": "HandleSink", "action": "resume", "name": "S"}),
    ("SWAP VIEW v, a.w", {"is": "SwapView", "names": ("v", "a.w")}),
    (
        "SWAP VIEW v WITH (keep_former = '1 day')",
        {"is": "SwapView", "names": ("v",), "options": (("keep_former", "1 day"),)},
    ),
    (
        "REBUILD VIEW v WITH DEPENDANTS",
        {"is": "RebuildView", "name": "v", "dependants": True, "options": ()},
    ),
    (
        "REBUILD VIEW v WITH (auto_swap = false)",
        {
            "is": "RebuildView",
            "name": "v",
            "dependants": False,
            "options": (("auto_swap", "false"),),
        },
    ),
    (
        "REBUILD VIEW v WITH DEPENDANTS WITH (auto_swap = false)",
        {
            "is": "RebuildView",
            "name": "v",
            "dependants": True,
            "options": (("auto_swap", "false"),),
        },
    ),
    ("ROLLBACK VIEW v", {"is": "SwapView", "names": ("v",), "back": True}),
    ("PAUSE FILL OF v", {"is": "PauseFill", "name": "v"}),
    ("pause fill of materialized view a.v", {"is": "PauseFill", "name": "a.v"}),
    ("RESUME FILL OF VIEW v", {"is": "ResumeFill", "name": "v"}),
    ("RESET SINK s", {"is": "HandleSink", "action": "reset", "name": "s"}),
    ("RESET sink", {"is": "ResetOption", "key": "sink"}),
    ("RECONCILE SINK s", {"is": "ReconcileSink", "name": "s"}),
    ("RECONCILE SINK s CHECK", {"is": "ReconcileSink", "name": "s", "checks": True}),
    ("LIST SINKS LIKE ''", {"is": "Show", "listing": "sinks", "like": ""}),
    ("SHOW TABLES IN SCHEMA gold", {"is": "Show", "listing": "tables", "schema": "gold"}),
    (
        "SHOW VIEWS FROM gold LIKE 'a_'",
        {"is": "Show", "listing": "views", "schema": "gold", "like": "a_"},
    ),
    (
        "SUBSCRIBE TO (SELECT 1) WITH (SNAPSHOT = false)",
        {
            "is": "Subscribe",
            "target": {"is": "Query", "text": "(SELECT 1)"},
            "snapshot": False,
        },
    ),
    ("SUBSCRIBE v WITH (SNAPSHOT)", {"is": "Subscribe", "target": "v"}),
    (
        "CREATE MATERIALIZED VIEW v IN CLUSTER c AS SELECT 1",
        {"is": "CreateMaterializedView", "name": "v", "query": {"is": "Query", "text": "SELECT 1"}},
    ),
    (
        "EXPLAIN PHYSICAL PLAN FOR SELECT 1",
        {"is": "Explain", "target": {"is": "Query", "text": "SELECT 1"}},
    ),
    ("LIST STREAMS", {"is": "Show", "listing": "streams"}),
    ("SHOW TABLES", {"is": "Show", "listing": "tables"}),
    ("SHOW VIEWS", {"is": "Show", "listing": "views"}),
    ("SHOW MATERIALIZED VIEWS", {"is": "Show", "listing": "materialized views"}),
    ("ACKNOWLEDGE REJECTS FOR s", {"is": "AcknowledgeRejects", "name": "s"}),
    (
        "ACKNOWLEDGE REJECTS 3, 4 FOR a.s",
        {"is": "AcknowledgeRejects", "name": "a.s", "ids": (3, 4)},
    ),
    ("SHOW REJECTS", {"is": "Show", "listing": "rejects"}),
    ("SHOW REJECTS FOR s", {"is": "Show", "listing": "rejects", "relation": "s"}),
    ("SHOW DIRTY", {"is": "Show", "listing": "dirty"}),
    ("SHOW DIRTY FOR a.v", {"is": "Show", "listing": "dirty", "relation": "a.v"}),
    ("SHOW CHANGES FOR v", {"is": "Show", "listing": "changes", "relation": "v"}),
    ("EXPLAIN CHANGE FUNCTION f", {"is": "ExplainChange", "target": "f"}),
    ("EXPLAIN CHANGE", {"is": "Explain", "target": "change"}),
    ("REPAIR MATERIALIZED VIEW v", {"is": "Repair", "name": "v"}),
    (
        "CORRECT STREAM a.s VOID WHERE k = 1 BECAUSE 'x'",
        {"is": "Correct", "name": "a.s", "assignments": (), "where": "k = 1", "reason": "x"},
    ),
    (
        "INVALIDATE MATERIALIZED VIEW v SINCE now() BECAUSE 'x'",
        {
            "is": "Invalidate",
            "name": "v",
            "slice": {"is": "SliceOf", "since": "now()"},
            "reason": "x",
        },
    ),
    ("SHOW EPOCHS", {"is": "Show", "listing": "epochs"}),
    ("SHOW FRESHNESS", {"is": "Show", "listing": "freshness"}),
    ("DESCRIBE t", {"is": "Describe", "name": "t"}),
    ("DESC EXTENDED a.t", {"is": "Describe", "name": "a.t", "extended": True}),
    ("DESCRIBE extended", {"is": "Describe", "name": "extended"}),
    ("DESCRIBE t EXTENDED", {"is": "Describe", "name": "t", "extended": True}),
    ("DESCRIBE TABLE a.t", {"is": "Describe", "name": "a.t"}),
    ("DESC TABLE EXTENDED t", {"is": "Describe", "name": "t", "extended": True}),
    ("CREATE DATABASE IF NOT EXISTS d", {"is": "CreateSchema", "name": "d", "if_not_exists": True}),
    ("DROP DATABASE d CASCADE", {"is": "DropSchema", "name": "d", "cascade": True}),
    ("SHOW DATABASES", {"is": "Show", "listing": "schemas"}),
    (
        "CREATE INDEX IF NOT EXISTS i ON a.t (x, `Y z`)",
        {
            "is": "CreateIndex",
            "name": "i",
            "relation": "a.t",
            "columns": ("x", "Y z"),
            "if_not_exists": True,
        },
    ),
    ("DROP INDEX IF EXISTS i", {"is": "DropIndex", "name": "i", "if_exists": True}),
    ("SHOW INDEXES FROM t", {"is": "Show", "listing": "indexes", "relation": "t"}),
    ("DROP STREAM s DELETE TOPIC", {"is": "Drop", "kind": "stream", "name": "s"}),
    ("STOP JOB 'insert_into_t'", {"is": "Drop", "kind": "job", "name": "insert_into_t"}),
    ("EXPLAIN v", {"is": "Explain", "target": "v"}),
    ("EXPLAIN a.v", {"is": "Explain", "target": "a.v"}),
    ("EXPLAIN plan", {"is": "Explain", "target": "plan"}),
    ("EXPLAIN PLAN FOR SELECT 1", {"is": "Explain", "target": {"is": "Query", "text": "SELECT 1"}}),
    ("EXPLAIN EXTENDED SELECT 1", {"is": "Explain", "target": {"is": "Query", "text": "SELECT 1"}}),
    ("DESCRIBE query", {"is": "Describe", "name": "query"}),
    ("EXPLAIN SELECT 1", {"is": "Explain", "target": {"is": "Query", "text": "SELECT 1"}}),
    ("EXPLAIN VIEW v", {"is": "Explain", "target": "v"}),
    ("EXPLAIN MATERIALIZED VIEW v", {"is": "Explain", "target": "v"}),
    (
        "EXPLAIN CREATE MATERIALIZED VIEW v AS SELECT 1",
        {
            "is": "Explain",
            "target": {
                "is": "CreateMaterializedView",
                "name": "v",
                "query": {"is": "Query", "text": "SELECT 1"},
            },
        },
    ),
    (
        "EXPLAIN CREATE TABLE v AS SELECT 1",
        {
            "is": "Explain",
            "target": {
                "is": "CreateTableAs",
                "kind": "table",
                "name": "v",
                "query": {"is": "Query", "text": "SELECT 1"},
            },
        },
    ),
    ("SET 'k' = 'v'", {"is": "SetOption", "key": "k", "value": "v"}),
    ("SET Max.Lag = 10", {"is": "SetOption", "key": "max.lag", "value": "10"}),
    ("SET k TO off", {"is": "SetOption", "key": "k", "value": "off"}),
    ("SET role = 'x'", {"is": "SetOption", "key": "role", "value": "x"}),
    ("REPAIR", {"is": "Repair"}),
    ("REPAIR TABLE a.t", {"is": "Repair", "name": "a.t"}),
    (
        "REPLAY VIEW a.v WHERE k = 1 SINCE TIMESTAMP '2026-01-01 00:00:00'",
        {
            "is": "Replay",
            "name": "a.v",
            "slice": {
                "is": "SliceOf",
                "where": "k = 1",
                "since": "TIMESTAMP '2026-01-01 00:00:00'",
            },
        },
    ),
    ("REPLAY MATERIALIZED VIEW v", {"is": "Replay", "name": "v", "slice": {"is": "SliceOf"}}),
    (
        "EXPLAIN REPLAY VIEW v WHERE k IN (1, 2)",
        {
            "is": "ExplainReplay",
            "replay": {
                "is": "Replay",
                "name": "v",
                "slice": {"is": "SliceOf", "where": "k IN (1, 2)"},
            },
        },
    ),
    (
        "EXPLAIN ROW a.v WHERE k = 1",
        {"is": "ExplainRow", "name": "a.v", "where": "k = 1"},
    ),
    (
        "EXPLAIN ROW a.v WHERE k = 1 DEEP",
        {"is": "ExplainRow", "name": "a.v", "where": "k = 1", "deep": True},
    ),
    *(
        (
            f"CREATE MATERIALIZED VIEW v ({columns}) AS SELECT 1",
            {
                "is": "CreateMaterializedView",
                "name": "v",
                "query": {"is": "Query", "text": "SELECT 1"},
                **({"columns": names} if names else {}),
                "key": {"is": "DeclaredKey", "columns": key},
            },
        )
        for columns, names, key in [
            ("PRIMARY KEY (a)", (), ("a",)),
            ("a, b, PRIMARY KEY (a, b) NOT ENFORCED", ("a", "b"), ("a", "b")),
            ("CONSTRAINT c PRIMARY KEY (a), b", ("b",), ("a",)),
            ("a PRIMARY KEY NOT ENFORCED, b", ("a", "b"), ("a",)),
        ]
    ),
    (
        "CREATE TABLE v (PRIMARY KEY (a)) AS SELECT 1 AS a",
        {
            "is": "CreateTableAs",
            "kind": "table",
            "name": "v",
            "query": {"is": "Query", "text": "SELECT 1 AS a"},
            "key": {"is": "DeclaredKey", "columns": ("a",)},
        },
    ),
    (
        "CREATE LOCAL VIEW v AS SELECT 1",
        {"is": "CreateView", "name": "v", "query": {"is": "Query", "text": "SELECT 1"}},
    ),
    ("EXPLAIN row", {"is": "Explain", "target": "row"}),
    ("EXPLAIN replay", {"is": "Explain", "target": "replay"}),
    ("CREATE BRANCH B", {"is": "CreateBranch", "name": "b"}),
    (
        "CREATE BRANCH IF NOT EXISTS b FROM EPOCH 7",
        {
            "is": "CreateBranch",
            "name": "b",
            "begins": {"is": "AsOfEpoch", "epoch": 7},
            "if_not_exists": True,
        },
    ),
    (
        "CREATE BRANCH b FROM TIMESTAMP '2026-01-01 00:00:00'",
        {
            "is": "CreateBranch",
            "name": "b",
            "begins": {"is": "AsOfTimestamp", "timestamp": "2026-01-01 00:00:00"},
        },
    ),
    ("DROP BRANCH b", {"is": "DropBranch", "name": "b"}),
    ("DROP BRANCH IF EXISTS b", {"is": "DropBranch", "name": "b", "if_exists": True}),
    ("SHOW BRANCHES", {"is": "ShowBranches"}),
    ("VERIFY", {"is": "Verify"}),
    ("VERIFY a.v, b", {"is": "Verify", "names": ("a.v", "b")}),
    ("RECONCILE VIEW a.v", {"is": "Reconcile", "name": "a.v"}),
    ("RECONCILE ALL SAMPLE 500 ROWS", {"is": "Reconcile", "rows": 500}),
    ("RECONCILE ALL SAMPLE 2.5 PERCENT", {"is": "Reconcile", "percent": 2.5}),
    ("SHOW RECONCILIATION", {"is": "Show", "listing": "reconciliation"}),
    ("SHOW EVIDENCE FOR v", {"is": "Show", "listing": "evidence", "relation": "v"}),
    ("SHOW ERRORS FOR a.v", {"is": "Show", "listing": "errors", "relation": "a.v"}),
    ("SUBSCRIBE v", {"is": "Subscribe", "target": "v"}),
    (
        "SUBSCRIBE TO v AS OF EPOCH 3",
        {"is": "Subscribe", "target": "v", "as_of": {"is": "AsOfEpoch", "epoch": 3}},
    ),
    (
        "SUBSCRIBE TO SELECT * FROM v AS OF EPOCH 3",
        {
            "is": "Subscribe",
            "target": {
                "is": "Query",
                "text": "SELECT * FROM v",
                "as_of": {"is": "AsOfEpoch", "epoch": 3},
            },
            "as_of": {"is": "AsOfEpoch", "epoch": 3},
        },
    ),
]


@pytest.mark.parametrize(("text", "expected"), STATEMENTS, ids=[text for text, _ in STATEMENTS])
def test_a_statement_is_read(text: str, expected: dict[str, Any]) -> None:
    assert plain(one(text)) == expected


@pytest.mark.parametrize("text", [text for text, _ in STATEMENTS])
def test_every_span_lies_within_its_statement_and_the_script(text: str) -> None:
    script = f"-- first\nFLUSH;\n  {text}\n;FLUSH"
    statement = parse(script, "script.sql")[1]
    whole = split(script, "script.sql")[1].span
    assert statement.span.start == whole.start == script.index("\n  ") + 3
    assert text.startswith(whole.source)
    if not isinstance(statement, Query):  # its span is that of the text without endings
        assert statement.span == whole
    for span in spans(statement):
        assert (span.text, span.file) == (script, "script.sql")
        assert whole.start <= span.start < span.end <= whole.end


@pytest.mark.parametrize("text", [text for text, _ in STATEMENTS])
def test_a_statement_survives_pickling(text: str) -> None:
    statement = one(text)
    assert pickle.loads(pickle.dumps(statement)) == statement  # noqa: S301 - our own bytes


@pytest.mark.parametrize("text", [text for text, _ in STATEMENTS])
def test_keywords_are_read_in_any_case(text: str) -> None:
    assert type(one(text.swapcase())) is type(one(text))


def test_the_spans_of_parts_show_the_parts() -> None:
    statement = one("CREATE TABLE g.T (a  DECIMAL -- money\n (10, 2) NOT NULL) WITH (k = 'v')")
    assert isinstance(statement, CreateTable)
    (column,) = statement.columns
    assert statement.name.span.source == "g.T"
    assert column.span.source == "a  DECIMAL -- money\n (10, 2) NOT NULL"
    assert column.type.span.source == "DECIMAL -- money\n (10, 2)"
    assert column.type.text == "DECIMAL(10,2)"
    assert statement.options[0].span.source == "k = 'v'"
    update = one("UPDATE t SET a = 1 + 2, b = 3 WHERE c")
    assert [a.span.source for a in update.assignments] == ["a = 1 + 2", "b = 3"]
    assert update.where.span.source == "c"
    query = one("SELECT 1 FROM t AS OF EPOCH 3 EMIT CHANGES")
    assert query.as_of.span.source == "AS OF EPOCH 3"
    assert query.span.source == "SELECT 1 FROM t"


def test_the_text_of_a_query_is_what_its_span_shows() -> None:
    script = "SELECT 'a;b' AS x;\n\nSELECT\n  2\nFROM t;"
    for statement in parse(script):
        assert isinstance(statement, Query)
        assert statement.text == statement.span.source


def test_a_script_is_read_statement_by_statement() -> None:
    first, second = split("FLUSH; SELCT")
    assert parse_statement(first) == parse("FLUSH; SHOW TABLES")[0].__class__(first.span)
    with pytest.raises(HeadraceError):
        parse_statement(second)


def test_an_option_does_not_show_its_value_in_logs() -> None:
    statement = one("CREATE TABLE t (a INT) WITH (password = 'hunter2')")
    assert "hunter2" not in repr(statement)
    assert "hunter2" not in repr(one("SET password = 'hunter2'"))


def test_declarations_of_other_dialects_are_read() -> None:
    appended = one("CREATE TABLE t (a INT, b STRING,) APPEND ONLY WITH (format = 'json')")
    assert isinstance(appended, CreateStream)
    assert [column.name for column in appended.columns] == ["a", "b"]
    stored = one("CREATE TABLE t (a INT PRIMARY KEY) USING parquet")
    assert isinstance(stored, CreateTable)
    assert stored.primary_key == ("a",)
    held = one("SELECT count(*) FROM t GROUP BY w EMIT ON WINDOW CLOSE")
    assert isinstance(held, Query)
    assert held.emit_changes
    assert held.text.endswith("EMIT ON WINDOW CLOSE")
