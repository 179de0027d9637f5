"""``AS OF``: the epoch or the time at which is read; ``FOR CHANGES``: a range of epochs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.types import Epoch


@dataclass(frozen=True, slots=True)
class AsOfEpoch:
    """``AS OF EPOCH n``: the contents at a committed epoch."""

    epoch: Epoch
    span: Span


@dataclass(frozen=True, slots=True)
class AsOfTimestamp:
    """``AS OF TIMESTAMP '...'``: the contents at the last epoch committed by that time."""

    timestamp: str
    span: Span


AsOf: TypeAlias = AsOfEpoch | AsOfTimestamp


@dataclass(frozen=True, slots=True)
class ChangesBetween:
    """``FOR CHANGES BETWEEN EPOCH a AND b``: the changes after ``after``, up to and with ``upto``.

    ``upto`` is None for the epoch at which the query reads.
    """

    after: AsOf
    upto: AsOf | None
    span: Span
