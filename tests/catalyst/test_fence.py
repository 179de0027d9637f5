"""The fence: what a query may not do is refused before it is done."""

from __future__ import annotations

from uuid import uuid4

import pytest

from headrace.errors import Code, HeadraceError, Span
from headrace.planning.catalyst.allowed import FUNCTIONS, REFUSED
from length import each

pytestmark = pytest.mark.spark

MARK = "headrace.fence"
REFLECT = f"reflect('java.lang.System', 'setProperty', '{MARK}', 'broken')"
BY_NAME = f"IDENTIFIER('reflect')('java.lang.System', 'setProperty', '{MARK}', 'broken')"

WAYS_TO_RUN = [
    f"SELECT {REFLECT} AS r FROM t",
    f"SELECT k FROM t WHERE {REFLECT} = 'x'",
    f"SELECT sum(x) AS s FROM t GROUP BY {REFLECT}",
    f"SELECT sum(x) AS s FROM t HAVING {REFLECT} = 'x'",
    f"SELECT k FROM t ORDER BY {REFLECT}",
    f"SELECT count(*) FILTER (WHERE {REFLECT} = 'x') AS n FROM t",
    f"SELECT transform(arr, e -> {REFLECT}) AS r FROM t",
    f"SELECT t.k FROM t JOIN u ON t.k = u.k AND {REFLECT} = 'x'",
    f"SELECT k FROM t WHERE k IN (SELECT k FROM u WHERE {REFLECT} = 'x')",
    f"SELECT (SELECT max({REFLECT}) FROM u) AS m FROM t",
    f"WITH c AS (SELECT {REFLECT} AS r FROM t) SELECT r FROM c",
    f"SELECT e FROM t LATERAL VIEW explode(array({REFLECT})) AS e",
    f"SELECT l.r FROM t, LATERAL (SELECT {REFLECT} AS r) l",
    f"SELECT k FROM t UNION ALL SELECT length({REFLECT}) FROM u",
    f"SELECT sum(x) OVER (PARTITION BY {REFLECT}) AS s FROM t",
    f"SELECT sum(x) OVER w AS s FROM t WINDOW w AS (PARTITION BY {REFLECT})",
    f"SELECT sum(x) OVER w AS s FROM t WINDOW w AS (PARTITION BY (SELECT {REFLECT}))",
    f"SELECT * FROM (SELECT g, x FROM t) PIVOT (max({REFLECT}) FOR g IN (1, 2))",
    f"SELECT * FROM VALUES ({REFLECT})",
    f"SELECT * FROM explode(array({REFLECT}))",
    f"SELECT k FROM t, LATERAL explode(array({REFLECT})) AS l(e)",
    f"SELECT k FROM t LEFT JOIN LATERAL posexplode(array({BY_NAME})) AS l(p, e) ON true",
    f"FROM t |> WHERE {REFLECT} = 'x'",
    f"FROM t |> EXTEND {REFLECT} AS r",
    f"FROM t |> SELECT k, {BY_NAME} AS r |> DROP r",
    f"FROM t |> SET s = {REFLECT}",
    f"FROM t |> AGGREGATE max({REFLECT}) AS m GROUP BY k",
    f"FROM t |> AGGREGATE count(*) AS n GROUP BY {REFLECT}",
    f"FROM t |> JOIN u ON {REFLECT} = 'x'",
    f"FROM t |> ORDER BY {REFLECT} |> LIMIT 1",
    f"FROM t |> LIMIT length({REFLECT})",
    f"FROM t |> UNION ALL (FROM t |> WHERE {REFLECT} = 'x')",
    f"FROM t |> SELECT g, x |> PIVOT (max({REFLECT}) FOR g IN (1, 2))",
    f"SELECT k FROM t WHERE EXISTS (FROM u |> WHERE {REFLECT} = 'x')",
    f"SELECT k FROM t LIMIT length({REFLECT})",
    f"SELECT k FROM t TIMESTAMP AS OF {REFLECT}",
    f"SELECT {BY_NAME} AS r FROM t",
    f"SELECT sum(x) OVER w AS s FROM t WINDOW w AS (PARTITION BY {BY_NAME})",
    f"SELECT e FROM t LATERAL VIEW explode(array({BY_NAME})) AS e",
    f"SELECT try_{REFLECT} AS r FROM t",
    f"SELECT `reflect`('java.lang.System', 'setProperty', '{MARK}', 'broken') AS r FROM t",
    f"SELECT system.builtin.{REFLECT} AS r FROM t",
    f"SELECT java_method('java.lang.System', 'setProperty', '{MARK}', 'broken') AS r FROM t",
    f"SELECT TRANSFORM (k) USING 'touch /tmp/{MARK}' AS (k) FROM t",
    f"FROM t MAP k USING 'touch /tmp/{MARK}' AS k",
]

