"""Patterns of times: PostgreSQL's and Snowflake's ``YYYY-MM-DD HH24:MI``, BigQuery's ``%Y-%m-%d``.

Spark's patterns are Java's. A pattern is translated if Java has an equivalent of each field, and
refused otherwise.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.dialects.sites import Form, Site
    from headrace.dialects.tree import Found


_POSTGRES = {
    "YYYY": "yyyy", "YY": "yy", "MM": "MM", "Mon": "MMM", "FMMonth": "MMMM", "DDD": "DDD",
    "DD": "dd", "Dy": "EEE", "FMDay": "EEEE", "HH24": "HH", "HH12": "hh", "HH": "hh", "MI": "mm",
    "SS": "ss", "MS": "SSS", "US": "SSSSSS", "AM": "a", "PM": "a", "FF3": "SSS", "FF6": "SSSSSS",
}  # fmt: skip
"""Fields of PostgreSQL and Snowflake; a field comes before its prefixes."""

_STRFTIME = {
    "Y": "yyyy", "y": "yy", "m": "MM", "d": "dd", "H": "HH", "I": "hh", "M": "mm", "S": "ss",
    "F": "yyyy-MM-dd", "T": "HH:mm:ss", "R": "HH:mm", "D": "MM/dd/yy", "B": "MMMM", "b": "MMM",
    "A": "EEEE", "a": "EEE", "j": "DDD", "p": "a", "E3S": "ss.SSS", "E6S": "ss.SSSSSS", "%": "%",
}  # fmt: skip
_POSTGRES_FIELD = re.compile(
    "(?!SSSS)(?:" + "|".join(sorted(_POSTGRES, key=len, reverse=True)) + r')|"[^"]*"|[^A-Za-z"\']+'
)
_STRFTIME_FIELD = re.compile(r"%(E[36]S|[A-Za-z%])|[^%']+")
_NUMBERS = re.compile(r"(?=.*[09])[\s09.,$SDGLPRMIFV+-]*$")
_SHORT_YEAR = re.compile(r"(?<!y)yy(?!y)")
_ONLY_POSTGRES = re.compile(r"Y|HH24|HH12|MI")
_JAVA = "Use date_format(x, 'yyyy-MM-dd HH:mm:ss'), with Java's patterns."
_READS = "Use to_timestamp(x, 'yyyy-MM-dd HH:mm:ss'), with Java's patterns."


def java_of_postgres(pattern: str) -> str | None:
    """Return the pattern in Java's letters; None if a field has no equivalent."""
    return _translated(pattern, _POSTGRES_FIELD, _POSTGRES)


def java_of_strftime(pattern: str) -> str | None:
    """Return the pattern in Java's letters; None if a field has no equivalent."""
    return _translated(pattern, _STRFTIME_FIELD, _STRFTIME)


def _translated(pattern: str, field: re.Pattern[str], known: dict[str, str]) -> str | None:
    written, at = [], 0
    while at < len(pattern):
        found = field.match(pattern, at)
        if found is None or not found[0]:
            return None
        at = found.end()
        key = found[1] if field.groups and found[1] else found[0]
        java = known.get(key)
        if java is None:
            if field.groups and found[1]:
                return None
            text = key.strip('"') if key.startswith('"') else key
            java = "".join(f"'{c}'" if c.isalpha() or c in "[]{}#" else c for c in text)
        written.append(java)
    return "".join(written).replace("''", "")


