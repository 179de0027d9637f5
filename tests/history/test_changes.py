"""What EXPLAIN CHANGE says of a change that deltas carry."""

from __future__ import annotations

import pytest

from headrace.lifecycle.history.changes import outcome


@pytest.mark.parametrize(
    ("touched", "changed", "whole", "said"),
    [
        (17, 2, 3, "The next epoch changes 2 rows of the view. Nothing else needs to be done."),
        (17, 1, 99, "The next epoch changes 1 row of the view. Nothing else needs to be done."),
        (0, 0, 3, "No row of the view changes. Nothing else needs to be done."),
    ],
)
def test_a_small_change_says_what_happens_and_that_nothing_is_to_be_done(
    touched, changed, whole, said
):
    assert outcome(touched, changed, whole) == said


def test_only_a_change_of_many_rows_advises_a_rebuild_that_reads_fewer():
    assert "a rebuild reads 400,000" in outcome(5_000_000, 7, 400_000)
    assert "rebuild" not in outcome(5_000_000, 7, 6_000_000)
