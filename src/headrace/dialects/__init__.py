"""Translates queries of four dialects to Spark SQL: a table of functions, and other forms."""

from headrace.dialects.calls import CALLS, CallTemplate
from headrace.dialects.differences import DIFFERENCES, Difference
from headrace.dialects.double_quotes import refuse_quoted_columns, with_all_unquoted
from headrace.dialects.event_time import EVENT_TIMES, INSTANT, log_of, timed
from headrace.dialects.indexes import index_base
from headrace.dialects.intervals import delay_of, duration_of
from headrace.dialects.ksqldb import MEANINGS, MEANT
from headrace.dialects.ksqldb_further import FURTHER, FURTHER_FORMS
from headrace.dialects.macros import macros_of
from headrace.dialects.refused import REFUSED_CALLS, RefusedCall
from headrace.dialects.spark_text import spark_text
from headrace.dialects.streams import OFFSET
from headrace.dialects.table_epochs import AtEpoch, AtTimes, WithEpochs, refuse_epochs, with_epochs
from headrace.dialects.translate import TRANSLATED, is_of_ksqldb, refuse_undecided, translated
from headrace.dialects.windows import with_bounds

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
