"""Putting a defect into the code that maintains views, in this process and in Spark's workers.

A defect is another text in one function. The function keeps its identity and gets other code, so
whoever has imported it has the defect. Tasks of steps take it along into the workers, where it is
there while the task runs; the tasks of batch queries, which only read, do not.
"""

from __future__ import annotations
import __future__

import ast
import importlib
import inspect
import textwrap
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import cloudpickle

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FunctionType

    import headrace


@dataclass(frozen=True)
class Defect:
    """In ``function`` of ``module``, the text ``sound``, which is there once, reads ``wrong``.

    With ``keeps_groups``, the operators' own checks would notice groups that end.
    """

    name: str
    module: str
    function: str
    sound: str
    wrong: str
    keeps_groups: bool = False


def function_of(defect: Defect) -> FunctionType:
    found: Any = importlib.import_module(defect.module)
    for name in defect.function.split("."):
        found = inspect.getattr_static(found, name)
    return getattr(found, "__func__", getattr(found, "fget", found))


def code_of(defect: Defect) -> CodeType:
    """Return the function's code with the defect."""
    function = function_of(defect)
    text = textwrap.dedent(inspect.getsource(function))
    assert text.count(defect.sound) == 1, (defect.name, text.count(defect.sound))
    tree = ast.parse(text.replace(defect.sound, defect.wrong))
    tree.body[0].decorator_list = []
    flags = __future__.annotations.compiler_flag
    made = compile(tree, function.__code__.co_filename, "exec", flags=flags, dont_inherit=True)
    namespace: dict[str, Any] = {}
    exec(made, function.__globals__ | {"__name__": defect.module}, namespace)  # noqa: S102
    return namespace[function.__name__].__code__


@contextmanager
def defective(defect: Defect) -> Iterator[None]:
    """Have the defect in this process during a block, which may be in others of this defect.

    Tasks of one stage take turns, so the blocks of one may end in the middle of those of another.
    """
    function: Any = function_of(defect)
    # Kept at the function: each task that Spark sends has a module of this name of its own.
    kept = function.__dict__
    if not kept.get("blocks"):
        kept["blocks"], kept["sound"] = 0, function.__code__
        function.__code__ = code_of(defect)
    kept["blocks"] += 1
    try:
        yield
    finally:
        kept["blocks"] -= 1
        if not kept["blocks"]:
            function.__code__ = kept["sound"]


class Carrying:
    """A task that has a defect while it runs, in whatever process that is."""

    def __init__(self, task: Any, defect: Defect) -> None:
        self.task, self.defect = task, defect
        self.__name__ = getattr(task, "__name__", type(task).__name__)

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        with defective(self.defect):
            yield from self.task(batches)


@contextmanager
def active(db: headrace.Database, defect: Defect) -> Iterator[None]:
    """Have the defect in the steps of a database during a block."""
    from headrace.planning.catalyst.transplant import Transplant

    cloudpickle.register_pickle_by_value(importlib.import_module(__name__))
    mapped, programs = Transplant.mapped, db.parts.engine.programs
    programs.clear()
    try:
        with defective(defect):
            Transplant.mapped = lambda self, below, task, schema: mapped(
                self, below, Carrying(task, defect), schema
            )
            yield
    finally:
        Transplant.mapped = mapped
        programs.clear()
