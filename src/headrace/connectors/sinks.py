"""What the connectors of sinks share: what a writer is opened with, and the options of all."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from headrace.connectors.options import Alters, option, seconds
from headrace.errors import Code, HeadraceError
from headrace.runtime.deliveries import PART_ROWS, DeliverySettings

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from headrace.connectors.secrets import Secrets
    from headrace.types import Epoch, Schema

_MOST_AT_ONCE: Final = 1024


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What a sink's writer is opened with.

    ``directory`` is the data directory. The rows have ``schema``; ``key`` are the columns of a
    unique key of them, empty if none is known. ``identity`` tells the sink from all others, also
    those of other databases: the target records its epochs under it. With ``stops``, a refused row
    stops the sink; see :class:`headrace.runtime.ports.SinkWriter`. If the sink ``exists``, nothing
    is created for it. If its address changes, it is to find what it has written there: ``moved`` is
    the last epoch of that. ``roots`` are directories outside of that of the data, below which
    sinks may write.
    """

    directory: Path
    schema: Schema
    key: tuple[str, ...]
    secrets: Secrets
    identity: str
    stops: bool = False
    exists: bool = False
    moved: Epoch | None = None
    roots: tuple[Path, ...] = ()


def at_once(text: str) -> int:
    """Return how many rows are written at once."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= _MOST_AT_ONCE:
        raise HeadraceError(
            Code.INVALID,
            f"'{text}' rows cannot be written at once",
            hint=f"Write a whole number from 1 to {_MOST_AT_ONCE}.",
        )
    return int(text)


class Mode(StrEnum):
    """What a table in another system has."""

    UPSERT = "upsert"
    """The rows of the view, by key."""
    APPEND = "append"
    """Every change, with its operation and epoch: :data:`CHANGE_COLUMNS`."""


CHANGE_COLUMNS: Final = ("headrace_op", "headrace_weight", "headrace_epoch")
"""The columns of changes in a table of them, besides those of the view."""


class OnError(StrEnum):
    """What becomes of a row that the target refuses."""

    DEAD_LETTER = "dead_letter"
    """It is kept in the ledger, and delivery goes on."""
    STOP = "stop"
    """The sink stops until it is resumed."""


def number_of_rows(text: str) -> int:
    """Return a number of rows, from 1 on."""
    if not text.isascii() or not text.isdigit() or not int(text):
        raise HeadraceError(
            Code.INVALID, f"'{text}' is not a number of rows", hint="Write a whole number from 1."
        )
    return int(text)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options that every sink has: how it is given changes.

    ``key`` are the columns of a unique key, with commas; by default that of the view. ``snapshot``:
    whether the rows that there are come first. ``batch_rows`` are the rows that a writer is given
    at a time, ``max_rows_per_second`` the most it is given. ``interval``: seconds between two
    writes, whose epochs are joined; with 0, each epoch is written as it comes.
    """

    key: str | None = option(default=None, alters=Alters.NEVER)
    snapshot: bool = option(default=True, alters=Alters.NEVER)
    on_error: OnError = option(default=OnError.DEAD_LETTER, alters=Alters.FREELY)
    batch_rows: int = option(default=PART_ROWS, convert=number_of_rows, alters=Alters.FREELY)
    max_rows_per_second: int | None = option(
        default=None, convert=number_of_rows, alters=Alters.FREELY
    )
    interval: float = option(default=0.0, convert=seconds, alters=Alters.FREELY)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the key that is given."""
        return () if self.key is None else tuple(name.strip() for name in self.key.split(","))

    def settings(self, *, joins: bool) -> DeliverySettings:
        """Return the settings of the delivery; ``joins``: see there."""
        return DeliverySettings(
            part_rows=self.batch_rows,
            rows_per_second=self.max_rows_per_second,
            interval=self.interval,
            joins=joins,
            snapshot=self.snapshot,
            stops=self.on_error is OnError.STOP,
        )


def require_key(context: SinkContext, what: str) -> None:
    """Refuse rows without a known key; ``what`` is written by key.

    Raises:
        HeadraceError: ``invalid``, with how to have a key.
    """
    if not context.key:
        raise HeadraceError(
            Code.INVALID,
            f"{what} is written by key, and no unique key of the rows is known",
            hint=f"{declare_key()} A view with one row has a key if its query selects a constant,"
            " as in SELECT 1 AS id, and the option key of the sink names it.",
        )


def declare_key(columns: Sequence[str] = ("id",)) -> str:
    """Return how to have a key: for hints."""
    key = ", ".join(columns)
    return (
        f"Declare it, as in CREATE MATERIALIZED VIEW name (PRIMARY KEY ({key})) AS ..., which is"
        " checked in each epoch; or keep the key of what the query reads among its columns."
    )
