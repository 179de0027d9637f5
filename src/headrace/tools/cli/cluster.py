"""``headrace cluster``: what a cluster of Spark needs; its options."""

from __future__ import annotations

from pathlib import Path

import click

_EXAMPLES = """\b
Examples:
  headrace cluster pack environment.tar.gz
  export HEADRACE_EXECUTOR_ARCHIVE=$PWD/environment.tar.gz HEADRACE_MASTER=spark://host:7077
  headrace --data s3://bucket/prefix serve
"""


@click.group()
def cluster() -> None:
    """Prepare what the executors of a cluster of Spark need."""


@cluster.command(epilog=_EXAMPLES)
@click.argument("output", metavar="OUTPUT.tar.gz", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--force", is_flag=True, help="Replace OUTPUT.tar.gz if it exists.")
def pack(output: Path, force: bool) -> int:  # noqa: FBT001
    """Pack the virtual environment that this command runs in, for executors.

    The archive has Headrace and all that is installed beside it, without what only a driver needs:
    Spark's jars, Java and pip. Its Python is a link: every worker needs the same Python at the same
    path. Name the archive by the setting executor_archive, or by Spark's spark.archives.
    """
    from headrace.tools.cli.packing import pack_environment  # noqa: PLC0415  (--help is quick)

    if not output.name.endswith((".tar.gz", ".tgz")):
        raise click.BadParameter("Give the name of a .tar.gz file.", param_hint="OUTPUT.tar.gz")
    click.echo(pack_environment(output, replace=force))
    return 0
