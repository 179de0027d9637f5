"""Collecting the rows of a DataFrame as Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from headrace.types import exchanged, with_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def collect_arrow(frame: DataFrame) -> pa.Table:
    """Run a query and return its rows, with all columns nullable.

    ``DataFrame.toArrow`` refuses a NULL struct, which outer joins create, if its fields are not
    nullable.

    Raises:
        PySparkException, Py4JError: the query fails.
    """
    schema = exchanged(frame.schema)
    batches = frame._collect_as_arrow(empty_list_if_zero_records=False)  # noqa: SLF001
    return with_schema(pa.Table.from_batches(batches), schema)
