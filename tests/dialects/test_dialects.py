"""Other dialects' forms: what Spark is given, and errors where the user wrote them."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import dialects_table
from headrace.errors import Code, HeadraceError, Span
from headrace.planning.catalog import Declaration, Stream, View
from headrace.planning.catalyst.allowed import FUNCTIONS
from headrace.planning.dialects import (
    CALLS,
    FURTHER,
    FURTHER_FORMS,
    MEANINGS,
    MEANT,
    REFUSED_CALLS,
    index_base,
    is_of_ksqldb,
    refuse_undecided,
    spark_text,
)
from headrace.planning.dialects.translate import FORMS, WORDS

if TYPE_CHECKING:
    from headrace.planning.sql import Rewritten

ALIKE = {
    *(
        "DATEPART",
        "DATETIME_TRUNC",
        "DATETIME_DIFF",
        "TIMEDIFF",
        "DATE_SUB",
        "TIMESTAMP_ADD",
        "DATETIME_ADD",
    ),
    *(
        "DATETIME_SUB",
        "TO_TIMESTAMP",
        "TRY_TO_TIMESTAMP",
        "FORMAT_DATE",
        "FORMAT_DATETIME",
        "PARSE_DATETIME",
    ),
    *("LISTAGG", "EXTRACT", "REGEXP_EXTRACT", "REGEXP_EXTRACT_ALL", "REGEXP_INSTR", "CHR"),
    "TRY_TO_DATE",
}
"""Forms that are written as others that the page shows."""

VIEWS = Path(__file__).parents[1] / "views/test_dialects.py"


def read(text: str) -> Rewritten:
    return spark_text(Span(text, 0, len(text)), {})


def read_over_streams(text: str) -> str:
    return spark_text(Span(text, 0, len(text)), dialects_table.RELATIONS).text


UNCHANGED = [
    "SELECT top, 2 * replace(a, 'x', 'y'), at FROM t HAVING true = any(b) AND every(c) = all_of",
    "SELECT a FROM t WHERE REGEXP_EXTRACT(a, 'x(.)', 1) = 'y' AND a LIKE ANY ('x', 'y')",
    "SELECT offset, a[1], fetch FROM t WHERE zone = 1 ORDER BY k LIMIT 3 OFFSET 2",
    "SELECT row_number() OVER (PARTITION BY within ORDER BY b) FROM t AS within ORDER BY 1 OFFSET 5",
    "SELECT a, b FROM t WHERE x = 1 -- TUMBLE(ts, INTERVAL '1' HOUR)",
    "SELECT 'HOP(ts, x)', `TUMBLE`, t.iff, count(*) AS countif FROM t",
    "SELECT transform(a, x -> x + 1), filter(a, (x, i) -> i > 0), aggregate(a, 0, (s, x) -> s + x) FROM t",
    "SELECT floor(x), ceil(x, 2), date_trunc('HOUR', ts), extract(YEAR FROM ts), date_add(d, 3) FROM t",
    "SELECT row_number() OVER w FROM t WINDOW w AS (PARTITION BY a ORDER BY b)",
    "SELECT window.start FROM t GROUP BY window(ts, '1 hour')",
    "SELECT a[0], m['k'], s.f, ~x, a - -b, a <> b, v:path.x FROM t",
    "SELECT split(a, ','), 7 DIV (k), listagg(s, ',') WITHIN GROUP (ORDER BY s) FROM t",
    "SELECT * EXCEPT (a) FROM t EXCEPT SELECT * FROM u",
    "SELECT mask(s, upperChar => 'Q') FROM t",
    "WITH hop AS (SELECT 1 AS tumble) SELECT tumble FROM hop",
    "SELECT x IS DISTINCT FROM y FROM t",
    "SELECT latest.a FROM t latest JOIN u AS final USING (a) JOIN limit ON latest.b = final JOIN `asof` USING (a)",
    "SELECT * FROM t QUALIFY a > 1",
    "SELECT INTERVAL '1' DAY, X'41', TIMESTAMP_NTZ '2024-01-01 00:00:00', TIME '01:02:03' FROM t",
    "SELECT * FROM asof JOIN b MATCH_CONDITION (asof.t >= b.t), any, c LEFT ASOF JOIN d MATCH_CONDITION (c.t > d.t) USING (k)",
    "SELECT ((a",
    "SELECT :: FROM ->",
]


@pytest.mark.parametrize("text", UNCHANGED)
def test_what_spark_reads_itself_is_left_alone(text):
    assert read(text).text == text
    assert not read(text).pieces


READ = [
    (
        (
            "SELECT country, title_id, COUNT(*) AS views FROM viewing_events\nGROUP BY "
            "HOP(event_time, INTERVAL \u20181\u2019 MINUTE, INTERVAL \u20185\u2019 MINUTE), country, title_id"
        ),
        (
            "SELECT country, title_id, COUNT(*) AS views FROM viewing_events\nGROUP BY "
            "window(event_time, '5 minutes', '1 minute'), country, title_id"
        ),
    ),
    (
        "SELECT TUMBLE_START(a.ts, INTERVAL '1' DAY) FROM a GROUP BY k, tumble(A.ts, INTERVAL '24' HOUR)",
        "SELECT window.start FROM a GROUP BY k, window(A.ts, '1 day')",
    ),
    (
        "SELECT 1 FROM t GROUP BY SESSION(ts, INTERVAL '1:30' MINUTE TO SECOND)",
        "SELECT 1 FROM t GROUP BY session_window(ts, '90 seconds')",
    ),
    (
        "SELECT 1 FROM TUMBLE(t, ts, INTERVAL '1 day 12 hours') x",
        (
            "SELECT 1 FROM (SELECT * EXCEPT (__window), __window.start AS window_start, __window.end AS window_end "
            "FROM (SELECT *, window(ts, '36 hours') AS __window FROM t)) x"
        ),
    ),
    (
        "SELECT 1 FROM t ORDER BY a OFFSET 2 ROWS FETCH NEXT 5 ROWS ONLY",
        "SELECT 1 FROM t ORDER BY a LIMIT 5 OFFSET 2",
    ),
    ("SELECT DISTINCT TOP 3 a FROM t ORDER BY a", "SELECT DISTINCT   a FROM t ORDER BY a LIMIT 3"),
    (
        "SELECT a + 1 = ANY(SELECT b FROM t), a <> ALL (ARRAY[1, b])",
        "SELECT a + 1 IN(SELECT b FROM t), (NOT arrays_overlap(array(a ), array(1, b)))",
    ),
    ("SELECT s->a[1]->b, s.a[1]", "SELECT try_element_at(s.a, 1).b, try_element_at(s.a, 1)"),
    ("SELECT transform(s->a, x => x->y[2])", "SELECT transform(s.a, x -> try_element_at(x.y, 2))"),
    ("SELECT transform(l, x -> x[1])", "SELECT transform(l, x -> x[1])"),
    (
        "SELECT * FROM a ASOF LEFT JOIN b ON k = bk AND bat <= at WHERE p",
        "SELECT * FROM a LEFT ASOF JOIN b MATCH_CONDITION (bat <= at) ON k = bk  WHERE p",
    ),
    (
        "SELECT * FROM a x ASOF INNER JOIN b AS y ON (x.t > f(y.t) AND x.k = y.k) JOIN c ON c.k < x.k",
        "SELECT * FROM a x ASOF JOIN b AS y MATCH_CONDITION (x.t > f(y.t)) ON x.k = y.k  JOIN c ON c.k < x.k",
    ),
    (
        "SELECT * FROM s ASOF JOIN r ON s.ts >= r.ts AND s.k = r.k AND r.v > 2 LEFT JOIN c USING (k)",
        "SELECT * FROM s ASOF JOIN r MATCH_CONDITION (s.ts >= r.ts) ON s.k = r.k AND r.v > 2  LEFT JOIN c USING (k)",
    ),
    (
        "SELECT * FROM a ASOF LEFT OUTER JOIN b MATCH_CONDITION (a.t >= b.t) ON a.k = b.k",
        "SELECT * FROM a LEFT ASOF JOIN b MATCH_CONDITION (a.t >= b.t) ON a.k = b.k",
    ),
    (
        "SELECT int '5', NUMERIC '1.5', JSON '[1]', a.int, x::text, DATE '2024-01-01', date, 'a' FROM t",
        "SELECT CAST('5' AS INT), CAST('1.5' AS DECIMAL(38,9)), parse_json('[1]'), a.int, x::STRING, DATE '2024-01-01', date, 'a' FROM t",
    ),
    (
        "SELECT LAG(x, 2 IGNORE NULLS) OVER (ORDER BY t), first_value(x) IGNORE NULLS FROM t",
        "SELECT lag(x, 2) IGNORE NULLS OVER (ORDER BY t), first_value(x) IGNORE NULLS FROM t",
    ),
    (
        "SELECT bid.a FROM HOP(bid, ts, INTERVAL '1 minute', INTERVAL '5 minutes') WHERE bid.a > 1",
        (
            "SELECT bid.a FROM (SELECT * EXCEPT (__window), __window.start AS window_start, __window.end AS window_end "
            "FROM (SELECT *, window(ts, '5 minutes', '1 minute') AS __window FROM bid)) AS bid WHERE bid.a > 1"
        ),
    ),
    (
        "SELECT size(generate_series(1, 2)) FROM UNNEST(generate_series(1, 3)) AS u(i)",
        "SELECT size(sequence(1, 2)) FROM (SELECT explode(sequence(1, 3)) AS i) AS u",
    ),
    ("SELECT 1 FROM t FETCH FIRST ROW ONLY", "SELECT 1 FROM t LIMIT 1"),
    ("SELECT 1 FROM t OFFSET 1 ROW LIMIT (2)", "SELECT 1 FROM t LIMIT (2) OFFSET 1"),
    (
        "SELECT DISTINCT ON (a) a FROM t ORDER BY a, b FETCH FIRST 5 ROWS ONLY",
        "SELECT  a FROM t  QUALIFY row_number() OVER (PARTITION BY a ORDER BY a, b) = 1 ORDER BY a, b LIMIT 5",
    ),
    (
        "SELECT a FROM t WHERE b PARTITION BY a, c UNION SELECT 1",
        "SELECT a FROM t WHERE b   UNION SELECT 1",
    ),
    (
        "SELECT now() AT TIME ZONE 'Europe/Berlin' AT TIME ZONE 'utc'",
        "SELECT CAST(CAST(convert_timezone('UTC', 'Europe/Berlin', now() )  AS TIMESTAMP_NTZ) AS TIMESTAMP)",
    ),
    ("SELECT IFF(COUNTIF(a) > 1, IFF(b, 1, 2), 3)", "SELECT if(count_if(a) > 1, if(b, 1, 2), 3)"),
    ("SELECT a->b->c, SUM(s->x)", "SELECT a.b.c, SUM(s.x)"),
    ("SELECT transform(l, x => x->y)", "SELECT transform(l, x -> x.y)"),
    ("SELECT f(x)->'a b'", "SELECT variant_get(f(x), '$[\"a b\"]', 'variant')"),
    ("SELECT a.b ->> 0", "SELECT variant_get(a.b , '$[0]', 'string')"),
    ("SELECT x::numeric(10,2)::text", "SELECT x::DECIMAL(10,2)::STRING"),
    ("SELECT (a || b)::jsonb", "SELECT parse_json((a || b))"),
    ("SELECT EXTRACT(ISODOW FROM a.ts)", "SELECT (weekday(a.ts) + 1)"),
    (
        "SELECT TRY_CAST(x AS ROW(a INT64, b TEXT))",
        "SELECT TRY_CAST(x AS STRUCT<`a`: BIGINT, `b`: STRING>)",
    ),
    ("SELECT [1, 2][ORDINAL(1)]", "SELECT array(1, 2)[(1) - 1]"),
    ("SELECT mz_now() <= ts", "SELECT now() <= ts"),
    (
        "SELECT DISTINCT ON (k) k, v FROM t ORDER BY k, v DESC",
        "SELECT  k, v FROM t  QUALIFY row_number() OVER (PARTITION BY k ORDER BY k, v DESC) = 1 ORDER BY k, v DESC",
    ),
]


@pytest.mark.parametrize(("text", "expected"), READ)
def test_other_forms_are_read_as_sparks(text, expected):
    assert read(text).text == expected


@pytest.mark.parametrize(("text", "_"), READ)
def test_what_was_copied_is_found_again(text, _):
    found = read(text)
    for piece in found.pieces:
        place = found.back(Span(found.text, piece.start, piece.end))
        assert 0 <= place.start <= place.end <= len(text)
        if piece.copied:
            assert place.source == found.text[piece.start : piece.end]


def test_places_lead_back_through_both_rewritings():
    from pyspark.sql.types import StructType

    from headrace.planning.catalog import Table
    from headrace.types import RelationId, Schema

    schema = Schema.of_spark(StructType().add("k", "string").add("since", "date"))
    relations = {"p": Table(RelationId(1), "p", schema, ("k", "since"), "since")}
    text = "SELECT IFF(o.a, o.b, 1), o.nope FROM o JOIN p FOR SYSTEM_TIME AS OF o.ts::DATE q ON o.k->x = q.k"
    found = spark_text(Span(text, 0, len(text)), relations)
    for word in ("o.nope", "o.b", "q.k", "FROM o"):
        at = found.text.index(word)
        assert found.back(Span(found.text, at, at + len(word))).source == word
    at = found.text.index("if(")
    assert found.back(Span(found.text, at, at + 3)).source == "IFF(o.a, o.b, 1)"
    assert found.back(
        Span(found.text, found.text.index("LATERAL"), found.text.index(" q ON"))
    ).source == ("p FOR SYSTEM_TIME AS OF o.ts::DATE")


REFUSED = [
    ("SELECT k FROM t FETCH FIRST 3 ROWS WITH TIES", "FETCH FIRST 3 ROWS WITH TIES", "unsupported"),
    (
        "SELECT k FROM t FETCH NEXT 3 PERCENT ROWS ONLY",
        "FETCH NEXT 3 PERCENT ROWS ONLY",
        "unsupported",
    ),
    ("SELECT k FROM t FETCH FIRST 3", "FETCH FIRST 3", "invalid"),
    ("SELECT ts AT TIME ZONE 'UTC' FROM t", "ts AT TIME ZONE 'UTC'", "unsupported"),
    (
        "SELECT TIMESTAMP '2024-01-01 00:00:00' AT TIME ZONE 'UTC'",
        "TIMESTAMP '2024-01-01 00:00:00' AT TIME ZONE 'UTC'",
        "unsupported",
    ),
    (
        "SELECT ts::timestamp AT TIME ZONE 'UTC' FROM t",
        "ts::timestamp AT TIME ZONE 'UTC'",
        "unsupported",
    ),
    ("SELECT now() AT TIME ZONE 'CET'", "'CET'", "unsupported"),
    ("SELECT now() AT TIME ZONE zone FROM t", "zone", "unsupported"),
    ("SELECT now() AT TIME ZONE 'Europe/Berlyn'", "'Europe/Berlyn'", "invalid"),
    ("SELECT a.k FROM a JOIN b WITHIN 1 HOUR ON a.k = b.k", "WITHIN", "unsupported"),
    ("SELECT a.k FROM a JOIN b WITHIN 1 MONTH ON a.k = b.k", "WITHIN 1 MONTH", "invalid"),
    ("SELECT a.k FROM a JOIN b WITHIN (1 DAY) USING (k)", "WITHIN (1 DAY)", "invalid"),
    (
        "SELECT a.k FROM a JOIN b WITHIN 1 DAY GRACE PERIOD x ON a.k = b.k",
        "GRACE PERIOD",
        "invalid",
    ),
    ("SELECT k FROM a PARTITION BY", "PARTITION BY", "invalid"),
    ("SELECT k FROM a GROUP BY k PARTITION BY k", "PARTITION BY", "invalid"),
    ("SELECT REGEXP_EXTRACT('a(.)', x) FROM t", "REGEXP_EXTRACT('a(.)', x)", "unsupported"),
    ("SELECT * FROM t MATCH_RECOGNIZE (PARTITION BY k)", "MATCH_RECOGNIZE", "unsupported"),
    ("SELECT k SIMILAR TO '%x' FROM t", "SIMILAR TO", "unsupported"),
    ("SELECT v FROM t, LATERAL FLATTEN(INPUT => arr) f", "FLATTEN(INPUT => arr)", "unsupported"),
    ("SELECT v FROM TABLE(flatten(input => arr)) f", "flatten(input => arr)", "unsupported"),
    ("SELECT t.* REPLACE (1 AS k) FROM t", "* REPLACE (1 AS k)", "unsupported"),
    ("SELECT * RENAME (k AS l) FROM t", "* RENAME (k AS l)", "unsupported"),
    ("SELECT * ILIKE '%a%' FROM t", "* ILIKE '%a%'", "unsupported"),
    ("SELECT * FROM t SAMPLE (10)", "SAMPLE", "unsupported"),
    ("SELECT * FROM t AT(OFFSET => -60)", "AT(OFFSET => -60)", "unsupported"),
    ("SELECT * FROM t BEFORE (STATEMENT => 'x')", "BEFORE (STATEMENT => 'x')", "unsupported"),
    (
        "WITH MUTUALLY RECURSIVE t (n INT) AS (SELECT 1) SELECT * FROM t",
        "MUTUALLY RECURSIVE",
        "unsupported",
    ),
    ("SELECT TOP 3 k FROM t UNION SELECT 1", "TOP 3", "unsupported"),
    ("SELECT TOP 3 k FROM t LIMIT 4", "TOP 3", "unsupported"),
    ("SELECT PROCTIME() FROM t", "PROCTIME()", "unsupported"),
    ("SELECT EXTRACT(DOW FROM ts) FROM t", "EXTRACT(DOW FROM ts)", "unsupported"),
    ("SELECT DATE_PART('dow', ts) FROM t", "DATE_PART('dow', ts)", "unsupported"),
    ("SELECT EXTRACT(MILLISECONDS FROM ts) FROM t", "EXTRACT(MILLISECONDS FROM ts)", "unsupported"),
    ("SELECT DATEDIFF(day, a, b) FROM t", "DATEDIFF(day, a, b)", "unsupported"),
    ("SELECT DATE_DIFF(month, a, b) FROM t", "DATE_DIFF(month, a, b)", "unsupported"),
    ("SELECT date_trunc('decade', ts) FROM t", "date_trunc('decade', ts)", "unsupported"),
    ("SELECT DATE_TRUNC(d, WEEK(FRIDAY)) FROM t", "DATE_TRUNC(d, WEEK(FRIDAY))", "unsupported"),
    ("SELECT DATE_TRUNC(d, HOUR) FROM t", "DATE_TRUNC(d, HOUR)", "unsupported"),
    ("SELECT to_char(x, '999.99') FROM t", "to_char(x, '999.99')", "unsupported"),
    ("SELECT to_char(ts, 'HH:mm') FROM t", "to_char(ts, 'HH:mm')", "unsupported"),
    ("SELECT to_char(ts, 'Day') FROM t", "to_char(ts, 'Day')", "unsupported"),
    ("SELECT to_char(ts, p) FROM t", "to_char(ts, p)", "unsupported"),
    ("SELECT FORMAT_DATE('%Q', d) FROM t", "FORMAT_DATE('%Q', d)", "unsupported"),
    ("SELECT split(a, '.') FROM t", "split(a, '.')", "unsupported"),
    ("SELECT x::varchar(3) FROM t", "varchar(3)", "unsupported"),
    ("SELECT CAST(x AS CHAR(3)) FROM t", "CHAR(3)", "unsupported"),
    ("SELECT CAST(x AS JSON) FROM t", "JSON", "unsupported"),
    ("SELECT x::intt FROM t", "intt", "invalid"),
    ("SELECT generate_series(1, 3)", "generate_series(1, 3)", "unsupported"),
    ("SELECT i FROM t LEFT JOIN UNNEST(a) AS u(i) ON i > 1", "LEFT JOIN UNNEST(a)", "unsupported"),
    ("SELECT i FROM t, UNNEST(a) WITH ORDINALITY AS u(i, j, n)", "(i, j, n)", "unsupported"),
    ("SELECT i FROM t, UNNEST(a, b) AS u(i, j)", "UNNEST(a, b)", "unsupported"),
    ("SELECT SUM0(x) OVER (PARTITION BY k) FROM t", "SUM0(x)", "unsupported"),
    ("SELECT j -> 'a\"b' FROM t", "'a\"b'", "unsupported"),
    (
        "SELECT REGEXP_REPLACE(a, 'x', 'y', 'gi') FROM t",
        "REGEXP_REPLACE(a, 'x', 'y', 'gi')",
        "unsupported",
    ),
    (
        r"SELECT REGEXP_REPLACE(a, '\d', 'y', 'g') FROM t",
        r"REGEXP_REPLACE(a, '\d', 'y', 'g')",
        "unsupported",
    ),
    (
        "SELECT REGEXP_REPLACE(a, b || 'x', '$', 'g') FROM t",
        "REGEXP_REPLACE(a, b || 'x', '$', 'g')",
        "unsupported",
    ),
    (
        r"SELECT REGEXP_REPLACE(a, '(x)', '<\1>') FROM t",
        r"REGEXP_REPLACE(a, '(x)', '<\1>')",
        "unsupported",
    ),
    ("SELECT PARSE_DATE('%m/%d/%y', a) FROM t", "PARSE_DATE('%m/%d/%y', a)", "unsupported"),
    ("SELECT TO_DATE(a, 'YY-MM-DD') FROM t", "TO_DATE(a, 'YY-MM-DD')", "unsupported"),
    ("SELECT TO_CHAR(a, 'HH24:SSSS') FROM t", "TO_CHAR(a, 'HH24:SSSS')", "unsupported"),
    (
        "SELECT TO_TIMESTAMP(a, 'DD-MM-YY HH24:MI') FROM t",
        "TO_TIMESTAMP(a, 'DD-MM-YY HH24:MI')",
        "unsupported",
    ),
    ("SELECT DISTINCT ON (k) k FROM t", "DISTINCT ON (k)", "unsupported"),
    (
        "SELECT TUMBLE_START(ts, INTERVAL '1' HOUR) FROM t",
        "TUMBLE_START(ts, INTERVAL '1' HOUR)",
        "invalid",
    ),
    (
        "SELECT HOP_START(ts, INTERVAL '1' HOUR, INTERVAL '1' DAY) FROM t GROUP BY HOP(ts, INTERVAL '2' HOUR, INTERVAL '1' DAY)",
        "HOP_START(ts, INTERVAL '1' HOUR, INTERVAL '1' DAY)",
        "invalid",
    ),
    (
        "SELECT TUMBLE_PROCTIME(ts, INTERVAL '1' HOUR) FROM t",
        "TUMBLE_PROCTIME(ts, INTERVAL '1' HOUR)",
        "unsupported",
    ),
    ("SELECT 1 FROM t GROUP BY TUMBLE(ts, INTERVAL '1' MONTH)", "INTERVAL '1' MONTH", "invalid"),
    ("SELECT 1 FROM t GROUP BY TUMBLE(ts, x)", "x", "invalid"),
    ("SELECT 1 FROM t GROUP BY TUMBLE(ts)", "TUMBLE(ts)", "invalid"),
    ("SELECT 1 FROM t GROUP BY TUMBLE(ts, INTERVAL '0' DAY)", "INTERVAL '0' DAY", "invalid"),
    (
        "SELECT 1 FROM t GROUP BY HOP(ts, INTERVAL '2' HOUR, INTERVAL '1' HOUR)",
        "INTERVAL '2' HOUR, INTERVAL '1' HOUR",
        "invalid",
    ),
    (
        "SELECT 1 FROM t GROUP BY CUMULATE(ts, INTERVAL '7' HOUR, INTERVAL '1' DAY)",
        "INTERVAL '7' HOUR, INTERVAL '1' DAY",
        "invalid",
    ),
    (
        "SELECT 1 FROM t GROUP BY HOP(ts, INTERVAL '1' SECOND, INTERVAL '1' DAY)",
        "INTERVAL '1' SECOND, INTERVAL '1' DAY",
        "invalid",
    ),
    (
        "SELECT 1 FROM t GROUP BY TUMBLE(a, INTERVAL '1' DAY), TUMBLE(b, INTERVAL '1' DAY)",
        "TUMBLE",
        "unsupported",
    ),
    (
        "SELECT 1 FROM TABLE(TUMBLE(TABLE t, INTERVAL '1' DAY))",
        "TUMBLE(TABLE t, INTERVAL '1' DAY)",
        "invalid",
    ),
    (
        "SELECT 1 FROM TABLE(TUMBLE(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '1' DAY))",
        "k",
        "unsupported",
    ),
    (
        "SELECT k FROM s WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY k",
        "WINDOW TUMBLING (SIZE 1 HOUR)",
        "unsupported",
    ),
    ("SELECT k FROM s WINDOW HOPPING (SIZE 1 HOUR)", "WINDOW HOPPING (SIZE 1 HOUR)", "invalid"),
    (
        "SELECT * FROM a ASOF JOIN b ON a.k = b.k AND a.t > b.t AND a.u < b.u",
        "ASOF JOIN b ON a.k = b.k AND a.t > b.t AND a.u < b.u",
        "unsupported",
    ),
    ("SELECT * FROM a ASOF JOIN b ON a.k = b.k", "ASOF JOIN b ON a.k = b.k", "unsupported"),
    (
        "SELECT * FROM a ASOF JOIN b ON a.k = b.k OR a.t > b.t JOIN c ON true",
        "ASOF JOIN b ON a.k = b.k OR a.t > b.t",
        "unsupported",
    ),
    ("SELECT * FROM a ASOF JOIN b ON NOT a.t > b.t", "ASOF JOIN b ON NOT a.t > b.t", "unsupported"),
    ("SELECT * FROM a ASOF JOIN b USING (k, t)", "ASOF JOIN b", "unsupported"),
    ("SELECT * FROM a ASOF RIGHT JOIN b ON a.t > b.t", "ASOF RIGHT JOIN", "unsupported"),
    ("SELECT * FROM a OUTER JOIN b ON a.k = b.k", "OUTER", "unsupported"),
    ("SELECT * FROM a QUALIFY LEFT JOIN b ON a.k = b.k", "QUALIFY", "unsupported"),
    ("SELECT * FROM a ANY LEFT JOIN b ON a.k = b.k", "ANY", "unsupported"),
    *(
        (f"SELECT {word} FROM {source} {word}{after}", word, "unsupported")
        for word in sorted(WORDS.keys() - {"ASOF"})
        for source, after in (("a.b", ""), ("x, f(y)", ", z"), ("(SELECT 1)", " JOIN z ON true"))
    ),
    *((f"SELECT k FROM (SELECT * FROM a JOIN b {w} USING (k))", w, "unsupported") for w in WORDS),
    ("SELECT a FROM t WHERE", "WHERE", "unsupported"),
    ("SELECT a FROM (SELECT a FROM t x JOIN u ORDER)", "ORDER", "unsupported"),
    ("SELECT 1 FROM", "FROM", "unsupported"),
    ("SELECT f(x) WHERE", "WHERE", "unsupported"),
    ("SELECT CHR(22909)", "CHR(22909)", "unsupported"),
    ("SELECT REGEXP_INSTR(a, 'x', 2) FROM t", "REGEXP_INSTR(a, 'x', 2)", "unsupported"),
    ("SELECT REGEXP_EXTRACT_ALL('x', a) FROM t", "REGEXP_EXTRACT_ALL('x', a)", "unsupported"),
    *(
        (f"SELECT {items} FROM t", "generate_series(1, 3)", "unsupported")
        for items in (
            "generate_series(1, 3) g, x",
            "x, generate_series(1, 3) g",
            "x, (generate_series(1, 3))",
            "DISTINCT generate_series(1, 3)",
        )
    ),
    ("SELECT CAST(x AS ARRAY<VARCHAR(3)>) FROM t", "ARRAY<VARCHAR(3)>", "unsupported"),
    ("SELECT x::STRUCT<a: CHAR(3)> FROM t", "STRUCT<a: CHAR(3)>", "unsupported"),
    ("SELECT 1 UNION CORRESPONDING SELECT 2", "UNION CORRESPONDING", "unsupported"),
    ("SELECT 1 UNION ALL CORRESPONDING SELECT 2", "ALL CORRESPONDING", "unsupported"),
    (
        "SELECT LAG(x IGNORE NULLS) FILTER (WHERE y) FROM t",
        "LAG(x IGNORE NULLS)",
        "unsupported",
    ),
    (
        "SELECT ARRAY_AGG(x ORDER BY y LIMIT 3) FROM t",
        "ARRAY_AGG(x ORDER BY y LIMIT 3)",
        "unsupported",
    ),
    ("SELECT s->a, b[0] FROM t", "[0]", "unsupported"),
    ("SELECT s->a, STDDEV_SAMP(x) FROM t", "STDDEV_SAMP(x)", "unsupported"),
    (r"SELECT s->a, 'it\'s' FROM t", r"'it\'s'", "unsupported"),
    ("SELECT iff(" * 200 + "1" + ")" * 200, "(", "unsupported"),
    *((f"SELECT {name}(x) FROM t", f"{name}(x)", "unsupported") for name in REFUSED_CALLS),
]


@pytest.mark.parametrize(("text", "place", "code"), REFUSED)
def test_what_has_no_equal_is_refused_at_its_place(text, place, code):
    before = "CREATE MATERIALIZED VIEW v AS "
    with pytest.raises(HeadraceError) as caught:
        spark_text(Span(before + text, len(before), len(before + text)), {})
    error = caught.value
    assert error.code == code
    assert error.span is not None
    assert error.span.source == place
    assert error.hint or error.code is Code.INVALID


CHANCE = ("GEN_RANDOM_UUID", "GENERATE_UUID", "UUID_STRING")
"""Held against nothing: tests/e2e/test_written_once.py has them write."""


def test_every_translation_is_held_against_spark():
    tested = VIEWS.read_text("utf-8") + VIEWS.with_name("test_dialect_values.py").read_text("utf-8")
    for name in {call.name for call in CALLS} - {"MZ_NOW", *CHANCE}:
        assert f"{name}(" in tested, name


def test_every_meaning_in_ksqldb_is_held_against_spark():
    start = '"ksqldb_meanings"'
    tested = VIEWS.read_text("utf-8").partition(start)[2].partition('""",')[0]
    for name in {call.name for call in MEANINGS} | MEANT.keys() - {"STDDEV_SAMP"}:
        assert f"{name}(" in tested, name
    declared = VIEWS.with_name("test_dialect_values.py").read_text("utf-8")
    for name in {call.name for call in FURTHER} | FURTHER_FORMS.keys():
        assert f"{name}(" in declared, name


