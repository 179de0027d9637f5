"""Queries of four dialects in Spark's words: one table of translations, and the forms beyond it."""

from headrace.sql.dialect.calls import CALLS, Call
from headrace.sql.dialect.differences import DIFFERENCES, Difference
from headrace.sql.dialect.ksqldb import MEANINGS, MEANT
from headrace.sql.dialect.refused import REFUSED_CALLS, RefusedCall
from headrace.sql.dialect.streams import OFFSET, log_of
from headrace.sql.dialect.translate import TRANSLATED, translated

__all__ = [
    "CALLS",
    "DIFFERENCES",
    "MEANINGS",
    "MEANT",
    "OFFSET",
    "REFUSED_CALLS",
    "TRANSLATED",
    "Call",
    "Difference",
    "RefusedCall",
    "log_of",
    "translated",
]
