"""What Spark's Python workers are forked from."""

from __future__ import annotations

import sys

import pytest

from headrace.execution.engine.jobs.daemon import prefer_installed

INSTALLED = list(sys.path)
ZIPS = ["/spark/python/lib/pyspark.zip", "/spark/python/lib/py4j-0.10.9.9-src.zip"]


def test_what_is_installed_comes_before_the_zip_files_of_spark(monkeypatch):
    monkeypatch.setattr(sys, "path", [*ZIPS, "/lib/python311.zip", *INSTALLED])
    prefer_installed()
    assert sys.path == ["/lib/python311.zip", *INSTALLED]


def test_the_zip_files_stay_where_nothing_is_installed(monkeypatch):
    monkeypatch.setattr(sys, "path", list(ZIPS))
    prefer_installed()
    assert sys.path == ZIPS


@pytest.mark.spark
def test_workers_import_what_is_installed(spark):
    def tell(batches):
        import pyarrow as pa
        import pyspark

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"file": [pyspark.__file__]})

    [row] = spark.range(1, numPartitions=1).mapInArrow(tell, "file STRING").collect()
    assert ".zip" not in row.file
