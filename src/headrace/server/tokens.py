"""Tokens: what a client has seen or written, so that a later read can be required to show it.

The text of a token is the epoch, ``7``, and after ``@`` the ends of the logs that the client wrote
to,
``7@3:1200,4:88``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.types import Epoch, Offset, RelationId

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.runtime.published import Published

_WRITTEN = re.compile(r"(?P<epoch>\d{1,18})(@(?P<ends>\d{1,18}:\d{1,18}(,\d{1,18}:\d{1,18})*))?")


@dataclass(frozen=True, slots=True)
class StateToken:
    """An epoch, and the ends of logs by relation id."""

    epoch: Epoch
    ends: Mapping[RelationId, Offset] = field(default_factory=dict)

    @classmethod
    def of(cls, text: str) -> StateToken:
        """Parse a token; a number alone is an epoch.

        Raises:
            HeadraceError: ``invalid`` for any other text.
        """
        found = _WRITTEN.fullmatch(text)
        if found is None:
            raise HeadraceError(
                Code.INVALID,
                "this is not a token",
                hint="Give the token of an earlier answer, or the number of an epoch.",
            )
        pairs = (pair.split(":") for pair in (found["ends"] or "").split(",") if pair)
        ends = {RelationId(int(relation)): Offset(int(end)) for relation, end in pairs}
        return cls(Epoch(int(found["epoch"])), ends)

    def __str__(self) -> str:
        """Return the text that :meth:`of` reads."""
        ends = ",".join(f"{relation}:{end}" for relation, end in sorted(self.ends.items()))
        return f"{self.epoch}@{ends}" if ends else str(self.epoch)

    def shown_by(self, state: Published) -> bool:
        """Whether a state includes the epoch and all writes of the token."""
        return state.epoch >= self.epoch and state.has_read(self.ends)
