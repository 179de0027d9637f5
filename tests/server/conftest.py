"""One served database for all tests, over real sockets; each module has tables of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import headrace
from served import Client, Served, served
from sessions import PARTITIONS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[Served]:
    directory = tmp_path_factory.mktemp("served") / "db"
    with (
        headrace.connect(directory, spark=spark, partitions=PARTITIONS) as database,
        served(database) as running,
    ):
        yield running


@pytest.fixture
def client(server: Served) -> Client:
    return server.client