PATHS = [
    "SELECT * FROM {format}.`{path}`",
    "SELECT k FROM t WHERE s IN (SELECT value FROM {format}.`{path}`)",
    "WITH c AS (SELECT * FROM {format}.`{path}`) SELECT * FROM c",
    "SELECT t.k FROM t, LATERAL (SELECT * FROM {format}.`{path}`)",
    "SELECT (SELECT max(value) FROM {format}.`{path}`) AS m FROM t",
    "SELECT sum(x) OVER w AS s FROM t WINDOW w AS (PARTITION BY (SELECT max(value) FROM {format}.`{path}`))",
    "SELECT * FROM {format}.`{path}` TIMESTAMP AS OF '2024-01-01'",
    "SELECT * FROM IDENTIFIER('{format}.`{path}`')",
    "TABLE {format}.`{path}`",
]


def refused(planned, query):
    with pytest.raises(HeadraceError) as caught:
        planned.engine.planner.analyse(Span(query, 0, len(query)))
    return caught.value


@pytest.mark.parametrize("query", WAYS_TO_RUN)
def test_nothing_runs(planned, query):
    context = planned.spark.sparkContext
    system = context._jvm.java.lang.System
    group = uuid4().hex
    context.setJobGroup(group, "the fence")
    try:
        error = refused(planned, query)
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)
        found = system.clearProperty(MARK)
    assert found is None
    assert error.code in (Code.INVALID, Code.UNSUPPORTED)
    assert list(context.statusTracker().getJobIdsForGroup(group)) == []


@pytest.mark.parametrize(
    "format_", each(3, ["text", "json", "csv", "parquet", "orc", "binaryFile"])
)
@pytest.mark.parametrize("query", PATHS)
def test_a_path_is_not_a_relation(planned, tmp_path, query, format_):
    path = tmp_path / "secret.txt"
    path.write_text("secret\n", encoding="utf-8")
    error = refused(planned, query.format(format=format_, path=path))
    assert error.code in (Code.INVALID, Code.UNSUPPORTED)
    assert "secret\n" not in str(error)


_SYNONYMS = {"curdate": "current_date"}
"""Spellings that Spark has replaced by others when a condition on the clock is looked at."""


def test_every_function_of_spark_is_allowed_or_refused(planned):
    known = [row[0] for row in planned.spark.sql("SHOW ALL FUNCTIONS").collect()]
    names = sorted(name for name in known if name.isidentifier())
    outside = [name for name in names if name not in FUNCTIONS]
    assert len(outside) > 40
    for name in outside:
        error = refused(planned, f"SELECT `{name}`() AS f FROM t")
        assert error.code in (Code.INVALID, Code.UNSUPPORTED)
        assert f'"{_SYNONYMS.get(name, name)}"' in error.primary


def test_no_function_is_both_allowed_and_refused():
    assert set(REFUSED) & FUNCTIONS == {"unix_timestamp"}


def test_allowed_functions_exist(planned):
    known = {row[0] for row in planned.spark.sql("SHOW ALL FUNCTIONS").collect()}
    operators = {
        "and",
        "or",
        "not",
        "in",
        "between",
        "case",
        "when",
        "like",
        "ilike",
        "rlike",
        "is",
    }
    assert FUNCTIONS - known - operators <= {"cast", "window"}


def test_a_function_of_the_session_is_not_known(planned):
    planned.spark.udf.register("my_udf", lambda value: value)
    assert refused(planned, "SELECT my_udf(k) AS x FROM t").primary == (
        'function "my_udf" does not exist'
    )


def test_a_view_of_the_session_is_not_known(planned):
    planned.spark.range(1).createOrReplaceTempView("mine")
    planned.spark.range(1).createOrReplaceGlobalTempView("ours")
    assert 'table or view "mine" does not exist' in refused(planned, "SELECT * FROM mine").primary
    assert "ours" in refused(planned, "SELECT * FROM global_temp.ours").primary
