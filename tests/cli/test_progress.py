"""How far a statement has come, in words."""

from __future__ import annotations

from headrace.cli.progress import count_text
from headrace.session import Progress


def test_rate_and_time_left_follow_what_is_done() -> None:
    filling = Progress("filling", 1_200, 6_000, "rows")
    assert count_text(filling) == "1,200 of 6,000 rows"
    assert count_text(filling, 4.0) == "1,200 of 6,000 rows, 300 rows/s, 0:16 left"
    assert count_text(filling, 3600.0).endswith("4:00:00 left")


def test_where_the_total_is_not_known_only_the_rate_is_shown() -> None:
    copying = Progress("copying", 4_000_000, None, "bytes", rejected=2)
    assert count_text(copying, 2.0) == "4.0 MB, 2 rejected, 2.0 MB/s"


def test_nothing_is_left_at_the_end() -> None:
    assert count_text(Progress("filling", 10, 10, "rows"), 5.0) == "10 of 10 rows, 2 rows/s"
