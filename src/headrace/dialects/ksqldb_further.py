"""Meanings of functions in queries over relations that were declared as in ksqlDB.

They extend those of :mod:`headrace.dialects.ksqldb`, which any query of ksqlDB has. The two are
separate because stored views are planned again from their text, and must keep their meaning:
earlier versions did not store how relations were declared.
"""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING

from headrace.dialects.calls import KSQL, CallTemplate, call_of
from headrace.dialects.lambdas import reduced

if TYPE_CHECKING:
    from headrace.dialects.sites import Form, Site
    from headrace.dialects.tree import Found

_LN = (
    "CASE WHEN ({1}) = 0 THEN CAST('-Infinity' AS DOUBLE)"
    " WHEN ({1}) < 0 THEN CAST('NaN' AS DOUBLE) ELSE ln({1}) END"
)
_LOGARITHM = (
    "CASE WHEN ({0}) IS NULL OR ({1}) IS NULL THEN NULL"
    " WHEN ({0}) <= 0 OR ({0}) = 1 THEN CAST('NaN' AS DOUBLE)"
    f" ELSE ({_LN}) / ln({{0}}) END"
)
_CAPITALS = (
    r"array_join(transform(regexp_extract_all(lower({0}), '\\S+\\s*', 0),"
    " __w -> concat(upper(left(__w, 1)), substring(__w, 2))), '')"
)
_WITHIN = "substring({0}, CASE WHEN ({1}) < -length({0}) THEN 1 ELSE ({1}) END, {2})"
_KEYS = "filter(array_distinct({0}), __k -> __k IS NOT NULL)"
_LAST = "get({1}, CAST(size({0}) - array_position(reverse({0}), __k) AS INT))"
_PAIRS = (
    f"CASE WHEN ({{1}}) IS NOT NULL THEN map_from_arrays({_KEYS},"
    f" transform({_KEYS}, __k -> {_LAST})) END"
)
_DIGITS = "concat(array_join(regexp_extract_all(hex({}), '..', 0), ' '), ' ')"
_BYTES = (
    "transform(CASE WHEN length({1}) = 0 THEN regexp_extract_all(hex({0}), '..', 0)"
    f" ELSE split({_DIGITS.format('{0}')}, {_DIGITS.format('{1}')}, -1) END,"
    " __h -> unhex(replace(__h, ' ', '')))"
)

FURTHER: tuple[CallTemplate, ...] = tuple(
    call_of(name, KSQL, template, note, arity)
    for name, template, note, arity in (
        ("AS_MAP", _PAIRS, "NULL for keys beyond the values; the last value of a key", None),
        ("INITCAP", _CAPITALS, "words between blanks of any kind", None),
        ("LOG", _LOGARITHM, "of 0 and less, too", None),
        ("SIGN", "CAST(sign({0}) AS INT)", "an integer", None),
        ("SUBSTRING", _WITHIN, "from the beginning, where the position is before it", None),
        ("UNIX_TIMESTAMP", "unix_millis(now())", "milliseconds; the clock", 0),
    )
)
"""Functions with another meaning in Spark, and their translation."""


def _rounded(site: Site) -> Found | None:
    """``ROUND(x, n)``: half up, toward positive infinity, for negative numbers too."""
    if len(site.arguments) != 2:  # noqa: PLR2004
        return None
    sign, *digits = ([] if site.arguments[1][0].text == "-" else [""]) + [
        node.text for node in site.arguments[1]
    ]
    if len(digits) != 1 or not digits[0].isdecimal() or len(digits[0]) > 2:  # noqa: PLR2004
        raise site.refused(
            "ROUND to a number of digits that is not a literal is not supported",
            "Write ROUND(x, 2).",
        )
    places = int(sign + digits[0])
    less = f"{Decimal(4).scaleb(-places - 2):f}"  # less than half of the digit after the last
    return site.written(
        f"CASE WHEN ({{0}}) < 0 AND round({{0}}, {places + 1}) = ({{0}})"
        f" THEN round(({{0}}) + {less}, {places}) ELSE round({{0}}, {places}) END"
    )


def _from_zero(site: Site) -> Found | None:
    """``SUM(x)`` and ``AVG(x)``: 0 if all values are NULL."""
    if len(site.arguments) != 1 or site.over:
        return None
    return site.written(f"zeroifnull({site.name.lower()}({{0}}){{filter}})")


def _split(site: Site) -> Found | None:
    """``SPLIT(x, TO_BYTES(...))``: an array of bytes."""
    if len(site.arguments) != 2 or site.arguments[1][0].word != "TO_BYTES":  # noqa: PLR2004
        return None
    return site.written(_BYTES)


AGGREGATES = frozenset({"AVG", "SUM"})
FURTHER_FORMS: dict[str, Form] = {
    **dict.fromkeys(AGGREGATES, _from_zero),
    "REDUCE": reduced,
    "ROUND": _rounded,
    "SPLIT": _split,
}
"""Those functions whose translation needs more than a template."""

_CALLS = {(each.name, each.arguments): each for each in FURTHER}


def further(site: Site) -> Found | None:
    """Return the translation of a call; None if it has no such meaning."""
    form = FURTHER_FORMS.get(site.name)
    found = form(site) if form is not None else None
    if found is not None:
        return found
    call = _CALLS.get((site.name, len(site.arguments)))
    return site.written(call.template) if call is not None else None
