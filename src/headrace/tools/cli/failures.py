"""Errors as users see them: a message with its place and a hint, not a stack trace."""

from __future__ import annotations

import logging
import sys
import threading
import traceback
import warnings
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.text import Text

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from threading import ExceptHookArgs


_TO_DEBUG = "Run the command with --debug to see where it failed."


def report(error: BaseException, stream: TextIO, *, debug: bool) -> None:
    """Write an error; with ``debug``, its stack trace before it."""
    if debug:
        traceback.print_exception(error, file=stream)
    message = str(error if isinstance(error, HeadraceError) else internal(error, debug=debug))
    if stream.isatty():
        Console(file=stream, highlight=False).print(_coloured(message), soft_wrap=True)
    else:
        stream.write(f"{message}\n")
    stream.flush()


def internal(error: BaseException, *, debug: bool) -> HeadraceError:
    """Return the ``internal`` error for an unexpected exception."""
    message = str(error).strip().partition("\n")[0]
    name = type(error).__name__
    return HeadraceError(
        Code.INTERNAL,
        f"{name}: {message}" if message else name,
        hint=None if debug else _TO_DEBUG,
    )


def keep_quiet(*, debug: bool) -> None:
    """Suppress warnings and logs of libraries, and stack traces of other threads."""
    if debug:
        return
    if not sys.warnoptions:
        warnings.simplefilter("ignore")
    logging.lastResort = None
    threading.excepthook = _report_thread


def _report_thread(failure: ExceptHookArgs) -> None:
    if failure.exc_value is not None:
        report(failure.exc_value, sys.stderr, debug=False)


def _coloured(message: str) -> Text:
    text = Text(message)
    text.highlight_regex(r"^error\[\w+\]:", "bold red")
    text.highlight_regex(r"(?m)^(hint|detail):", "bold")
    text.highlight_regex(r"(?m)^ +\^+$", "red")
    return text
