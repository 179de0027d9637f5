"""Shared by all sink connectors: the context of a writer, common options, and keys."""

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
    """The arguments for opening a sink's writer.

    ``directory`` is the data directory, ``schema`` that of the rows, and ``key`` the columns of
    their unique key, empty if it is unknown. ``identity`` is unique among the sinks of all
    databases: the target records epochs under it. With ``stops``, a refused row stops the sink; see
    :class:`headrace.runtime.ports.SinkWriter`. If the sink ``exists``, nothing is created for it.
    ``moved``, after a change of address, is the last epoch that the target must already have.
    ``roots`` are directories outside the data directory below which sinks may write. With
    ``tries``, it is only asked whether the sink could be created: nothing is created for it, and
    with ``offline`` no other system is reached.
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
    tries: bool = False
    offline: bool = False


def at_once(text: str) -> int:
    """Parse how many rows are written concurrently."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= _MOST_AT_ONCE:
        raise HeadraceError(
            Code.INVALID,
            f"'{text}' rows cannot be written at once",
            hint=f"Write a whole number from 1 to {_MOST_AT_ONCE}.",
        )
    return int(text)


class TableContents(StrEnum):
    """What a table in another system contains."""

    UPSERT = "upsert"
    """The current rows of the view, by key."""
    APPEND = "append"
    """All changes of the view, with the columns :data:`headrace.serving.CHANGE_COLUMNS`."""


class RefusalPolicy(StrEnum):
    """What happens when the target refuses a row."""

    DEAD_LETTER = "dead_letter"
    """The row is stored in the ledger, and delivery goes on."""
    STOP = "stop"
    """The sink stops until it is resumed."""


def number_of_rows(text: str) -> int:
    """Parse a number of rows, at least 1."""
    if not text.isascii() or not text.isdigit() or not int(text):
        raise HeadraceError(
            Code.INVALID, f"'{text}' is not a number of rows", hint="Write a whole number from 1."
        )
    return int(text)


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The options of every sink: how changes are delivered to it.

    ``key`` are the columns of a unique key, separated by commas; by default the view's.
    ``snapshot``: whether the view's existing rows are written first. ``batch_rows`` is the most
    rows in a part. ``interval`` is the time between two writes in seconds, whose epochs are joined;
    with 0, each epoch is written at once.
    """

    key: str | None = option(default=None, alters=Alters.NEVER)
    snapshot: bool = option(default=True, alters=Alters.NEVER)
    on_error: RefusalPolicy = option(default=RefusalPolicy.DEAD_LETTER, alters=Alters.FREELY)
    batch_rows: int = option(default=PART_ROWS, convert=number_of_rows, alters=Alters.FREELY)
    max_rows_per_second: int | None = option(
        default=None, convert=number_of_rows, alters=Alters.FREELY
    )
    interval: float = option(default=0.0, convert=seconds, alters=Alters.FREELY)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns in option ``key``; empty without it."""
        return () if self.key is None else tuple(name.strip() for name in self.key.split(","))

    def settings(self, *, joins: bool) -> DeliverySettings:
        """Return the settings of the delivery; see :class:`DeliverySettings` for ``joins``."""
        return DeliverySettings(
            part_rows=self.batch_rows,
            rows_per_second=self.max_rows_per_second,
            interval=self.interval,
            joins=joins,
            snapshot=self.snapshot,
            stops=self.on_error is RefusalPolicy.STOP,
        )


def require_key(context: SinkContext, what: str) -> None:
    """Refuse rows without a known key; ``what`` names the sink that needs one.

    Raises:
        HeadraceError: ``invalid``, with a hint on how to declare a key.
    """
    if not context.key:
        raise HeadraceError(
            Code.INVALID,
            f"{what} is written by key, and no unique key of the rows is known",
            hint=f"{declare_key()} A view with one row has a key if its query selects a constant,"
            " as in SELECT 1 AS id, and the option key of the sink names it.",
        )


def declare_key(columns: Sequence[str] = ("id",)) -> str:
    """Return a hint on how to declare a key."""
    key = ", ".join(columns)
    return (
        f"Declare it, as in CREATE MATERIALIZED VIEW name (PRIMARY KEY ({key})) AS ..., which is"
        " checked in each epoch; or keep the key of what the query reads among its columns."
    )
