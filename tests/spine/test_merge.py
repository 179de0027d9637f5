"""Compaction: which runs are due, and that a spine stays small for little work."""

from __future__ import annotations

import math
from importlib import import_module
from typing import TYPE_CHECKING

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from headrace.algebra.spine import (
    RunFile,
    Spine,
    at_rest,
    difference,
    due,
    merge,
    ranges,
    write_run,
)
from headrace.algebra.zset import WEIGHT, Layout
from text_tables import zset

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

USERS = Layout(("user",), pa.schema([("user", pa.string())]), pa.schema([(WEIGHT, pa.int64())]))


PARTS = st.lists(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(-2, 2).filter(bool)), max_size=3
)


def run(name: object, rows: int) -> RunFile:
    return RunFile(str(name), 0, rows, rows * 10, "", 0, 1)


@given(
    sizes=st.lists(st.integers(1, 500), max_size=300),
    fanout=st.sampled_from([2, 4, 8]),
)
def test_a_spine_has_logarithmically_many_runs_and_rewrites_a_row_as_often(
    sizes: list[int], fanout: int
) -> None:
    runs: list[RunFile] = []
    total = rewritten = 0
    for number, rows in enumerate(sizes):
        runs.append(run(number, rows))
        total += rows
        while groups := due(runs, fanout):
            merged = [file for group in groups for file in group]
            assert len(merged) == len(set(merged))
            runs = [file for file in runs if file not in merged]
            runs += [run(f"{number}-{g[0].name}", sum(f.rows for f in g)) for g in groups]
            rewritten += sum(file.rows for file in merged)
        tiers = 1 + math.log(total, fanout) + 1e-9
        assert len(runs) <= (fanout - 1) * tiers
        assert rewritten <= total * tiers
    assert sum(file.rows for file in runs) == total


def test_nothing_is_due_below_the_fanout() -> None:
    assert due([run(i, 100) for i in range(7)]) == []


def test_runs_of_one_size_are_due_together() -> None:
    runs = [run(i, 100) for i in range(8)]
    assert due([*runs, run("large", 10_000)]) == [tuple(runs)]


def test_a_large_run_is_left_alone_by_small_ones() -> None:
    runs = [run("large", 10**7), *(run(i, 10) for i in range(8))]
    assert due(runs) == [tuple(runs[1:])]


def test_tiers_whose_sum_makes_the_next_one_due_are_merged_with_it_at_once() -> None:
    below, above = [run(f"b{i}", 1) for i in range(8)], [run(f"a{i}", 8) for i in range(7)]
    assert due([*above, *below]) == [(*below, *above)]
    assert due([*above[1:], *below]) == [tuple(below)]


def test_at_rest_small_runs_are_merged_and_a_run_that_is_much_larger_is_left() -> None:
    small, large = [run(i, 10) for i in range(3)], run("large", 1_000)
    assert at_rest([large, *small]) == tuple(small)
    assert at_rest([*small, run("like", 100)]) == (*small, run("like", 100))
    assert at_rest([large]) == at_rest([large, run("one", 1)]) == ()


def test_runs_without_rows_are_merged_like_the_smallest() -> None:
    runs = [run(i, 0) for i in range(8)]
    assert due(runs) == [tuple(runs)]


def test_a_merge_in_which_everything_cancels_leaves_no_file(tmp_path: Path) -> None:
    users = zset(USERS, "weight | user \n +1 | ann \n +2 | bob")
    files = [write_run(tmp_path, rows) for rows in (users, users.negated())]
    assert merge(tmp_path, USERS, files) is None
    assert {path.name for path in tmp_path.iterdir()} == {file.pack for file in files}


def test_a_merge_of_nothing_is_nothing(tmp_path: Path) -> None:
    assert merge(tmp_path, USERS, []) is None


def test_a_merge_holds_only_some_rows_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(import_module("headrace.algebra.spine.merge"), "MERGE_ROWS", 10)
    parts = [
        zset(USERS, "weight | user \n" + "\n".join(f"+1 | user{i}" for i in range(n, n + 60)))
        for n in (0, 30)
    ]
    merged = merge(tmp_path, USERS, [write_run(tmp_path, part) for part in parts])
    assert merged is not None
    assert merged.rows == 90


@given(before=PARTS, after=PARTS)
def test_a_difference_plus_the_runs_before_is_the_sum_of_those_after(
    tmp_path_factory: pytest.TempPathFactory,
    before: list[dict[str, int]],
    after: list[dict[str, int]],
) -> None:
    directory = tmp_path_factory.mktemp("runs")

    def written(parts: list[dict[str, int]]) -> list[RunFile]:
        lines = ["\n".join(f"{w} | {user}" for user, w in part.items()) for part in parts if part]
        return [write_run(directory, zset(USERS, f"weight | user \n{text}")) for text in lines]

    def contents(files: list[RunFile]) -> dict[str, int]:
        parts = list(Spine.open(directory, USERS, files).scan(100))
        return {row["user"]: row[WEIGHT] for part in parts for row in part.table.to_pylist()}

    old, new = written(before), written(after)
    found = [difference(directory, USERS, old, new, hashes) for hashes in ranges(3)]
    led = [file for file in found if file is not None]
    assert contents([*old, *led]) == contents(new)
    for file, (low, high) in zip(found, ranges(3), strict=True):
        assert file is None or (file.rows and low <= file.low <= file.high <= high)
    assert {p.name for p in directory.iterdir()} == {f.pack for f in [*old, *new, *led]}
