"""The ``headrace`` command: its options, subcommands and exit codes.

Exit codes: 0 done, 1 an error (or a view that differs, for ``verify``), 2 wrong usage,
130 Ctrl-C, 141 the reader of the output has closed it.
"""

from __future__ import annotations

import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.tools.cli.cluster import cluster
from headrace.tools.cli.connection import (
    Invocation,
    connect_to_headrace,
    has_ledger_elsewhere,
    importing_little,
    make_directory,
    need_directory,
    need_free,
    opened,
)
from headrace.tools.cli.deploy import apply, plan
from headrace.tools.cli.doctor import doctor
from headrace.tools.cli.environment import Environment, OnError
from headrace.tools.cli.failures import keep_quiet, report
from headrace.tools.cli.functions import FunctionFiles, functions_options
from headrace.tools.cli.inputs import CommandOfInputs, Input, inputs_given, read_input
from headrace.tools.cli.lineage import lineage
from headrace.tools.cli.options import (
    common_options,
    data_directory_of,
    format_option,
    printer_of,
    target_of,
)
from headrace.tools.cli.restore import restore
from headrace.tools.cli.statement_thread import Abandoned, StatementThread
from headrace.tools.cli.terminal import ProgressBar
from headrace.tools.cli.test import test
from headrace.tools.cli.upgrade import upgrade

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from headrace.tools.cli.connection import Connect
    from headrace.tools.cli.interpreter import Interpreter
    from headrace.tools.cli.printer import Printer


F = TypeVar("F", bound="Callable[..., Any]")

_UNREAD = ("stopped", "damaged", "could not be checked")
"""The verdicts on views that are not known to be right."""
_DONE, _FAILED, _USAGE, _INTERRUPTED, _NO_READER = 0, 1, 2, 130, 141

_EXAMPLES = """\b
Examples:
  headrace --data mill sql                        a shell
  headrace --data mill sql -f setup.sql           a script
  headrace --data mill sql -c "SHOW VIEWS"        a statement
  headrace --data mill sql < setup.sql            a script from stdin
  headrace --data mill sql --format json -c "SELECT * FROM orders"
  headrace --data mill sql -c "SELECT * FROM totals EMIT CHANGES"
  headrace --data mill verify                     are all views right?
  headrace --data mill doctor                     are all files whole, and what has stopped?
  headrace --data mill lineage totals             what are its columns made from?
  headrace restore /backups/mill --data mill      from a backup of BACKUP TO
  headrace --data mill serve                      HTTP at 127.0.0.1:8088
  headrace --data mill token create me --role owner
  headrace test tests                             are views what files of tests expect?
  headrace --data mill plan views                 what would files of definitions change?
  headrace cluster pack environment.tar.gz        for executors of Spark
  headrace --url http://127.0.0.1:8088 sql        a shell on that server

\b
Settings such as partitions and driver_memory are read from HEADRACE_PARTITIONS and so on,
the server and its token from HEADRACE_URL and HEADRACE_TOKEN.
Exit codes: 0 done, 1 an error, 2 wrong usage, 130 Ctrl-C.
"""

_SQL_EXAMPLES = """\b
Examples:
  headrace --data mill sql                         a shell; \\? shows its commands
  headrace --data mill sql -f setup.sql -c "SELECT * FROM totals"
  headrace --data mill sql -c "\\d" -c "\\d totals"
  headrace --data mill sql --on-error continue -f many.sql
  headrace --data mill sql --functions functions.py
  headrace --data mill sql --format csv -c "SELECT * FROM totals" > totals.csv
  headrace --data mill sql --format json -c "SUBSCRIBE totals" | jq .row

\b
Formats:
  table     aligned, for people; messages of statements are among the results
  vertical  a line per value, for people
  markdown  a table of Markdown
  json      an object a line; decimals are strings, instants ISO 8601 in UTC
  csv       RFC 4180 with a header; NULL is empty, empty text is ""

\b
Exit codes: 0 done, 1 a statement failed, 2 wrong usage, 130 Ctrl-C.
The shell reads PAGER, VISUAL, EDITOR, NO_COLOR and HEADRACE_HISTORY (the file of statements).
"""


