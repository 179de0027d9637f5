"""Optional libraries of formats and connectors, each installed by an extra."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from headrace.errors import Code, HeadraceError


def library(module: str, what: str, extra: str) -> Any:
    """Import a module of a library; ``what`` names the library, ``extra`` installs it.

    Raises:
        HeadraceError: ``invalid`` if it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise HeadraceError(
            Code.INVALID,
            f"the {what} is not installed",
            f"{error}.",
            f'Install it: pip install "headrace[{extra}]".',
        ) from error
