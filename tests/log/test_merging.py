"""Which segments are merged: few remain, and no row is written often."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import pytest

from headrace.storage.log.merging import FANOUT, FULL_SIZE, TAIL_SEGMENTS, TAIL_SIZE, Piece, due


@dataclass
class Log:
    """The sizes of the segments of a log, and how many rows were written by merges."""

    pieces: list[Piece] = field(default_factory=list)
    written: int = 0
    landed: int = 0

    def land(self, rows: int, span: int = 0) -> None:
        self.pieces.append(Piece(rows, is_large=False, span=span))
        self.landed += rows

    def merge(self) -> None:
        while groups := due(self.pieces):
            for group in reversed(groups):
                size = sum(self.pieces[at].size for at in group)
                self.written += size
                merged = Piece(size, is_large=True, span=self.pieces[group.start].span)
                self.pieces[group.start : group.stop] = [merged]


@pytest.mark.parametrize("most", [1, 3, 100, 5_000, 200_000])
def test_a_long_log_is_few_segments_and_each_row_is_written_a_few_times(most: int) -> None:
    log, rows = Log(), random.Random(most)
    landings = 3_000_000 // most if most > 100 else 60_000
    for number in range(landings):
        log.land(rows.randint(1, most))
        if number % 37 == 0:
            log.merge()
    log.merge()
    levels = 1 + math.log(FULL_SIZE / TAIL_SIZE, FANOUT)
    full = log.landed / (FULL_SIZE / 2)
    assert len(log.pieces) <= TAIL_SEGMENTS + FANOUT * (levels + 1) + full + 1
    assert log.written <= log.landed * (levels + 2)
    assert max(piece.size for piece in log.pieces) <= FULL_SIZE


def test_a_log_that_was_never_merged_is_merged_at_once_into_full_segments() -> None:
    log = Log()
    for _ in range(300_000):
        log.land(10)
    log.merge()
    assert [piece.size for piece in log.pieces] == [1_048_570, 1_048_570, 902_860]
    assert log.written == log.landed


def test_segments_of_another_span_or_apart_are_not_merged_with_each_other() -> None:
    pieces = [Piece(TAIL_SIZE, is_large=False, span=at // 2, apart=at == 5) for at in range(6)]
    assert due(pieces) == [range(2), range(2, 4), range(4, 5), range(5, 6)]


def test_a_tail_with_few_landings_and_a_full_segment_stay() -> None:
    tail = [Piece(1, is_large=False)] * (TAIL_SEGMENTS - 1)
    full = [Piece(FULL_SIZE // 2, is_large=True)] * 20
    assert due([*full, *tail]) == []
    assert due([*full, *tail, *tail[:1]]) == [range(20, 20 + TAIL_SEGMENTS)]
    assert due([*full, *tail], tail=16) == [range(20, 19 + TAIL_SEGMENTS)]
