"""The option ``auto_swap`` of a view that is replaced: whether the new build serves by itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headrace.statements.defining.flags import AUTO_SWAP

if TYPE_CHECKING:
    from headrace.errors import Span
    from headrace.sql import Option

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
