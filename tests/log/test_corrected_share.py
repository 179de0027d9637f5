"""A share of a log that has corrections: its sum is the same, without what they supersede."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.zset import Restriction, Test
from headrace.errors import HeadraceError
from headrace.execution.runtime.step import Clock, Step, parts_of_log
from headrace.storage.ledger import OffsetRange, Segment
from headrace.storage.log import AMENDED, CORRECTION, WEIGHT, EmbeddedLog, LogShare, write_segment
from headrace.storage.log import large as large_module
from headrace.storage.log.merging import merged
from headrace.types import Offset, RelationId

if TYPE_CHECKING:
    from pathlib import Path

INT = pa.int64()
COLUMNS = pa.schema([pa.field("n", INT)])
STREAM = RelationId(1)

Change = tuple[int, int]
"""The offset of an event, and its value."""


class History(NamedTuple):
    """A log, and what it has after each of its segments: the value of each event that is left."""

    segments: tuple[Segment, ...]
    states: dict[int, dict[int, int]]


def written(directory: Path, statements: list[int | dict[int, int | None]]) -> History:
    """Append so many events, or correct events: by their number, to a value or None to void it.

    Each value that is written is another one.
    """
    found: list[Segment] = []
    now, end, value = dict[int, int](), 0, 0
    states: dict[int, dict[int, int]] = {0: {}}
    for each in statements:
        if isinstance(each, int):
            rows = pa.table({"n": pa.array(range(value, value + each), INT)})
            now |= {end + i: value + i for i in range(each)}
            value += each
        else:
            old = [(o, now[o], -1) for o in each if o in now]
            if not old:
                continue
            new = []
            for offset, _, _ in old:
                del now[offset]
                if each[offset] is not None:
                    now[offset] = value
                    new.append((offset, value, 1))
                    value += 1
            rows = pa.table(
                {
                    "n": pa.array([n for _, n, _ in (*old, *new)], INT),
                    WEIGHT: pa.array([w for _, _, w in (*old, *new)], INT),
                    AMENDED: pa.array([o for o, _, _ in (*old, *new)], INT),
                    CORRECTION: pa.array([end] * len([*old, *new]), INT),
                }
            )
        span = OffsetRange(Offset(end), Offset(end + rows.num_rows))
        amends = not isinstance(each, int)
        found.append(Segment(STREAM, span, write_segment(directory, rows), 0.0, amends))
        end = span.end
        states[end] = dict(now)
    return History(tuple(found), states)


def merged_at(directory: Path, history: History, places: set[int]) -> History:
    """Return the same log after its segments were merged, but for those at some places."""
    found: list[Segment] = []
    group: list[Segment] = []
    for number, segment in enumerate(history.segments):
        if number in places:
            found += (*large(directory, group), segment)
            group = []
        else:
            group.append(segment)
    return History((*found, *large(directory, group)), history.states)


def large(directory: Path, segments: list[Segment]) -> list[Segment]:
    """Return consecutive segments merged into one, if there are many."""
    found = []
    for each in merged(directory, segments):
        if each.file is None:
            found += each.segments
            continue
        first, last = each.segments[0], each.segments[-1]
        span = OffsetRange(first.range.first, last.range.end)
        amends = any(s.amends for s in each.segments)
        found.append(Segment(STREAM, span, each.file, last.appended_at, amends))
    return found


def read(directory: Path, share: LogShare) -> list[tuple[int, int, int]]:
    """Return the offset, value and weight of each change that is read."""
    found = []
    for batch in EmbeddedLog().read(directory, share, COLUMNS, offsets=True):
        assert batch.schema.names == ["n", WEIGHT, "__offset"]
        found += [(r["__offset"], r["n"], r[WEIGHT]) for r in batch.to_pylist()]
    return found


def share(history: History, first: int, end: int) -> LogShare:
    held = (s for s in history.segments if s.range.first < end and s.range.end > first)
    return LogShare(tuple(held), Offset(first), Offset(end))


def net(before: dict[int, int], after: dict[int, int]) -> Counter[tuple[int, int, int]]:
    """Return the least changes that lead from one state to another."""
    gone = [(o, n, -1) for o, n in before.items() if after.get(o) != n]
    return Counter([*gone, *((o, n, 1) for o, n in after.items() if before.get(o) != n)])


events = st.integers(1, 4)
corrections = st.dictionaries(st.integers(0, 8), st.sampled_from([None, 1]), min_size=1)
small = st.sets(st.integers(0, 7)) | st.just(set(range(8)))
"""The segments of a log that are not merged."""


@pytest.fixture(params=[1, 65_536], autouse=True)
def rows_of_a_group(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Large segments have row groups of one change, and of many."""
    monkeypatch.setattr(large_module, "GROUP_ROWS", request.param)
    return request.param


