"""Waiting until epochs have read what a statement must see."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from headrace.parts.instance import Instance
    from headrace.runtime.published import Published
    from headrace.types import Epoch, Offset, RelationId


def settled(
    instance: Instance,
    reads: Iterable[RelationId],
    wanted: Mapping[RelationId, Offset] | None = None,
) -> Published:
    """Return a state in which some relations have all changes before the wanted offsets.

    The default is the present ends of the logs of everything that they read. Rows that are due
    by now have also entered or left them.
    """
    below = instance.catalog.below(reads)
    ends = instance.ledger.log_ends() if wanted is None else wanted
    return instance.pump.settle({id_: end for id_, end in ends.items() if id_ in below}, below)


def settle_all(instance: Instance) -> Epoch:
    """Make epochs, and deliver all changes so far to sinks; failing sinks are skipped.

    One sink may write what another reads, so there are as many rounds as there are sinks.
    """
    epoch = instance.pump.settle().epoch
    for _ in tuple(instance.deliveries.by_sink):
        if not instance.deliveries.advance() and not instance.loop.pending():
            break
        epoch = instance.pump.settle().epoch
    return epoch
