"""Projections, filters, unions and generators: stateless nodes."""

from __future__ import annotations

import pytest

from histories import History
from length import some

pytestmark = pytest.mark.spark

EVERYTHING = """id INT, b BOOLEAN, i8 TINYINT, i16 SMALLINT, i64 BIGINT, f FLOAT, d DOUBLE,
    m DECIMAL(10,2), big DECIMAL(38,10), s STRING, bin BINARY, day DATE, ts TIMESTAMP,
    tn TIMESTAMP_NTZ, iv INTERVAL DAY TO SECOND, arr ARRAY<INT>,
    st STRUCT<a: INT, b: STRING, c: ARRAY<DOUBLE>>, mp MAP<STRING, BIGINT>,
    deep ARRAY<STRUCT<x: INT, y: MAP<INT, STRING>>>"""

PROJECTIONS = {
    "whole": "SELECT * FROM e",
    "arithmetic": """SELECT id, i8 + i16 AS a, -id * 2 AS b, i64 DIV 7 AS c, id / 3 AS d, i64 % 5 AS e,
        m * m AS f, m + big AS g, m / 3 AS h, round(m, 1) AS i, abs(d) AS j, f + 1 AS k,
        id & 3 AS l, ceil(m) AS n, CAST(m AS INT) AS o, try_divide(id, i8) AS p, pmod(id, 7) AS q
        FROM e""",
    "text": r"""SELECT upper(s) AS a, s || '-' || id AS b, length(s) AS c, substring(s, 1, 1) AS d,
        regexp_replace(s, '[ab]+', '_') AS e, s LIKE 'a%' AS f, s RLIKE '^A' AS g, trim(s) AS h,
        lpad(s, 4, '.') AS i, md5(s) AS j, split(s, ' ') AS k, CAST(s AS BINARY) AS l FROM e""",
    "times": """SELECT day + INTERVAL 1 DAY AS a, date_trunc('hour', ts) AS b, year(day) AS c,
        ts + iv AS d, tn + INTERVAL '1' MINUTE AS e, unix_micros(ts) AS f, iv * 2 AS g,
        date_format(ts, 'yyyy-MM-dd') AS h, ts - INTERVAL 1 HOUR > ts AS i, CAST(ts AS DATE) AS j,
        CAST(tn AS TIMESTAMP) AS k, CAST(ts AS STRING) AS l, extract(MINUTE FROM ts) AS n,
        datediff(day, DATE'2024-02-28') AS o, ts - CAST(tn AS TIMESTAMP) AS p, last_day(day) AS q
        FROM e""",
    "nested": """SELECT st.a AS a, st.b AS b, get(arr, 0) AS c, size(arr) AS d,
        transform(arr, x -> x + id) AS e, filter(arr, x -> x > 3) AS f, try_element_at(mp, 'a') AS g,
        map_keys(mp) AS h, named_struct('p', id, 'q', st) AS i, array(id, i8) AS j, map('k', s) AS k,
        deep.x AS l, aggregate(arr, 0, (t, x) -> t + coalesce(x, 0)) AS n, to_json(st) AS o,
        sort_array(arr) AS p, mp AS q, exists(arr, x -> x = 1) AS r, struct(*) AS t FROM e""",
    "choices": """SELECT CASE WHEN id > 5 THEN 'big' WHEN id > 2 THEN s END AS a,
        coalesce(s, 'none') AS b, nullif(id, 3) AS c, if(b, id, i8) AS d, id IN (1, 2, NULL) AS e,
        id BETWEEN 2 AND 8 AS f, s IS NULL AS g, id <=> i8 AS h, NOT b OR id > 3 AS i,
        greatest(id, i8, i16) AS j, isnan(d) AS k, d = 0 AS l, nvl2(s, 1, 0) AS n FROM e""",
    "bytes": "SELECT hex(bin) AS a, base64(bin) AS b, bin, sha2(bin, 256) AS c, crc32(bin) AS d FROM e",
    "one": "SELECT 1 AS one FROM e",
    "constants": "SELECT 'x' AS x, CAST(NULL AS INT) AS n, id FROM e ORDER BY id",
    "nothing_known": "SELECT id, NULL AS n FROM e",
    "collated": "SELECT s COLLATE UTF8_LCASE AS c, s COLLATE UTF8_LCASE = 'AB' AS d FROM e",
    "of_json": "SELECT id, CAST(try_variant_get(try_parse_json(s), '$', 'int') AS STRING) AS v FROM e",
    "twice": "SELECT id AS a, id AS b, id + 1 AS c, id + 1 AS d FROM e",
}

