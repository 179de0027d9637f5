"""What the command needs of a database: the part of the public API that it calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa


class Progress(Protocol):
    """How far a long statement has come; ``total`` is None where it is not known."""

    @property
    def what(self) -> str:
        """What is being done, as the bar is labelled."""

    @property
    def done(self) -> int:
        """How much is done, in ``unit``."""

    @property
    def total(self) -> int | None:
        """How much there is to do, in ``unit``."""

    @property
    def unit(self) -> str:
        """Either ``rows`` or ``bytes``."""

    @property
    def rejected(self) -> int:
        """How many rows were refused so far."""


class Change(Protocol):
    """A row that entered or left an answer in one epoch."""

    @property
    def epoch(self) -> int:
        """The epoch that made it."""

    @property
    def operation(self) -> str:
        """One of ``+I``, ``-U``, ``+U``, ``-D``."""

    @property
    def weight(self) -> int:
        """How many copies of the row entered, or left if negative."""

    @property
    def row(self) -> dict[str, Any]:
        """The row's values by column."""


class Result(Protocol):
    """What one statement answers: rows, a message, or changes that keep coming."""

    @property
    def kind(self) -> str:
        """One of ``rows``, ``done``, ``changes``."""

    @property
    def message(self) -> str | None:
        """What was done, such as ``created stream readings``."""

    @property
    def epoch(self) -> int | None:
        """The epoch that the answer is of."""

    def to_arrow(self) -> pa.Table:
        """Return the rows."""

    def __iter__(self) -> Iterator[Any]:
        """Iterate over tuples, or over changes until closed."""

    def close(self) -> None:
        """End the changes."""


class Database(Protocol):
    """An open data directory."""

    def script(
        self, text: str, *, file: str | None, progress: Callable[[Progress], None] | None
    ) -> Iterator[Result]:
        """Run statements one by one and yield their results as they finish."""

    def relations(self) -> Sequence[tuple[str, str]]:
        """Return kind and name of each stream, table and view."""

    def verify(self, name: str | None = None) -> Result:
        """Compare views with their queries over history."""

    def cancel(self) -> None:
        """Stop what runs now; its statement fails."""

    def close(self) -> None:
        """Release the data directory."""


class Connect(Protocol):
    """Opens a database: what ``headrace.connect`` does."""

    def __call__(self, directory: Path) -> Database:
        """Open the data directory."""
