"""The work of operators is added up by epoch, over all their partitions."""

from __future__ import annotations

from headrace.runtime.step import Report
from headrace.runtime.work import OperatorWork, Work


def test_partitions_of_one_epoch_are_one_and_epochs_add_up():
    work = Work()
    work.add([Report("1/a", 0, {}, 10, 4, 2, 0.5), Report("1/a", 1, {}, 20, 5, 0, 0.25)])
    work.add([Report("1/a", 0, {}, 1, 1, 1, 0.25), Report("1/b", 0, {}, 1, 1, 1, 0.25)])
    assert work.of("1/a") == OperatorWork(2, 31, 10, 3, 1.0)
    assert work.of("1/b") == OperatorWork(1, 1, 1, 1, 0.25)
    assert work.of("2/a") is None