FILTERS = {
    "by_number": "SELECT id, m FROM e WHERE m > 0 AND id % 2 = 1",
    "by_null": "SELECT id, s FROM e WHERE s IS NOT NULL AND (b OR i8 IS NULL)",
    "by_float": "SELECT id, d FROM e WHERE d > 0 OR isnan(d)",
    "by_list": "SELECT s FROM e WHERE s IN ('a', 'b', '') AND NOT st.a IN (1, 2)",
    "by_time": "SELECT day, ts FROM e WHERE ts >= TIMESTAMP'2024-02-28 23:30:00' AND day < '2024-03-01'",
    "by_other": "SELECT i8 FROM e WHERE array_contains(arr, 2) OR mp['a'] IS NOT NULL OR d = 0",
    "unpivoted": "SELECT * FROM (SELECT s, id, i8 + 0 AS i FROM e) UNPIVOT (v FOR n IN (id, i))",
    "never": "SELECT id FROM e WHERE id > 5 AND id < 5",
    "nowhere": "SELECT id FROM e WHERE false",
    "distributed": "SELECT id, s FROM e WHERE id > 2 DISTRIBUTE BY s SORT BY id",
    "clustered": "SELECT s, count(*) AS n FROM (SELECT * FROM e CLUSTER BY id) GROUP BY s CLUSTER BY s",
    "repartitioned": "SELECT /*+ REPARTITION(3, s) */ id, m FROM (SELECT /*+ REBALANCE */ * FROM e WHERE id > 1)",
    "coalesced_first": "SELECT /*+ COALESCE(1) */ id, s FROM e ORDER BY id, s LIMIT 3",
    "unlimited": "SELECT id FROM e WHERE b ORDER BY id LIMIT ALL",
    "hidden": "SELECT s FROM e WHERE i64 > 3 AND length(s) < 3",
}

UNIONS = {
    "both": "SELECT id, s FROM e UNION ALL SELECT a, b FROM o",
    "itself": "SELECT id, s FROM e UNION ALL SELECT id, s FROM e",
    "other_columns": "SELECT id AS a, id AS b FROM e UNION ALL SELECT i8, i64 FROM e",
    "widened": "SELECT id AS x, m FROM e UNION ALL SELECT a + 1L, c FROM o",
    "nullable": "SELECT 1 AS x FROM e UNION ALL SELECT id FROM e UNION ALL SELECT 2 FROM o",
    "filtered": """SELECT id FROM e WHERE id > 3 UNION ALL SELECT id FROM e WHERE id < 7
        UNION ALL SELECT a FROM o WHERE b = 'a'""",
    "under": "SELECT x, x + 1 AS y FROM (SELECT id AS x, s FROM e UNION ALL SELECT a, b FROM o) WHERE s <> 'a'",
    "literal": "SELECT 'e' AS src, id FROM e UNION ALL SELECT 'o', a FROM o",
    "structs": "SELECT st.b AS s, st FROM e UNION ALL SELECT b, named_struct('a', a, 'b', b, 'c', array(1.5D)) FROM o",
}

GENERATORS = {
    "exploded": "SELECT id, explode(arr) AS x FROM e",
    "positions": "SELECT posexplode(arr), s FROM e",
    "outer_lateral": "SELECT id, x FROM e LATERAL VIEW OUTER explode(arr) AS x",
    "outer_function": "SELECT s, explode_outer(arr) AS x FROM e",
    "entries": "SELECT id, k, v FROM e LATERAL VIEW explode(mp) AS k, v",
    "structs": "SELECT id, x, y FROM e LATERAL VIEW inline(deep) AS x, y",
    "two": "SELECT x, y FROM e LATERAL VIEW explode(arr) AS x LATERAL VIEW explode(array(x, id)) AS y",
    "none_kept": "SELECT x FROM e LATERAL VIEW explode(arr) AS x WHERE x > 2",
    "all_kept": "SELECT * FROM e LATERAL VIEW explode(arr) AS x WHERE id > 1",
    "constant": "SELECT id, explode(array(1, 2, 2)) AS x FROM e",
    "bare": "SELECT explode(sequence(1, 3)) AS x FROM e",
    "of_json": """SELECT id, a, b FROM (SELECT id, concat('{"a": "', coalesce(s, ''), '", "b": ', i8, '}') AS j FROM e)
        LATERAL VIEW json_tuple(j, 'a', 'b') AS a, b""",
    "stacked": "SELECT stack(2, id, s, id + 1, 'z') AS (n, t) FROM e",
    "counted": "SELECT x, count(*) AS n, sum(id) AS t FROM e LATERAL VIEW explode(arr) AS x GROUP BY x",
    "over_aggregate": """SELECT id, x FROM (SELECT id, count(*) AS n FROM e GROUP BY id)
        LATERAL VIEW explode(sequence(1L, n)) AS x""",
}

