"""Translates queries of four dialects to Spark SQL: a table of functions, and other forms."""

from headrace.planning.dialects.calls import CALLS, DIFFERENCES, CallTemplate, Difference
from headrace.planning.dialects.event_time import EVENT_TIMES, INSTANT, log_of, timed
from headrace.planning.dialects.functions import macros_of
from headrace.planning.dialects.intervals import delay_of, duration_of
from headrace.planning.dialects.ksqldb import FURTHER, FURTHER_FORMS, MEANINGS, MEANT
from headrace.planning.dialects.operators import refuse_quoted_columns, with_all_unquoted
from headrace.planning.dialects.streams import OFFSET
from headrace.planning.dialects.table_versions import (
    AtEpoch,
    AtTimes,
    WithEpochs,
    refuse_epochs,
    with_epochs,
)
from headrace.planning.dialects.translate import (
    REFUSED_CALLS,
    TRANSLATED,
    RefusedCall,
    index_base,
    is_of_ksqldb,
    refuse_undecided,
    spark_text,
    translated,
)
from headrace.planning.dialects.windows import with_bounds

__all__ = [
    "CALLS",
    "DIFFERENCES",
    "EVENT_TIMES",
    "FURTHER",
    "FURTHER_FORMS",
    "INSTANT",
    "MEANINGS",
    "MEANT",
    "OFFSET",
    "REFUSED_CALLS",
    "TRANSLATED",
    "AtEpoch",
    "AtTimes",
    "CallTemplate",
    "Difference",
    "RefusedCall",
    "WithEpochs",
    "delay_of",
    "duration_of",
    "index_base",
    "is_of_ksqldb",
    "log_of",
    "macros_of",
    "refuse_epochs",
    "refuse_quoted_columns",
    "refuse_undecided",
    "spark_text",
    "timed",
    "translated",
    "with_all_unquoted",
    "with_bounds",
    "with_epochs",
]
