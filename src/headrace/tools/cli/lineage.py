"""``headrace lineage``: what columns are made from, as a table or as events of OpenLineage."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from headrace.errors import Code, HeadraceError
from headrace.tools.cli.connection import Invocation, need_directory, need_free, opened
from headrace.tools.cli.environment import Environment
from headrace.tools.cli.failures import keep_quiet
from headrace.tools.cli.functions import FunctionFiles, functions_options
from headrace.tools.cli.options import common_options, format_option, printer_of, target_of
from headrace.tools.cli.statement_thread import StatementThread

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa


_EXAMPLES = """\b
Examples:
  headrace --data mill lineage totals                    what its columns are made from
  headrace --data mill lineage totals.amount
  headrace --data mill lineage orders.price --downstream   what uses the column
  headrace --data mill lineage --openlineage | jq .job.name
  headrace --data mill lineage --openlineage --to http://marquez:5000
"""


@click.command(epilog=_EXAMPLES)
@common_options
@click.option("--downstream", is_flag=True, help="List what depends on the columns instead.")
@click.option(
    "--openlineage",
    is_flag=True,
    help="Print events of OpenLineage on NAME, or on all views and sinks, a line each.",
)
@click.option(
    "--to",
    "address",
    metavar="URL",
    help="Send these events to a URL, or append them to a file, instead.",
)
@format_option
@functions_options
@click.argument("name", required=False)
@click.pass_context
def lineage(
    context: click.Context,
    /,
    *,
    downstream: bool,
    openlineage: bool,
    address: str | None,
    form: str,
    functions: tuple[Path, ...],
    replace_functions: bool,
    name: str | None,
) -> int:
    """Show which columns the columns of NAME are made from, and how.

    NAME is a table, stream, view or sink, or a column of one.
    """
    if (name is None and not openlineage) or (address is not None and not openlineage):
        raise click.UsageError("Give NAME, or --openlineage.", context)
    if downstream and openlineage:
        raise click.UsageError("--downstream and --openlineage exclude each other.", context)
    target = target_of(context)
    invocation = context.ensure_object(Invocation)
    keep_quiet(debug=invocation.debug)
    need_directory(target)
    need_free(target, invocation)
    thread = StatementThread(lambda text: click.echo(text, err=True))
    from headrace.planning.sql import quote_dotted  # noqa: PLC0415  (--help is quick)

    of = f" OF {quote_dotted(name)}" if name else ""
    shown = " FORMAT OPENLINEAGE" if openlineage else " DOWNSTREAM" if downstream else ""
    given = FunctionFiles(functions, replace_functions)
    with opened(target, invocation, thread, sys.stderr, given, warm=False) as database:
        table: pa.Table = thread.call(
            lambda: database.sql(f"SHOW LINEAGE{of}{shown}").to_arrow(), database.cancel
        )
    if openlineage:
        _emit(table["event"].to_pylist(), address)
    else:
        printer_of(form, Environment.of()).rows(table)
    return 0


def _emit(events: list[str], address: str | None) -> None:
    """Print events, or send them."""
    if address is None:
        for event in events:
            click.echo(event)
        return
    from headrace.lifecycle.facts.openlineage import sender  # noqa: PLC0415  (--help is quick)

    send = sender(address)
    for event in events:
        try:
            send(json.loads(event))
        except Exception as error:  # whatever a transport raises
            raise HeadraceError(
                Code.UNAVAILABLE, f'"{address}" did not accept the events', f"{error}."
            ) from error
    click.echo(f"{len(events)} events sent", err=True)
