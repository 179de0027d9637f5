"""What is said of a failed job."""

from __future__ import annotations

import pickle

import pytest
from py4j.protocol import Py4JError

from headrace.algebra.zset.sums import overflowed
from headrace.errors import Code, EvaluationError, HeadraceError, Span
from headrace.execution.engine.jobs.failures import step_failure
from headrace.lifecycle.states.stopped import in_sentences

CALL = "An error occurred while calling o41.toRdd.\n: "
WORKER = (
    CALL + "org.apache.spark.SparkException: [PYTHON_EXCEPTION] An exception was thrown from the "
    'Python worker:\nTraceback (most recent call last):\n  File "worker.py", line 7, in main\n'
    "    step()\nKeyError: 'a'\n\nDuring handling of the above exception, another exception "
    'occurred:\n\nTraceback (most recent call last):\n  File "worker.py", line 8, in main\n{}\n'
    " SQLSTATE: 39000\n\tat org.apache.spark.api.python.Reader.read(Reader.scala:1)\nCaused by: x"
)


@pytest.mark.parametrize(
    ("text", "code", "primary"),
    [
        (
            f"{CALL}java.lang.ClassCastException: an A is no B\n\tat C.d(C.scala:1)",
            Code.INTERNAL,
            "Spark failed to evaluate a query: java.lang.ClassCastException: an A is no B",
        ),
        (
            f"{CALL}org.apache.spark.SparkException: [INTERNAL_ERROR] No such bound: -1\n\tat C.d",
            Code.INTERNAL,
            "Spark failed to evaluate a query: No such bound: -1",
        ),
        (
            (
                f"{CALL}org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 0.0"
                " (executor driver): java.util.regex.PatternSyntaxException: Illegal escape\n\\Q\n\tat A"
            ),
            Code.INVALID,
            "a regular expression failed on a value: Illegal escape: \\Q",
        ),
        (
            (
                f"{CALL}org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 0.0"
                " (executor driver): java.lang.RuntimeException: Error loading 'a/b'\n"
                "\tat org.apache.spark.sql.catalyst.expressions.xml.UDFXPathUtil.eval(U.java:95)"
            ),
            Code.INVALID,
            "xpath failed on a value: Error loading 'a/b'",
        ),
        (
            (
                f"{CALL}java.lang.OutOfMemoryError: Java heap space\n"
                "\tat org.apache.spark.sql.catalyst.expressions.Repeat.eval(R.scala:1)"
            ),
            Code.UNAVAILABLE,
            "a Spark job failed: java.lang.OutOfMemoryError: Java heap space",
        ),
        (
            (
                f"{CALL}java.lang.IllegalStateException: SparkContext has been shut down\n\tat C.d\n"
                "Caused by: java.lang.NullPointerException: x"
            ),
            Code.UNAVAILABLE,
            "a Spark job failed: java.lang.IllegalStateException: SparkContext has been shut down",
        ),
        (
            (
                f"{CALL}org.apache.spark.SparkException: [UNABLE_TO_ACQUIRE_MEMORY] Unable to acquire"
                " 64 bytes of memory, got 0. SQLSTATE: 53200\n\tat C.d"
            ),
            Code.UNAVAILABLE,
            "a Spark job failed: Unable to acquire 64 bytes of memory, got 0. SQLSTATE: 53200",
        ),
        (
            (
                f"{CALL}org.apache.spark.SparkRuntimeException: [INVALID_PARAMETER_VALUE.LENGTH] The"
                " value of `length` in `slice` is invalid. SQLSTATE: 22023\n\tat C.d"
            ),
            Code.INVALID,
            "the value of `length` in `slice` is invalid",
        ),
        (
            (
                f"{CALL}org.apache.spark.SparkRuntimeException: [DUPLICATED_MAP_KEY] Duplicate map key"
                " 1 was found. SQLSTATE: 23505\n\tat C.d"
            ),
            Code.INVALID,
            "duplicate map key 1 was found",
        ),
        (
            (
                f"{CALL}org.apache.spark.SparkUpgradeException: [INCONSISTENT_BEHAVIOR_CROSS_VERSION]"
                " You may get a different result:\nFail to recognize 'YY'.\n1) Set it. SQLSTATE:"
                " 42K0B\n\tat C.d"
            ),
            Code.INVALID,
            "you may get a different result: Fail to recognize 'YY'",
        ),
        (
            (
                f"{CALL}org.apache.spark.SparkRuntimeException: [COLLECTION_SIZE_LIMIT_EXCEEDED.X]"
                " Cannot create array with 9 elements. SQLSTATE: 54000\n\tat C.d"
            ),
            Code.INVALID,
            "cannot create array with 9 elements",
        ),
        (
            (
                f"{CALL}org.apache.spark.SparkException: [PATH_NOT_FOUND] Path does not exist: a."
                " SQLSTATE: 42K03\n\tat C.d\nCaused by: SQLSTATE: 22000"
            ),
            Code.UNAVAILABLE,
            "a Spark job failed: Path does not exist: a. SQLSTATE: 42K03",
        ),
        (
            CALL
            + "org.apache.spark.SparkArithmeticException: [DIVIDE_BY_ZERO] Division by zero."
            + " If necessary set ANSI to false. SQLSTATE: 22012\n\tat C.d",
            Code.INVALID,
            "division by zero",
        ),
        (
            f"{CALL}org.apache.spark.SparkException: Job 3 cancelled\n\tat C.d",
            Code.UNAVAILABLE,
            "the step was cancelled",
        ),
        (
            WORKER.format("pyarrow.lib.ArrowInvalid: overflow"),
            Code.INTERNAL,
            "an operator failed: pyarrow.lib.ArrowInvalid: overflow",
        ),
        (WORKER.format("AssertionError"), Code.INTERNAL, "an operator failed: AssertionError"),
        (
            WORKER.format("OSError: [Errno 28] No space left on device"),
            Code.UNAVAILABLE,
            "no space is left on a disk",
        ),
        (
            f"{CALL}java.io.IOException: No space left on device\n\tat java.io.File.write(F.java:1)",
            Code.UNAVAILABLE,
            "no space is left on a disk",
        ),
        (
            WORKER.format("OSError: [Errno 5] Input/output error"),
            Code.UNAVAILABLE,
            "a Spark job failed: OSError: [Errno 5] Input/output error",
        ),
        (
            WORKER.format("pyarrow.lib.ArrowMemoryError: malloc of size 64 failed"),
            Code.UNAVAILABLE,
            "a Spark job failed: pyarrow.lib.ArrowMemoryError: malloc of size 64 failed",
        ),
        (
            (
                f"{CALL}org.apache.spark.SparkException: Exception thrown in awaitResult: \n\tat A.b\n"
                "Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: Task 1"
                " in stage 7.0 failed 1 times, most recent failure: Lost task 1.0 in stage 7.0 (TID 10)"
                " (10.0.0.1 executor driver): java.util.IllegalFormatConversionException: d !="
                " org.apache.spark.unsafe.types.UTF8String\n\tat java.util.Formatter.format(F.java:1)"
            ),
            Code.INVALID,
            "format_string failed on a value: d != STRING",
        ),
        (
            f'{CALL}Job aborted: HeadraceError: error[invalid]: "v" is too long\nhint: Cut it.\n\n',
            Code.INVALID,
            '"v" is too long',
        ),
    ],
)
def test_the_cause_is_told_and_not_the_call(text, code, primary):
    told = step_failure(Py4JError(text))
    assert (told.code, told.primary) == (code, primary)


