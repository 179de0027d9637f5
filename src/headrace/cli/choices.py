"""The choices of options on the command line and of commands in the shell."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    """How results are written."""

    TABLE = "table"
    VERTICAL = "vertical"
    MARKDOWN = "markdown"
    JSON = "json"
    CSV = "csv"

    @property
    def for_people(self) -> bool:
        """Whether messages may be written among the results."""
        return self in (Format.TABLE, Format.VERTICAL)


class OnError(StrEnum):
    """What a script does when a statement fails; the exit code is 1 either way."""

    STOP = "stop"
    CONTINUE = "continue"
