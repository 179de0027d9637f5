"""``headrace doctor``: whether a database is sound, beside whoever has it open."""

from __future__ import annotations

import sys

import click

from headrace.tools.cli.connection import Invocation, importing_little
from headrace.tools.cli.environment import Environment
from headrace.tools.cli.failures import keep_quiet
from headrace.tools.cli.options import common_options, format_option, local_directory, printer_of
from headrace.tools.cli.terminal import ProgressBar

_EXAMPLES = """\b
Examples:
  headrace --data mill doctor                     everything, with all checksums
  headrace --data mill doctor --quick             without reading the files
  headrace --data mill doctor --format json | jq 'select(.state == "wrong")'

\b
Exit codes: 0 nothing is wrong, 1 something is, 2 wrong usage, 130 Ctrl-C.
"""


@click.command(epilog=_EXAMPLES)
@common_options
@click.option("--quick", is_flag=True, help="Compare sizes of files, not their checksums.")
@format_option
@click.pass_context
def doctor(context: click.Context, quick: bool, form: str) -> int:  # noqa: FBT001
    """Check a database and say what to do; change nothing.

    Checks the ledger and its invariants, that each file is there with its checksum, stopped and
    waiting views, rejects, stopped sinks, and space on the disk, and says who has it open: it may
    be in use meanwhile. Whether views are right is what "verify" checks.
    """
    with importing_little():
        from headrace.tools.cli.checking import findings  # noqa: PLC0415  (--help is quick)

    invocation = context.ensure_object(Invocation)
    keep_quiet(debug=invocation.debug)
    directory = local_directory(context)
    with ProgressBar(sys.stderr) as bar:
        table, wrong = findings(directory, invocation.settings, bar.update, quick=quick)
    printer_of(form, Environment.of()).rows(table)
    return 1 if wrong else 0
