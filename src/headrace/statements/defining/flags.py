"""Options of statements that are true or false."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from headrace.sql import Option

AUTO_SWAP: Final = "auto_swap"
"""The option of a replaced view: with ``false``, the new build waits for SWAP VIEW."""
REUSE: Final = "reuse"
"""The option of a view: with ``false``, it is filled from its inputs alone."""


def is_on(options: tuple[Option, ...], key: str) -> bool:
    """Return the value of an option that is true by default.

    Raises:
        HeadraceError: ``invalid``, at the option, for a value that is neither true nor false.
    """
    given = next((option for option in options if option.key.lower() == key), None)
    if given is None or given.value.lower() == "true":
        return True
    if given.value.lower() == "false":
        return False
    raise HeadraceError(
        Code.INVALID,
        f"'{given.value}' is not a value of {key}",
        hint="Use true or false.",
        span=given.span,
    )
