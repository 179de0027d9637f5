"""Functions, operators and types of four dialects."""

from __future__ import annotations

import pytest

from histories import History
from length import choose, some

pytestmark = pytest.mark.spark

FUNCTIONS = {
    "ksqldb": """SELECT AS_VALUE(k) AS a, STRINGTOTIMESTAMP(s, 'yyyy-MM-dd') AS b,
        TIMESTAMPTOSTRING(unix_millis(ts), 'yyyy HH:mm') AS c,
        TIMESTAMPTOSTRING(unix_millis(ts), 'HH:mm', 'Asia/Tokyo') AS d, STRINGTODATE('2024-01-01', 'yyyy-MM-dd') AS e,
        DATETOSTRING(k, 'yyyy-MM-dd') AS f, EXTRACTJSONFIELD('{"a":' || k || '}', '$.a') AS g,
        FORMAT_TIMESTAMP(ts, 'yyyy') AS h, PARSE_TIMESTAMP('2024', 'yyyy') AS i, st->x AS j,
        TRANSFORM(arr, x => x + k) AS l, size(GENERATE_SERIES(1, 1 + abs(k))) AS m, ARRAY_LENGTH(arr) AS n,
        UCASE(s) AS o, LCASE(s) AS p, LEN(s) AS q, IFNULL(s, '') AS r, TIMESTAMPADD(DAYS, 1, ts) AS t FROM e""",
    "flink": """SELECT ROW(k, s) AS a, FLOOR(ts TO HOUR) AS b, CEIL(ts TO DAY) AS c, CEIL(day TO MONTH) AS d,
        TO_TIMESTAMP_LTZ(k, 3) AS e, TO_TIMESTAMP_LTZ(k, 0) AS f, DATE_FORMAT(ts, 'yyyy') AS g,
        TIMESTAMPDIFF(HOURS, ts, TIMESTAMP '2024-01-01 00:00:00') AS h, ARRAY[1, k] AS i, MAP['a', k] AS j,
        ARRAY_CONCAT(arr, arr) AS l, CAST(m AS DECIMAL) AS m, FLOOR(m) AS n, CAST(s AS BYTES) AS o FROM e""",
    "postgresql": r"""SELECT STRPOS(s, 'a') AS a, ARRAY_TO_STRING(arr, ',') AS b, ARRAY_TO_STRING(arr, ',', '-') AS c,
        ARRAY_CAT(arr, arr) AS d, STARTS_WITH(s, 'a') AS e, DIV(k, 3) AS f, k DIV (3) AS g, EXTRACT(EPOCH FROM ts) AS h,
        EXTRACT(ISODOW FROM day) AS i, EXTRACT(ISOYEAR FROM day) AS j, DATE_PART('epoch', ts) AS l,
        DATE_TRUNC('hours', ts) AS m, to_char(ts, 'YYYY-MM-DD"T"HH24:MI:SS.MS') AS n, s ~ '^\w' AS o, s ~* 'A' AS p,
        s !~ 'a' AS q, s ~~ 'a%' AS r, s !~~* 'A%' AS t, k::INT8 AS u, m::NUMERIC AS v, s::TEXT AS w, k::FLOAT8 AS x,
        ts::TIMESTAMPTZ AS y, ('{"a":{"b":[7,"x"]}}'::jsonb)->'a'->'b'->>0 AS z,
        (CASE WHEN k > 0 THEN '{"q":1}' END::jsonb) ->> 'q' AS aa, REGEXP_REPLACE(s, '[ab]', '_', 'g') AS bb,
        ARRAY_LENGTH(arr, 1) AS cc, INTERVAL '1 day 2 hours' + ts AS dd, s ILIKE 'A%' AS ee, TRUNC(m) AS ff, TRUNC(-m, 1) AS gg,
        TRUNC(CAST(m AS DOUBLE)) AS hh, TRUNC(day, 'MONTH') AS ii FROM e""",
    "bigquery": """SELECT SAFE_DIVIDE(k, 0) AS a, SAFE_ADD(k, 1) AS b, SAFE_SUBTRACT(k, 1) AS c, SAFE_MULTIPLY(k, 2) AS d,
        ENDS_WITH(s, 'a') AS e, ARRAY_REVERSE(arr) AS f, BYTE_LENGTH(s) AS g, REGEXP_CONTAINS(s, '^a') AS h,
        TO_HEX(CAST(s AS BYTES)) AS i, FROM_HEX('41') AS j, TO_BASE64(CAST(repeat(s, 60) AS BYTES)) AS l, FROM_BASE64('QQ==') AS m,
        SAFE_CAST(s AS INT64) AS n, DATE_TRUNC(day, WEEK) AS o, DATE_TRUNC(day, ISOWEEK) AS p, DATE_TRUNC(day, MONTH) AS q,
        TIMESTAMP_TRUNC(ts, WEEK) AS r, TIMESTAMP_TRUNC(ts, HOUR) AS t, TIME_TRUNC(CAST(ts AS TIME), MINUTE) AS tt, DATE_DIFF(day, DATE '2024-01-07', DAY) AS u,
        DATE_DIFF(day, DATE '2024-01-07', WEEK) AS v, DATE_DIFF(day, DATE '2024-01-07', WEEK(MONDAY)) AS w,
        DATE_DIFF(day, DATE '2024-01-07', MONTH) AS x, DATE_DIFF(day, DATE '2024-01-07', QUARTER) AS y,
        DATE_DIFF(day, DATE '2024-01-07', YEAR) AS z, TIMESTAMP_DIFF(ts, TIMESTAMP '2024-01-01 00:00:00', MINUTE) AS aa,
        DATE_ADD(day, INTERVAL 1 MONTH) AS bb, DATE_SUB(day, INTERVAL 3 DAY) AS cc, DATE_ADD(day, 3) AS dd,
        TIMESTAMP_ADD(ts, INTERVAL 90 MINUTE) AS ee, FORMAT_TIMESTAMP('%Y-%m-%d at %H:%M', ts) AS ff,
        FORMAT_DATE('%d/%m/%y', day) AS gg, PARSE_DATE('%Y-%m-%d', '2024-02-03') AS hh, [k, 2][OFFSET(0)] AS ii,
        arr[SAFE_OFFSET(1)] AS jj, arr[SAFE_ORDINAL(1)] AS kk, STRUCT<a INT64, b STRING>(k, s) AS ll,
        ARRAY<STRING>[] AS mm, EXTRACT(DAYOFWEEK FROM day) AS nn, EXTRACT(DATE FROM ts) AS oo FROM e""",
    "bigquery_star": "SELECT * EXCEPT (arr, st, ts) FROM e",
    "ksqldb_urls": """SELECT URL_EXTRACT_HOST('http://a.b:80/c?d=' || s) AS a, URL_EXTRACT_PATH('http://a.b/c?d=' || s) AS b,
        URL_EXTRACT_PROTOCOL('http://a.b/' || s) AS c, URL_EXTRACT_QUERY('http://a.b/c?d=' || s) AS d,
        URL_EXTRACT_PARAMETER('http://a.b/c?d=' || s, 'd') AS f, URL_EXTRACT_HOST('x y') AS g,
        ROUND(GEO_DISTANCE(k, -k, 37.4133, -122.1162), 6) AS h FROM e""",
    "ksqldb_meanings": r"""SELECT st->x AS a, ARRAY_CONTAINS(arr, k) AS b, ARRAY_CONTAINS(ARRAY[k, NULL], NULL) AS c,
        ARRAY_JOIN(ARRAY[s, NULL, 'x']) AS d, ARRAY_JOIN(arr, '-') AS e, ARRAY_REMOVE(ARRAY[s, NULL, 'a'], s) AS f,
        CHR(22909) AS g, CHR(60 + abs(k)) AS h, CONCAT(s, NULL, '-') AS i, FROM_UNIXTIME(k) AS j, LN(k - 1) AS l, LOG(k) AS m,
        LPAD(s, k, '') AS n, RPAD(s, k - 1, 'z') AS o, MASK('aB-1') AS p, REGEXP_EXTRACT('a(.)', s) AS q,
        REGEXP_EXTRACT('a(.)', 'xab' || s, 1) AS r, REGEXP_EXTRACT_ALL('\d', 'a1b2') AS t, REGEXP_EXTRACT_ALL('(.)(\d)', 'a1b2', 1) AS u,
        ROUND(k - 2.5) AS v, ROUND(CAST(k AS DOUBLE) - 2.5D) AS w, SLICE(ARRAY[1, k, 3], 2, 3) AS x, SLICE(arr, 2, 3) AS y,
        SPLIT('x.' || s || '.', '.') AS z, UNIX_TIMESTAMP(ts) AS aa, ARRAY_SORT(ARRAY[k, NULL, 2], 'desc') AS bb,
        ARRAY_SORT(ARRAY[k, NULL, 2], 'ASC') AS cc, DATEADD(DAYS, 10, day) AS dd, DATEADD(MONTH, k, day) AS ee,
        DATEADD(HOURS, 1, ts) AS ff, ELT(k, 'a', s) AS gg, TRIM('	 ' || s || '
        x ') AS hh, 'C:\new' AS ii, LEN('\d') AS jj, ARRAY[7, 8][1] AS kk, arr[2] AS ll, MAP('a' := k)['a'] AS mm, arr[-1] AS nn,
        TRANSFORM(arr, (x) => x + arr[1]) AS oo, STRINGTOTIMESTAMP(s, 'yyyy') AS pp, STRINGTODATE(s, 'yyyy') AS qq,
        PARSE_DATE(s, 'yyyy') AS rr FROM e""",
    "ksqldb_more": r"""SELECT URL_EXTRACT_PORT('http://a.b:80/c?d=' || s) AS a, URL_EXTRACT_PORT('http://a.b/' || s) AS b,
        URL_EXTRACT_FRAGMENT('http://a.b/c#' || s) AS c, URL_ENCODE_PARAM('a &~*-_.') AS d, URL_DECODE_PARAM('a+%26') AS e, URL_DECODE_PARAM('%Z') AS f,
        JSON_KEYS('{"a":1,"b":' || k || '}') AS g, JSON_RECORDS('{"a":"x","b":{"c":' || k || '}}') AS h, JSON_RECORDS('[1]') AS i,
        JSON_ITEMS('[1,"x",' || k || ']') AS j, JSON_ITEMS(s) AS l, IS_JSON_STRING(s) AS m, IS_JSON_STRING('[' || k || ']') AS n,
        TO_JSON_STRING(k) AS o, TO_JSON_STRING(s) AS p, TO_JSON_STRING(struct(k AS q, 'x"y' AS r)) AS q, TO_BYTES('4142', 'hex') AS r,
        TO_BYTES(s, 'utf8') AS t, FROM_BYTES(CAST(s AS BINARY), 'hex') AS u, FROM_BYTES(CAST('ab' AS BINARY), 'base64') AS v,
        FROM_DAYS(k) AS w, CONVERT_TZ(ts, 'UTC', 'Asia/Tokyo') AS x, SPLIT_TO_MAP('a.1|b.2', '|', '.') AS y,
        REGEXP_SPLIT_TO_ARRAY('a12b', '[0-9]+') AS z, AS_MAP(array('a', 'b'), array(k, 2)) AS aa, MAP_UNION(map('a', 1, 'b', 2), map('b', k)) AS bb,
        ENTRIES(map('b', k, 'a', 2), true) AS cc, MASK_LEFT('aB-1', 2) AS dd, MASK_RIGHT('aB-1', 2) AS ee, MASK_KEEP_LEFT('aB-1', 2) AS ff,
        MASK_KEEP_RIGHT('aB-1', 2) AS gg, DATESUB(DAY, k, day) AS hh, TIMESTAMPSUB(HOURS, 2, ts) AS ii, FIELD(s, 'a', 'b') AS jj FROM e""",
    "ksqldb_maps": """SELECT FILTER(map('a', k, 'b', 2), (x, v) => v > 1 AND x <> 'c') AS a, TRANSFORM(map('a', k), (x, v) => UCASE(x), (x, v) => v + 1) AS b,
        REDUCE(map('a', k, 'b', 2), 10, (t, x, v) => t + v * LEN(x)) AS c, FILTER(arr, x => x > 1) AS d, SPLIT_TO_MAP('a=1;b=' || s || ';;c;a=3=4', ';', '=') AS f,
        INT_FROM_BYTES(unhex('FFFFFFFE')) AS g, INT_FROM_BYTES(CAST('abcd' AS BINARY)) AS h, INT_FROM_BYTES(unhex('00')) AS i,
        BIGINT_FROM_BYTES(unhex('FFFFFFFFFFFFFFFF')) AS j FROM e""",
    "flink_split": """SELECT SPLIT_INDEX('x.' || s || '..', '.', 1) AS a, SPLIT_INDEX(s, '.', k) AS b, SPLIT_INDEX('x..', '.', 2) AS c,
        SPLIT_INDEX(s, 'a', -1) AS d FROM e""",
    "snowflake": """SELECT IFF(k > 1, 'x', s) AS a, DIV0(m, k) AS b, TO_VARCHAR(m) AS c, TO_CHAR(k) AS d,
        TO_VARCHAR(ts, 'YYYY-MM-DD HH24:MI:SS') AS e, TO_DOUBLE('1.5') AS f, TO_BOOLEAN('t') AS g,
        TO_DECIMAL('1.259', 5, 2) AS h, TO_NUMBER('1.259', 5, 2) AS i, CHARINDEX('b', s) AS j, CHARINDEX('b', s, 2) AS l,
        EDITDISTANCE(s, 'a') AS m, ARRAY_CONSTRUCT(1, k) AS n, DATE_FROM_PARTS(2024, 1, 2) AS o, ZEROIFNULL(m) AS p,
        NVL2(s, 1, 0) AS q, DATEADD('day', 1, ts) AS r, DATEADD(day, 1, ts) AS t, DATE_TRUNC(MONTH, ts) AS u,
        parse_json('{"a":{"b":' || k || '}}'):a.b::INT AS v, TO_TIMESTAMP('2024-02-03 04:05', 'YYYY-MM-DD HH24:MI') AS w
        FROM e""",
    "snowflake_star": "SELECT * EXCLUDE arr FROM e",
    "typographic": "SELECT k, \u2018it\u2019 AS t, \u201cq\u201d AS u FROM e WHERE s <> \u2018a\u2019",
}

