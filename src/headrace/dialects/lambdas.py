"""Lambda functions as arguments: ksqlDB's ``x => x + 1``, Spark's ``x -> x + 1``.

In ksqlDB, ``FILTER``, ``REDUCE`` and ``TRANSFORM`` also take maps, with lambdas of a key and a
value. The number of parameters decides which: unlike Spark, ksqlDB never passes the index of an
element.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.dialects.tree import Found, Group, Node, is_group, split_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.dialects.sites import Form, Site
    from headrace.dialects.writer import Scope, Writer

LAMBDAS = frozenset(
    """
    AGGREGATE ARRAY_SORT EXISTS FILTER FORALL MAP_FILTER MAP_ZIP_WITH REDUCE TRANSFORM
    TRANSFORM_KEYS TRANSFORM_VALUES ZIP_WITH
    """.split()  # noqa: SIM905 - one word per line would be a screen of its own
)
"""The functions that take lambda functions as arguments."""


def makes_function(nodes: Sequence[Node], at: int, function: str) -> bool:
    """Return whether an arrow belongs to a lambda; ``->`` does not in a query that uses ``=>``."""
    if function not in LAMBDAS or at == 0 or (at > 1 and nodes[at - 2].text != ","):
        return False
    return nodes[at].text == "=>" or all(node.text != "=>" for node in nodes)


def parameter(writer: Writer, nodes: Sequence[Node], at: int, scope: Scope) -> Found | None:
    """``(x) => x + 1``: Spark allows parentheses only around several parameters."""
    group = nodes[at]
    if not isinstance(group, Group) or not is_group(group) or len(group.inside) != 1:
        return None
    if at + 1 >= len(nodes) or nodes[at + 1].text not in {"=>", "->"}:
        return None
    (name,) = group.inside
    if not name.word or not makes_function(nodes, at + 1, scope.function):
        return None
    return Found(at + 1, [writer.put(name.text, name, name)])


_FILTERED = "map_filter({0}, {1})"
_TRANSFORMED = (
    "map_from_arrays(map_values(transform_values({0}, {1})),"
    " map_values(transform_values({0}, {2})))"
)
_REDUCED = (
    "aggregate(map_entries({0}), {1}, ({2}, __e) -> map_values(transform_values("
    "map(__e.key, __e.value), ({3}, {4}) -> {5}))[0])"
)


def _over_map(site: Site) -> Found | None:
    """``FILTER(m, (k, v) => ...)``, ``TRANSFORM(m, (k, v) => ..., (k, v) => ...)``, ``REDUCE``."""
    counts = tuple(len(_parameters(argument)) for argument in site.arguments)
    match site.name, counts:
        case "FILTER", (0, 2):
            return site.written(_FILTERED)
        case "TRANSFORM", (0, 2, 2):
            return site.written(_TRANSFORMED)
        case "REDUCE", (0, 0, 3):
            given, start, function = site.arguments
            return site.written(_REDUCED, [given, start, *_parameters(function), function[2:]])
        case _:
            return None


def reduced(site: Site) -> Found | None:
    """``REDUCE(x, start, ...)`` of ksqlDB: the start where ``x`` is NULL, NULL where that is."""
    counts = tuple(len(_parameters(argument)) for argument in site.arguments)
    given = "CASE WHEN ({0}) IS NULL OR ({1}) IS NULL THEN {1} ELSE "
    if counts == (0, 0, 3):
        over, start, function = site.arguments
        parts = [over, start, *_parameters(function), function[2:]]
        return site.written(f"{given}{_REDUCED} END", parts)
    if counts == (0, 0, 2):
        return site.written(f"{given}aggregate({{0}}, {{1}}, {{2}}) END")
    return None


def _parameters(argument: Sequence[Node]) -> list[tuple[Node, ...]]:
    """Return the parameters of ``(k, v) => ...``; empty if an argument is anything else."""
    if len(argument) < 3 or argument[1].text != "=>" or not isinstance(argument[0], Group):  # noqa: PLR2004
        return []
    return split_at(argument[0].inside)


OVER_MAPS: dict[str, Form] = dict.fromkeys(("FILTER", "REDUCE", "TRANSFORM"), _over_map)
"""The functions over maps, by name."""
