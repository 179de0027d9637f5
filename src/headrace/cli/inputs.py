"""The inputs of ``headrace sql``: files, statements and stdin, in their order."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import click

from headrace.errors import Code, HeadraceError

_KEY = "headrace.inputs"
STDIN = "-"


@dataclass(frozen=True, slots=True)
class Input:
    """A script: in a file (``-`` is stdin), or in ``text`` itself."""

    file: str | None = None
    text: str = ""

    @staticmethod
    def collect_files(context: click.Context, _: click.Parameter, values: tuple[str, ...]) -> None:
        """Store the values of ``--file`` in the context."""
        context.meta.setdefault(_KEY, []).append([Input(file=value) for value in values])

    @staticmethod
    def collect_commands(
        context: click.Context, _: click.Parameter, values: tuple[str, ...]
    ) -> None:
        """Store the values of ``--command`` in the context."""
        context.meta.setdefault(_KEY, []).append([Input(text=value) for value in values])

    @staticmethod
    def given(context: click.Context) -> list[Input]:
        """Return the inputs in the order of the command line.

        Raises:
            click.UsageError: if that order is unknown, since both kinds are given, one repeatedly.
        """
        groups: list[list[Input]] = context.meta.get(_KEY, [])
        used = [group for group in groups if group]
        if len(used) > 1 and any(len(group) > 1 for group in used):
            raise click.UsageError("Repeat either -f or -c; with both, give each once.", context)
        return [each for group in used for each in group]


def read_input(given: Input) -> tuple[str, str | None]:
    """Return the text of a script, and the file name for errors.

    Raises:
        HeadraceError: ``invalid`` if it cannot be read, or is not UTF-8.
    """
    if given.file is None:
        return given.text, None
    try:
        data = sys.stdin.buffer.read() if given.file == STDIN else Path(given.file).read_bytes()
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise HeadraceError(
            Code.INVALID,
            f'script "{given.file}" is not UTF-8',
            detail=f"Its byte {error.start + 1} begins no character.",
            hint="Save it as UTF-8.",
        ) from error
    except OSError as error:
        raise HeadraceError(
            Code.INVALID, f'script "{given.file}" cannot be read', detail=f"{error.strerror}."
        ) from error
    return text, "<stdin>" if given.file == STDIN else given.file
