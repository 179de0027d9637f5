"""``headrace restore``: its options."""

from __future__ import annotations

import sys

import click

from headrace.tools.cli.connection import Invocation
from headrace.tools.cli.environment import Environment
from headrace.tools.cli.failures import keep_quiet
from headrace.tools.cli.options import common_options, format_option, printer_of
from headrace.tools.cli.terminal import ProgressBar

_EXAMPLES = """\b
Examples:
  headrace restore /backups/mill --list
  headrace restore /backups/mill --data mill
  headrace restore s3://backups/mill --backup 20261128T070000.000Z-epoch-812 --data mill
  headrace restore /backups/mill --data s3://bucket/mill --ledger postgresql://user@host/database
"""


@click.command(epilog=_EXAMPLES)
@common_options
@click.argument("place", metavar="PLACE")
@click.option("--backup", "name", metavar="NAME", help="The backup; by default, the newest.")
@click.option("--list", "listed", is_flag=True, help="List the backups, and restore nothing.")
@format_option
@click.pass_context
def restore(
    context: click.Context,
    place: str,
    name: str | None,
    form: str,
    listed: bool,  # noqa: FBT001
) -> int:
    """Restore a backup of BACKUP TO from PLACE, a directory or the URL of an object store.

    The target, --data, must be empty or not exist: a directory, or with a ledger in PostgreSQL also
    the URL of an object store. Each file is compared with its checksum. What was interrupted goes
    on when the command is run again.
    """
    from headrace.tools.cli.restoring import backups_at, restore_backup  # noqa: PLC0415  (--help is quick)

    invocation = context.ensure_object(Invocation)
    keep_quiet(debug=invocation.debug)
    if "headrace.url" in context.meta:
        raise click.UsageError("A backup is restored with --data, and not by a server.", context)
    if listed:
        printer_of(form, Environment.of()).rows(backups_at(place))
        return 0
    if "headrace.data" not in context.meta:
        raise click.UsageError("Missing option '--data DIR', where to restore to.", context)
    data = context.meta["headrace.data"]
    with ProgressBar(sys.stderr) as bar:
        done = restore_backup(place, name, data, invocation.settings, bar.update)
    click.echo(done)
    return 0
