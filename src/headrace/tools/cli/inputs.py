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


class CommandOfInputs(click.Command):
    """A command whose options ``files`` and ``commands`` are repeated in any order."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments, and store the inputs in the order of the command line."""
        values, _, order = self.make_parser(ctx).parse_args(args=list(args))
        rest = super().parse_args(ctx, args)
        made = {
            "files": iter([Input(file=value) for value in values.get("files") or ()]),
            "commands": iter([Input(text=value) for value in values.get("commands") or ()]),
        }
        ctx.meta[_KEY] = [next(made[each.name]) for each in order if each.name in made]
        return rest


def inputs_given(context: click.Context) -> list[Input]:
    """Return the inputs in the order of the command line."""
    given: list[Input] = context.meta[_KEY]
    return given


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
