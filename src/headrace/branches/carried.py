"""What a branch has of the definitions of its parent: all that stays within the database.

A source would take messages from the parent's consumer group or slot, and a sink write to what the
parent writes to. So a stream or table that has a source becomes a plain one, into which rows are
inserted, and sinks to other systems are left out. A sink into a table of the database goes on,
unless the branch begins at an earlier epoch: how far it had been given changes by then is not
recorded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from headrace.catalog import Sink, Stream, Table, relation_of_json
from headrace.parts.naming import HIDDEN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.types import RelationId

LEFT_OUT_SETTINGS: Final = ("captures",)
"""The settings of a ledger that name what takes messages from other systems."""


@dataclass(frozen=True, slots=True)
class BranchDefinitions:
    """The relations that a branch does not have, and those that it has with another definition.

    ``without`` says for people what it is without.
    """

    dropped: tuple[RelationId, ...]
    changed: Mapping[RelationId, Mapping[str, Any]]
    without: tuple[str, ...]


def carried(
    definitions: Mapping[RelationId, dict[str, Any]], *, earlier: bool
) -> BranchDefinitions:
    """Return what becomes of the definitions of a database in a branch of it.

    ``earlier``: the branch does not begin at the last moment of the database.
    """
    dropped: list[RelationId] = []
    changed: dict[RelationId, Mapping[str, Any]] = {}
    without = []
    names = {id_: relation_of_json(value).name for id_, value in definitions.items()}
    for id_, value in definitions.items():
        match relation_of_json(value):
            case Sink() as sink:
                if sink.target is not None and not earlier:
                    continue
                dropped.append(id_)
                if names.get(sink.source, "").startswith(HIDDEN):
                    dropped.append(sink.source)
                without.append(f"sink {sink.name}")
            case (Stream() | Table()) as relation if relation.declaration.source:
                plain = replace(relation.declaration, source=())
                changed[id_] = replace(relation, declaration=plain).to_json()
                without.append(f"the source of {relation.kind} {relation.name}")
    return BranchDefinitions(tuple(dict.fromkeys(dropped)), changed, tuple(sorted(without)))
