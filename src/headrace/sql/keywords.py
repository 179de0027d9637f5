"""Words of the statement language: for completion, for quoting, and for refusing them as names."""

from __future__ import annotations

KEYWORDS: tuple[str, ...] = tuple(
    """
    ADD ALL ALTER AND ANTI AS ASC BECAUSE BEGINNING BETWEEN BY CASCADE CASE CAST CHANGES CHECK
    COLUMN CONNECTION COPY CORRECT CREATE CROSS CUBE CURRENT_DATE CURRENT_TIMESTAMP DELETE DESC
    DESCRIBE DIRTY DISTINCT DROP ELSE EMIT END ENFORCED EPOCH EPOCHS ERRORS EVIDENCE EXCEPT
    EXISTS EXPLAIN EXTENDED FALSE FETCH FILTER FLUSH FOR FRESHNESS FROM FULL GRANT GROUP HAVING
    HOP IF IN INNER INSERT INTERSECT INTERVAL INTO INVALIDATE IS JOIN KEY LATERAL LEFT LIKE
    LIMIT MATERIALIZED NOT NULL OF ON OPTIONS OR ORDER OUTER OVER PARTITION PAUSE PERCENT
    PRIMARY PRINT PROPERTIES RECONCILE RECONCILIATION REFRESH REJECTS REPAIR REPLACE REPLAY
    RESET RESUME REVOKE RIGHT ROLLUP ROWS SAMPLE SELECT SEMI SET SHOW SINCE SINK STREAM STREAMS
    SUBSCRIBE TABLE TABLES TERMINATE THEN TIMESTAMP TO TRUE TRUNCATE TUMBLE UNION UPDATE USING
    VALUES VERIFY VIEW VIEWS VOID WATERMARK WHEN WHERE WINDOW WITH WITHIN ZONE
    """.split()  # noqa: SIM905 - one word per line would be a screen of its own
)
"""Keywords for completion, in upper case and sorted."""

STATEMENTS: tuple[str, ...] = (
    "ALTER",
    "COPY",
    "CORRECT",
    "CREATE",
    "DELETE",
    "DESCRIBE",
    "DROP",
    "EXPLAIN",
    "FLUSH",
    "FROM",
    "GRANT",
    "INSERT",
    "INVALIDATE",
    "PAUSE",
    "PRINT",
    "RECONCILE",
    "REFRESH",
    "RESUME",
    "REPAIR",
    "REPLAY",
    "RESET",
    "REVOKE",
    "SELECT",
    "SET",
    "SHOW",
    "SUBSCRIBE",
    "TABLE",
    "TERMINATE",
    "TRUNCATE",
    "UPDATE",
    "VALUES",
    "VERIFY",
    "WITH",
)
"""The first words of statements."""

NOT_NAMES = frozenset(
    """
    AND AS BY CASE CREATE CROSS DELETE DISTINCT DROP ELSE END EXCEPT EXISTS FOR FROM FULL GROUP
    HAVING IF IN INNER INSERT INTERSECT INTO IS JOIN LEFT LIKE LIMIT NOT NULL OFFSET ON OR ORDER
    OUTER RIGHT SELECT SET TABLE THEN UNION UPDATE USING VALUES WHEN WHERE WITH
    """.split()  # noqa: SIM905 - as above
)
"""Words that can be names only if quoted: an unquoted one means that the name is missing."""


def quote(identifier: str) -> str:
    """Return the identifier between backticks, escaped for Spark SQL."""
    return f"`{identifier.replace('`', '``')}`"


def double_quoted(identifier: str) -> str:
    """Return the identifier between double quotes, as standard SQL has it: for other systems."""
    escaped = identifier.replace('"', '""')
    return f'"{escaped}"'


def quote_dotted(name: str) -> str:
    """Return the name of a relation, its parts quoted."""
    return ".".join(map(quote, name.split(".")))
