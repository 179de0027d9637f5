"""The generated files: the same for everybody, with Nexmark's proportions and skew."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np

from benchmarks import nexmark

if TYPE_CHECKING:
    from pathlib import Path

EVENTS = 50_000


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_forty_six_are_bids() -> None:
    assert nexmark.bids_of(0, EVENTS).num_rows == EVENTS * 92 // 100
    assert nexmark.auctions_of(0, EVENTS).num_rows == EVENTS * 6 // 100
    assert nexmark.persons_of(0, EVENTS).num_rows == EVENTS * 2 // 100


def test_the_same_seed_gives_the_same_rows_and_another_seed_others() -> None:
    assert nexmark.bids_of(3, EVENTS).equals(nexmark.bids_of(3, EVENTS))
    assert nexmark.auctions_of(3, EVENTS).equals(nexmark.auctions_of(3, EVENTS))
    assert not nexmark.bids_of(3, EVENTS).equals(nexmark.bids_of(3, EVENTS, seed=1))


def test_an_event_does_not_depend_on_how_many_are_asked_for() -> None:
    for rows_of in (nexmark.bids_of, nexmark.auctions_of, nexmark.persons_of):
        shorter = rows_of(1, EVENTS // 2)
        assert shorter.equals(rows_of(1, EVENTS).slice(0, shorter.num_rows))


def test_half_of_the_bids_go_to_one_auction_in_a_hundred() -> None:
    auction = nexmark.bids_of(0, EVENTS)["auction"].to_numpy()
    hot = np.mean((auction - nexmark.FIRST_ID) % nexmark.HOT_AUCTION_SPACING == 0)
    assert 0.49 < hot < 0.52


def test_three_quarters_of_the_bids_come_from_one_person_in_a_hundred() -> None:
    bidder = nexmark.bids_of(0, EVENTS)["bidder"].to_numpy()
    hot = np.mean((bidder - nexmark.FIRST_ID) % nexmark.HOT_PERSON_SPACING == 1)
    assert 0.74 < hot < 0.77


def test_auctions_are_numbered_without_a_gap_across_chunks() -> None:
    chunks = [nexmark.auctions_of(chunk, nexmark.CHUNK_EVENTS)["id"].to_numpy() for chunk in (0, 1)]
    ids = np.concatenate(chunks)
    assert np.array_equal(ids, nexmark.FIRST_ID + np.arange(len(ids)))


def test_bids_are_on_auctions_from_a_hundred_back_to_ten_ahead() -> None:
    auction = nexmark.bids_of(0, EVENTS)["auction"].to_numpy() - nexmark.FIRST_ID
    newest = np.repeat(np.arange(EVENTS // nexmark.CYCLE) * 3 + 2, nexmark.BIDS)
    cold = auction % nexmark.HOT_AUCTION_SPACING != 0
    assert (newest - auction)[cold].max() <= nexmark.IN_FLIGHT_AUCTIONS
    assert (newest - auction)[cold].min() >= -nexmark.LEAD


def test_files_hold_one_object_per_line_with_the_rows_of_the_tables(tmp_path: Path) -> None:
    made = nexmark.dataset(tmp_path, 1000)
    bids = [json.loads(line) for line in made.bids.read_text(encoding="utf-8").splitlines()]
    auctions = [json.loads(line) for line in made.auctions.read_text(encoding="utf-8").splitlines()]
    assert bids == nexmark.bids_of(0, 1000).to_pylist()
    persons = [json.loads(line) for line in made.persons.read_text(encoding="utf-8").splitlines()]
    assert auctions == nexmark.auctions_of(0, 1000).to_pylist()
    assert persons == nexmark.persons_of(0, 1000).to_pylist()
    assert [made.rows(name) for name in ("bids", "auctions", "persons")] == [920, 60, 20]


def test_sellers_and_bidders_are_persons() -> None:
    persons = set(nexmark.persons_of(0, EVENTS)["id"].to_pylist())
    ahead = set(range(max(persons) + 1, max(persons) + 1 + nexmark.LEAD))
    for people in (nexmark.auctions_of(0, EVENTS)["seller"], nexmark.bids_of(0, EVENTS)["bidder"]):
        assert set(people.to_pylist()) <= persons | ahead


def test_files_are_written_once(tmp_path: Path) -> None:
    made = nexmark.dataset(tmp_path, 1000)
    written = made.bids.stat().st_mtime_ns
    assert nexmark.dataset(tmp_path, 1000) == made
    assert made.bids.stat().st_mtime_ns == written
