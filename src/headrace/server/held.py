"""The published state that lookups read, and the messages that update it in reader processes."""

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
    from headrace.runtime.differences import StateDifference
    from headrace.runtime.published import Published
    from headrace.server.address import HostNames, Transport
    from headrace.server.limits import Limits
    from headrace.spine.mounts import Mounted
    from headrace.types import Epoch, Offset, RelationId


class Holding(Protocol):
    """A holder of a published state, which keeps the state's runs from being collected."""

    @property
    def directory(self) -> Path:
        """The data directory."""
        ...

    @property
    def published(self) -> Published:
        """The state that lookups read."""
        ...

    @property
    def ends(self) -> Mapping[RelationId, Offset]:
        """The end of each log, after all rows that have arrived."""
        ...


@dataclass(frozen=True, slots=True)
class FirstMessage:
    """The first message to a reader process.

    ``socket`` receives the requests that the process does not answer. ``authenticate``: access
    tokens are required even before any exist. ``path`` is Python's module search path. ``mounted``
    says whether the data directory is the cache of a store.
    """

    directory: Path
    socket: Path
    names: HostNames
    transport: Transport
    limits: Limits
    authenticate: bool
    path: tuple[str, ...]
    mounted: Mounted | None = None


@dataclass(frozen=True, slots=True)
class StateUpdate:
    """The changes since the last message; None for what did not change.

    The answer means that the previous state is no longer read. It has the requests counted since
    the last answer, as :meth:`Tallies.taken` returns them.
    """

    change: StateDifference | None
    ends: Mapping[RelationId, Offset] | None
    tokens: Mapping[str, AccessToken] | None


@dataclass(slots=True)
class Held:
    """A reader process's latest state, with the ends of logs and the access tokens at that time.

    ``shown`` is the newest epoch that clients have seen; they are never shown an older one.
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

    def replace(
        self,
        published: Published,
        ends: Mapping[RelationId, Offset],
        tokens: Mapping[str, AccessToken],
    ) -> None:
        """Hold another state."""
        self.published, self.ends, self.tokens.tokens = published, ends, tokens

    def show(self, epoch: Epoch) -> None:
        """Record that clients have seen an epoch: older ones are not shown afterwards."""
        self.shown = max(self.shown, epoch)

    @property
    def is_behind(self) -> bool:
        """Whether clients have seen a newer epoch than the held one."""
        return self.published.epoch < self.shown