LATERAL = {
    "exploded": "SELECT id, x FROM e, LATERAL explode(arr) AS t(x)",
    "positions": "SELECT s, p, x FROM e CROSS JOIN LATERAL posexplode(arr) AS t(p, x) WHERE p < 2",
    "entries": "SELECT id, k, v FROM e JOIN LATERAL explode(mp) AS t(k, v)",
    "structs": "SELECT id, x, y FROM e, LATERAL inline(deep) AS t(x, y)",
    "of_json": """SELECT id, c0, c1 FROM (SELECT id, concat('{"a": "', coalesce(s, ''), '", "b": ', i8, '}') AS j FROM e),
        LATERAL json_tuple(j, 'a', 'b')""",
    "variants": """SELECT id, pos, key, CAST(value AS STRING) AS t FROM e,
        LATERAL variant_explode(parse_json(to_json(named_struct('i', i8, 's', s, 'l', arr))))""",
    "variants_outer": """SELECT id, v.pos, variant_get(v.value, '$', 'int') + 1 AS n FROM e,
        LATERAL variant_explode_outer(try_parse_json(to_json(arr))) AS v""",
    "variants_counted": """SELECT key, count(*) AS n FROM e,
        LATERAL variant_explode(parse_json(to_json(mp))) GROUP BY key""",
    "stacked": "SELECT id, n FROM e, LATERAL stack(2, id, i8 + 1) AS t(n)",
    "two": "SELECT x, y FROM e, LATERAL explode(arr) AS t(x), LATERAL explode(array(x, id)) AS u(y)",
    "outer_": "SELECT id, x FROM e LEFT JOIN LATERAL explode(arr) AS t(x) ON true",
    "outer_by_condition": "SELECT id, x FROM e LEFT JOIN LATERAL explode(arr) AS t(x) ON x > id",
    "outer_function": "SELECT id, col FROM e, LATERAL explode_outer(flatten(array(arr, array(id))))",
    "by_condition": "SELECT id, x FROM e JOIN LATERAL explode(arr) AS t(x) ON x > id",
    "summed": "SELECT id, n FROM e, LATERAL (SELECT sum(x) AS n FROM explode(arr) AS t(x)) u",
    "scalar": "SELECT id, (SELECT max(x) FROM explode(arr) AS t(x)) AS m FROM e",
    "exists_": "SELECT id FROM e WHERE EXISTS (SELECT 1 FROM explode(arr) AS t(x) WHERE x > id)",
    "in_": "SELECT id FROM e WHERE id IN (SELECT x FROM explode(arr) AS t(x))",
    "folded": """SELECT n, x FROM (SELECT 2 AS n FROM e), LATERAL explode(sequence(1, n)) AS t(x)""",
    "folded_groups": "SELECT 1 AS c FROM (SELECT 2 AS n FROM e), LATERAL explode(sequence(1, n)) AS t(x) GROUP BY x",
    "constants": "SELECT id, x FROM e JOIN explode(array(1, 2, 2)) AS t(x) ON x = i8",
}


CHOSEN = {
    "projections": some(PROJECTIONS, "whole arithmetic nested"),
    "filters": some(FILTERS, "by_float by_list unpivoted repartitioned"),
}


@pytest.mark.parametrize(
    "views",
    [
        CHOSEN["projections"],
        pytest.param(CHOSEN["filters"], marks=pytest.mark.long),
    ],
    ids=CHOSEN,
)
def test_rows_are_mapped_one_by_one(oracle, views):
    run = oracle()
    run.table("e", EVERYTHING)
    for name, query in views.items():
        run.view(name, query)
    history = History(run, 1, domain=12)
    history.epochs(["e"], (60, 5))
    run.truncate("e")
    run.finish()


def test_unions_add_up(oracle):
    run = oracle()
    run.table("e", EVERYTHING)
    run.table("o", "a INT, b STRING, c DECIMAL(10,2)", key="a")
    for name, query in some(UNIONS, "itself widened structs").items():
        run.view(name, query)
    history = History(run, 2, domain=12)
    history.epochs(["e", "o"], (60,))
    history.epochs(["o"], (4,))
    run.truncate("e")
    run.finish()


SHORT_GENERATORS = "outer_lateral entries structs over_aggregate"
SHORT_LATERAL = "positions variants_outer outer_by_condition by_condition summed exists_ folded"


@pytest.mark.long
def test_generators_multiply_rows(oracle):
    run = oracle(rows_per_change=20)
    run.table("e", EVERYTHING)
    for name, query in some(GENERATORS, SHORT_GENERATORS).items():
        run.view(name, query)
    history = History(run, 3, domain=12)
    history.epochs(["e"], (60, 5))
    run.truncate("e")
    run.finish()


@pytest.mark.long
def test_elements_stand_in_from(oracle):
    run = oracle(rows_per_change=40)
    run.table("e", EVERYTHING)
    for name, query in some(LATERAL, SHORT_LATERAL).items():
        run.view(name, query)
    history = History(run, 4, domain=12)
    history.epochs(["e"], (40, 5))
    run.truncate("e")
    run.finish()


@pytest.mark.long
@pytest.mark.parametrize("small_rows", [9, 0])
def test_values_that_only_spark_has_stay_within_its_job(oracle, small_rows):
    run = oracle(rows_per_change=40, small_rows=small_rows)
    run.table("e", EVERYTHING)
    for name in ("variants", "variants_outer"):
        run.view(name, LATERAL[name])
    history = History(run, 5, domain=12)
    history.epochs(["e"], (12, 5))
    run.finish()