def test_advice_of_spark_is_said_once_as_the_hint():
    divided = (
        "Division by zero. Use `try_divide` to tolerate divisor being 0 and return NULL instead."
    )
    told = step_failure(Py4JError(f"{CALL}E: [DIVIDE_BY_ZERO] {divided} SQLSTATE: 22012"))
    assert told.primary == "division by zero"
    assert told.hint == divided.partition(". ")[2]
    text = f"{CALL}E: [NUMERIC_VALUE_OUT_OF_RANGE.X]  12 cannot be DECIMAL(1, 0). SQLSTATE: 22003"
    assert step_failure(Py4JError(text)).primary == "12 cannot be DECIMAL(1, 0)"

    for advised in (
        "Use 'try_add' to tolerate overflow and return NULL instead.",
        "Use the SQL function `get()` to tolerate accessing element at invalid index.",
    ):
        overflow = f"{CALL}E: [ARITHMETIC_OVERFLOW] overflow. {advised} SQLSTATE: 22003"
        told = step_failure(Py4JError(overflow))
        assert (told.primary, told.hint) == ("overflow", advised)


def test_the_expression_that_failed_is_found_in_the_query_as_it_was_written():
    text = (
        f"{CALL}E: [DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n"
        "== SQL (line 2, position 3) ==\n  a /\n  ^^^\n  b AS q\n^^^\n\tat C.d(C.scala:1)"
    )
    failed = pickle.loads(pickle.dumps(step_failure(Py4JError(text))))  # noqa: S301
    assert isinstance(failed, EvaluationError)

    def found(query: str, before: str = "") -> str | None:
        span = Span(before + query, len(before), len(before + query))
        error: HeadraceError = failed.within(span)
        if error.span is None:
            return None
        return error.span.text[error.span.start : error.span.end]

    assert found("SELECT\n  a /\n  b AS q", "CREATE VIEW v AS ") == "a /\n  b"
    assert found("SELECT   a /\n  b AS q") == "a /\n  b", "elsewhere, but only there"
    assert found("SELECT   a /\n  b, a /\n  b") is None, "it may be either"
    assert found("SELECT a / b") is None
    whole = failed.at(Span.whole("SELECT a / b")).span
    assert whole is not None
    assert whole.source == "SELECT a / b"


def test_a_stopped_view_says_its_error_in_sentences():
    kept = "error[invalid]: division by zero\ndetail: In a sum.\nhint: Use `try_divide`."
    assert in_sentences(kept) == "division by zero. In a sum. Use `try_divide`."


def test_the_advice_about_a_sum_is_a_wider_type_only_where_there_is_one():
    assert "decimal(38, 0)" in str(overflowed("bigint").hint)
    assert "decimal(38" not in str(overflowed("decimal(38)").hint)
