"""The fixture of pytest, which finds this module by its entry point, and how errors are shown."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from headrace.testing.database import TestDatabase
    from headrace.testing.prepared import PreparedDatabases


_FULL_TRACE = "headrace_full_trace"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option of ``pytest.ini`` and ``pyproject.toml``."""
    parser.addini(_FULL_TRACE, "show the frames of Headrace below an error", "bool", default=False)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Show an error that names its cause where the test made it, not where Headrace found it.

    ``--full-trace`` and the option ``headrace_full_trace`` show all frames; so does an error that
    is a defect of Headrace.
    """
    errors = sys.modules.get("headrace.errors")
    if errors is None or call.excinfo is None:
        return
    error, full = call.excinfo.value, item.config.getoption("fulltrace")
    if full or item.config.getini(_FULL_TRACE) or not isinstance(error, errors.HeadraceError):
        return
    if error.code not in {errors.Code.INTERNAL, errors.Code.CORRUPT}:
        _end_above_headrace(call.excinfo.tb)
        error.__cause__, error.__suppress_context__ = None, True


def _end_above_headrace(trace: TracebackType) -> None:
    """End a traceback at the last frame before the first one of this package."""
    below = trace.tb_next
    while below is not None:
        if str(below.tb_frame.f_globals.get("__name__", "")).startswith("headrace."):
            trace.tb_next = None
            return
        trace, below = below, below.tb_next


@pytest.fixture(scope="session")
def headrace_prepared() -> Iterator[PreparedDatabases]:
    """Prepared databases and one Spark for all tests of a process; Spark starts when needed."""
    from headrace.testing.prepared import PreparedDatabases  # noqa: PLC0415  (as below)

    prepared = PreparedDatabases()
    yield prepared
    prepared.close()


@pytest.fixture
def headrace_db(
    request: pytest.FixtureRequest, headrace_prepared: PreparedDatabases
) -> Iterator[TestDatabase]:
    """Test views: load definitions, write rows, move the clock, compare rows and changes.

    Relative paths are below the directory of the test's file.
    """
    from headrace.testing.database import TestDatabase  # noqa: PLC0415  (other tests need none)

    database = TestDatabase(headrace_prepared, request.path.parent)
    yield database
    database.close()
