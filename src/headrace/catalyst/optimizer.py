"""The rules of Spark's optimizer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.catalyst.scala import items, scala_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def optional_rules(session: SparkSession) -> frozenset[str]:
    """Return the names of the rules that a session can exclude, which depend on its settings."""
    with scala_of(session).active(session):
        optimizer = session._jsparkSession.sessionState().optimizer()  # noqa: SLF001
        needed = frozenset(items(optimizer.nonExcludableRules()))
        batches = (items(batch.rules()) for batch in items(optimizer.batches()))
        return frozenset(str(rule.ruleName()) for rules in batches for rule in rules) - needed
