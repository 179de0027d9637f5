"""Options whose values are lengths of time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.dialects import duration_of
from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from headrace.sql import Option

_SECOND: Final = 1_000_000


def seconds_of(option: Option) -> int:
    """Return the length of time that an option gives, in seconds.

    Raises:
        HeadraceError: ``invalid``, at the option, unless it is one of whole seconds, at least one.
    """
    found = seconds_in(option.value)
    if found is None:
        raise HeadraceError(
            Code.INVALID,
            f"option \"{option.key}\": '{option.value}' is not a duration",
            hint="Use one such as '90 days'.",
            span=option.span,
        )
    return found


def seconds_in(text: str) -> int | None:
    """Return the length of time that a text such as ``90 days`` gives, in seconds.

    None unless it is one of whole seconds, at least one.
    """
    interval = text.upper().removeprefix("INTERVAL ").replace("'", "")
    found = duration_of(f"INTERVAL '{interval}'")
    return None if found is None or found < _SECOND or found % _SECOND else found // _SECOND
