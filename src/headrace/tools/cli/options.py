"""The options that every command has before and after its name, and the database that they say."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headrace.tools.cli.connection import Address, Invocation, need_directory
from headrace.tools.cli.environment import Format

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.tools.cli.environment import Environment
    from headrace.tools.cli.printer import Printer


F = TypeVar("F", bound="Callable[..., Any]")


def _set_debug(context: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001
    if value:
        context.find_object(Invocation).debug = True  # type: ignore[union-attr]


def _set_file(context: click.Context, option: click.Parameter, value: Path | None) -> None:
    if value is not None:
        context.meta[f"headrace.{option.name}"] = value


def _set_url(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.meta["headrace.url"] = value


def _set_ledger(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.ensure_object(Invocation).settings["ledger"] = value


def _set_branch(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.meta["headrace.branch"] = value


def _set_data(context: click.Context, _: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.meta["headrace.data"] = value


def data_directory_of(context: click.Context) -> Path:
    """Return the data directory of a command, "data" by default; for a store, that of its cache.

    With a branch, it is that of the branch, which has a ledger and files of its own.

    Raises:
        HeadraceError: ``invalid`` if there is no such branch.
    """
    from headrace.files import StoreAddress  # noqa: PLC0415
    from headrace.files.directories import data_directory  # noqa: PLC0415  (--help is quick)
    from headrace.interfaces.settings import Settings  # noqa: PLC0415

    data = context.meta.get("headrace.data", "data")
    branch = context.meta.get("headrace.branch")
    given = context.ensure_object(Invocation).settings
    if branch is not None:
        directory, chosen = Settings.of(given).in_branch(data, branch)
        own = ("ledger", "ledger_schema", "store", "openlineage")
        given |= {name: getattr(chosen, name) for name in own}
        return directory
    if not StoreAddress.is_store(data):
        return data_directory(data)
    directory, _ = Settings.of(given).in_store(data)
    given["store"] = data
    return directory


def local_directory(context: click.Context) -> Path:
    """Return the data directory of a command that looks at its files: one that is there.

    Raises:
        HeadraceError: ``invalid`` if it does not exist; wrong usage if a server is given, or none.
    """
    if "headrace.url" in context.meta or "headrace.data" not in context.meta:
        raise click.UsageError("Give --data DIR, on the machine that has it.", context)
    directory = data_directory_of(context)
    need_directory(directory)
    return directory


def common_options(command: F) -> F:
    """Add the options that are allowed before and after the command's name."""
    data = click.option(
        "--data",
        metavar="DIR",
        expose_value=False,
        callback=_set_data,
        help="The data directory, created if it is missing; or an object store: s3://bucket/prefix.",
    )
    url = click.option(
        "--url",
        metavar="URL",
        expose_value=False,
        callback=_set_url,
        help="Or the server that has it open, such as http://127.0.0.1:8088.",
    )
    ledger = click.option(
        "--ledger",
        metavar="URL",
        expose_value=False,
        callback=_set_ledger,
        help="The PostgreSQL database with the directory's ledger; by default, HEADRACE_LEDGER is.",
    )
    branch = click.option(
        "--branch",
        metavar="NAME",
        expose_value=False,
        callback=_set_branch,
        help="The branch of the directory's database, made by CREATE BRANCH, instead of itself.",
    )
    debug = click.option(
        "--debug",
        is_flag=True,
        expose_value=False,
        callback=_set_debug,
        help="Show stack traces and the notes of libraries.",
    )
    return data(
        branch(ledger(url(_file("--token-file", _TOKEN)(_file("--ca", _CA)(debug(command))))))
    )


_TOKEN = "A file with the token for the server; by default, HEADRACE_TOKEN is."  # noqa: S105
_CA = "A file of certificates to trust for https."


def _file(name: str, meaning: str) -> Callable[[F], F]:
    return click.option(
        name,
        metavar="FILE",
        type=click.Path(exists=True, dir_okay=False, path_type=Path),
        expose_value=False,
        callback=_set_file,
        help=meaning,
    )


def target_of(context: click.Context) -> Path | Address:
    """Return the database of a command: from its options, else from HEADRACE_URL."""
    from headrace.interfaces.settings import URL, variable  # noqa: PLC0415  (--help is quick)

    found = context.meta
    data, url = found.get("headrace.data"), found.get("headrace.url")
    if data is not None and url is not None:
        raise click.UsageError("--data and --url exclude each other.", context)
    url = url or (variable(URL) if data is None else None)
    if url and context.ensure_object(Invocation).settings:
        raise click.UsageError("--ledger is for --data.", context)
    if url and "headrace.branch" in found:
        raise click.UsageError("--branch is for --data: a server has one database open.", context)
    if url:
        return Address(url, found.get("headrace.token_file"), found.get("headrace.ca"))
    if data is None:
        raise click.UsageError(
            "Missing option '--data DIR', the data directory, or '--url URL', of a server.", context
        )
    if "headrace.token_file" in found or "headrace.ca" in found:
        raise click.UsageError("--token-file and --ca are for --url.", context)
    return data_directory_of(context)


def format_option(command: F) -> F:
    """Add the option that says how results are written."""
    return click.option(
        "--format",
        "form",
        type=click.Choice([form.value for form in Format]),
        default=Format.TABLE.value,
        show_default=True,
        help="How results are written.",
    )(command)


def printer_of(form: str, environment: Environment) -> Printer:
    """Return what writes results in a format to standard output."""
    from headrace.tools.cli.printer import Display, Printer  # noqa: PLC0415  (--help is quick)

    chosen = Format(form)
    if not chosen.for_people and hasattr(sys.stdout, "reconfigure"):
        # The formats for programs are UTF-8, and their line ends are as written, everywhere.
        sys.stdout.reconfigure(encoding="utf-8", newline="")
    return Printer(Display(chosen), sys.stdout, sys.stderr, environment.colours)