KSQLDB = [
    ("s->f", "s.f"),
    ("transform(m, x => 1)", "transform(m, x -> 1)"),
    ("struct(a := 1)", "named_struct('a', 1)"),
    ("extractjsonfield(j, '$')", "get_json_object(j, '$')"),
    ("latest_by_event_time(a, b)", None),
    ("mask(s, upperChar => 'Q')", None),
    ("j -> 'a'", None),
    ("transform(m, x -> x.y)", None),
    ("t.entries(1), entries", None),
]


@pytest.mark.parametrize(("sign", "written"), KSQLDB)
def test_a_query_is_ksqldbs_as_a_whole_by_what_ksqldb_alone_has(sign, written):
    found = read(f"SELECT l[1], '\\d' FROM (SELECT chr(a), {sign} FROM t)").text
    if written is None:
        assert found.startswith("SELECT l[1], '\\d' FROM (SELECT chr(a), ")
        return
    code = "decode(unhex(lpad(hex(a), 8, '0')), 'UTF-32')"
    assert found == f"SELECT try_element_at(l, 1), '\\\\d' FROM (SELECT {code}, {written} FROM t)"


DECLARED = dialects_table.DECLARED
"""Relations that were declared as in ksqlDB."""


def read_declared(text: str) -> str:
    return " ".join(spark_text(Span(text, 0, len(text)), DECLARED).text.split())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT from_unixtime(v) FROM s", "SELECT timestamp_millis(v) FROM s"),
        (
            "SELECT l[1] FROM (SELECT * FROM `s`) x",
            "SELECT try_element_at(l, 1) FROM (SELECT * FROM `s`) x",
        ),
        (
            "WITH s AS (SELECT l[1] FROM s) TABLE s",
            "WITH s AS (SELECT try_element_at(l, 1) FROM s) TABLE s",
        ),
        ("SELECT from_unixtime(v) FROM other", "SELECT from_unixtime(v) FROM other"),
        (
            "SELECT s.k, s.v, r.v FROM s JOIN r ON s.k = r.k",
            "SELECT s.k, s.v AS `s_v` , r.v AS `r_v` FROM s JOIN r ON s.k = r.k",
        ),
        ("SELECT reduce(l, 2, (a, x) => a + x), k FROM s", None),
        ("SELECT sum(v) OVER (ORDER BY k) FROM s", "SELECT sum(v) OVER (ORDER BY k) FROM s"),
        ("SELECT split(b, to_bytes('.', 'utf8')) FROM s", None),
    ],
)
def test_a_query_of_a_relation_declared_as_in_ksqldb_is_ksqldbs(text, expected):
    found = read_declared(text)
    if expected is None:
        assert "CASE WHEN (l) IS NULL OR (2) IS NULL" in found or "unhex" in found
    else:
        assert found == expected


