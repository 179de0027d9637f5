"""The sessions in which steps run."""

from __future__ import annotations

import pytest

from headrace.execution.engine.jobs.session import bare_session, for_few_rows
from headrace.planning.catalyst.scala import scala_of

EXCLUDED = "spark.sql.optimizer.excludedRules"
RULE = "org.apache.spark.sql.catalyst.optimizer.PruneFilters"


@pytest.mark.spark
def test_no_optional_rule_runs_whatever_session_is_active(spark):
    active = spark.newSession()
    active.conf.set(EXCLUDED, RULE)
    bare = bare_session(spark).conf.get(EXCLUDED)
    with scala_of(spark).active(active):
        another = bare_session(spark)
        assert scala_of(spark).parser(another._jsparkSession) is not None
    assert RULE in bare.split(",")
    assert another.conf.get(EXCLUDED) == bare
    assert for_few_rows(another).conf.get(EXCLUDED) == bare


@pytest.mark.spark
def test_the_active_session_is_the_one_before(spark):
    scala, one, another = scala_of(spark), spark.newSession(), spark.newSession()
    sessions = scala.module("org.apache.spark.sql.classic.SparkSession")
    with scala.active(one):
        with scala.active(another):
            assert sessions.getActiveSession().get().equals(another._jsparkSession)
        assert sessions.getActiveSession().get().equals(one._jsparkSession)


@pytest.mark.spark
def test_no_union_looks_for_where_the_partitions_of_its_inputs_are(spark):
    setting = "spark.sql.unionOutputPartitioning"
    for session in (spark.newSession(), bare_session(spark), for_few_rows(bare_session(spark))):
        assert session.conf.get(setting) == "false"
