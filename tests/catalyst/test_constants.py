"""Constants: nothing large is made and no pattern is run for long while a query is planned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from headrace.errors import Code, HeadraceError
from length import each

if TYPE_CHECKING:
    from collections.abc import Iterator

    import headrace

pytestmark = pytest.mark.spark

HUGE = [
    "SELECT repeat('x', 2000000000) AS r",
    "SELECT repeat('x', 2000 * 1000000) AS r",
    "SELECT repeat(repeat('x', 40000), 40000) AS r",
    "SELECT length(repeat('x', 2000000000)) AS n FROM t",
    "SELECT k FROM t WHERE name = repeat('x', 2000000000)",
    "SELECT k FROM t WHERE k IN (SELECT length(space(2000000000)) FROM t)",
    "SELECT concat(name, rpad('x', 2000000000, 'y')) AS r FROM t",
    "SELECT sequence(1, 1000000000) AS s",
    "SELECT sequence(1, 1000000000, 2) AS s",
    "SELECT explode(sequence(-1000000000, 1)) AS s",
    "SELECT sequence(DATE'0001-01-01', DATE'9999-12-31', INTERVAL '1' SECOND) AS s",
    "SELECT sequence(TIMESTAMP'0001-01-01 00:00', TIMESTAMP'9999-01-01 00:00', INTERVAL 1 MINUTE) s",
    "SELECT space(2000000000) AS s",
    "SELECT lpad('x', 2000000000) AS s",
    "SELECT array_repeat('x', 2000000000) AS s",
    "SELECT array_repeat(array_repeat('x', 30000), 30000) AS s",
    "SELECT format_string('%2000000000d', 1) AS s",
    "SELECT printf('%1$2000000000d', 1) AS s",
    "SELECT replace(repeat('x', 100000), 'x', repeat('y', 100000)) AS s",
    "SELECT regexp_replace(repeat('x', 100000), 'x', repeat('y', 100000)) AS s",
    "SELECT array_join(array_repeat('x', 100000), repeat('y', 100000)) AS s",
    "SELECT * FROM VALUES (repeat('x', 2000000000))",
    "SELECT * FROM VALUES (repeat('x', abs(2000000000)))",
    "SELECT k FROM t LIMIT length(repeat('x', 2000000000))",
    "SELECT percentile(k, array_repeat(0.5, abs(100000000))) AS p FROM t",
    "SELECT repeat('x', n) AS r FROM (SELECT 2000000000 AS n)",
    "SELECT repeat('x', n) AS r FROM (SELECT 2000000000 AS n, k FROM t)",
    "WITH c AS (SELECT 2000000000 AS n) SELECT repeat('x', n) AS r FROM c",
    "SELECT (SELECT repeat('x', 2000000000)) AS r FROM t",
    "SELECT repeat((SELECT repeat('x', 1000000)), 100000) AS r FROM t",
    "SELECT (SELECT repeat('x', v.n)) AS r FROM (SELECT 2000000000 AS n) v",
    "SELECT repeat('x', (SELECT 2000000000)) AS r FROM t",
    "SELECT x FROM (SELECT 2000000000 AS n FROM t), LATERAL explode(sequence(1, n)) AS u(x)",
    "SELECT hex(hex(hex(hex(hex(hex(repeat('x', 10000000))))))) AS h",
    "SELECT 1 AS o, repeat('x', try_add(2000000000, 0)) AS r",
]
SLOW = [
    "SELECT regexp_like(repeat('a', 40000), '(a+)+$b') AS r",
    "SELECT 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' RLIKE '(a+)+b' AS r",
    "SELECT k FROM t WHERE regexp_extract('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', '(a|aa)+$b') = ''",
    "SELECT x RLIKE '(a+)+$b' AS r FROM (SELECT repeat('a', 40000) AS x)",
    "SELECT 'aaaa' RLIKE concat('(a+', ')+$b') AS r",
    "SELECT repeat('a', 40000) LIKE '%a%a%a%a%b' AS r",
    "SELECT split(repeat('a', 40000), '(a+)+$b') AS r",
    r"SELECT split(repeat('a', 40000), concat('\\Q', '\\E(a+)+$b', '\\E')) AS r",
    r"SELECT split(repeat('a', 40000), CASE WHEN 'b' = '' THEN 'b' ELSE '(a+)+$b' END) AS r",
    "SELECT regexp_count(repeat('a', 40000), '(a+)+$b') AS r",
    "SELECT levenshtein(repeat('a', 100000), repeat('b', 100000)) AS r",
    "SELECT * FROM VALUES ('aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' RLIKE '(a+)+$b')",
]
FINE = [
    ("SELECT repeat('x', 3) AS r", "xxx"),
    ("SELECT length(repeat('x', 1000000)) AS n", 1000000),
    ("SELECT size(sequence(1, 1000)) AS n", 1000),
    ("SELECT max(x) AS x FROM (SELECT 2 AS n FROM t), LATERAL explode(sequence(1, n)) u(x)", 2),
    ("SELECT size(sequence(1L, n)) AS n FROM (SELECT count(*) AS n FROM t)", 1),
    ("SELECT size(sequence(DATE'2020-01-01', DATE'2020-12-31')) AS n", 366),
    (
        "SELECT size(sequence(to_date('2020-01-01'), to_date('2020-12-01'), INTERVAL 1 MONTH)) AS n",
        12,
    ),
    ("SELECT size(sequence(current_date() - INTERVAL 6 DAY, current_date())) AS n", 7),
    ("SELECT 'abcb' RLIKE 'a.*b' AS r", True),
    ("SELECT 'abc' LIKE '%b%' AS r", True),
    ("SELECT regexp_replace('a-b-c', '[^a-z]+', '') AS r", "abc"),
    ("SELECT split('a,b', ',')[1] AS r", "b"),
    (r"SELECT split('a(+)+b', concat('\\Q', '(+)+', '\\E'), -1)[1] AS r", "b"),
    (
        r"SELECT split('a+b', CASE WHEN '+' = '' THEN '' ELSE concat('\\Q', '+', '\\E') END)[0] r",
        "a",
    ),
    ("SELECT levenshtein('kitten', 'sitting') AS d", 3),
    ("SELECT length(repeat(name, 10)) AS n FROM t", 30),
    ("SELECT 1 + 2 + 3 + 4 + 5 + 6 + 7 + 8 + 9 + 10 + 11 + 12 + length('a' || 'b') AS n", 80),
    ("SELECT x FROM VALUES (repeat('x', 2)) v(x)", "xx"),
    ("SELECT upper(x) AS u FROM VALUES (repeat('x', 2)) v(x)", "XX"),
    ("SELECT trim(upper(lower(concat('a', trim(upper(lower(concat('b', 'c')))))))) AS t", "ABC"),
    ("SELECT format_string('%05d %s', 7, 'x') AS f", "00007 x"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, spark: object) -> Iterator[headrace.Database]:
    import headrace
    from sessions import PARTITIONS

    directory = tmp_path_factory.mktemp("constants") / "db"
    with headrace.connect(directory, spark=spark, partitions=PARTITIONS, continuous=False) as db:
        db.sql("CREATE TABLE t (k INT PRIMARY KEY, name STRING); INSERT INTO t VALUES (1, 'one')")
        yield db


def tower(height: int) -> str:
    query = "SELECT 'xx' AS x"
    for _ in range(height):
        query = f"SELECT concat(x, x) AS x FROM ({query})"
    return query


@pytest.mark.parametrize("sql", each(8, [*HUGE, tower(30)]))
def test_a_constant_that_is_too_large_is_refused(place: headrace.Database, sql: str):
    with pytest.raises(HeadraceError, match="constant of more than 16 MiB") as raised:
        place.sql(sql)
    assert raised.value.code is Code.UNSUPPORTED
    assert raised.value.span is not None
    assert raised.value.hint is not None


@pytest.mark.parametrize("sql", each(3, SLOW))
def test_a_pattern_that_may_take_long_over_a_constant_is_refused(
    place: headrace.Database, sql: str
):
    with pytest.raises(HeadraceError, match="pattern that may take long") as raised:
        place.sql(sql)
    assert raised.value.code is Code.UNSUPPORTED


def test_views_do_not_hide_a_constant(place: headrace.Database):
    with pytest.raises(HeadraceError, match="16 MiB"):
        place.sql("CREATE MATERIALIZED VIEW v AS SELECT k, repeat('x', 2000000000) AS r FROM t")
    place.sql("CREATE VIEW v0 AS SELECT k, repeat('x', 1000) AS x FROM t")
    with pytest.raises(HeadraceError, match="16 MiB"):
        place.sql("SELECT repeat(x, 1000000) AS y FROM v0")
    place.sql("DROP VIEW v0")


@pytest.mark.parametrize(("sql", "value"), each(6, FINE))
def test_a_small_constant_is_as_before(place: headrace.Database, sql: str, value: object):
    assert place.sql(sql).fetchall() == [(value,)]


def test_a_range_is_no_constant_of_a_query_that_runs_once(place: headrace.Database):
    assert place.sql("SELECT count(*), max(id) FROM range(500000)").fetchall() == [
        (500_000, 499_999)
    ]
    joined = "SELECT count(*) FROM range(100000) a, range(7, -3, -2) AS b(n) WHERE a.id = b.n"
    assert place.sql(joined).fetchall() == [(4,)]
    place.sql("CREATE STREAM numbers (id BIGINT)")
    place.sql("INSERT INTO numbers SELECT id FROM range(600000)")
    assert place.sql("SELECT count(DISTINCT id) FROM numbers").fetchall() == [(600_000,)]
    with pytest.raises(HeadraceError, match="16 MiB") as raised:
        place.sql("CREATE MATERIALIZED VIEW v AS SELECT id FROM range(3000000)")
    assert "INSERT INTO t SELECT id FROM range(...)" in str(raised.value.hint)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT size(collect_list(id)) FROM range(100000000)",
        "SELECT count(*) FROM range(10000) a, range(10000) b",
        "SELECT count(*) FROM range(10000) a JOIN range(10000) b ON a.id <= b.id",
        "SELECT (SELECT max(id) FROM range(100000000)) AS m",
        "SELECT sum(id) FROM (SELECT * FROM range(100000000, 0, -1) UNION ALL SELECT * FROM range(3))",
    ],
)
def test_more_rows_of_ranges_than_a_query_may_have_are_refused(place: headrace.Database, sql: str):
    with pytest.raises(HeadraceError, match="100,000,000 rows of ranges") as raised:
        place.sql(sql)
    assert raised.value.code is Code.UNSUPPORTED
    assert "10,000,000" in str(raised.value.detail)