def test_a_view_by_a_query_of_ksqldb_has_others_read_as_ksqldbs():
    view = View(*(getattr(DECLARED["s"], each) for each in ("id", "name", "schema")), "", ())
    text = "SELECT from_unixtime(v) FROM s"
    for made, relation in ((False, view), (True, replace(view, ksqldb=True))):
        assert View.of_json(relation.to_json()) == relation
        assert is_of_ksqldb(Span.whole(text), {"s": relation}) is made
    stream = DECLARED["s"]
    assert Stream.of_json(stream.to_json()) == stream
    assert not Declaration.of_json({"options": [["kafka_topic", "s"]]}).ksqldb


@pytest.mark.parametrize("call", ["from_unixtime(v)", "round(v, 1)", "log(2, v)", "trim(k)"])
def test_a_function_with_two_meanings_is_refused_where_nothing_says_which_is_meant(call):
    undecided = Span.whole(f"SELECT k, {call} FROM other")
    with pytest.raises(HeadraceError, match="ksqlDB and Spark give different meanings") as caught:
        refuse_undecided(undecided, DECLARED)
    assert caught.value.span is not None
    assert caught.value.span.source == call
    refuse_undecided(Span.whole(f"SELECT k, {call} FROM s"), DECLARED)
    refuse_undecided(Span.whole(f"SELECT k->x, {call} FROM other"), DECLARED)
    refuse_undecided(Span.whole("SELECT k, sum(v), upper(k) FROM other"), DECLARED)


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("SELECT c[1]['p'] FROM other", "array indexes begin at 0: [1] is element 2"),
        ("SELECT c[1]['p'] FROM s", "array indexes begin at 1, as in ksqlDB: [1] is element 1"),
        ("SELECT (SELECT c[2] FROM t)", "array indexes begin at 0: [2] is element 3"),
        ("SELECT c[0], c[1] FROM other", ""),
        ("SELECT ARRAY[1], MAP['a', 1]['a'], c[i] FROM other", ""),
    ],
)
def test_where_array_indexes_begin_is_said_if_a_constant_leaves_it_open(query, said):
    assert index_base(Span.whole(query), DECLARED) == said


