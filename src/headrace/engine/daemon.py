"""Spark's daemon of Python workers, with what every worker needs imported before it forks.

Each operator of each partition has a worker of its own. Left to itself, each of them would import
PySpark, pandas, Arrow and this package anew, from zip files: that takes longer than most epochs.
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
    "headrace.engine.worker",
    "headrace.operators",
    "headrace.functions.call",
)


def prefer_installed() -> None:
    """Leave Spark's zip files out of the path where the same packages are installed."""
    others = [entry for entry in sys.path if not _is_spark_zip(Path(entry))]
    if all(PathFinder.find_spec(name, others) is not None for name in _ZIPS):
        sys.path[:] = others


def _is_spark_zip(path: Path) -> bool:
    return path.suffix == ".zip" and path.name.startswith(_ZIPS)


def main() -> None:
    """Import, then fork a worker for each that Spark asks for."""
    prefer_installed()
    # No thread may run when the daemon forks: not NumPy's, nor the one of Arrow's allocator.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ.setdefault("JE_ARROW_MALLOC_CONF", "background_thread:false")
    # Timestamps reach Python functions without a zone: in UTC, wherever the worker is.
    os.environ["TZ"] = "UTC"
    time.tzset()
    for name in _NEEDED:
        import_module(name)
    gc.collect()
    gc.freeze()
    import_module("pyspark.daemon").manager()


if __name__ == "__main__":
    main()