AGGREGATES = {
    "ksqldb": """SELECT s, COUNT_DISTINCT(k) AS a, TOPK(k, 2) AS b, TOPK(k, 2) FILTER (WHERE k < 3) AS c,
        TOPKDISTINCT(k, 3) AS d, LATEST_BY_EVENT_TIME(m, ts) AS e, EARLIEST_BY_EVENT_TIME(m, ts) AS f,
        LATEST_BY_EVENT_TIME(m, ts) FILTER (WHERE k > 3) AS g FROM e GROUP BY s""",
    "ksqldb_correlation": "SELECT CORRELATION(k, 2 * k + 1) AS a FROM e WHERE k IS NOT NULL",
    "ksqldb_attributes": "SELECT s, ATTR(k) AS a, STDDEV_SAMPLE(k) AS b, ATTR(s) FILTER (WHERE k > 1) AS c FROM e GROUP BY s",
    "ksqldb_histogram": "SELECT s, HISTOGRAM(k) AS a, HISTOGRAM(k) FILTER (WHERE k > 1) AS b, COUNT() AS c, COUNT() FILTER (WHERE k > 1) AS d FROM e GROUP BY s",
    "flink": "SELECT s, SUM0(m) AS a, SUM0(m) FILTER (WHERE k > 9) AS b FROM e GROUP BY s",
    "postgresql": """SELECT k, STRING_AGG(s, '-' ORDER BY s DESC) AS a, ARRAY_AGG(s ORDER BY day DESC, s DESC) AS b FROM e GROUP BY k""",
    "postgresql_orders": """SELECT k, ARRAY_AGG(s ORDER BY day, m DESC) AS a, ARRAY_AGG(s ORDER BY m NULLS LAST, day DESC NULLS FIRST) AS b,
        FIRST_VALUE(s ORDER BY day DESC, m) AS c, LAST_VALUE(m ORDER BY s, day) FILTER (WHERE s <> 'a') AS d,
        STRING_AGG(s, ts::text ORDER BY m DESC, ts) AS e FROM e GROUP BY k""",
    "postgresql_distinct": "SELECT k, STRING_AGG(DISTINCT s, ',' ORDER BY s) AS a FROM e GROUP BY k",
    "postgresql_descending": "SELECT ARRAY_AGG(k ORDER BY k DESC) AS a, count(*) FILTER (WHERE s = 'a') AS n FROM e",
    "bigquery": "SELECT s, COUNTIF(k > 1) AS a, LOGICAL_AND(k > 0) AS b, LOGICAL_OR(k > 2) AS c FROM e GROUP BY s",
    "snowflake": """SELECT s, BOOLAND_AGG(k > 0) AS a, BOOLOR_AGG(k > 2) AS b,
        LISTAGG(CAST(k AS STRING), ',') WITHIN GROUP (ORDER BY k) AS c FROM e GROUP BY s""",
    "distinct_on": "SELECT DISTINCT ON (s) s, k, day FROM e ORDER BY s, k DESC, day, m",
    "nested": "SELECT SUM(IFF(k > 2, st->x, DIV(k, 2))) AS a, MAX(COALESCE(s::TEXT, '')) AS b FROM e",
}

