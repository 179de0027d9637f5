"""``ttl`` of a view: its query over the rows that are not older than that, as time passes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

import headrace
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

DAY = 86_400_000_000
MARCH = int(datetime(2026, 3, 1, tzinfo=UTC).timestamp() * 1_000_000)


class Days:
    """A database whose clock is set to a day."""

    def __init__(self, directory: Path, spark) -> None:
        self.now = MARCH
        self.db = headrace.connect(
            directory, spark=spark, continuous=False, partitions=2, clock=lambda: self.now
        )
        self.db.sql(
            """
            CREATE STREAM seen (k INT, at TIMESTAMP, also TIMESTAMP);
            INSERT INTO seen VALUES (1, TIMESTAMP '2026-01-01', NULL), (2, NULL, NULL),
              (3, TIMESTAMP '2026-02-20', NULL), (4, TIMESTAMP '2026-02-28', NULL);
            """
        )


@pytest.fixture
def days(tmp_path: Path, spark) -> Iterator[Days]:
    made = Days(tmp_path / "d", spark)
    yield made
    made.db.close()


@pytest.mark.long
def test_rows_leave_a_view_once_they_are_older_than_its_ttl(days: Days) -> None:
    db = days.db
    db.sql("CREATE MATERIALIZED VIEW recent WITH (ttl = '30 days') AS SELECT k, at FROM seen")
    db.sql(
        "CREATE MATERIALIZED VIEW last (k, at, n)"
        " WITH (TTL = 'INTERVAL 30 DAYS', ttl_column = 'AT')"
        " AS SELECT k, max(at), max(also) FROM seen GROUP BY k"
    )

    def keys() -> list[list[int]]:
        views = (db.sql(f"SELECT k FROM {name}").fetchall() for name in ("recent", "last"))
        return [sorted(k for (k,) in found) for found in views]

    assert keys() == [[3, 4], [3, 4]], "a row without a time is not kept"
    days.now += 22 * DAY
    assert keys() == [[4], [4]]
    # A late event within the time comes in, and one that is too old does not.
    db.sql("INSERT INTO seen VALUES (3, TIMESTAMP '2026-03-01', NULL)")
    db.sql("INSERT INTO seen VALUES (9, TIMESTAMP '2025-01-01', NULL)")
    assert keys() == [[3, 4], [3, 4]]
    assert {row[3] for row in db.sql("VERIFY").fetchall()} == {"equal to batch"}
    days.now += 60 * DAY
    assert keys() == [[], []]
    assert "ttl = '30 days'" in db.sql("SHOW CREATE recent").fetchall()[0][1]


def test_a_stream_has_no_ttl(days: Days) -> None:
    with pytest.raises(HeadraceError, match='"ttl" of a stream or table') as caught:
        days.db.sql("CREATE STREAM s (at TIMESTAMP) WITH (ttl = '90 days')")
    assert caught.value.code is Code.UNSUPPORTED


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("ttl = '30 days'", "has 2 TIMESTAMP columns"),
        ("ttl = '30 days', ttl_column = 'k'", "is not a TIMESTAMP of the view"),
        ("ttl = 'soon', ttl_column = 'at'", "is not a duration"),
        ("ttl_column = 'at'", "there is no ttl"),
    ],
)
def test_a_ttl_that_says_nothing_is_refused_at_its_place(
    days: Days, options: str, words: str
) -> None:
    with pytest.raises(HeadraceError, match=words) as caught:
        days.db.sql(f"CREATE MATERIALIZED VIEW v WITH ({options}) AS SELECT * FROM seen")
    assert caught.value.code is Code.INVALID
    assert caught.value.span is not None
    assert caught.value.span.source.startswith("ttl")
