"""PAUSE FILL and RESUME FILL."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError
from headrace.parts.fills import FillState

if TYPE_CHECKING:
    from headrace.parts.fills import FillProgress, Fills
    from headrace.sql import Name, PauseFill, ResumeFill


@dataclass(frozen=True, slots=True)
class FillChanges:
    """Lets running fills wait and go on."""

    fills: Fills

    def pause(self, statement: PauseFill) -> str:
        """Let the fills of a view wait, each after the part that it reads now."""
        found, name = self._of(statement.name), statement.name
        if not all(fill.pauses for fill in found):
            raise HeadraceError(
                Code.UNSUPPORTED,
                f'pausing the fill of "{name}" is not supported',
                "Others wait until it has ended: epochs, refreshes or writes.",
                "Cancel its statement instead.",
                name.span,
            )
        if all(fill.state is FillState.PAUSED for fill in found):
            return f"the fill of {name} is paused"
        for fill in found:
            fill.pause()
        return f"the fill of {name} pauses after the part that it reads"

    def resume(self, statement: ResumeFill) -> str:
        """Let the fills of a view go on."""
        found, name = self._of(statement.name), statement.name
        resumed = [fill.resume() for fill in found]
        return f"resumed the fill of {name}" if any(resumed) else f"the fill of {name} is running"

    def _of(self, name: Name) -> list[FillProgress]:
        found = [fill for fill in self.fills.listed() if fill.name.lower() == name.dotted.lower()]
        if not found:
            raise HeadraceError(
                Code.INVALID,
                f'no fill of view or index "{name}" is running',
                hint="SELECT * FROM information_schema.fills lists those that run.",
                span=name.span,
            )
        return found
