"""What a failed job says, as an error of ours.

A task's own :class:`HeadraceError` comes back through Spark as text with the pickled error in it;
Spark's evaluation errors (a division by zero, a cast that does not fit) come with a condition, and
with an SQLSTATE whose class tells that the data are to blame.
"""

from __future__ import annotations

import builtins
import re
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import errors

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

_OURS = re.compile(
    r"HeadraceError: error\[(?P<code>\w+)\]: (?P<text>.+?)(?:\n\n|\n\tat|\Z)", re.DOTALL
)
_CONDITION = re.compile(
    r"\[(?P<condition>[A-Z][A-Z_.0-9]+)\] (?P<message>[^\n]+(?:(?<=:)\n(?!Traceback)[^\n]+)?)"
)
_PYTHON = re.compile(
    r"from the Python worker:\s(?P<trace>.*?)(?:\n\tat |\nJVM stacktrace:|\Z)", re.DOTALL
)
_RAISED = re.compile(r"^(?P<kind>(?:\w+\.)*[A-Z]+[a-z]\w+)(?:: .*)?$", re.MULTILINE)
_DEFECTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    NotImplementedError,
    TypeError,
    ValueError,
)
"""What an operator raises again and again, unlike what befalls the machine."""
_CANCELLED = ("cancelled", "was cancelled", "Job aborted because SparkContext was shut down")
_EVALUATION = (
    "ARITHMETIC_OVERFLOW",
    "BINARY_ARITHMETIC_OVERFLOW",
    "CAST_INVALID_INPUT",
    "CAST_OVERFLOW",
    "DIVIDE_BY_ZERO",
    "REMAINDER_BY_ZERO",
    "INVALID_ARRAY_INDEX",
    "NUMERIC_VALUE_OUT_OF_RANGE",
    "MAP_KEY_DOES_NOT_EXIST",
)
"""Conditions that a try_ form of the function avoids."""

_STATES = re.compile(r"0A|2[123]|42(?!K0[34])|54|P0")
"""Begins the SQLSTATE of what the same query over the same data leads to each time.

What is not supported, of rows, of data, of keys, of the query (but for files that are not there or
there already), too large, raised by the query.
"""

_STATE = re.compile(r"SQLSTATE: (?P<state>\w{5})")
_RAISED_BY_SPARK = re.compile(
    r"(?:java\.(?:lang|math|text|time|util)|scala)\.(?:\w+\.)*"
    r"(?:MatchError|\w*(?:Argument|Arithmetic|Bounds|Cast|DateTime|Format|NegativeArraySize"
    r"|NoSuchElement|NullPointer|Syntax|UnsupportedOperation)\w*Exception)\b[^\n]*"
)
"""What an expression of Spark raises again and again, unlike what befalls the machine."""

_IN_EXPRESSION = "org.apache.spark.sql.catalyst.expressions."
_ANY_CLASS = re.compile(r"(?:\w+\.)+\w*Exception\b(?!.*\.\w*Exception\b).*")
"""The last class that is named: the same, where the first place of the trace is an expression."""

_BY_SPARK = ("INTERNAL_ERROR", "FAILED_EXECUTE_UDF")
_CAUGHT = (
    errors.ArithmeticException,
    errors.ArrayIndexOutOfBoundsException,
    errors.DateTimeException,
    errors.IllegalArgumentException,
    errors.NumberFormatException,
    errors.SparkRuntimeException,
    errors.UnsupportedOperationException,
)
"""The same as PySpark has them, which does not repeat the name of the class."""

_CALL = re.compile(r"^An error occurred while calling \S+\n: ")
_SETTING = re.compile(r"\s*If necessary set .*", re.DOTALL)


def step_failure(error: PySparkException | Py4JError) -> HeadraceError:
    """Return the cause of a job's failure: ``invalid`` where the data are to blame."""
    text = str(error)
    ours = _OURS.search(text)
    if ours is not None:
        lines = ours["text"].split("\n")
        notes = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
        return HeadraceError(
            Code(ours["code"]), lines[0].strip(), notes.get("detail"), notes.get("hint")
        )
    found = _CONDITION.search(text)
    said = found["message"].replace("\n", " ") if found is not None else ""
    if found is not None and _is_of_data(found["condition"], text[found.start() :]):
        message = _SETTING.sub("", said.split(" SQLSTATE")[0]).rstrip(".")
        has_form = found["condition"].startswith(_EVALUATION) or "try_" in message
        return HeadraceError(
            Code.INVALID,
            message[:1].lower() + message[1:],
            hint="Use the try_ form of the function to get NULL instead." if has_form else None,
        )
    # Only now: the message of a condition may quote a value, such as the state of an order.
    if any(word in text for word in _CANCELLED):
        return HeadraceError(Code.UNAVAILABLE, "the step was cancelled")
    defect = _defect(text)
    if defect is not None:
        return HeadraceError(Code.INTERNAL, f"an operator failed: {defect}")
    whole = _CALL.sub("", text)
    shown = said if found is not None else whole.split("\n", maxsplit=1)[0]
    head, _, place = whole.partition("\n\tat ")
    raised = _RAISED_BY_SPARK.search(head)
    if raised is None and place.startswith(_IN_EXPRESSION):
        raised = _ANY_CLASS.search(head)
    by_spark = isinstance(error, _CAUGHT) or (found is not None and found["condition"] in _BY_SPARK)
    if raised is not None or by_spark:
        cause = raised[0] if raised is not None else shown
        return HeadraceError(Code.INTERNAL, f"Spark failed to evaluate a query: {cause[:500]}")
    return HeadraceError(Code.UNAVAILABLE, f"a Spark job failed: {shown[:500]}")


def _is_of_data(condition: str, text: str) -> bool:
    """Say whether the query and its data led to a condition, by its text from there on."""
    state = _STATE.search(text)
    return condition.startswith(_EVALUATION) or (
        state is not None and _STATES.match(state["state"]) is not None
    )


def _defect(text: str) -> str | None:
    """Return what an operator has raised, in one line, if that is a defect of its own."""
    found = _PYTHON.search(text)
    raised = list(_RAISED.finditer(found["trace"])) if found is not None else []
    if not raised:
        return None
    module, _, name = raised[-1]["kind"].rpartition(".")
    kind = getattr(pa if module.startswith("pyarrow") else builtins, name, None)
    return raised[-1][0] if isinstance(kind, type) and issubclass(kind, _DEFECTS) else None
