"""One planner for all refusals: nothing that is refused leaves a trace in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from planned import Planned

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def planned(spark: SparkSession) -> Planned:
    return Planned(spark)
