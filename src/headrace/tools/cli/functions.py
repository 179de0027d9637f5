"""``--functions FILE``: Python functions that the statements of a command can call.

The file is run as a module, and the functions that :func:`headrace.function` creates in it, or that
it imports by name, are registered in the database.
"""

from __future__ import annotations

import sys
import traceback
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import module_from_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from headrace.planning.functions import Function


F = TypeVar("F", bound="Callable[..., Any]")


def functions_options(command: F) -> F:
    """Add the options for functions."""
    files = click.option(
        "--functions",
        metavar="FILE",
        multiple=True,
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        help="Register the functions of a Python file: those made by @headrace.function."
        " May be repeated.",
    )
    replace = click.option(
        "--replace-functions",
        is_flag=True,
        help="Refill views whose functions differ from those that they were created with.",
    )
    return files(replace(command))


@dataclass(frozen=True, slots=True)
class FunctionFiles:
    """The files of a command, and whether their functions replace others of the same names."""

    files: tuple[Path, ...]
    replace: bool

    def made(self) -> tuple[Function, ...]:
        """Run the files and return the functions created in them, which have different names.

        Raises:
            HeadraceError: ``invalid`` if a file fails or creates none, or if a name is repeated.
        """
        found: dict[str, Function] = {}
        for file in self.files:
            made = _made(_run(file))
            if not made:
                raise HeadraceError(
                    Code.INVALID,
                    f'file "{file}" makes no functions',
                    hint='Make them with @headrace.function(returns="INT", deterministic=True).',
                )
            for each in made:
                if found.setdefault(each.key, each) is not each:
                    raise HeadraceError(
                        Code.INVALID,
                        f'file "{file}" makes another function "{each.name}"',
                        hint="Give each function a name of its own.",
                    )
        return tuple(found.values())


def _run(file: Path) -> ModuleType:
    # The module has the name that a program would import it by: it is part of functions' identity.
    name = file.stem if file.stem not in sys.modules else f"{file.stem}_functions"
    loader = SourceFileLoader(name, str(file))
    module = module_from_spec(ModuleSpec(name, loader, origin=str(file)))
    module.__file__ = str(file.resolve())
    sys.modules[name] = module
    sys.path.insert(0, str(file.resolve().parent))
    try:
        loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise HeadraceError(
            Code.INVALID,
            f'file "{file}" failed',
            detail=_description(error, file),
            hint="The file is run to create its functions, and must not fail.",
        ) from error
    return module


def _made(module: ModuleType) -> list[Function]:
    from headrace.planning.functions import Function  # noqa: PLC0415  (--help is quick)

    unique = {id(value): value for value in vars(module).values() if isinstance(value, Function)}
    return list(unique.values())


def _description(error: BaseException, file: Path) -> str:
    """Return the error's type and message, and the line of the file that raised it."""
    message = str(error.msg if isinstance(error, SyntaxError) else error).strip()
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename == str(file)
    ]
    line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
    place = "" if line is None else f" (line {line})"
    name = type(error).__name__
    return " ".join(f"{name}: {message}{place}".split()) if message else f"{name}{place}"
