"""Persons, auctions and bids like those of the Nexmark generator, as files of JSON lines.

Proportions, skew and field sizes are those that Nexmark's generator is published with (Apache
Beam, and ``nexmark-flink``): of 50 events in a row the first is a person, the next 3 are auctions
and 46 are bids; half of the bids go to the hot auction of the moment and the others to the last
hundred auctions or the ten to come; three quarters come from the hot bidder.

An event depends on the seed and its number alone, never on how many events are asked for.

*Lean* files have only the fields that the streams of ``throughput.py`` declare: what a producer
that is not padded to a size would send.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Callable

DEFAULT_SEED: Final = 20250101
CHUNK_EVENTS: Final = 100_000
"""Random numbers are drawn afresh for every so many events."""

PERSONS, AUCTIONS, BIDS = 1, 3, 46
CYCLE: Final = PERSONS + AUCTIONS + BIDS

HOT_AUCTION_SPACING: Final = 100
HOT_PERSON_SPACING: Final = 100
HOT_AUCTION_RATIO: Final = 2
HOT_BIDDER_RATIO: Final = 4
HOT_SELLER_RATIO: Final = 4
IN_FLIGHT_AUCTIONS: Final = 100
ACTIVE_PERSONS: Final = 1000
LEAD: Final = 10
FIRST_ID: Final = 1000
FIRST_CATEGORY: Final = 10
CATEGORIES: Final = 5
CHANNELS: Final = 10_000

BASE_TIME: Final = 1_735_689_600_000
"""The first event's time: milliseconds since 1970, the beginning of 2025 in UTC."""
EVENTS_PER_SECOND: Final = 10_000

LEAN_BIDS: Final = ("auction", "bidder", "price", "dateTime")
LEAN_AUCTIONS: Final = ("id", "seller", "category", "initialBid")
LEAN_PERSONS: Final = ("id", "name", "city", "state")

_VERSION: Final = 2
_HOT_CHANNELS: Final = ("Google", "Facebook", "Baidu", "Apple")
_LETTERS: Final = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz ", np.uint8)
_FIRST_NAMES: Final = (
    *("Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter"),
    "Walter",
)
_LAST_NAMES: Final = (
    *("Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"),
)
_PLACES: Final = (
    *(("Phoenix", "AZ"), ("Los Angeles", "CA"), ("San Francisco", "CA"), ("Boise", "ID")),
    *(("Portland", "OR"), ("Bend", "OR"), ("Redmond", "WA"), ("Seattle", "WA")),
    *(("Kent", "WA"), ("Cheyenne", "WY")),
)


@dataclass(frozen=True, slots=True)
class Dataset:
    """Three files, and how many rows are in each."""

    bids: Path
    auctions: Path
    persons: Path
    events: int
    bid_rows: int
    auction_rows: int
    person_rows: int
    bid_bytes: int
    auction_bytes: int
    person_bytes: int

    @property
    def files(self) -> tuple[Path, Path, Path]:
        return self.bids, self.auctions, self.persons

    def rows(self, relation: str) -> int:
        """Return the rows of ``bids``, ``auctions`` or ``persons``."""
        return int(getattr(self, f"{relation.removesuffix('s')}_rows"))

    def bytes(self, relation: str) -> int:
        """Return the size of the file of ``bids``, ``auctions`` or ``persons``."""
        return int(getattr(self, f"{relation.removesuffix('s')}_bytes"))


def dataset(
    directory: Path, events: int, seed: int = DEFAULT_SEED, *, lean: bool = False
) -> Dataset:
    """Return the files of the first ``events`` events, writing them where they are missing."""
    stem = f"v{_VERSION}-{events}-{seed}{'-lean' if lean else ''}"
    note = directory / f"{stem}.json"
    if note.exists():
        found = json.loads(note.read_text(encoding="utf-8"))
        known = Dataset(**{**found, **{name: Path(found[name]) for name in _RELATIONS}})
        if all(file.exists() for file in known.files):
            return known
    directory.mkdir(parents=True, exist_ok=True)
    made: dict[str, Any] = {"events": events}
    for name, (rows_of, fields) in _RELATIONS.items():
        path, one = directory / f"{name}-{stem}.jsonl", name.removesuffix("s")
        made[f"{one}_rows"] = _write(path, events, seed, rows_of, fields if lean else ())
        made |= {name: path.resolve(), f"{one}_bytes": path.stat().st_size}
    note.write_text(json.dumps(made, default=str), encoding="utf-8")
    return Dataset(**made)


