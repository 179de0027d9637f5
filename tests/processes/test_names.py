"""Misspelt names are refused by the catalog alone; what is not certain is left to Spark."""

from __future__ import annotations

import pytest
from pyspark.sql.types import IntegerType, StringType

from headrace.errors import HeadraceError, Span
from headrace.interfaces.processes.messages import require_known_names
from headrace.planning.catalog import Catalog, Table
from headrace.types import Column, RelationId, Schema

SCHEMA = Schema((Column("url", StringType()), Column("visits", IntegerType())))
CATALOG = Catalog.of([Table(RelationId(1), "views", SCHEMA, ("url",))])


@pytest.mark.parametrize(
    ("sql", "primary", "hint", "place"),
    [
        ("SELECT visit FROM views", 'column "visit" does not exist', 'Did you mean "visits"?', 7),
        (
            "SELECT url,\n  nothing AS n\nFROM views AS v WHERE n > 1",
            'column "nothing" does not exist',
            "There are: url, visits.",
            14,
        ),
        (
            "SELECT a FROM views v JOIN view w ON v.url = w.url",
            'stream, table or view "view" does not exist',
            'Did you mean "views"?',
            27,
        ),
        (
            "SELECT * FROM (SELECT x FROM `lost`)",
            'stream, table or view "lost" does not exist',
            "SHOW TABLES lists what exists.",
            29,
        ),
    ],
)
def test_a_misspelt_name_is_refused_at_its_place(sql: str, primary: str, hint: str, place: int):
    with pytest.raises(HeadraceError) as raised:
        require_known_names(Span.whole(sql), CATALOG)
    error = raised.value
    assert (error.primary, error.hint) == (primary, hint)
    assert error.span is not None
    assert error.span.start == place


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1",
        "SELECT URL, `Visits`, current_date, null FROM VIEWS",
        "SELECT url AS u, u FROM views",
        "SELECT visits + 1 n, n FROM views ORDER BY n",
        "SELECT x FROM views PIVOT (sum(visits) FOR url IN ('a'))",
        "SELECT u.x, x FROM views CROSS JOIN UNNEST(a) AS u(x)",
        "SELECT a FROM views v(a, b)",
        "SELECT extract(YEAR FROM at), trim(BOTH 'x' FROM url) FROM views",
        "SELECT a IS NOT DISTINCT FROM b FROM views",
        "SELECT x FROM views, lateral explode(y) AS t(x)",
        "WITH lost AS (SELECT 1 AS x) SELECT x FROM lost",
        "SELECT x FROM range(5)",
        "SELECT x FROM VALUES (1) AS t(x)",
        "SELECT table_name FROM information_schema.tables",
        "SELECT anything FROM views FOR SYSTEM_TIME AS OF now()",
        "SELECT anything FROM views TABLESAMPLE (5 ROWS)",
        "SELECT * EXCEPT (url) FROM views",
        "SELECT (SELECT max(x) FROM views), y FROM views",
    ],
)
def test_what_is_not_certain_is_left_to_spark(sql: str):
    require_known_names(Span.whole(sql), CATALOG)
