"""Hash collisions: with two bits of hash left, all results are still correct."""

from __future__ import annotations

import pytest
from pyspark.sql.types import LongType

from headrace.execution.serving import Contents
from headrace.planning.catalyst.transplant import Transplant
from histories import History

pytestmark = pytest.mark.spark

FEW = -(1 << 63) | 1
"""The sign, so that both partitions have rows, and the lowest bit."""


@pytest.fixture
def colliding(monkeypatch):
    """Leave four different hashes; lookups by key use the real one, so these are left out."""
    real = Transplant.hash

    def truncated(self, values):
        if not values:
            return real(self, values)
        mask = self.cast(self.literal(str(FEW), LongType()), LongType())
        return self.scala.expression("BitwiseAnd", real(self, values), mask)

    monkeypatch.setattr(Transplant, "hash", truncated)


@pytest.mark.long
def test_rows_of_one_hash_are_told_apart(oracle, colliding):  # noqa: ARG001
    run = oracle(rows_per_change=200, lookups=False)
    run.table("t", "id INT, g INT, s STRING, m DECIMAL(10,2)", key="id")
    run.table("b", "g INT, s STRING, f DOUBLE")
    run.view("groups", "SELECT g, s, count(*) AS n, sum(m) AS m FROM t GROUP BY g, s")
    run.view("joined", "SELECT t.id, b.f FROM t JOIN b ON t.g = b.g AND t.s <=> b.s")
    run.view("distinct_rows", "SELECT DISTINCT g, f FROM b")
    run.view("total", "SELECT count(*) AS n, sum(n) AS s FROM groups")
    run.view("itself", "SELECT p.s, q.f FROM b p JOIN b q ON p.g = q.g AND p.f < q.f")
    history = History(run, 14, domain=12)
    for size in (1, 10, 80, 10):
        history.epochs(["t", "b"], (size,))
    run.update("t", {"id": "id + 100", "g": "g % 3"}, "id % 2 = 1")
    assert len(stored_hashes(run, "groups") | stored_hashes(run, "joined")) == 4
    run.truncate("t")
    history.epochs(["t"], (5,))
    run.finish()


def stored_hashes(run, view):
    parts = run.db.parts
    relation = parts.reader.catalog.resolve(view)
    spine = Contents.of(parts.reader.directory, parts.reader.published, relation).spine
    return {int(hash_) for part in spine.scan(1 << 20) for hash_ in part.hashes}