def main(
    arguments: Sequence[str] | None = None,
    connect: Connect = connect_to_headrace,
) -> int:
    """Run the command and return its exit code."""
    invocation = Invocation(connect)
    try:
        code = headrace.main(
            args=arguments, prog_name="headrace", obj=invocation, standalone_mode=False
        )
        sys.stdout.flush()
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except Abandoned:
        _leave()
    except (KeyboardInterrupt, click.Abort):
        return _INTERRUPTED
    except (BrokenPipeError, _ReaderGone):
        # The rest of the buffer cannot be written, and flushing it at exit must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return _NO_READER
    except Exception as error:  # noqa: BLE001  (a stack trace never reaches the user)
        report(error, sys.stderr, debug=invocation.debug)
        return _FAILED
    return int(code or _DONE)


class _ReaderGone(Exception):  # noqa: N818  (not a defect)
    """The reader of the output, such as ``head``, has closed it."""


class _Commands(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; click itself would exit with 1 if the reader has closed the output."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _ReaderGone from error


def _leave() -> None:
    """Exit while a statement is running: its uncommitted changes have no effect."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(_INTERRUPTED)


def _note(text: str) -> None:
    click.echo(text, err=True)


@click.group(
    cls=_Commands,
    epilog=_EXAMPLES,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="headrace", message="headrace %(version)s")
@common_options
def headrace() -> None:
    """SQL views over streams and changing tables, kept correct, fresh and cheap to read."""


@headrace.command(cls=CommandOfInputs, epilog=_SQL_EXAMPLES)
@common_options
@click.option(
    "-f",
    "--file",
    "files",
    metavar="SCRIPT",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    expose_value=False,
    help='Run a script; "-" is stdin. May be repeated.',
)
@click.option(
    "-c",
    "--command",
    "commands",
    metavar="SQL",
    multiple=True,
    expose_value=False,
    help="Run statements. May be repeated.",
)
@format_option
@click.option(
    "--on-error",
    type=click.Choice([choice.value for choice in OnError]),
    default=OnError.STOP.value,
    show_default=True,
    help="What a script does when a statement fails; the exit code is 1 either way.",
)
@functions_options
@click.pass_context
def sql(
    context: click.Context,
    form: str,
    on_error: str,
    functions: tuple[Path, ...],
    replace_functions: bool,  # noqa: FBT001
) -> int:
    """Run SQL statements and show their results.

    Statements run one by one; the first that fails ends the script. With neither -f nor -c, a
    terminal gets a shell, and anything else on stdin is run as a script.
    """
    target = target_of(context)
    invocation = context.ensure_object(Invocation)
    keep_quiet(debug=invocation.debug)
    inputs = inputs_given(context)
    shell = not inputs and sys.stdin.isatty()
    scripts = [read_input(given) for given in inputs or ([] if shell else [Input("-")])]
    make_directory(target, sys.stderr)
    need_free(target, invocation)
    environment = Environment.of()
    printer = printer_of(form, environment)
    thread = StatementThread(_note)
    began = monotonic()
    given = FunctionFiles(functions, replace_functions)
    if (
        inputs
        and not functions
        and isinstance(target, Path)
        and not has_ledger_elsewhere(target, invocation)
        and _looked_up(target, scripts, printer)
    ):
        return _DONE
    from headrace.tools.cli.commands import run_command  # noqa: PLC0415  (as above)
    from headrace.tools.cli.interpreter import Interpreter  # noqa: PLC0415
    from headrace.tools.cli.statements import Statements  # noqa: PLC0415

    with opened(target, invocation, thread, sys.stderr, given, warm=shell) as database:
        seconds = monotonic() - began
        interpreter = Interpreter(
            Statements(database, thread, printer, sys.stderr),
            environment,
            run_command,
            OnError(on_error),
            interactive=shell,
            debug=invocation.debug,
        )
        if shell:
            from headrace.tools.cli.shell import Shell  # noqa: PLC0415  (scripts do not need it)

            printer.display.pager = environment.pager
            Shell(interpreter).run(seconds)
            return _DONE
        _run(interpreter, scripts)
    return _FAILED if interpreter.failed else _DONE


def _looked_up(directory: Path, scripts: list[tuple[str, str | None]], printer: Printer) -> bool:
    """Show the rows of scripts that only read stored rows plainly, without opening the directory.

    Returns whether they do.
    """
    with importing_little():
        from headrace.interfaces.statements.reading.unopened import answers  # noqa: PLC0415
        from headrace.tools.cli.statements import show  # noqa: PLC0415  (as above)

    began = monotonic()
    found = answers(directory, [text for text, _ in scripts])
    for result in found or ():
        show(result, printer, monotonic() - began)
    return found is not None


def _run(interpreter: Interpreter, scripts: list[tuple[str, str | None]]) -> None:
    r"""Run scripts in order; ``\q`` ends the script that contains it."""
    from headrace.tools.cli.commands import Quit  # noqa: PLC0415  (as above)

    for text, file in scripts:
        with suppress(Quit):
            interpreter.run(text, file)
    interpreter.statements.printer.redirect(None)


@headrace.command()
@common_options
@format_option
@functions_options
@click.argument("name", required=False)
@click.pass_context
def verify(
    context: click.Context,
    form: str,
    functions: tuple[Path, ...],
    replace_functions: bool,  # noqa: FBT001
    name: str | None,
) -> int:
    """Compare views with their queries, run again over all history.

    Checks the view NAME, or all views. Exits with 1 if one differs. See also: headrace doctor,
    which checks files and the ledger without opening the database.
    """
    target = target_of(context)
    invocation = context.ensure_object(Invocation)
    keep_quiet(debug=invocation.debug)
    need_directory(target)
    need_free(target, invocation)
    printer = printer_of(form, Environment.of())
    thread = StatementThread(_note)
    from headrace.planning.sql import quote  # noqa: PLC0415  (as above)

    text = f"VERIFY {quote(name)}" if name else "VERIFY"
    given = FunctionFiles(functions, replace_functions)
    with opened(target, invocation, thread, sys.stderr, given) as database:
        with ProgressBar(sys.stderr) as bar:
            answer = thread.call(lambda: database.sql(text, progress=bar.update), database.cancel)
        table = answer.to_arrow()
        printer.rows(table)
    bad = zip(table["differences"].to_pylist(), table["verdict"].to_pylist(), strict=True)
    return _FAILED if any(count or verdict.startswith(_UNREAD) for count, verdict in bad) else _DONE


@headrace.command()
def dashboard() -> int:
    """Write a dashboard for Grafana of the metrics of headrace serve.

    Import it there: headrace dashboard > headrace.json
    """
    from headrace.interfaces.server.dashboard import dashboard as made  # noqa: PLC0415  (as above)

    click.echo(json.dumps(made(), indent=2))
    return _DONE


@headrace.command()
@common_options
@click.option(
    "--listen",
    metavar="HOST:PORT",
    default="127.0.0.1:8088",
    show_default=True,
    help="The address; port 0 takes a free one.",
)
@click.option(
    "--certificate",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The server's certificate and its chain, in PEM format: serve HTTPS.",
)
@click.option(
    "--key",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The private key of the certificate.",
)
@click.option(
    "--host-name",
    "host_names",
    metavar="NAME",
    multiple=True,
    help="A name under which clients know the server. May be repeated.",
)
@click.option(
    "--plain-http",
    is_flag=True,
    help="Let other machines in without TLS: behind a proxy that has it.",
)
@click.option("--auth", is_flag=True, help="Need access tokens, also before there are any.")
@click.option(
    "--files",
    "roots",
    metavar="DIR",
    multiple=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A directory whose files clients' statements may read. May be repeated.",
)
@click.option(
    "--backups",
    "backup_roots",
    metavar="DIR",
    multiple=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="A directory below which clients' BACKUP TO may write. May be repeated.",
)
@click.option(
    "--query-processes",
    "query_processes",
    metavar="N",
    type=click.IntRange(0, 64),
    default=2,
    show_default=True,
    help="The most processes for clients' queries; 0: the process that makes epochs runs them.",
)
@click.option(
    "--query-memory",
    "query_memory",
    metavar="SIZE",
    default="1g",
    show_default=True,
    help="The heap of each of these processes.",
)
@click.option(
    "--readers",
    metavar="N",
    type=click.IntRange(0, 64),
    default=0,
    show_default=True,
    help="Processes that accept connections and answer lookups; 0: the main process does.",
)
@click.option(
    "--pages",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="A directory whose files browsers are given below /pages/.",
)
@click.option(
    "--log-format",
    "log_format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="The format of the log, which goes to standard error.",
)
@click.option("--log-requests", "log_requests", is_flag=True, help="Log each request.")
@click.option(
    "--reader-of",
    "reader_of",
    metavar="URL",
    help="Only answer lookups by key, by store and ledger; forward all else to this server.",
)
@click.option(
    "--standby",
    is_flag=True,
    help="If another process has the database open, wait for its end and take over.",
)
@functions_options
@click.pass_context
def serve(
    context: click.Context,
    /,
    functions: tuple[Path, ...],
    replace_functions: bool,  # noqa: FBT001
    **options: Any,
) -> int:
    """Serve the database over HTTP until Ctrl-C.

    The data directory is "data" if --data is not given. Once it has access tokens, clients need
    them; without, only this machine is served.
    """
    invocation = context.ensure_object(Invocation)
    keep_quiet(debug=invocation.debug)
    if "headrace.url" in context.meta:
        raise click.UsageError("A server serves a data directory: give --data DIR.", context)
    if options["reader_of"] and options["standby"]:
        raise click.UsageError("--reader-of and --standby exclude each other.", context)
    options["ca"] = context.meta.get("headrace.ca")
    directory = data_directory_of(context)
    if not (options["standby"] or options["reader_of"]):
        need_free(directory, invocation)
    from headrace.tools.cli.serve import Serving, serve_directory  # noqa: PLC0415  (as above)

    given = FunctionFiles(functions, replace_functions)
    thread = StatementThread(_note)
    serve_directory(directory, Serving(**options), invocation, thread, sys.stderr, given)
    return _DONE


@headrace.group()
def token() -> None:
    """Access tokens, by which a server knows its clients; see also CREATE TOKEN."""


@token.command()
@common_options
@click.argument("name")
@click.option(
    "--role",
    type=click.Choice(["reader", "writer", "owner"]),
    default="reader",
    show_default=True,
    help="What it may do: read; also change rows; also create and drop.",
)
@click.option("--schema", metavar="SCHEMA", help="Where; by default, in the whole database.")
@click.pass_context
def create(context: click.Context, name: str, role: str, schema: str | None) -> int:
    """Create an access token and print its secret, which is not shown again.

    The database must not be in use; the data directory is "data" if --data is not given.
    """
    from headrace.planning.sql import Role  # noqa: PLC0415
    from headrace.tools.cli.tokens import create_token  # noqa: PLC0415  (as above)

    directory = data_directory_of(context)
    settings = context.ensure_object(Invocation).settings
    click.echo(create_token(directory, name, Role(role), schema, sys.stderr, settings))
    return _DONE


headrace.add_command(apply)
headrace.add_command(cluster)
headrace.add_command(doctor)
headrace.add_command(lineage)
headrace.add_command(plan)
headrace.add_command(restore)
headrace.add_command(test)
headrace.add_command(upgrade)
