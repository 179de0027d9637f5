"""A cluster, an object store and PostgreSQL, in which tests open the databases that they make.

``pytest --cluster`` runs what asks for the oracle on a standalone cluster of Spark: two workers of
one core each, which see nothing of the directories of the driver, nor of each other's; files in
SeaweedFS, a ledger in PostgreSQL for each database. Epochs of more than a few changes are wide.
"""

from __future__ import annotations

import itertools
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import pytest

from servers.postgres import Postgres, postgres
from servers.seaweed import ACCESS_KEY, BUCKET, REGION, SECRET_KEY, Seaweed, seaweed
from servers.spark_cluster import SparkCluster, spark_cluster

if TYPE_CHECKING:
    from collections.abc import Iterator

WORKERS = 2
SMALL_ROWS = 5
"""The most changes of a narrow epoch: histories have both widths."""


@dataclass
class Beyond:
    """What a database needs that lies beyond one machine."""

    spark: SparkCluster
    store: Seaweed
    ledgers: Postgres
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def settings(self) -> dict[str, Any]:
        """Return the settings of a new database."""
        url = (
            f"s3://{BUCKET}/db{next(self._numbers)}?endpoint={self.store.endpoint}&region={REGION}"
        )
        return {"store": url, "ledger": self.ledgers.empty(), "small_rows": SMALL_ROWS}


@contextmanager
def beyond(hidden: Path, workers: int = WORKERS) -> Iterator[Beyond]:
    """Start all of it for a block; workers see an empty directory in place of ``hidden``.

    Raises:
        Unavailable: if a part cannot be had.
    """
    with ExitStack() as stack:
        place, ledger = (Path(stack.enter_context(TemporaryDirectory())) for _ in range(2))
        (place / "cluster").mkdir()
        ledgers = stack.enter_context(postgres(ledger / "postgres"))
        store = stack.enter_context(seaweed(place / "store"))
        environment = stack.enter_context(pytest.MonkeyPatch.context())
        environment.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        environment.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        spark = stack.enter_context(spark_cluster(place / "cluster"))
        for _ in range(workers):
            spark.worker(hidden=hidden)
        yield Beyond(spark, store, ledgers)