INTERVALS = [
    ("INTERVAL v DAY", "((v) * INTERVAL '1' DAY)"),
    ("INTERVAL t.v HOURS", "((t.v) * INTERVAL '1' HOUR)"),
    (
        "INTERVAL (v + 1) QUARTER",
        "((v + 1) * 3 * INTERVAL '1' MONTH)".replace("(v + 1)", "((v + 1))"),
    ),
    ("INTERVAL '5' QUARTER", "(INTERVAL '5' MONTH * 3)"),
    ("INTERVAL '5' DAY(3)", "INTERVAL '5' DAY"),
    ("INTERVAL -'5 1' DAY(3) TO HOUR", "INTERVAL -'5 1' DAY TO HOUR"),
    ("INTERVAL '1.5' SECOND(5, 2)", "INTERVAL '1.5' SECOND"),
    ("(a - b) DAY > c", "CAST((a - b) AS INTERVAL DAY) > c"),
    ("f((a - b) SECOND)", "f(CAST((a - b) AS INTERVAL SECOND))"),
    ("(a - b) HOUR AS day", "CAST((a - b) AS INTERVAL HOUR) AS day"),
    ("(a - b) MONTH = x", "make_ym_interval(0, CAST(months_between(a, b) AS INT)) = x"),
    *(
        (text, text)
        for text in (
            "(a - b) day",
            "interval day",
            "INTERVAL '5' DAY",
            "INTERVAL 5 DAY",
            "interval",
            "f(a - b) day",
            "CAST(x AS INTERVAL DAY)",
        )
    ),
]


