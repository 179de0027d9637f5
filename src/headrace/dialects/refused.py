"""Functions of other dialects that are always refused, as a table."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RefusedCall:
    """A function that is always refused: the reason, and an alternative."""

    dialects: str
    reason: str
    hint: str


_PROCESSING = "It is the time of processing, so the same rows would give another answer each time."
_EVENT = "Use a time in the data; compare it with now() in WHERE."
_JSON_HINT = "Use get_json_object(x, '$.path'), or parse_json(x):path."
_JSON_REASON = "Objects and arrays give NULL there, and their text in Spark's functions."

REFUSED_CALLS: dict[str, RefusedCall] = {
    "PROCTIME": RefusedCall("Flink", _PROCESSING, _EVENT),
    "CURRENT_ROW_TIMESTAMP": RefusedCall("Flink", _PROCESSING, _EVENT),
    "CURRENT_WATERMARK": RefusedCall(
        "Flink", "Late rows are not dropped, so nothing depends on a watermark.", _EVENT
    ),
    "COLLECT": RefusedCall(
        "Flink", "Spark has no multisets.", "Use sort_array(collect_list(x)), or count by value."
    ),
    "JSON_VALUE": RefusedCall("Flink, BigQuery", _JSON_REASON, _JSON_HINT),
    "JSON_QUERY": RefusedCall("Flink, BigQuery", _JSON_REASON, _JSON_HINT),
    "JSON_EXTRACT_SCALAR": RefusedCall("BigQuery", _JSON_REASON, _JSON_HINT),
    "AGE": RefusedCall(
        "PostgreSQL",
        "Its result has months and days at once, which Spark's intervals have not.",
        "Use timestampdiff(unit, start, end), or end - start.",
    ),
    "IEEE_DIVIDE": RefusedCall(
        "BigQuery",
        "It gives infinity and NaN where a divisor is 0.",
        "Use try_divide(a, b), which gives NULL.",
    ),
}
"""Functions by name; Spark's own functions that are refused are in the planner's fence."""
