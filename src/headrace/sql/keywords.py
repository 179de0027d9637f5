"""Words within statements: for completion, for quoting, and for refusing them as names."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

WORDS: tuple[str, ...] = tuple(
    """
    ADD ALL AND ANTI AS ASC AS_OF BECAUSE BEGINNING BETWEEN BRANCH BRANCHES BY CASCADE CASE CAST
    CHANGES CHECK
    COLUMN CONNECTION CROSS CUBE CURRENT_DATE CURRENT_TIMESTAMP DESC DESCRIPTOR DIRTY DISTINCT
    ELSE EMIT END ENFORCED EPOCH EPOCHS ERRORS EVIDENCE EXCEPT EXISTS EXTENDED FALSE FETCH
    FILL FILTER FOR FRESHNESS FULL GROUP HAVING HOP IF IN INNER INTERSECT INTERVAL INTO IS JOIN KEY
    LATERAL LEFT LIKE LIMIT MATERIALIZED NOT NULL OF ON OPTIONS OR ORDER OUTER OVER PARTITION
    PERCENT PRIMARY PROPERTIES RECONCILIATION REJECTS RENAME REPLACE RIGHT ROLLUP ROWS SAMPLE
    SEMI SINCE SINK STREAM STREAMS TABLES THEN TIMESTAMP TO TRUE TUMBLE UNION USING VIEW VIEWS VOID
    WATERMARK WHEN WHERE WINDOW WITHIN ZONE
    """.split()  # noqa: SIM905 - one word per line would be a screen of its own
)
"""Keywords that no statement begins with, in upper case and sorted."""

NOT_NAMES = frozenset(
    """
    AND AS BY CASE CREATE CROSS DELETE DISTINCT DROP ELSE END EXCEPT EXISTS FOR FROM FULL GROUP
    HAVING IF IN INNER INSERT INTERSECT INTO IS JOIN LEFT LIKE LIMIT NOT NULL OFFSET ON OR ORDER
    OUTER RIGHT SELECT SET TABLE THEN UNION UPDATE USING VALUES WHEN WHERE WITH
    """.split()  # noqa: SIM905 - as above
)
"""Words that are names only if quoted: unquoted, they show that a name is missing."""


def quote(identifier: str) -> str:
    """Return the identifier between backticks, escaped for Spark SQL."""
    return f"`{identifier.replace('`', '``')}`"


def double_quoted(identifier: str) -> str:
    """Return the identifier between double quotes, as in standard SQL, for other systems."""
    escaped = identifier.replace('"', '""')
    return f'"{escaped}"'


def quoted(value: str) -> str:
    """Return a text between single quotes, escaped for Spark SQL."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def select_all(columns: Iterable[str], name: str) -> str:
    """Return the query of all rows of a relation, with its columns by their names."""
    return f"SELECT {', '.join(map(quote, columns))} FROM {quote_dotted(name)}"


def quote_dotted(name: str) -> str:
    """Return the name of a relation, its parts quoted."""
    return ".".join(map(quote, name.split(".")))
