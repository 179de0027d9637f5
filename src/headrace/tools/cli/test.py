"""``headrace test``: runs files of tests of views."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from headrace.tools.cli.connection import Invocation
from headrace.tools.cli.environment import Environment
from headrace.tools.cli.failures import keep_quiet
from headrace.tools.cli.functions import FunctionFiles

_EXAMPLES = """\b
Examples:
  headrace test tests                             all files *.test.sql below tests
  headrace test tests/orders.test.sql -k late     the tests whose names contain "late"
  headrace test tests --junit report.xml
  headrace test tests --functions functions.py

\b
A file begins with what all of its tests need, then has tests:
  --@ load ../views
  --@ test only paid orders count
  INSERT INTO orders VALUES (1, 'ann', 10, 'paid'), (2, 'ann', 5, 'open');
  --@ rows spent
  --| customer | spent
  --| ann      | 10.00

\b
Exit codes: 0 all tests passed, 1 some failed, 2 wrong usage or a file that is wrong, 130 Ctrl-C.
"""


def _set_debug(context: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001
    if value:
        context.ensure_object(Invocation).debug = True


@click.command(epilog=_EXAMPLES)
@click.argument(
    "paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path)
)
@click.option(
    "-k",
    "words",
    metavar="TEXT",
    multiple=True,
    help="Run only tests whose file or name contains TEXT. May be repeated: any of them.",
)
@click.option(
    "--junit",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a report in the XML of JUnit.",
)
@click.option(
    "--functions",
    metavar="FILE",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Register the functions of a Python file: those made by @headrace.function."
    " May be repeated.",
)
@click.option(
    "--debug",
    is_flag=True,
    expose_value=False,
    callback=_set_debug,
    help="Show stack traces and the notes of libraries.",
)
@click.pass_context
def test(
    context: click.Context,
    paths: tuple[Path, ...],
    words: tuple[str, ...],
    junit: Path | None,
    functions: tuple[Path, ...],
) -> int:
    """Run tests of views: rows in, rows and changes out, without a server.

    PATH is a file, or a directory of files *.test.sql. Each test has an empty database of its own
    with the definitions that its file loads, and a clock that the test moves.
    """
    from headrace.tools.cli.testing import SelectedTests, run_tests  # noqa: PLC0415  (--help is quick)

    keep_quiet(debug=context.ensure_object(Invocation).debug)
    made = FunctionFiles(functions, replace=False).made()
    selection = SelectedTests(paths, words, junit, made)
    return run_tests(selection, sys.stdout, sys.stderr, colours=Environment.of().colours)