def bids_of(chunk: int, events: int, seed: int = DEFAULT_SEED) -> pa.Table:
    """Return the bids among the first ``events`` events of a chunk."""
    number = _numbers(chunk, events, lambda place: place >= PERSONS + AUCTIONS)
    draws = _Draws(seed, chunk, BIDS, len(number))
    last_auction, last_person = _last_auction(number), _last_person(number)
    auction = np.where(
        draws.below(HOT_AUCTION_RATIO) > 0,
        last_auction // HOT_AUCTION_SPACING * HOT_AUCTION_SPACING,
        _near_auction(last_auction, draws.fractions()),
    )
    bidder = np.where(
        draws.below(HOT_BIDDER_RATIO) > 0,
        last_person // HOT_PERSON_SPACING * HOT_PERSON_SPACING + 1,
        _near_person(last_person, draws.fractions()),
    )
    channel = np.where(
        draws.below(2) > 0,
        draws.below(len(_HOT_CHANNELS)),
        len(_HOT_CHANNELS) + draws.below(CHANNELS),
    )
    names, urls = _channels(seed)
    return pa.table(
        {
            "auction": auction + FIRST_ID,
            "bidder": bidder + FIRST_ID,
            "price": _prices(draws.fractions()),
            "channel": names.take(pa.array(channel)),
            "url": urls.take(pa.array(channel)),
            "dateTime": _times(number),
            "extra": draws.texts(54, 28),
        }
    )


def auctions_of(chunk: int, events: int, seed: int = DEFAULT_SEED) -> pa.Table:
    """Return the auctions among the first ``events`` events of a chunk."""
    number = _numbers(chunk, events, lambda place: (place >= PERSONS) & (place < CYCLE - BIDS))
    draws = _Draws(seed, chunk, AUCTIONS, len(number))
    last_person = _last_person(number)
    seller = np.where(
        draws.below(HOT_SELLER_RATIO) > 0,
        last_person // HOT_PERSON_SPACING * HOT_PERSON_SPACING,
        _near_person(last_person, draws.fractions()),
    )
    initial = _prices(draws.fractions())
    horizon = 2 * IN_FLIGHT_AUCTIONS * CYCLE // AUCTIONS * 1000 // EVENTS_PER_SECOND
    return pa.table(
        {
            "id": _last_auction(number) + FIRST_ID,
            "itemName": draws.texts(3, 17),
            "description": draws.texts(3, 97),
            "initialBid": initial,
            "reserve": initial + _prices(draws.fractions()),
            "dateTime": _times(number),
            "expires": _times(number, 1 + draws.below(horizon)),
            "seller": seller + FIRST_ID,
            "category": FIRST_CATEGORY + draws.below(CATEGORIES),
            "extra": draws.texts(308, 154),
        }
    )


def persons_of(chunk: int, events: int, seed: int = DEFAULT_SEED) -> pa.Table:
    """Return the persons among the first ``events`` events of a chunk."""
    number = _numbers(chunk, events, lambda place: place < PERSONS)
    draws = _Draws(seed, chunk, PERSONS, len(number))
    first, last = draws.of(_FIRST_NAMES), draws.of(_LAST_NAMES)
    place = draws.below(len(_PLACES))
    cities, states = (pa.array(names) for names in zip(*_PLACES, strict=True))
    card = pa.array(draws.below(10**16)).cast(pa.string())
    return pa.table(
        {
            "id": _last_person(number) + FIRST_ID,
            "name": pc.binary_join_element_wise(first, last, " "),
            "emailAddress": pc.binary_join_element_wise(draws.texts(7, 0), "@example.com", ""),
            "creditCard": pc.utf8_lpad(card, 16, "0"),
            "city": cities.take(pa.array(place)),
            "state": states.take(pa.array(place)),
            "dateTime": _times(number),
            "extra": draws.texts(60, 30),
        }
    )


def json_lines(table: pa.Table) -> bytes:
    """Return the rows as lines of JSON. Texts are taken to need no escape."""
    parts: list[pa.Array | str] = []
    open_text = "{"
    for field, column in zip(table.schema, table.columns, strict=True):
        quote = '"' if pa.types.is_string(field.type) else ""
        values = column.combine_chunks()
        parts += [f'{open_text}"{field.name}":{quote}', values.cast(pa.string())]
        open_text = f"{quote},"
    parts.append(open_text.replace(",", "}\n"))
    lines = pc.binary_join_element_wise(*parts, "")
    _, offsets, data = lines.buffers()
    return data.to_pybytes()[: int(np.frombuffer(offsets, np.int32)[len(lines)])]