@pytest.mark.parametrize(("text", "expected"), INTERVALS)
def test_intervals_of_other_dialects_are_written_as_sparks(text, expected):
    assert read(f"SELECT {text}, 1 FROM t").text == f"SELECT {expected}, 1 FROM t"


def test_a_query_is_ksqldbs_by_its_windows_and_joins():
    for clauses in (
        "WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY k",
        "JOIN r WITHIN 1 HOUR ON s.k = r.k",
    ):
        assert "try_element_at(l, 1)" in read_over_streams(f"SELECT l[1] FROM s {clauses}")


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        (
            "s.k, r.v, s.v, r.k AS x, s.ts, s.k + 1 AS y",
            "s.k, r.v AS `r_v`, s.v AS `s_v`, r.k AS x, s.ts, s.k + 1 AS y",
        ),
        (
            "r.*, s.k",
            "`r`.`k` AS `r_k`, `r`.`v` AS `r_v`, `r`.`ts` AS `r_ts`, `r`.`wall` AS `r_wall`, s.k",
        ),
    ],
)
def test_columns_of_a_join_are_named_after_their_streams_in_ksqldb(items, expected):
    found = read_over_streams(f"SELECT {items} FROM s JOIN r WITHIN 1 HOUR ON s.k = r.k")
    written = " ".join(found.replace(" ,", ",").split())
    assert written.startswith(f"SELECT {expected} FROM s JOIN r ON")
    plain = f"SELECT {items} FROM s JOIN r ON s.k = r.k"
    assert read_over_streams(plain) == plain


