"""Libraries that only some formats and connectors need: each comes with an extra."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from headrace.errors import Code, HeadraceError


def library(module: str, what: str, extra: str) -> Any:
    """Return a module of a library; ``what`` names that, and ``extra`` has it.

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
