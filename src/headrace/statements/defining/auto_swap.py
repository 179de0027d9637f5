"""The option ``auto_swap`` of a view that is replaced: whether the new build serves by itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.sql import Option

AUTO_SWAP: Final = "auto_swap"
"""The option of a replaced view: with ``false``, the new build waits for SWAP VIEW."""
_OPTIONS: Final = re.compile(r"\s*\b\w+\s*\($")
"""The word before options, and what begins them."""


def without_swap(statement: Span, options: tuple[Option, ...]) -> str:
    """Return the text of a statement without the option: what serves in the end was swapped."""
    text = statement.source
    for option in options:
        if option.key.lower() == AUTO_SWAP and option.span.text is statement.text:
            before = text[: option.span.start - statement.start].rstrip()
            after = text[option.span.end - statement.start :].lstrip()
            if after.startswith(","):
                after = after[1:].lstrip()
            elif before.endswith(","):
                before = before[:-1]
            if before.endswith("(") and after.startswith(")"):
                before, after = _OPTIONS.sub("", before), f" {after[1:].lstrip()}"
            text = before + after
    return text


def swaps_by_itself(options: tuple[Option, ...]) -> bool:
    """Return whether a new build of a view serves as soon as it is filled.

    Raises:
        HeadraceError: ``invalid``, at the option, for a value that is neither true nor false.
    """
    given = next((option for option in options if option.key.lower() == AUTO_SWAP), None)
    if given is None or given.value.lower() == "true":
        return True
    if given.value.lower() == "false":
        return False
    raise HeadraceError(
        Code.INVALID,
        f"'{given.value}' is not a value of {AUTO_SWAP}",
        hint="Use true or false.",
        span=given.span,
    )