def test_no_two_translations_are_of_one_call():
    calls = [(call.name, call.template.count("{*}") or call.arguments) for call in CALLS]
    assert len(set(calls)) == len(calls)
    assert not REFUSED_CALLS.keys() & (FORMS.keys() | {call.name for call in CALLS})
    assert not {name.lower() for name in REFUSED_CALLS} & FUNCTIONS


DIALECT_WORDS = sorted(
    {*(re.split(r"\W+", " ".join(t for t, _ in READ))), *(c.name for c in CALLS), *FORMS}
)
SOUP = st.lists(
    st.sampled_from(
        [
            *DIALECT_WORDS,
            *WORDS,
            *"()[]<>,.~!*:'",
            "->",
            "=>",
            "::",
            "SELECT",
            "FROM",
            "GROUP BY",
            "WINDOW TUMBLING",
            "JOIN s ON",
            "WITHIN 1 HOUR",
            "AT TIME ZONE 'UTC'",
            "OFFSET 1 ROWS",
            "FETCH FIRST 3 ROWS ONLY",
            "PARTITION BY",
            "ts",
        ]
    )
    | st.text(max_size=2),
    max_size=30,
).map(" ".join)
VALID = [text for text, *_ in (*READ, *REFUSED)] + UNCHANGED


def survives(text: str) -> None:
    try:
        found = spark_text(Span(text, 0, len(text)), dialects_table.RELATIONS)
    except HeadraceError as error:
        refusal = error
    else:
        assert "".join(found.text[p.start : p.end] for p in found.pieces) in ("", found.text)
        return
    assert refusal.code in {Code.INVALID, Code.UNSUPPORTED}
    assert refusal.span is not None
    assert 0 <= refusal.span.start <= refusal.span.end <= len(text)
    assert "^" in str(refusal)


@settings(max_examples=200)
@given(SOUP)
@example("SELECT a ::")
@example("SELECT GROUP BY TUMBLE ( )")
@example("-> x [ ] ~")
def test_soup_is_read_or_refused(text):
    survives(text)


@settings(max_examples=200)
@given(st.sampled_from(VALID), st.data())
def test_a_query_with_tokens_gone_or_repeated_is_read_or_refused(text, data):
    words = re.findall(r"\w+|\s+|.", text)[:120]
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(words)))
        if data.draw(st.booleans()):
            del words[at : at + 1]
        else:
            words[at:at] = words[: data.draw(st.integers(0, 6))]
    survives("".join(words))


def test_the_page_of_dialects_is_made_from_the_tables():
    assert dialects_table.PAGE.read_text("utf-8") == dialects_table.page()


def test_every_form_is_on_the_page():
    page = dialects_table.page().upper()
    same = {
        "CAST": "SAFE_CAST",
        "TRY_CAST": "SAFE_CAST",
    }
    for name in FORMS.keys() - ALIKE:
        assert same.get(name, f"{name}(") in page, name
