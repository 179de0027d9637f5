"""``history`` of a view: how long its former states can be read."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from headrace.catalog import KeptHistory
from headrace.errors import Code, HeadraceError
from headrace.statements.defining.durations import seconds_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.sql import Option

HISTORY: Final = "history"
_DEFAULT: Final = "default"
_EPOCHS: Final = re.compile(r"(\d{1,9})(?:\s+epochs?)?", re.IGNORECASE)


def history_of(options: Iterable[Option]) -> KeptHistory | None:
    """Return how long former states of a view are kept; None: as long as those of tables.

    Raises:
        HeadraceError: ``invalid``, at the option, for another value.
    """
    option = next((each for each in options if each.key.lower() == HISTORY), None)
    if option is None or option.value.strip().lower() == _DEFAULT:
        return None
    epochs = _EPOCHS.fullmatch(option.value.strip())
    if epochs is not None:
        return KeptHistory(epochs=int(epochs[1]))
    try:
        return KeptHistory(seconds=seconds_of(option))
    except HeadraceError as error:
        raise HeadraceError(
            Code.INVALID,
            f"'{option.value}' is neither a duration nor a number of epochs",
            hint="Use one such as '30 days' or '1000 epochs', or 'default'.",
            span=option.span,
        ) from error
