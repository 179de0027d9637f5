"""Converts the failure of a Spark job to a :class:`HeadraceError`.

A task's own :class:`HeadraceError` returns through Spark as text with the pickled error in it.
Spark's evaluation errors (a division by zero, a cast that does not fit) have a condition, and an
SQLSTATE whose class says that the data are the cause.
"""

from __future__ import annotations

import builtins
import re
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import errors

from headrace.errors import Code, EvaluationError, HeadraceError, QueryPosition
from headrace.planning.catalyst.failures import without_settings

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
DEFECTS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    NotImplementedError,
    TypeError,
    ValueError,
)
"""Errors that an operator raises each time, unlike failures of the machine."""
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
"""Conditions that the try_ form of a function avoids."""

_STATES = re.compile(r"0A|2[123]|42(?!K0[34])|54|P0")
"""Beginnings of the SQLSTATEs of errors that the same query over the same data always raises.

Their classes: feature not supported, cardinality, data exception, constraint violation, syntax
(except missing and existing files), limit exceeded, raised by the query.
"""

_STATE = re.compile(r"SQLSTATE: (?P<state>\w{5})")
_RAISED_ON_VALUE = re.compile(
    r"(?:java\.(?:lang|math|text|time|util)|scala)\.(?:\w+\.)*"
    r"\w*(?:Argument|Arithmetic|Bounds|DateTime|Format|NegativeArraySize|Syntax)\w*Exception\b"
)
"""Errors of Spark's expressions for invalid values, raised each time."""

_RAISED_BY_DEFECT = re.compile(
    r"(?:java\.(?:lang|math|text|time|util)|scala)\.(?:\w+\.)*"
    r"(?:MatchError|\w*(?:Cast|NoSuchElement|NullPointer|UnsupportedOperation)\w*Exception)\b[^\n]*"
)
"""Errors of defects in Spark, raised each time, unlike failures of the machine."""

_IN_EXPRESSION = "org.apache.spark.sql.catalyst.expressions."
_CLASS = re.compile(r"(?:[a-z]\w*\.)+(?:\w+\$)?\w*(?:Exception|Error)\b(?:: )?")
_JAVA_TYPE = re.compile(r"org\.apache\.spark\.unsafe\.types\.UTF8String|java\.(?:\w+\.)+(?=[A-Z])")
_TASK = re.compile(r"^.*?\bLost task \S+ (?:in stage .*?)?\((?:\S+ )?executor \w+\): ", re.DOTALL)
_FUNCTIONS = (
    (re.compile(r"regex\.PatternSyntaxException"), "a regular expression"),
    (
        re.compile(r"java\.util\.\w*Format\w*Exception|^\w != \S+$|Format specifier '%"),
        "format_string",
    ),
    (re.compile("Illegal sequence boundaries"), "sequence"),
    (re.compile("key array and value array of MapData"), "map_from_arrays"),
    (re.compile("Invalid XPath|expressions[.]xml[.]|Error loading expression"), "xpath"),
)
"""Messages of functions that fail on a value, each with the function."""

_BY_SPARK = ("INTERNAL_ERROR", "FAILED_EXECUTE_UDF")
_CAUGHT = (
    errors.ArithmeticException,
    errors.ArrayIndexOutOfBoundsException,
    errors.DateTimeException,
    errors.IllegalArgumentException,
    errors.NumberFormatException,
    errors.SparkRuntimeException,
)
"""The same errors in PySpark, which does not repeat the name of the class."""

_CALL = re.compile(
    r"^An error occurred while calling \S+\n: "
    r"(?:org\.apache\.spark\.SparkException: Exception thrown in awaitResult: .*?\nCaused by: )?",
    re.DOTALL,
)
"""The text before the cause: the call from Python, and the exception of an awaited thread."""

_NO_SPACE = ("No space left on device", "Disk quota exceeded")
_HINTS = {
    "INVALID_ARRAY_INDEX": "Use get(array, i), which counts from 0, or try_element_at(array, n),"
    " which counts from 1, to get NULL instead.",
}
"""Hints, by the beginning of the name of a condition."""
_TRY = "Use the try_ form of the function to get NULL instead."
_ADVICE = re.compile(r" (?P<advice>Use (?:the SQL function )?[`'](?:try_|get\().*)")
"""The end of a condition's message, which names the function that avoids it."""
_PLACE = re.compile(
    r"== SQL \(line (?P<line>\d+), position (?P<column>\d+)\) ==\n(?P<shown>(?:[^\n]*\n *\^+ *\n)+)"
)
"""Lines of the query, each with carets below the parts of the expression that failed."""


def step_failure(error: PySparkException | Py4JError) -> HeadraceError:
    """Return the cause of a job's failure: ``invalid`` if the data are the cause.

    An :class:`EvaluationError` if the data or a defect are the cause: it would occur again.
    """
    text = str(error)
    failure = _failure(error, text)
    if failure.code not in (Code.INVALID, Code.INTERNAL):
        return failure
    raised = EvaluationError(*failure.args)
    raised.place = _place(text)
    return raised


