"""Collecting the rows of a DataFrame as Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def collect_arrow(frame: DataFrame) -> pa.Table:
    """Run a query and return its rows; NULL is allowed anywhere in them.

    ``DataFrame.toArrow`` refuses a struct that is NULL, as an outer join makes them, if the fields
    of its type cannot be.

    Raises:
        PySparkException, Py4JError: the query fails.
    """
    schema = to_arrow_schema(frame.schema.toNullable(), timezone="UTC")
    batches = frame._collect_as_arrow(empty_list_if_zero_records=False)  # noqa: SLF001
    return pa.Table.from_batches(batches).cast(schema)
