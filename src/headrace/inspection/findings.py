"""What a check has found, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Whether something is wrong."""

    OK = "ok"
    NOTE = "note"
    """Worth knowing; nothing has to be done."""
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check; ``hint`` says what to do, if anything."""

    check: str
    state: State
    found: str
    hint: str = ""
