"""Programs of narrow steps on disk: after opening, epochs run before Spark has started.

A program is stored if nothing of it needs the JVM as long as no value is in doubt: its expressions
are vectors, and its windows and aggregates are read. Those are data: constants, types, operators
and the names of functions of this package. What only Catalyst has is left out; a program that needs
it says so (:class:`UnplannedError`) before anything is durable, and is planned.

A file belongs to one version of Headrace, Spark and Arrow, and to one definition of a relation and
of all that is below it. Any other file is ignored, as is a damaged one, and replaced later. It has
the types of this package and of Arrow only: reading one runs no other code.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import HeadraceError
from headrace.execution.engine.narrow.evaluated import InCatalyst, Unplanned
from headrace.execution.engine.narrow.nodes import JobNode, UnplannedNode, nodes_of
from headrace.files import mounts
from headrace.planning.catalog import PlainView, View

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.execution.engine.narrow.nodes import RowsNode
    from headrace.execution.runtime.ports import StepPlan
    from headrace.planning.catalog import Relation
    from headrace.types import RelationId


_DIGEST_BYTES: Final = 16
_OWN: Final = (
    "headrace.planning.catalyst.transplant",
    "headrace.planning.catalyst.vectors",
    "headrace.planning.circuit",
    "headrace.execution.engine.jobs.worker",
    "headrace.execution.engine.jobs.worker",
    "headrace.execution.engine.narrow",
    "headrace.algebra.operators",
    "headrace.execution.runtime.ports",
    "headrace.algebra.spine.first_rows",
    "headrace.types",
    "headrace.algebra.zset",
    "pyspark.sql.types",
)
"""The modules whose own classes and functions may be in a program."""
_OTHERS: Final = {
    "builtins": ("frozenset", "set"),
    "datetime": ("date", "datetime", "time", "timedelta", "timezone"),
    "decimal": ("Decimal",),
    "functools": ("partial",),
    "pyarrow.lib": (
        "_reconstruct_table",
        "_restore_array",
        "binary",
        "bool_",
        "chunked_array",
        "date32",
        "decimal128",
        "decimal256",
        "duration",
        "field",
        "list_",
        "map_",
        "py_buffer",
        "scalar",
        "schema",
        "string",
        "struct",
        "time64",
        "timestamp",
        "type_for_alias",
    ),
}
"""What else may be."""


@dataclass(frozen=True, slots=True)
class StoredProgram:
    """The program of one relation: its last node, what it needs, and the relations it reads."""

    node: RowsNode
    needs: StepPlan
    reads: tuple[RelationId, ...]


@dataclass(frozen=True, slots=True)
class ProgramFiles:
    """The programs in a ``folder``, by relation and ``variant``: a short text, safe in a name.

    A folder that cannot be written to stores none.
    """

    folder: Path
    _definitions: dict[RelationId, tuple[Relation, bytes]] = field(default_factory=dict)

    def find(
        self, relation: Relation, variant: str, relations: Mapping[RelationId, Relation]
    ) -> StoredProgram | None:
        """Return the program of a relation over some relations, or None if there is none."""
        definition = self._definition(relation, relations)
        if definition is None:
            return None
        file = self._file(relation.id, variant)
        body = _body(file, definition)
        if body is None:  # another machine may have made it
            with suppress(HeadraceError):
                body = _body(file, definition) if mounts.fetch(str(file)) else None
        return None if body is None else _read(body)

    def store(
        self,
        relation: Relation,
        variant: str,
        relations: Mapping[RelationId, Relation],
        program: StoredProgram,
    ) -> None:
        """Store the program of a relation over some relations, if it can be run without the JVM."""
        definition = self._definition(relation, relations)
        body = _written(program) if definition is not None else None
        if definition is None or body is None or _read(body) is None:
            return
        file = self._file(relation.id, variant)
        made = file.with_name(f"{file.name}.{os.getpid()}")
        with suppress(OSError):  # the next start takes longer
            self.folder.mkdir(exist_ok=True)
            made.write_bytes(_digest(definition, body) + body)
            made.replace(file)
            with suppress(HeadraceError):
                mounts.keep(file)

    def delete(self, relation: RelationId) -> None:
        """Delete the programs of a relation."""
        with suppress(OSError, HeadraceError):
            mounts.delete(self.folder, list(mounts.files_in(self.folder, f"{relation}.")))

    def _file(self, relation: RelationId, variant: str) -> Path:
        return self.folder / f"{relation}.{variant}"

    def _definition(
        self, relation: Relation, relations: Mapping[RelationId, Relation]
    ) -> bytes | None:
        """Return a digest of the definitions of a relation and of all that is below it.

        None if one of them is unknown, or if it calls Python functions, which are not stored.
        """
        if isinstance(relation, View | PlainView) and relation.functions:
            return None
        digest, reached = hashlib.blake2s(digest_of_versions()), {relation.id: relation}
        pending = [relation]
        while pending:
            each = pending.pop()
            for id_ in each.inputs if isinstance(each, View | PlainView) else ():
                below = relations.get(id_)
                if below is None:
                    return None
                if id_ not in reached:
                    reached[id_] = below
                    pending.append(below)
        for _, each in sorted(reached.items()):
            digest.update(self._own_definition(each))
        return digest.digest()

    def _own_definition(self, relation: Relation) -> bytes:
        known = self._definitions.get(relation.id)
        if known is None or known[0] is not relation:
            text = json.dumps(relation.to_json(), sort_keys=True)
            known = relation, hashlib.blake2s(text.encode()).digest()
            self._definitions[relation.id] = known
        return known[1]


def _body(file: Path, definition: bytes) -> bytes | None:
    """Return the program in a file as bytes; None if the file is missing or of something else."""
    try:
        content = file.read_bytes()
    except OSError:
        return None
    digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    return body if digest == _digest(definition, body) else None


def _digest(definition: bytes, body: bytes) -> bytes:
    return hashlib.blake2s(body, key=definition, digest_size=_DIGEST_BYTES).digest()


class _NotStoredError(Exception):
    """A program needs the JVM."""


class _Writer(pickle.Pickler):
    """Writes a program without what only Catalyst has."""

    def reducer_override(self, value: Any) -> Any:
        """Replace what refers to the JVM."""
        match value:
            case InCatalyst():
                if any(value.crossed):
                    raise _NotStoredError
                return Unplanned, ()
            case JobNode():
                return UnplannedNode, (value.schema,)
            case _:
                return NotImplemented


class _Reader(pickle.Unpickler):
    """Reads a program: only the classes and functions of an allow-list can be in it."""

    def find_class(self, module: str, name: str) -> Any:
        """Return a class or function of the allow-list."""
        if name in _OTHERS.get(module, ()):
            return getattr(import_module(module), name)
        allowed = module == "pyarrow.compute" or module.startswith(_OWN)
        found = getattr(import_module(module), name) if allowed and "." not in name else None
        if getattr(found, "__module__", None) != module:
            raise pickle.UnpicklingError(f"{module}.{name} cannot be part of a program")
        return found


def _written(program: StoredProgram) -> bytes | None:
    """Return a program as bytes, or None if it cannot be run without the JVM."""
    if any(isinstance(node, JobNode) for node in nodes_of(program.node)):
        return None
    stream = io.BytesIO()
    try:
        _Writer(stream, pickle.HIGHEST_PROTOCOL).dump(program)
    except (_NotStoredError, pickle.PicklingError, TypeError, AttributeError, RecursionError):
        return None
    return stream.getvalue()


def _read(body: bytes) -> StoredProgram | None:
    try:
        found = _Reader(io.BytesIO(body)).load()
    except Exception:  # noqa: BLE001  (whatever is wrong with it, it is planned again)
        return None
    return found if isinstance(found, StoredProgram) else None


@cache
def digest_of_versions() -> bytes:
    """Return a digest of all that may change what a program is, beside definitions.

    Of this package it is also the time and size of its files, which change while it is developed.
    """
    package = Path(__file__).parents[3]
    files = (
        (str(path.relative_to(package)), (found := path.stat()).st_size, found.st_mtime_ns)
        for path in sorted(package.rglob("*.py"))
    )
    packages = [(name, version(name)) for name in ("headrace", "pyspark", "pyarrow", "numpy")]
    identity = (sys.version, packages, *files, _defaults_of_spark())
    return hashlib.blake2s(repr(identity).encode()).digest()


def _defaults_of_spark() -> str:
    """Return the user's own defaults of Spark, which may choose another meaning of expressions."""
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (Path(home) / "conf" if home else None)
    if folder is None:
        return ""
    try:
        return (Path(folder) / "spark-defaults.conf").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
