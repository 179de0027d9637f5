"""The environment variables of the shell: history file, pager, editor and colours.

The choices of options on the command line and of commands in the shell.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Mapping


_PAGER = "less"
_LESS = "-RFSX"
"""Keep colours, quit if the text fits, do not fold long lines, leave the text on the screen."""
_EDITOR = "vi"


@dataclass(frozen=True, slots=True)
class Environment:
    """The variables ``HEADRACE_HISTORY``, ``PAGER``, ``VISUAL``, ``EDITOR``, ``NO_COLOR``."""

    history: Path
    """The file of earlier statements, one per user."""
    pager: tuple[str, ...]
    editor: tuple[str, ...]
    colours: bool

    @classmethod
    def of(cls, variables: Mapping[str, str] | None = None) -> Environment:
        """Read the environment.

        Raises:
            HeadraceError: ``invalid`` for a program with an unclosed quote.
        """
        found = os.environ if variables is None else variables
        state = found.get("XDG_STATE_HOME") or str(Path(found.get("HOME", "~"), ".local", "state"))
        history = found.get("HEADRACE_HISTORY") or str(Path(state, "headrace", "history"))
        pager = _program(found, "PAGER") or (_PAGER,)
        if pager == (_PAGER,) and not found.get("LESS"):
            pager = (_PAGER, _LESS)
        editor = _program(found, "VISUAL") or _program(found, "EDITOR") or (_EDITOR,)
        return cls(Path(history).expanduser(), pager, editor, not found.get("NO_COLOR"))


def _program(environment: Mapping[str, str], name: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(environment.get(name, "")))
    except ValueError as error:
        raise HeadraceError(
            Code.INVALID, f"{name} cannot be read as a command", detail=f"{error}."
        ) from error


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
