"""Protobuf schemas to descriptors: from a registry's serialised files, or compiled from text."""

from __future__ import annotations

import base64
import binascii
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from headrace.errors import Code, HeadraceError
from headrace.formats.values import RejectedValueError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from headrace.formats.registered import RegisteredSchema

_COMPILE_SECONDS: Final = 30
_FILE: Final = "__message__.proto"
"""The name given to a registered file; the files that it imports have names."""
_KNOWN: Final = {
    **{
        f"google/protobuf/{name}.proto": f"google.protobuf.{name}_pb2"
        for name in ("any", "descriptor", "duration", "empty", "struct", "timestamp", "wrappers")
    },
    **{
        f"confluent/{name}.proto": "confluent_kafka.schema_registry.confluent."
        f"{name.replace('/', '.')}_pb2"
        for name in ("meta", "type/decimal")
    },
}
"""The files that schemas import without a reference, and the modules that define them."""


def described(registered: RegisteredSchema) -> Any:
    """Return the descriptor of a registered file.

    Raises:
        RejectedValueError: if it is not a Protobuf schema.
        HeadraceError: ``invalid`` if a required library is not installed.
    """
    libraries = _libraries()
    texts = {**dict(registered.references), _FILE: registered.text}
    files = [_serialized(libraries, name, text) for name, text in texts.items()]
    if None in files:
        files = _compiled(libraries, texts)
    pool = libraries.descriptor_pool.DescriptorPool()
    added: set[str] = set()
    try:
        for each in files:
            _add_known(pool, each.dependency, added)
            if each.name not in added:
                added.add(each.name)
                pool.Add(each)
        return pool.FindFileByName(_FILE)
    except (TypeError, KeyError) as error:
        raise RejectedValueError(f"its schema is not one of Protobuf: {error}") from error


def _serialized(libraries: Any, name: str, text: str) -> Any:
    """Return a file given in serialised form, in base64; None if it is text."""
    try:
        found = libraries.descriptor_pb2.FileDescriptorProto.FromString(
            base64.b64decode(text, validate=True)
        )
    except (binascii.Error, ValueError, libraries.message.DecodeError):
        return None
    found.name = name
    return found


def _add_known(pool: Any, names: Iterable[str], added: set[str]) -> None:
    for name in names:
        if name in _KNOWN and name not in added:
            added.add(name)
            file = import_module(_KNOWN[name]).DESCRIPTOR
            _add_known(pool, [each.name for each in file.dependencies], added)
            pool.AddSerializedFile(file.serialized_pb)


def _compiled(libraries: Any, texts: dict[str, str]) -> list[Any]:
    """Compile files given as text, with their imports; return them, dependencies first.

    The compiler runs in a child process, because it reports errors only on its output.
    """
    try:
        import grpc_tools  # noqa: PLC0415
    except ImportError as error:
        raise HeadraceError(
            Code.INVALID,
            "the compiler of Protobuf schemas is not installed",
            "The registry gives schemas as text.",
            'Install it: pip install "headrace[protobuf]".',
        ) from error
    with TemporaryDirectory() as folder:
        for name, text in texts.items():
            path = (Path(folder) / name).resolve()
            if not path.is_relative_to(Path(folder).resolve()):
                raise RejectedValueError(f'its schema imports "{name}"')
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        known = Path(grpc_tools.__file__).parent / "_proto"
        out = Path(folder) / "__descriptors__"
        command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", f"-I{known}"]
        command += ["--include_imports", f"--descriptor_set_out={out}", _FILE]
        done = subprocess.run(  # noqa: S603 (a fixed command, with checked names)
            command, capture_output=True, text=True, check=False, timeout=_COMPILE_SECONDS
        )
        if done.returncode:
            said = done.stderr.replace(f"{folder}/", "").strip()
            raise RejectedValueError(f"its schema is not one of Protobuf: {said}")
        return list(libraries.descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file)


def _libraries() -> Any:
    """Return the library's package, with the modules that are used here.

    Raises:
        HeadraceError: ``invalid`` if it is not installed.
    """
    try:
        from google import protobuf  # noqa: PLC0415
        from google.protobuf import (  # noqa: F401, PLC0415
            descriptor_pb2,
            descriptor_pool,
            message,
            message_factory,
        )
    except ImportError as error:
        raise HeadraceError(
            Code.INVALID,
            "the library for Protobuf is not installed",
            f"{error}.",
            'Install it: pip install "headrace[protobuf]".',
        ) from error
    return protobuf
