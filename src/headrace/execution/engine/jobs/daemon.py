"""Spark's daemon of Python workers, which imports what the workers need before it forks them.

Each operator of each partition has its own worker. With Spark's daemon, each worker would import
PySpark, pandas, Arrow and this package again, from zip files: that takes longer than most epochs.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path

_ZIPS = ("pyspark", "py4j")
_NEEDED = (
    "pandas",
    "pyspark.worker",
    "headrace.execution.engine.jobs.worker",
    "headrace.execution.engine.jobs.slice_tasks",
    "headrace.execution.engine.jobs.worker",
    "headrace.execution.engine.wide.nodes",
    "headrace.algebra.operators",
    "headrace.planning.functions.folds",
)


def prefer_installed() -> None:
    """Remove Spark's zip files from the path if the same packages are installed."""
    others = [entry for entry in sys.path if not _is_spark_zip(Path(entry))]
    if all(PathFinder.find_spec(name, others) is not None for name in _ZIPS):
        sys.path[:] = others


def _is_spark_zip(path: Path) -> bool:
    return path.suffix == ".zip" and path.name.startswith(_ZIPS)


def main() -> None:
    """Import the modules, then run Spark's daemon, which forks workers."""
    prefer_installed()
    # No other thread may run when the daemon forks: neither NumPy's nor that of Arrow's allocator.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    # Python functions get timestamps without a time zone: in UTC, wherever the worker runs.
    os.environ["TZ"] = "UTC"
    time.tzset()
    for name in _NEEDED:
        import_module(name)
    gc.collect()
    gc.freeze()
    import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main()
