"""``headrace plan`` and ``headrace apply``: deploy files of definitions to a database."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.tools.cli.connection import (
    Address,
    Invocation,
    importing_little,
    make_directory,
    need_directory,
    need_free,
    need_no_file,
    opened,
)
from headrace.tools.cli.failures import keep_quiet
from headrace.tools.cli.functions import FunctionFiles, functions_options
from headrace.tools.cli.options import common_options, target_of
from headrace.tools.cli.statement_thread import StatementThread

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.tools.cli.deploying import Deployment


F = TypeVar("F", bound="Callable[..., Any]")

_PLAN_EXAMPLES = """\b
Examples:
  headrace --data mill plan views                   what would change
  headrace --url http://127.0.0.1:8088 plan views --prune
  headrace --data mill plan views --json | jq .changes

\b
Exit codes: 0 nothing would change, 2 something would, 1 an error or wrong usage, 130 Ctrl-C.
"""
_APPLY_EXAMPLES = """\b
Examples:
  headrace --data mill apply views
  headrace --data mill apply views --prune          and drop what the files do not define
  headrace --data mill apply views --review         look at the rows first, then swap

\b
Exit codes: 0 the database has the definitions, 1 an error, 2 wrong usage, 130 Ctrl-C.
"""


class _WrongUsage(click.UsageError):
    exit_code = 1


class _PlanCommand(click.Command):
    """A command whose exit code 2 is not that of wrong usage."""

    def make_context(self, *arguments: Any, **keywords: Any) -> click.Context:
        """Read the arguments; wrong ones are an error like others."""
        try:
            return super().make_context(*arguments, **keywords)
        except click.UsageError as error:
            raise _WrongUsage(error.format_message(), error.ctx) from error

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; wrong usage is an error like others."""
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            raise _WrongUsage(error.format_message(), error.ctx) from error


def _paths(command: F) -> F:
    argument = click.argument(
        "paths",
        nargs=-1,
        required=True,
        metavar="FILE|DIRECTORY...",
        type=click.Path(path_type=Path),
    )
    prune = click.option(
        "--prune", is_flag=True, help="Drop what the files do not define; without it, it is kept."
    )
    return argument(prune(command))


@click.command(cls=_PlanCommand, epilog=_PLAN_EXAMPLES)
@common_options
@_paths
@click.option("--json", "as_json", is_flag=True, help="Print an object of JSON.")
@click.option(
    "--offline",
    is_flag=True,
    help="Do not ask other systems whether connections, sources and sinks can be created.",
)
@functions_options
@click.pass_context
def plan(
    context: click.Context,
    /,
    *,
    paths: tuple[Path, ...],
    prune: bool,
    as_json: bool,
    offline: bool,
    functions: tuple[Path, ...],
    replace_functions: bool,
) -> int:
    """Say what apply would change, and change nothing.

    FILE is a file of CREATE statements, and a DIRECTORY stands for all its files *.sql except
    *.test.sql; their order does not matter. Of a data directory that does not exist yet, all is to
    be created.
    """

    def run(deployment: Deployment) -> int:
        return deployment.plan(paths, prune=prune, offline=offline, as_json=as_json)

    from headrace.files.directories import LEDGER  # noqa: PLC0415  (--help is quick)

    target, given = target_of(context), FunctionFiles(functions, replace_functions)
    if isinstance(target, Path):
        need_no_file(target)
        if context.ensure_object(Invocation).settings:  # its ledger is elsewhere
            need_directory(target)
        elif not (target / LEDGER).exists():
            with TemporaryDirectory() as empty:
                return _deploy(context, given, run, Path(empty))
    return _deploy(context, given, run, target)


@click.command(epilog=_APPLY_EXAMPLES)
@common_options
@_paths
@click.option(
    "--validate",
    is_flag=True,
    help="Compare the new rows of views with Spark batch; if any differ, let none serve.",
)
@click.option(
    "--review",
    is_flag=True,
    help="Show the rows that views change, and ask before they serve; keep what served before.",
)
@click.option("--yes", is_flag=True, help="With --review: swap without asking.")
@functions_options
@click.pass_context
def apply(
    context: click.Context,
    /,
    *,
    paths: tuple[Path, ...],
    prune: bool,
    validate: bool,
    review: bool,
    yes: bool,
    functions: tuple[Path, ...],
    replace_functions: bool,
) -> int:
    """Bring the definitions of a database to those of files.

    Prints the plan, then makes its changes. Views that are replaced are filled beside those that
    serve, and take their places in one swap. A second run changes nothing.
    """
    if yes and not review:
        raise click.UsageError("--yes is for --review.", context)

    def run(deployment: Deployment) -> int:
        return deployment.apply(paths, prune=prune, validate=validate, review=review, yes=yes)

    target = target_of(context)
    make_directory(target, sys.stderr)
    return _deploy(context, FunctionFiles(functions, replace_functions), run, target)


def _deploy(
    context: click.Context,
    given: FunctionFiles,
    run: Callable[[Deployment], int],
    target: Path | Address,
) -> int:
    invocation = context.ensure_object(Invocation)
    need_free(target, invocation)
    with importing_little():
        from headrace.tools.cli.deploying import Deployment  # noqa: PLC0415  (--help is quick)

    keep_quiet(debug=invocation.debug)
    thread = StatementThread(lambda text: click.echo(text, err=True))
    deployment = Deployment(
        thread,
        lambda: opened(target, invocation, thread, sys.stderr, given, warm=False),
        debug=invocation.debug,
    )
    return run(deployment)
