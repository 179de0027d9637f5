"""Messages as changes of rows: the interface between message sources and message formats.

A plain format has one row per message. In an upsert format, a message replaces the row of its key,
and one without a value deletes it. Formats of captured changes have the rows before and after.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from headrace.formats.line_values import LineValues
from headrace.formats.messages import JsonMessages
from headrace.ledger import Reject

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa
    from numpy.typing import NDArray

    from headrace.formats.messages import MessageDecoder


@dataclass(frozen=True, slots=True)
class DecodedChanges:
    """The changes decoded from some messages, in order, and the rejected messages.

    ``rows`` have ``weights``, and ``unchanged`` cells; before each row index in ``emptied``, all
    rows of the table are deleted: as in :class:`headrace.runtime.ports.Part`. ``messages`` has the
    message index of each row. The ``line`` of a reject is its message index.
    """

    rows: pa.Table
    weights: NDArray[np.int64]
    messages: NDArray[np.int64]
    rejects: tuple[Reject, ...] = ()
    unchanged: Mapping[str, pa.BooleanArray] = field(default_factory=dict)
    emptied: tuple[int, ...] = ()


class ChangeDecoder(Protocol):
    """Decodes the keys and values of messages into changes of rows.

    Keys may be given as absent if it is not one that ``reads_keys``.
    """

    @property
    def reads_keys(self) -> bool:
        """Whether changes depend on the keys of messages."""
        ...

    @property
    def reads_lines(self) -> bool:
        """Whether values are best given as :class:`headrace.formats.line_values.LineValues`."""
        ...

    def changes(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None]
    ) -> DecodedChanges:
        """Return the changes of messages, given as keys and values; both may be absent."""
        ...

    def transaction(self, value: bytes) -> str | None:
        """Return the source transaction that may continue after a message; None if unknown."""
        ...


@dataclass(frozen=True, slots=True)
class Appended:
    """Decodes each message as an inserted row; a message without a value is a reject."""

    decoder: MessageDecoder
    reads_keys: ClassVar[bool] = False

    @property
    def reads_lines(self) -> bool:
        """Whether the decoder joins values to lines of JSON."""
        return isinstance(self.decoder, JsonMessages)

    def changes(
        self,
        keys: Sequence[bytes | None],  # noqa: ARG002 - the rows are in the values
        values: Sequence[bytes | None],
    ) -> DecodedChanges:
        """Return a row for each value that fits."""
        return appended(self.decoder, values, "a message without a value")

    def transaction(self, value: bytes) -> str | None:  # noqa: ARG002 - no format says it
        """Return None: messages are independent of each other."""
        return None


def appended(
    decoder: MessageDecoder, values: Sequence[bytes | None], without: str | None
) -> DecodedChanges:
    """Return a row for each value; messages without one are rejects with the reason, or skipped."""
    present = np.arange(len(values))
    given: Sequence[bytes] = (
        values
        if isinstance(values, LineValues)
        else [value for value in values if value is not None]
    )
    if len(given) < len(values):
        present = np.array([at for at, value in enumerate(values) if value is not None], np.int64)
    decoded = decoder.decode(given)
    rejects = [
        Reject(r.file, int(present[r.line]), r.column, r.reason, r.raw) for r in decoded.rejects
    ]
    if without is not None and len(given) < len(values):
        absent = (at for at, value in enumerate(values) if value is None)
        rejects += [Reject("", at, None, without, "") for at in absent]
    messages = present[decoded.kept]
    return DecodedChanges(decoded.rows, np.ones(len(messages), np.int64), messages, tuple(rejects))