@given(
    st.lists(events | corrections, min_size=1, max_size=8),
    st.integers(1, 5),
    small,
    small,
    st.data(),
)
def test_what_is_read_is_what_leads_from_one_state_to_the_next(
    tmp_path_factory: pytest.TempPathFactory,
    statements: list[int | dict[int, int | None]],
    most: int,
    once: set[int],
    again: set[int],
    data: st.DataObject,
) -> None:
    directory = tmp_path_factory.mktemp("log")
    history = merged_at(
        directory, merged_at(directory, written(directory, statements), once), again
    )
    bounds = sorted(history.states)
    first, end = sorted(data.draw(st.tuples(*[st.sampled_from(bounds)] * 2)))
    asked = share(history, first, end).as_corrected()
    parts = [row for part in parts_of_log(asked, most) for row in read(directory, part)]
    assert Counter(parts) == net(history.states[first], history.states[end])
    assert parts == read(directory, asked)


def test_an_event_is_read_as_its_last_correction_left_it(tmp_path: Path) -> None:
    history = written(tmp_path, [3, {0: None, 1: 1}, 1, {1: 1, 6: None}, {1: 1}])
    end = history.segments[-1].range.end
    plain = share(history, 0, end)
    assert len(read(tmp_path, plain)) == plain.rows == 12
    assert read(tmp_path, plain.as_corrected()) == [(2, 2, 1), (1, 6, 1)]


def test_events_that_are_no_longer_kept_are_left_out_with_all_their_corrections(
    tmp_path: Path,
) -> None:
    history = written(tmp_path, [2, 2, {1: 1, 2: 1}, {1: 1}])
    end = history.segments[-1].range.end
    kept = replace(share(history, 2, end), since=Offset(2)).as_corrected()
    assert read(tmp_path, kept) == [(3, 3, 1), (2, 5, 1)]


@pytest.mark.parametrize("merges", [False, True])
def test_a_part_of_a_correction_supersedes_nothing(tmp_path: Path, *, merges: bool) -> None:
    history = written(tmp_path, [2, {0: 1, 1: 1}, {0: 1}])
    if merges:
        history = merged_at(tmp_path, history, set())
        assert len(history.segments) == 1
    cut = share(history, 0, 4).as_corrected()
    assert read(tmp_path, cut) == [(0, 0, 1), (1, 1, 1), (0, 0, -1), (1, 1, -1)]
    whole = share(history, 0, 6).as_corrected()
    assert read(tmp_path, whole) == [(0, 2, 1), (1, 3, 1)]
    rest = share(history, 4, 6).as_corrected()
    assert read(tmp_path, rest) == [(0, 2, 1), (1, 3, 1)]


def test_a_restriction_is_of_what_an_event_is_now(tmp_path: Path) -> None:
    history = written(tmp_path, [2, {0: 1}])
    asked = share(history, 0, 4).as_corrected()

    def met(low: int) -> list[int]:
        within = Restriction((Test("n", low=pa.scalar(low, INT)),))
        found = EmbeddedLog().read(tmp_path, asked, COLUMNS, offsets=True, restriction=within)
        return [n for batch in found for n in batch["n"].to_pylist()]

    assert met(0) == [1, 2]
    assert met(2) == [2]


def test_a_step_that_is_sent_says_which_corrections_there_are(tmp_path: Path) -> None:
    history = written(tmp_path, [2, {0: 1}, {0: None}])
    end = history.segments[-1].range.end
    asked = share(history, 0, end).as_corrected()
    step = Step("a", tmp_path, 1, {STREAM: asked}, {}, clock=Clock(0, 0))
    assert Step.received(step.sent()).shares[STREAM] == asked


@given(
    st.lists(events | corrections, min_size=1, max_size=8),
    st.sets(st.integers(0, 7)),
    small,
    st.data(),
)
def test_a_share_of_some_segments_reads_these_alone_in_any_division(
    tmp_path_factory: pytest.TempPathFactory,
    statements: list[int | dict[int, int | None]],
    chosen: set[int],
    unmerged: set[int],
    data: st.DataObject,
) -> None:
    directory = tmp_path_factory.mktemp("log")
    history = merged_at(directory, written(directory, statements), unmerged)
    end = max(history.states)
    first = data.draw(st.integers(0, end))
    whole = share(history, first, end).as_corrected()
    some = whole.among(tuple(s for i, s in enumerate(whole.segments) if i in chosen))
    alone = [
        replace(whole, segments=(s,), first=max(s.range.first, whole.first), end=s.range.end)
        for s in some.segments
    ]
    wanted = [row for each in alone for row in read(directory, each)]
    assert read(directory, some) == wanted
    parts = list(parts_of_log(some, data.draw(st.integers(1, 5))))
    assert [row for part in parts for row in read(directory, part)] == wanted
    assert sum(part.rows for part in parts) == some.rows == sum(each.rows for each in alone)
    step = Step("a", directory, 1, {STREAM: some}, {}, clock=Clock(0, 0))
    assert Step.received(step.sent()).shares[STREAM] == some


def test_a_gap_in_a_share_of_a_whole_log_is_damage(tmp_path: Path) -> None:
    history = written(tmp_path, [1, 1, 1])
    one, _, three = history.segments
    with pytest.raises(HeadraceError, match="log has no segment for offset 1"):
        read(tmp_path, replace(share(history, 0, 3), segments=(one, three)))
    assert len(read(tmp_path, share(history, 0, 3).among((one, three)))) == 2
