r"""Parses the text of PostgreSQL's arrays: ``{1,NULL,"a \"quoted\" text"}``."""

from __future__ import annotations

import re
from typing import Final

_ELEMENT: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|([^",{}\\]+)', re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)


def elements(text: str) -> list[str | None]:
    """Return the elements of a one-dimensional array as texts, None for NULL.

    Raises:
        ValueError: if it has several dimensions, or its lower bound is not 1.
    """
    if text == "{}":
        return []
    if not text.startswith("{"):
        raise ValueError("its elements are not counted from 1")
    if text.startswith("{{"):
        raise ValueError("it has several dimensions")
    found: list[str | None] = []
    at, end = 1, len(text) - 1
    while at < end:
        element = _ELEMENT.match(text, at, end)
        if element is None:
            raise ValueError(f"it cannot be read at character {at + 1}")
        quoted, plain = element.groups()
        if quoted is None:
            found.append(None if plain == "NULL" else plain)
        else:
            found.append(_ESCAPED.sub(r"\1", quoted))
        at = element.end() + 1  # and the comma
    return found
