"""What a query process answers when a query fails in a way that nobody foresaw."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from headrace.errors import Code
from headrace.interfaces.processes.messages import Failed
from headrace.interfaces.processes.query_process import QueryProcess

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


class Broken:
    """A Spark that still responds, whose answers raise ``error``."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def answer(self, _message: object) -> object:
        raise self.error

    def responds(self) -> bool:
        return True


def test_a_query_that_raises_in_python_does_not_end_its_process() -> None:
    process = QueryProcess(cast("Connection", None))
    spark = cast("Any", Broken(ValueError("a null type field may not be non-nullable")))
    answer = process._answered(spark, "a question")
    assert isinstance(answer, Failed)
    assert answer.error.code is Code.INTERNAL
    assert answer.error.detail == "ValueError: a null type field may not be non-nullable."
    with pytest.raises(MemoryError):
        process._answered(cast("Any", Broken(MemoryError())), "a question")
