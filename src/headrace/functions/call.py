"""A user's function, pickled for other processes, and called there; errors name the function."""

from __future__ import annotations

import sys
import sysconfig
import traceback
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle

from headrace.errors import Code, HeadraceError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType

    from headrace.functions.function import Function

_COPIES = count(1)


@dataclass(frozen=True, slots=True)
class Call:
    """A function by name, its pickled code, and the type of its results."""

    name: str
    code: bytes
    type: DataType
    hint: str = "Correct the data, or let the function return None for such arguments."
    copy: int = 0
    """The number of the unpickled copy to call: each is loaded once per process."""

    def run(self, arguments: tuple[Any, ...], shown: str) -> Any:
        """Call the function; raise its exceptions as ``invalid``, with their place and ``shown``.

        ``shown`` describes the arguments.
        """
        try:
            return self.parts()(*arguments)
        except Exception as error:
            raise self.raised(error, shown) from error

    def parts(self) -> Any:
        """Return the unpickled function; for a fold, all of its functions."""
        return _loaded(self.code, self.copy)

    def fresh(self) -> Call:
        """Return the call with a copy of the function that was never called."""
        return replace(self, copy=next(_COPIES))

    def raised(self, error: Exception, shown: str) -> HeadraceError:
        """Return the error of an exception that the function has raised, with its place."""
        name = type(error).__name__
        message = f"{name}: {error}" if str(error) else name
        return self.failed(f"{message}{_place(error)}{shown}")

    def failed(self, why: str) -> HeadraceError:
        """Return the error of a call; its detail is one line."""
        return HeadraceError(
            Code.INVALID,
            f'function "{self.name}" failed',
            detail=" ".join(why.split()),
            hint=self.hint,
        )


@lru_cache(maxsize=64)
def _loaded(code: bytes, _copy: int) -> Any:
    return cloudpickle.loads(code)


def pickled(function: Function, value: Any) -> bytes:
    """Pickle a function, or parts of it, for other processes.

    By value, unless it is in an installed package, which other processes have too.

    Raises:
        HeadraceError: ``invalid`` if it cannot be sent to another process.
    """
    module = sys.modules.get(getattr(function.body, "__module__", None) or "")
    by_value = module is not None and not _is_installed(module)
    try:
        if by_value and module is not None:
            cloudpickle.register_pickle_by_value(module)
        try:
            code: bytes = cloudpickle.dumps(value)
        finally:
            if by_value and module is not None:
                cloudpickle.unregister_pickle_by_value(module)
    except Exception as error:
        raise HeadraceError(
            Code.INVALID,
            f'function "{function.name}" cannot be sent to Spark\'s workers',
            detail=f"{type(error).__name__}: {error}",
            hint="It must not refer to locks, files, connections or other unpicklable objects.",
        ) from error
    return code


def _is_installed(module: Any) -> bool:
    path = getattr(module, "__file__", None)
    if path is None:
        return bool(module.__name__ != "__main__")
    folders = (sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    return any(folder is not None and Path(path).is_relative_to(folder) for folder in folders)


def _place(error: Exception) -> str:
    """Return the line that raised an error, unless it is in this module."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename != __file__]
    return f" (line {frames[-1].lineno} of {Path(frames[-1].filename).name})" if frames else ""
