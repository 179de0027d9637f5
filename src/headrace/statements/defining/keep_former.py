"""The option ``keep_former`` of SWAP VIEW: how long ROLLBACK VIEW has what served before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from headrace.statements.defining.durations import seconds_of
from headrace.statements.defining.options import require_known

if TYPE_CHECKING:
    from headrace.sql import Option

KEEP_FORMER: Final = "keep_former"
FOREVER: Final = "forever"
"""The value with which it is kept until it is dropped."""


def kept_for(options: tuple[Option, ...], default: int | None) -> int | None:
    """Return for how many seconds what served before is kept; None: until it is dropped.

    Raises:
        HeadraceError: ``invalid``, at the option, for another option or a value that is not a
            duration.
    """
    require_known(options, KEEP_FORMER)
    if not options:
        return default
    (option,) = options
    return None if option.value.strip().lower() == FOREVER else seconds_of(option)
