"""The sessions in which steps run: Spark's optimizer without the rules that break programs.

The queries were optimised when they were planned. The operators of a program write files, so each
must run exactly once: rules that push a projection or a filter below an exchange would make the two
uses of a shared exchange differ, and Spark would run the operators below it twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.catalyst.optimizer import optional_rules

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXCLUDED = "spark.sql.optimizer.excludedRules"
_EVALUATORS = "spark.sql.execution.usePartitionEvaluator"


def bare_session(spark: SparkSession) -> SparkSession:
    """Return a session of the same application in which no optional optimizer rule runs."""
    session = spark.newSession()
    session.conf.set(_EXCLUDED, ",".join(sorted(optional_rules(session))))
    session.conf.set(_EVALUATORS, "true")
    return session


def for_few_rows(bare: SparkSession) -> SparkSession:
    """Return a session like ``bare`` in which Spark generates less code for each plan.

    Spark can fuse the operators of a stage into one generated class, and generate one for each
    projection and condition. That makes rows cheaper but first runs more expensive, and most steps
    with few rows are first runs.
    """
    session = bare.newSession()
    for name in (_EXCLUDED, _EVALUATORS):
        session.conf.set(name, bare.conf.get(name))
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    return session


def for_parcels(bare: SparkSession) -> SparkSession:
    """Return a session like ``bare`` for few rows that are large: Python gets them one by one."""
    session = for_few_rows(bare)
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1")
    return session