def _quoted(pattern: str) -> str:
    return '"' + pattern.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _to_char(site: Site) -> Found | None:
    """``TO_CHAR(x, 'YYYY-MM-DD')``, ``TO_VARCHAR``."""
    if len(site.arguments) != 2:  # noqa: PLR2004
        return None
    pattern = site.literal(1)
    if pattern is None:
        raise site.refused(
            f"{site.name} with a pattern that is not a literal is not supported", _JAVA
        )
    if _NUMBERS.match(pattern):
        raise site.refused(
            f"{site.name} of a number is not supported",
            "Use format_number(x, '#,##0.00'), or lpad(CAST(x AS STRING), n).",
            "PostgreSQL adds a space for the sign, Spark does not.",
        )
    java = java_of_postgres(pattern)
    if java is not None:
        return site.written(f"date_format({{0}}, {_quoted(java)})")
    if java_of_postgres(pattern.upper()) == pattern:
        return site.written(f"date_format({{0}}, {_quoted(pattern)})")
    raise site.refused(
        f"{site.name} with this pattern is not supported",
        _JAVA,
        "PostgreSQL's and Snowflake's patterns mean something else than Java's, which Spark has.",
    )


def _reading(site: Site) -> Found | None:
    """``TO_TIMESTAMP(text, 'YYYY-MM-DD HH24:MI')``; patterns in Java's letters stay unchanged."""
    pattern = site.literal(1)
    if len(site.arguments) != 2 or pattern is None or not _ONLY_POSTGRES.search(pattern):  # noqa: PLR2004
        return None
    java = java_of_postgres(pattern)
    if java is None:
        raise site.refused(f"{site.name} with this pattern is not supported", _READS)
    _check_years(site, java)
    return site.written(f"{site.name.lower()}({{0}}, {_quoted(java)})")


def _formatting(site: Site) -> Found | None:
    """``FORMAT_TIMESTAMP('%Y', ts)`` of BigQuery, ``FORMAT_TIMESTAMP(ts, 'yyyy')`` of ksqlDB."""
    return _strftime(site, "date_format({1}, {pattern})", "date_format({0}, {1})", reads=False)


def _parsing(site: Site) -> Found | None:
    """``PARSE_TIMESTAMP('%Y', text)`` of BigQuery, ``PARSE_TIMESTAMP(text, 'yyyy')`` of ksqlDB.

    A text that is not a time is an error in BigQuery, and NULL in ksqlDB.
    """
    function = "to_date" if site.name.endswith("_DATE") else "to_timestamp"
    return _strftime(
        site, f"{function}({{1}}, {{pattern}})", f"try_{function}({{0}}, {{1}})", reads=True
    )


def _strftime(site: Site, by_percent: str, by_java: str, *, reads: bool) -> Found | None:
    hint = _READS if reads else _JAVA
    if len(site.arguments) != 2:  # noqa: PLR2004
        raise site.refused(f"{site.name} takes a time and a pattern here", hint)
    pattern = site.literal(0)
    if pattern is None or "%" not in pattern:
        return site.written(by_java)
    java = java_of_strftime(pattern)
    if java is None:
        raise site.refused(f"{site.name} with this pattern is not supported", hint)
    if reads:
        _check_years(site, java)
    return site.written(by_percent.replace("{pattern}", _quoted(java)))


def _check_years(site: Site, java: str) -> None:
    """Refuse two-digit years in patterns for parsing."""
    if _SHORT_YEAR.search(java):
        raise site.refused(
            f"{site.name} of years of two digits is not supported",
            "Use to_date(x, 'dd/MM/yy'), with Java's patterns, if all are from 2000 on.",
            "In PostgreSQL and BigQuery, 70 to 99 are of the last century; in Spark, of this one.",
        )


FORMATS: dict[str, Form] = {
    "TO_CHAR": _to_char,
    "TO_VARCHAR": _to_char,
    "TO_TIMESTAMP": _reading,
    "TO_DATE": _reading,
    "TRY_TO_TIMESTAMP": _reading,
    "TRY_TO_DATE": _reading,
    **dict.fromkeys(("FORMAT_TIMESTAMP", "FORMAT_DATE", "FORMAT_DATETIME"), _formatting),
    **dict.fromkeys(("PARSE_TIMESTAMP", "PARSE_DATE", "PARSE_DATETIME"), _parsing),
}
"""The functions of this module, by name."""