def _write(
    path: Path,
    events: int,
    seed: int,
    rows_of: Callable[..., pa.Table],
    fields: tuple[str, ...] = (),
) -> int:
    fresh, rows = path.with_suffix(".part"), 0
    with fresh.open("wb") as file:
        for chunk in range(-(-events // CHUNK_EVENTS)):
            table = rows_of(chunk, min(CHUNK_EVENTS, events - chunk * CHUNK_EVENTS), seed)
            file.write(json_lines(table.select(list(fields)) if fields else table))
            rows += table.num_rows
    fresh.replace(path)
    return rows


# -- numbers -----------------------------------------------------------------------------------


def _numbers(chunk: int, events: int, wanted: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    number = np.arange(chunk * CHUNK_EVENTS, chunk * CHUNK_EVENTS + events)
    return number[wanted(number % CYCLE)]


class _Draws:
    """Random columns, each from a generator of its own: a shorter chunk begins like a longer."""

    def __init__(self, seed: int, chunk: int, table: int, rows: int) -> None:
        self._entropy = [seed, chunk, table]
        self._rows = rows
        self._columns = 0

    def _next(self) -> np.random.Generator:
        self._columns += 1
        return np.random.default_rng([*self._entropy, self._columns])

    def fractions(self) -> np.ndarray:
        return self._next().random(self._rows)

    def below(self, limit: int) -> np.ndarray:
        return self._next().integers(0, limit, self._rows)

    def of(self, names: tuple[str, ...]) -> pa.Array:
        return pa.array(names).take(pa.array(self.below(len(names))))

    def texts(self, shortest: int, spread: int) -> pa.Array:
        """Return texts of ``shortest`` letters and up to ``spread`` more."""
        lengths = shortest + self.below(spread + 1)
        ends = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        letters = _LETTERS[self._next().integers(0, len(_LETTERS), int(ends[-1]), np.uint8)]
        return pa.StringArray.from_buffers(self._rows, pa.py_buffer(ends), pa.py_buffer(letters))


def _last_auction(number: np.ndarray) -> np.ndarray:
    """Return the number of the newest auction at each event, counted from 0."""
    cycle, place = np.divmod(number, CYCLE)
    return cycle * AUCTIONS + np.clip(place - PERSONS, -1, AUCTIONS - 1)


def _last_person(number: np.ndarray) -> np.ndarray:
    return number // CYCLE * PERSONS


def _near_auction(last: np.ndarray, fraction: np.ndarray) -> np.ndarray:
    first = np.maximum(last - IN_FLIGHT_AUCTIONS, 0)
    return first + (fraction * (last - first + 1 + LEAD)).astype(np.int64)


def _near_person(last: np.ndarray, fraction: np.ndarray) -> np.ndarray:
    persons = last + 1
    active = np.minimum(persons, ACTIVE_PERSONS)
    return persons - active + (fraction * (active + LEAD)).astype(np.int64)


def _prices(fraction: np.ndarray) -> np.ndarray:
    """Return cents, spread evenly on a scale of logarithms from 1 to 1,000,000."""
    return np.rint(10 ** (fraction * 6) * 100).astype(np.int64)


# -- texts -------------------------------------------------------------------------------------


def _times(number: np.ndarray, later: np.ndarray | int = 0) -> pa.Array:
    """Return ISO 8601 texts with milliseconds, in UTC."""
    milliseconds = BASE_TIME + number * 1000 // EVENTS_PER_SECOND + later
    texts = pa.array(milliseconds).cast(pa.timestamp("ms")).cast(pa.string())
    dated = pc.utf8_replace_slice(texts, 10, 11, "T")
    return pc.binary_join_element_wise(dated, "Z", "")


def _channels(seed: int) -> tuple[pa.Array, pa.Array]:
    """Return the names and addresses of all channels, the hot ones first."""
    names = [*_HOT_CHANNELS, *(f"channel-{i}" for i in range(CHANNELS))]
    rng = np.random.default_rng([seed, 0])
    letters = rng.integers(ord("a"), ord("z") + 1, (len(names), 15), dtype=np.uint8)
    urls = []
    for i, row in enumerate(letters):
        a, b, c = (row[k : k + 5].tobytes().decode() for k in (0, 5, 10))
        tail = "" if i < len(_HOT_CHANNELS) else f"&channel_id={i - len(_HOT_CHANNELS)}"
        urls.append(f"https://www.nexmark.com/{a}/{b}/{c}/item.htm?query=1{tail}")
    return pa.array(names), pa.array(urls)


_RELATIONS: Final[dict[str, tuple[Callable[..., pa.Table], tuple[str, ...]]]] = {
    "bids": (bids_of, LEAN_BIDS),
    "auctions": (auctions_of, LEAN_AUCTIONS),
    "persons": (persons_of, LEAN_PERSONS),
}
"""What makes each relation's rows, and its fields in lean files."""