SOURCES = {
    "unnested": "SELECT k, i FROM e CROSS JOIN UNNEST(arr) AS u(i)",
    "unnested_comma": "SELECT k, i + 1 AS j FROM e, UNNEST(e.arr) AS i WHERE k > 1",
    "unnested_left": "SELECT k, i FROM e LEFT JOIN UNNEST(arr) AS u(i) ON TRUE",
    "unnested_structs": "SELECT k, a, b FROM e CROSS JOIN UNNEST(array(struct(k, s), struct(1 AS k, 'x' AS s))) AS u(a, b)",
    "series": "SELECT e.k, g.n FROM e JOIN generate_series(1, 9, 2) AS g(n) ON g.n = e.k",
    "no_series": "SELECT e.k, g.g FROM e CROSS JOIN (SELECT g FROM generate_series(3, 1) AS g) AS g",
}


def by(keys, fields, condition="true", shown="p.v"):
    """The values in the order of columns, in which NULLs are the least."""
    named = ", ".join(
        f"{key} AS k{i}" for i, key in enumerate(keys.removesuffix(", v").split(", "))
    )
    rows = f"collect_list(struct({named}, {fields})) FILTER (WHERE {condition})"
    return f"transform(sort_array({rows}), p -> {shown})"


def plain():
    """The same in plain Spark."""
    functions = {
        "ksqldb": """SELECT k AS a, unix_millis(CAST(try_cast(if(s RLIKE '^[0-9]{4}-[0-9]{2}-[0-9]{2}$', s, NULL) AS DATE) AS TIMESTAMP)) AS b,
            date_format(ts, 'yyyy HH:mm') AS c, date_format(ts + INTERVAL 9 HOURS, 'HH:mm') AS d, 19723 AS e,
            date_format(date_add(DATE '1970-01-01', k), 'yyyy-MM-dd') AS f, CAST(k AS STRING) AS g,
            CAST(year(ts) AS STRING) AS h, TIMESTAMP '2024-01-01 00:00:00' AS i, st.x AS j,
            transform(arr, x -> x + k) AS l, 1 + abs(k) AS m, size(arr) AS n, upper(s) AS o, lower(s) AS p,
            length(s) AS q, coalesce(s, '') AS r, ts + INTERVAL 1 DAY AS t FROM e""",
        "flink": """SELECT named_struct('k', k, 's', s) AS a, date_trunc('HOUR', ts) AS b,
            date_trunc('DAY', ts + INTERVAL 1 DAY - INTERVAL '0.000001' SECOND) AS c,
            date_trunc('MONTH', CAST(last_day(day) AS TIMESTAMP) + if(day(day) = 1, INTERVAL 0 DAY, INTERVAL 1 DAY)) AS d,
            CAST(k / 1000 AS TIMESTAMP) AS e, CAST(k AS TIMESTAMP) AS f, CAST(year(ts) AS STRING) AS g,
            CAST((unix_micros(TIMESTAMP '2024-01-01 00:00:00') - unix_micros(ts)) div 3600000000 AS BIGINT) AS h,
            array(1, k) AS i, map('a', k) AS j, flatten(array(arr, arr)) AS l, CAST(m AS DECIMAL(38,9)) AS m,
            CAST(FLOOR(CAST(m AS DOUBLE)) AS DECIMAL(7,0)) AS n, CAST(s AS BINARY) AS o FROM e""",
        "postgresql": """SELECT locate('a', s) AS a, if(arr IS NULL, NULL, concat_ws(',', CAST(arr AS ARRAY<STRING>))) AS b,
            array_join(arr, ',', '-') AS c, flatten(array(arr, arr)) AS d, s LIKE 'a%' AS e, CAST(trunc_ AS BIGINT) AS f,
            CAST(trunc_ AS BIGINT) AS g, CAST(unix_micros(ts) AS DECIMAL(20,0)) / CAST(1000000 AS DECIMAL(7,0)) AS h,
            if(dayofweek(day) = 1, 7, dayofweek(day) - 1) AS i, year(date_add(day, 4 - if(dayofweek(day) = 1, 7, dayofweek(day) - 1))) AS j,
            CAST(unix_micros(ts) AS DECIMAL(20,0)) / CAST(1000000 AS DECIMAL(7,0)) AS l, date_trunc('HOUR', ts) AS m,
            date_format(ts, "yyyy-MM-dd'T'HH:mm:ss.SSS") AS n, s RLIKE '^[a-zA-Z0-9_]' AS o, lower(s) LIKE '%a%' AS p,
            s NOT LIKE '%a%' AS q, s LIKE 'a%' AS r, lower(s) NOT LIKE 'a%' AS t, CAST(k AS BIGINT) AS u, CAST(m AS DECIMAL(38,9)) AS v,
            s AS w, CAST(k AS DOUBLE) AS x, ts AS y, '7' AS z, CASE WHEN k > 0 THEN '1' END AS aa,
            translate(s, 'ab', '__') AS bb, nullif(size(arr), 0) AS cc, ts + INTERVAL 26 HOURS AS dd, lower(s) LIKE 'a%' AS ee,
            CAST(split_part(CAST(m AS STRING), '.', 1) AS DECIMAL(7, 0)) AS ff, CAST(-m - pmod(CAST(-m AS DECIMAL(9, 2)), if(m > 0, -0.1, 0.1)) AS DECIMAL(8, 1)) AS gg,
            CAST(CAST(m AS DOUBLE) AS BIGINT) AS hh, date_add(last_day(add_months(day, -1)), 1) AS ii
            FROM (SELECT *, k DIV 3 AS trunc_ FROM e)""",
        "bigquery": """SELECT CAST(NULL AS DOUBLE) AS a, k + 1 AS b, k - 1 AS c, k * 2 AS d, s LIKE '%a' AS e, reverse(arr) AS f,
            length(CAST(s AS BINARY)) AS g, s LIKE 'a%' AS h, lower(hex(s)) AS i, X'41' AS j, translate(base64(CAST(repeat(s, 60) AS BINARY)), chr(13) || chr(10), '') AS l, X'41' AS m,
            try_cast(s AS BIGINT) AS n, date_sub(next_day(day, 'SUN'), 7) AS o, date_sub(next_day(day, 'MON'), 7) AS p,
            date_add(last_day(add_months(day, -1)), 1) AS q, CAST(date_sub(next_day(CAST(ts AS DATE), 'SUN'), 7) AS TIMESTAMP) AS r,
            date_trunc('HOUR', ts) AS t, make_time(hour(ts), minute(ts), 0) AS tt, CAST(datediff(day, DATE '2024-01-07') AS BIGINT) AS u,
            CAST(floor(datediff(day, DATE '2024-01-07') / 7) AS BIGINT) AS v,
            CAST(floor(datediff(day, DATE '2024-01-01') / 7) AS BIGINT) AS w,
            CAST((year(day) - 2024) * 12 + month(day) - 1 AS BIGINT) AS x, CAST((year(day) - 2024) * 4 + quarter(day) - 1 AS BIGINT) AS y,
            CAST(year(day) - 2024 AS BIGINT) AS z,
            CAST((unix_micros(ts) - unix_micros(TIMESTAMP '2024-01-01 00:00:00')) div 60000000 AS BIGINT) AS aa,
            add_months(day, 1) AS bb, date_sub(day, 3) AS cc, date_add(day, 3) AS dd, ts + INTERVAL '1:30' HOUR TO MINUTE AS ee,
            date_format(ts, 'yyyy-MM-dd') || ' at ' || date_format(ts, 'HH:mm') AS ff, date_format(day, 'dd/MM/yy') AS gg,
            DATE '2024-02-03' AS hh, k AS ii, try_element_at(arr, 2) AS jj, try_element_at(arr, 1) AS kk,
            named_struct('a', CAST(k AS BIGINT), 'b', s) AS ll, CAST(array() AS ARRAY<STRING>) AS mm, dayofweek(day) AS nn,
            CAST(ts AS DATE) AS oo FROM e""",
        "bigquery_star": "SELECT k, s, m, day FROM e",
        "ksqldb_urls": """SELECT if(s IS NULL, NULL, 'a.b') AS a, if(s IS NULL, NULL, '/c') AS b, if(s IS NULL, NULL, 'http') AS c,
            'd=' || s AS d, s AS f, CAST(NULL AS STRING) AS g,
            ROUND(6371 * acos(sin(k * pi() / 180) * sin(37.4133 * pi() / 180)
                + cos(k * pi() / 180) * cos(37.4133 * pi() / 180) * cos((-122.1162 + k) * pi() / 180)), 6) AS h FROM e""",
        "ksqldb_maps": r"""SELECT if(k > 1, map('a', k, 'b', 2), map('b', 2)) AS a, map('A', k + 1) AS b, 12 + k AS c, filter(arr, x -> x > 1) AS d,
            if(s IS NULL, NULL, map('b', s, 'a', '3')) AS f, -2 AS g, 1633837924 AS h, CAST(NULL AS INT) AS i, -1L AS j FROM e""",
        "ksqldb_meanings": r"""SELECT st.x AS a, coalesce(size(filter(arr, x -> x <=> k)) > 0 AND arr IS NOT NULL, false) AS b, true AS c,
            concat_ws(',', coalesce(s, 'null'), 'null', 'x') AS d,
            if(arr IS NULL, NULL, concat_ws('-', transform(arr, x -> coalesce(CAST(x AS STRING), 'null')))) AS e,
            filter(array(s, NULL, 'a'), x -> NOT x <=> s) AS f, '\u597d' AS g, char(60 + abs(k)) AS h, coalesce(s, '') || '-' AS i,
            CAST(CAST(k / 1000 AS DECIMAL(20, 3)) AS TIMESTAMP) AS j,
            CASE WHEN k = 1 THEN double('-Infinity') WHEN k < 1 THEN double('NaN') ELSE log(k - 1) END AS l,
            CASE WHEN k = 0 THEN double('-Infinity') WHEN k < 0 THEN double('NaN') ELSE log(k) END AS m,
            CAST(NULL AS STRING) AS n, if(k < 1, NULL, rpad(s, k - 1, 'z')) AS o, 'xX-n' AS p, regexp_substr(s, 'a.') AS q,
            if(s IS NULL, NULL, 'b') AS r, array('1', '2') AS t, array('a', 'b') AS u, CAST(k - 2 AS DECIMAL(13, 0)) AS v,
            CAST(k - 2 AS BIGINT) AS w, array(k, 3) AS x, if(size(arr) >= 3, array(arr[1], arr[2]), NULL) AS y,
            split('x,' || s || ',', ',') AS z, unix_millis(ts) AS aa,
            sort_array(array(k, NULL, 2), false) AS bb, array_sort(array(k, NULL, 2)) AS cc, date_add(day, 10) AS dd, add_months(day, k) AS ee,
            ts + INTERVAL 1 HOUR AS ff, CASE k WHEN 1 THEN 'a' WHEN 2 THEN s END AS gg, trim(BOTH chr(10) || ' ' FROM s || chr(10) || '        x') AS hh,
            concat('C:', chr(92), 'new') AS ii, 2 AS jj,
            7 AS kk, get(arr, 1) AS ll, k AS mm, get(arr, size(arr) - 1) AS nn, transform(arr, x -> x + get(arr, 0)) AS oo,
            CAST(NULL AS BIGINT) AS pp, CAST(NULL AS INT) AS qq, CAST(NULL AS DATE) AS rr FROM e""",
        "ksqldb_more": r"""SELECT if(s IS NULL, NULL, 80) AS a, CAST(NULL AS INT) AS b, s AS c, 'a+%26%7E*-_.' AS d, 'a &' AS e, CAST(NULL AS STRING) AS f,
            if(k IS NULL, NULL, array('a', 'b')) AS g, if(k IS NULL, NULL, map('a', '"x"', 'b', '{"c":' || k || '}')) AS h,
            CAST(NULL AS MAP<STRING, STRING>) AS i, if(k IS NULL, NULL, array('1', '"x"', CAST(k AS STRING))) AS j, CAST(NULL AS ARRAY<STRING>) AS l,
            s <=> 'null' AS m, k IS NOT NULL AS n, coalesce(CAST(k AS STRING), 'null') AS o, coalesce('"' || s || '"', 'null') AS p,
            '{"q":' || coalesce(CAST(k AS STRING), 'null') || ',"r":"x\\"y"}' AS q, X'4142' AS r, CAST(s AS BINARY) AS t, hex(s) AS u, 'YWI=' AS v,
            date_add(DATE '1970-01-01', k) AS w, ts + INTERVAL 9 HOURS AS x, map('a', '1', 'b', '2') AS y, array('a', 'b') AS z,
            map('a', k, 'b', 2) AS aa, map('a', 1, 'b', k) AS bb, array(named_struct('K', 'a', 'V', 2), named_struct('K', 'b', 'V', k)) AS cc,
            'xX-1' AS dd, 'aB-n' AS ee, 'aB-n' AS ff, 'xX-1' AS gg, date_sub(day, k) AS hh, ts - INTERVAL 2 HOURS AS ii, CASE s WHEN 'a' THEN 1 WHEN 'b' THEN 2 ELSE 0 END AS jj FROM e""",
        "flink_split": "SELECT s AS a, CASE WHEN k = 0 THEN s END AS b, '' AS c, CAST(NULL AS STRING) AS d FROM e",
        "snowflake": """SELECT CASE WHEN k > 1 THEN 'x' ELSE s END AS a, CASE WHEN m IS NULL OR k IS NULL THEN NULL ELSE coalesce(try_divide(m, k), 0) END AS b,
            CAST(m AS STRING) AS c, CAST(k AS STRING) AS d, date_format(ts, 'yyyy-MM-dd HH:mm:ss') AS e, 1.5D AS f, true AS g,
            CAST(1.26 AS DECIMAL(5,2)) AS h, CAST(1.26 AS DECIMAL(5,2)) AS i, instr(s, 'b') AS j,
            if(locate('b', s, 2) > 0, locate('b', s, 2), nvl2(s, 0, NULL)) AS l, levenshtein(s, 'a') AS m, array(1, k) AS n,
            DATE '2024-01-02' AS o, coalesce(m, 0) AS p, CASE WHEN s IS NULL THEN 0 ELSE 1 END AS q, ts + INTERVAL 1 DAY AS r,
            ts + INTERVAL 1 DAY AS t, date_trunc('MONTH', ts) AS u, k AS v, TIMESTAMP '2024-02-03 04:05:00' AS w FROM e""",
        "snowflake_star": "SELECT k, s, ts, m, day, st FROM e",
        "typographic": "SELECT k, 'it' AS t, 'q' AS u FROM e WHERE s <> 'a'",
    }
    aggregates = {
        "ksqldb": """SELECT s, count(DISTINCT k) AS a, slice(reverse(array_sort(collect_list(k))), 1, 2) AS b,
            slice(reverse(array_sort(collect_list(k) FILTER (WHERE k < 3))), 1, 2) AS c,
            slice(reverse(array_sort(collect_set(k))), 1, 3) AS d,
            try_element_at(transform(array_sort(collect_list(if(m IS NULL OR ts IS NULL, NULL, struct(ts, m)))), p -> p.m), -1) AS e,
            try_element_at(transform(array_sort(collect_list(if(m IS NULL OR ts IS NULL, NULL, struct(ts, m)))), p -> p.m), 1) AS f,
            try_element_at(transform(array_sort(collect_list(if(m IS NULL OR ts IS NULL OR NOT k > 3 OR k IS NULL, NULL, struct(ts, m)))), p -> p.m), -1) AS g
            FROM e GROUP BY s""",
        "ksqldb_correlation": "SELECT if(count(DISTINCT k) > 1, 1.0D, NULL) AS a FROM e WHERE k IS NOT NULL",
        "ksqldb_attributes": """SELECT s, CASE WHEN size(collect_set(coalesce(CAST(k AS STRING), ''))) = 1 THEN max(k) END AS a, stddev(k) AS b,
            max(CASE WHEN k > 1 THEN s END) AS c FROM e GROUP BY s""",
        "ksqldb_histogram": """SELECT s, map_from_entries(collect_list(struct(t, n)) FILTER (WHERE t IS NOT NULL)) AS a,
            map_from_entries(collect_list(struct(t, n)) FILTER (WHERE k > 1)) AS b, sum(n) AS c, sum(if(k > 1, n, 0)) AS d
            FROM (SELECT s, k, CAST(k AS STRING) AS t, count(*) AS n FROM e GROUP BY s, k ORDER BY t) GROUP BY s""",
        "flink": "SELECT s, coalesce(sum(m), 0) AS a, coalesce(sum(CASE WHEN k > 9 THEN m END), 0) AS b FROM e GROUP BY s",
        "postgresql": """SELECT k, if(count(s) = 0, NULL, array_join(sort_array(collect_list(s), false), '-')) AS a,
            transform(reverse(array_sort(collect_list(named_struct('d', nvl2(day, day, DATE '0001-01-01'), 's', s)))), p -> p.s) AS b
            FROM e GROUP BY k""",
        "postgresql_orders": f"""SELECT k, {by("day, dm, v", "s AS v")} AS a, {by("ml, dl, v", "s AS v")} AS b,
            try_element_at({by("dd, m, v", "s AS v")}, 1) AS c,
            try_element_at({by("s, day, v", "m AS v", "s <> 'a'")}, -1) AS d,
            if(count(s) = 0, NULL, array_join(transform({by("dm, ts, v", "s AS v, ts AS t", "s IS NOT NULL", "p")},
            (p, i) -> if(i = 0, p.v, coalesce(CAST(p.t AS STRING), '') || p.v)), '')) AS e
            FROM (SELECT *, if(m IS NULL, 9e9, -CAST(m AS DOUBLE)) AS dm, coalesce(CAST(m AS DOUBLE), 9e9) AS ml,
                if(day IS NULL, -9e9, -unix_date(day)) AS dl, if(day IS NULL, 9e9, -unix_date(day)) AS dd FROM e) GROUP BY k""",
        "postgresql_distinct": """SELECT k, if(count(s) = 0, NULL, array_join(sort_array(collect_set(s)), ',')) AS a FROM e GROUP BY k""",
        "postgresql_descending": """SELECT concat(transform(sort_array(collect_list(k), false), x -> x), array_repeat(CAST(NULL AS INT), CAST(count(*) - count(k) AS INT))) AS a,
            count(CASE WHEN s = 'a' THEN 1 END) AS n FROM e""",
        "bigquery": "SELECT s, count(CASE WHEN k > 1 THEN 1 END) AS a, min(k > 0) AS b, max(k > 2) AS c FROM e GROUP BY s",
        "snowflake": """SELECT s, min(k > 0) AS a, max(k > 2) AS b, if(count(k) = 0, NULL, array_join(CAST(sort_array(collect_list(k)) AS ARRAY<STRING>), ',')) AS c
            FROM e GROUP BY s""",
        "distinct_on": """SELECT s, k, day FROM (SELECT *, row_number() OVER (PARTITION BY s ORDER BY k DESC, day, m) AS n FROM e)
            WHERE n = 1""",
        "nested": "SELECT sum(CASE WHEN k > 2 THEN CAST(st.x AS BIGINT) ELSE k DIV 2 END) AS a, coalesce(max(coalesce(s, ''))) AS b FROM e",
    }
    sources = {
        "unnested": "SELECT k, explode(arr) AS i FROM e",
        "unnested_comma": "SELECT k, explode(transform(arr, x -> x + 1)) AS j FROM e WHERE k > 1",
        "unnested_left": "SELECT k, explode_outer(arr) AS i FROM e",
        "unnested_structs": "SELECT k, k AS a, s AS b FROM e UNION ALL SELECT k, 1, 'x' FROM e",
        "series": "SELECT k, k AS n FROM e WHERE k BETWEEN 1 AND 9 AND k % 2 = 1",
        "no_series": "SELECT k, 1 AS g FROM e WHERE false",
    }
    return functions, aggregates, sources


SHORT_AGGREGATES = "ksqldb flink postgresql_orders bigquery snowflake"
SHORT_SOURCES = "unnested_comma unnested_left unnested_structs series"


@pytest.mark.long
@pytest.mark.parametrize(
    "which",
    [pytest.param(0, marks=pytest.mark.long), 1, 2],
    ids=["functions", "aggregates", "sources"],
)
def test_other_dialects_mean_what_they_say(oracle, which):
    run = oracle(rows_per_change=60)
    columns = "k INT, s STRING, ts TIMESTAMP, m DECIMAL(8,2), day DATE, arr ARRAY<INT>, st STRUCT<x: INT, y: STRING>"
    run.table("e", columns)
    expected = plain()[which]
    queries = (FUNCTIONS, some(AGGREGATES, SHORT_AGGREGATES), some(SOURCES, SHORT_SOURCES))[which]
    for name, query in queries.items():
        run.view(name, query, expected=expected[name])
    history = History(run, which, domain=12)
    history.epochs(["e"], choose((50,), (50, 5)))
    run.truncate("e")
    run.finish()
