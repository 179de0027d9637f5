"""Generators, which return a row for each element of a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.catalyst.scala import items, kind_of, part

if TYPE_CHECKING:
    from headrace.catalyst.pieces import Pieces

_GENERATORS = (
    "Explode",
    "Inline",
    "JsonTuple",
    "PosExplode",
    "ReplicateRows",
    "Stack",
    "VariantExplode",
)


def generate_alone(pieces: Pieces, node: Any) -> Any:
    """Return a ``Generate`` that drops no columns but those of its input.

    Dropped columns are given by position, and Spark does not always adapt the positions when it
    removes columns. A column added after those of the input, such as the weight, would be dropped.

    Raises:
        HeadraceError: ``unsupported`` if the generator is not known.
    """
    generator = node.generator()
    name = kind_of(generator)
    if name not in _GENERATORS:
        hint = "Use explode, posexplode, inline, stack, json_tuple or variant_explode."
        raise pieces.unsupported(f"the generator {name} is not supported", hint, generator)
    given, width = items(node.unrequiredChildIndex()), node.child().output().length()
    own = [position for position in given if position < width]
    if len(own) == len(given):
        return node
    others = [part(node, position) for position in range(2, node.productArity())]
    return pieces.scala.logical("Generate", generator, pieces.scala.seq(own), *others)
