"""What a lookup of a row needs, wherever it runs: a published state, and what a reader is sent."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from headrace.ledger import NO_EPOCH
from headrace.parts.access import Tokens
from headrace.runtime.differences import NOTHING, applied

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from headrace.parts.access import AccessToken
    from headrace.runtime.differences import Difference
    from headrace.runtime.published import Published
    from headrace.server.address import HostNames, Transport
    from headrace.server.limits import Limits
    from headrace.types import Epoch, Offset, RelationId


class Holding(Protocol):
    """Has a published state, whose runs are kept."""

    @property
    def directory(self) -> Path:
        """The data directory."""
        ...

    @property
    def published(self) -> Published:
        """The published state that lookups read."""
        ...

    @property
    def ends(self) -> Mapping[RelationId, Offset]:
        """The ends of all logs: what has arrived."""
        ...


@dataclass(frozen=True, slots=True)
class FirstMessage:
    """The first message to a reader process.

    ``socket`` is where the requests that it does not answer are passed on to. ``authenticate``:
    access tokens are needed also if there are none. ``path`` is where modules are found.
    """

    directory: Path
    socket: Path
    names: HostNames
    transport: Transport
    limits: Limits
    authenticate: bool
    path: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StateUpdate:
    """The changes since the last message; None for what did not change.

    The answer says that the state before is no longer read, and what was counted meanwhile, as
    :meth:`Tallies.taken` returns it.
    """

    change: Difference | None
    ends: Mapping[RelationId, Offset] | None
    tokens: Mapping[str, AccessToken] | None


@dataclass(slots=True)
class Held:
    """The state that a reader process was sent last, with the ends of logs and the tokens then.

    ``shown`` is the newest epoch that its clients have been shown: none is shown an older one then.
    """

    directory: Path
    published: Published = NOTHING
    ends: Mapping[RelationId, Offset] = field(default_factory=dict)
    tokens: Tokens = field(default_factory=Tokens)
    shown: Epoch = NO_EPOCH

    def update(self, update: StateUpdate) -> None:
        """Apply an update message to the held state."""
        if update.change is not None:
            self.published = applied(self.published, update.change)
        if update.ends is not None:
            self.ends = update.ends
        if update.tokens is not None:
            self.tokens.tokens = update.tokens

    def show(self, epoch: Epoch) -> None:
        """Record that clients were shown an epoch: none is shown an older one afterwards."""
        self.shown = max(self.shown, epoch)

    @property
    def is_behind(self) -> bool:
        """Whether clients have been shown a newer epoch than the one that is held."""
        return self.published.epoch < self.shown