def _place(text: str) -> QueryPosition | None:
    """Return the place of the expression that failed in the query as given to Spark."""
    found = _PLACE.search(text)
    if found is None:
        return None
    lines = found["shown"].split("\n")
    parts = [
        line[carets.index("^") : carets.rindex("^") + 1]
        for line, carets in zip(lines[::2], lines[1::2], strict=False)
    ]
    return QueryPosition(int(found["line"]), int(found["column"]), "\n".join(parts))


def _failure(error: PySparkException | Py4JError, text: str) -> HeadraceError:
    ours = _OURS.search(text)
    if ours is not None:
        lines = ours["text"].split("\n")
        notes = dict(line.split(": ", 1) for line in lines[1:] if ": " in line)
        return HeadraceError(
            Code(ours["code"]), lines[0].strip(), notes.get("detail"), notes.get("hint")
        )
    found = _CONDITION.search(text)
    message = found["message"].replace("\n", " ") if found is not None else ""
    if found is not None and _is_of_data(found["condition"], text[found.start() :]):
        said = without_settings(message.split(" SQLSTATE")[0]).strip()
        form = _ADVICE.search(said)
        primary = (said if form is None else said[: form.start()]).rstrip(".")
        has_form = found["condition"].startswith(_EVALUATION) or "try_" in primary
        advice = form["advice"] if form is not None else _TRY if has_form else None
        own = (hint for name, hint in _HINTS.items() if found["condition"].startswith(name))
        return HeadraceError(
            Code.INVALID, primary[:1].lower() + primary[1:], hint=next(own, advice)
        )
    # Checked last: the message of a condition may quote a value, such as the state of an order.
    if any(word in text for word in _CANCELLED):
        return HeadraceError(Code.UNAVAILABLE, "the step was cancelled")
    if any(words in text for words in _NO_SPACE):
        return HeadraceError(
            Code.UNAVAILABLE,
            "no space is left on a disk",
            detail="Spark could not write what a query needs.",
            hint="Free some space where the data and the temporary files are, then try again.",
        )
    raised = _raised_in_python(text)
    if raised is not None and _is_defect(raised):
        return HeadraceError(Code.INTERNAL, f"an operator failed: {raised}")
    whole = _CALL.sub("", text)
    shown = message if found is not None else whole.split("\n", maxsplit=1)[0]
    head, _, place = whole.partition("\n\tat ")
    head = _TASK.sub("", head)
    in_expression = place.startswith(_IN_EXPRESSION) and "OutOfMemory" not in head
    plain = isinstance(error, _CAUGHT) and found is None
    if plain or in_expression or _RAISED_ON_VALUE.search(head):
        return _failed_on_value(message or head, whole)
    defect = _RAISED_BY_DEFECT.search(head)
    by_spark = isinstance(error, (*_CAUGHT, errors.UnsupportedOperationException)) or (
        found is not None and found["condition"] in _BY_SPARK
    )
    if defect is not None or by_spark:
        cause = defect[0] if defect is not None else shown
        return HeadraceError(Code.INTERNAL, f"Spark failed to evaluate a query: {cause[:500]}")
    return HeadraceError(Code.UNAVAILABLE, f"a Spark job failed: {(raised or shown)[:500]}")


def _failed_on_value(text: str, whole: str) -> HeadraceError:
    """Return the error of a function that failed on a value, without class names."""
    function = next((name for sign, name in _FUNCTIONS if sign.search(whole)), "an expression")
    lines = [line.strip() for line in _CLASS.sub(": ", text).strip(": \n").split("\n")]
    message = _JAVA_TYPE.sub(_sql_type, ": ".join(line for line in lines if line)).rstrip(".")
    message = message.removeprefix("requirement failed: ")  # of interpreted expressions
    return HeadraceError(
        Code.INVALID,
        f"{function} failed on a value: {message[:500]}",
        hint="Correct the value, or leave such rows out with WHERE or CASE.",
    )


def _sql_type(java: re.Match[str]) -> str:
    return "STRING" if java[0].endswith("UTF8String") else ""


def _is_of_data(condition: str, text: str) -> bool:
    """Whether the query and its data caused a condition; ``text`` begins with the condition."""
    state = _STATE.search(text)
    return condition.startswith(_EVALUATION) or (
        state is not None and _STATES.match(state["state"]) is not None
    )


def _raised_in_python(text: str) -> str | None:
    """Return the error of a Python worker as one line, or None for other errors."""
    found = _PYTHON.search(text)
    raised = list(_RAISED.finditer(found["trace"])) if found is not None else []
    return raised[-1][0] if raised else None


def _is_defect(raised: str) -> bool:
    """Whether an operator raised the error, and would again, rather than the machine."""
    module, _, name = raised.partition(":")[0].rpartition(".")
    kind = getattr(pa if module.startswith("pyarrow") else builtins, name, None)
    return isinstance(kind, type) and issubclass(kind, DEFECTS)
