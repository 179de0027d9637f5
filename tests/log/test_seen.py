"""The index of ids against a plain model: restarts, failed appends, damaged files, horizons."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import Code, HeadraceError
from headrace.storage.log import Seen, ids_of
from headrace.storage.log import seen as module

STEP = st.one_of(
    st.tuples(st.just("append"), st.lists(st.none() | st.integers(0, 40), max_size=12)),
    st.tuples(st.just("fail"), st.lists(st.none() | st.integers(0, 40), min_size=1, max_size=12)),
    st.tuples(st.just("reopen"), st.booleans()),
    st.tuples(st.just("wait"), st.integers(1, 60)),
    st.tuples(st.just("retire"), st.integers(1, 8)),
)


class Log:
    """A stream's log as segments of ids, and the index over it."""

    def __init__(self, directory, horizon):
        self.directory = directory
        self.horizon = horizon
        self.segments = []
        self.now = 1000
        self.start = 0
        self.open()

    def open(self):
        self.seen = Seen(self.directory, "7", self.horizon, self.logged, lambda: self.start)

    @property
    def end(self):
        return sum(len(ids) for ids, _ in self.segments)

    def retire(self, segments):
        """Have the log lose its first segments."""
        start = sum(len(ids) for ids, _ in self.segments[:segments])
        if start > self.start:
            self.seen.keep(start, self.end, self.now)
            self.start = start

    def logged(self, first, end, since):
        at, first = 0, max(first, self.start)
        for ids, time in self.segments:
            low, high = max(first, at), min(end, at + len(ids))
            if low < high and time >= since:
                hashes, present = ids_of(table(ids[low - at : high - at]), ["id"])
                assert low >= self.start, "the log does not have it any more"
                yield high, hashes[:, present], np.full(int(present.sum()), time, np.uint64)
            at += len(ids)

    def offer(self, ids, *, commit):
        hashes, present = ids_of(table(ids), ["id"])
        kept = self.seen.new(hashes, present, self.end, self.now)
        taken = [each for each, keep in zip(ids, kept, strict=True) if keep]
        if commit and taken:
            self.segments.append((taken, self.now))
        return taken

    def expected(self, ids):
        since = 0 if self.horizon is None else self.now - self.horizon
        known = {each for taken, at in self.segments if at >= since for each in taken}
        found = []
        for each in ids:
            if each is None or each not in known:
                found.append(each)
                known.add(each)
        return found


def table(ids):
    return pa.table({"id": pa.array(ids, pa.int64())})


@pytest.fixture(scope="module", autouse=True)
def small_files():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FILED_IDS", 4)
        patch.setattr(module, "_MOST_IDS", 32)
        yield


@settings(deadline=None)
@given(st.lists(STEP, max_size=30), st.sampled_from([None, 50, 200]))
def test_each_id_is_taken_once_within_the_horizon(tmp_path_factory, steps, horizon):
    log = Log(tmp_path_factory.mktemp("seen"), horizon)
    for step, value in steps:
        match step:
            case "append" | "fail":
                expected = log.expected(value)
                assert log.offer(value, commit=step == "append") == expected
            case "reopen":
                if value and not log.start:
                    for path in list(log.directory.glob("*.npy"))[:1]:
                        path.write_bytes(path.read_bytes()[:-8] + b"damaged!")
                log.open()
            case "wait":
                log.now += value
            case "retire":
                log.retire(value)


@pytest.mark.parametrize("damage", ["changed", "gone"])
def test_a_damaged_index_of_what_the_log_no_longer_has_is_refused(tmp_path, damage):
    log = Log(tmp_path, None)
    for start in range(0, 12, 3):
        log.offer(list(range(start, start + 3)), commit=True)
    log.retire(2)
    log.open()
    assert log.offer([0, 5, 11, 12], commit=True) == [12]
    for path in tmp_path.glob("*.npy"):
        if damage == "gone":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:-8] + b"damaged!")
    log.open()
    with pytest.raises(HeadraceError, match="of the ids of a stream is damaged") as caught:
        log.offer([0], commit=True)
    assert caught.value.code is Code.CORRUPT


def test_a_file_that_is_missing_between_others_is_not_taken_for_no_ids(tmp_path):
    log = Log(tmp_path, None)
    for first, end in ((0, 20), (20, 29), (29, 33), (33, 34)):
        log.offer(list(range(first, end)), commit=True)
    log.retire(3)
    files = sorted(tmp_path.glob("*.npy"), key=lambda path: int(path.stem.split("-")[1]))
    assert len(files) == 3
    files[1].unlink()
    log.open()
    with pytest.raises(HeadraceError, match="of the ids of a stream is damaged") as caught:
        log.offer([25], commit=True)
    assert "A file before it is missing" in caught.value.detail
    assert files[2].exists()


def test_what_expired_leaves_no_file(tmp_path):
    log = Log(tmp_path, 100)
    for start in range(0, 400, 10):
        log.offer(list(range(start, start + 10)), commit=True)
        log.now += 10
    files = list(tmp_path.glob("*.npy"))
    assert files
    assert sum(len(np.load(path)[0]) for path in files) <= 400 / 2


def test_an_overtaken_process_removes_no_file_that_its_successor_may_rely_on(tmp_path):
    def overtaken():
        raise HeadraceError(Code.CONFLICT, "another process took over")

    former = Log(tmp_path, None)
    former.offer(list(range(4)), commit=True)
    (kept,) = tmp_path.glob("*.npy")
    former.offer(list(range(4, 8)), commit=False)
    assert len(list(tmp_path.glob("*.npy"))) == 2, "it is replaced once the log is as long"
    successor = Log(tmp_path, None)
    successor.segments = list(former.segments)
    assert successor.offer([3, 9], commit=True) == [9]
    successor.retire(1)
    former.segments = list(successor.segments)
    former.seen.require_newest = overtaken
    for ids in ([5], [6, 7, 8, 10]):
        former.offer(ids, commit=False)
    assert kept.exists()
    stray = tmp_path / "7-0-99-0.npy"
    stray.write_bytes(b"")
    former.open()
    former.seen.require_newest = overtaken
    with pytest.raises(HeadraceError, match="took over"):
        former.offer([1], commit=True)
    assert stray.exists()
    successor.open()
    assert successor.offer([0, 1, 2, 3, 11], commit=True) == [11]
    assert not stray.exists()


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["a", "b", "a", "", None, None]),
        pa.array([b"a", b"\xff", b"a", b"", None, None]),
        pa.array([1, 2, 1, 0, None, None], pa.timestamp("us")),
    ],
)
def test_equal_ids_have_equal_hashes(values):
    ids, present = ids_of(pa.table({"a": values, "b": pa.array([1, 1, 1, 1, 1, None])}), ["a", "b"])
    assert present.tolist() == [True, True, True, True, False, False]
    hashes = [tuple(column) for column in ids.T.tolist()][:4]
    assert hashes[0] == hashes[2]
    assert len(set(hashes)) == 3


def test_columns_are_not_run_together():
    rows = pa.table({"a": ["ab", "a", "b"], "b": ["c", "bc", "a"], "c": ["", "", "ab"]})
    ids, _ = ids_of(rows, ["a", "b"])
    assert len({tuple(column) for column in ids.T.tolist()}) == 3
    other, _ = ids_of(rows, ["b", "a"])
    assert not (ids == other).all(axis=0).any()
