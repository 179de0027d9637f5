"""The fixture of pytest, which finds this module by its entry point."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from headrace.testing.database import TestDatabase
    from headrace.testing.prepared import PreparedDatabases


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
