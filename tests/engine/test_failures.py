"""What is said of a failed job."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError

from headrace.engine.failures import step_failure
from headrace.errors import Code

CALL = "An error occurred while calling o41.toRdd.\n: "


@pytest.mark.parametrize(
    ("text", "code", "primary"),
    [
        (
            f"{CALL}java.lang.ClassCastException: an A is no B\n\tat C.d(C.scala:1)",
            Code.UNAVAILABLE,
            "a Spark job failed: java.lang.ClassCastException: an A is no B",
        ),
        (
            f"{CALL}org.apache.spark.SparkException: [INTERNAL_ERROR] No such bound: -1\n\tat C.d",
            Code.UNAVAILABLE,
            "a Spark job failed: No such bound: -1",
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
            f'{CALL}Job aborted: HeadraceError: error[invalid]: "v" is too long\nhint: Cut it.\n\n',
            Code.INVALID,
            '"v" is too long',
        ),
    ],
)
def test_the_cause_is_told_and_not_the_call(text, code, primary):
    told = step_failure(Py4JError(text))
    assert (told.code, told.primary) == (code, primary)
