"""``headrace upgrade``: which views this version rebuilds, and their rebuild."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from headrace.tools.cli.connection import Invocation
from headrace.tools.cli.environment import Environment
from headrace.tools.cli.failures import keep_quiet
from headrace.tools.cli.options import common_options, format_option, local_directory, printer_of

if TYPE_CHECKING:
    from pathlib import Path


_EXAMPLES = """\b
Examples:
  headrace --data mill upgrade --check            what opening it with this version would do
  headrace --data mill upgrade                    do that now, and wait for it

\b
Exit codes: 0 nothing is left to do, 1 something is, 2 wrong usage, 130 Ctrl-C.
"""


@click.command(epilog=_EXAMPLES)
@common_options
@click.option("--check", is_flag=True, help="Say what would be done, and change nothing.")
@format_option
@click.pass_context
def upgrade(context: click.Context, check: bool, form: str) -> int:  # noqa: FBT001
    """Migrate the ledger and rebuild the views whose state this version does not go on with.

    Opening the database in any other way does the same, in the background. With --check, the
    database may be in use, and no Spark is started.
    """
    from headrace.tools.cli.upgrading import to_do  # noqa: PLC0415  (--help is quick)

    invocation = context.ensure_object(Invocation)
    keep_quiet(debug=invocation.debug)
    directory = local_directory(context)
    if not check:
        _open(directory, invocation)
    table = to_do(directory, invocation.settings)
    printer_of(form, Environment.of()).rows(table)
    return 1 if table.num_rows else 0


def _open(directory: Path, invocation: Invocation) -> None:
    from headrace.interfaces.database import Database  # noqa: PLC0415  (as above)

    with invocation.connect(directory, (), continuous=False, **invocation.settings) as database:
        if isinstance(database, Database):
            database.parts.upgrades.wait()
