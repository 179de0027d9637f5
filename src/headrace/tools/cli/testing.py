"""The work of ``headrace test``."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TextIO

from headrace.errors import Code, HeadraceError
from headrace.planning.sql.definitions import TESTS
from headrace.testing.prepared import PreparedDatabases
from headrace.testing.running import run, write_junit
from headrace.testing.script import Script, scripts_in
from headrace.tools.cli.failures import report

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from headrace.planning.functions import Function
    from headrace.testing.running import TestOutcome
    from headrace.testing.script import ScriptTest


_DONE, _FAILED, _WRONG = 0, 1, 2
_GREEN, _RED, _PLAIN = "\x1b[32m", "\x1b[31m", "\x1b[0m"
_INDENT: Final = " " * 8


@dataclass(frozen=True, slots=True)
class SelectedTests:
    """The tests to run, where to report them, and the functions that their queries call."""

    paths: tuple[Path, ...]
    words: tuple[str, ...] = ()
    junit: Path | None = None
    functions: Sequence[Function] = ()

    def takes(self, script: Script, test: ScriptTest) -> bool:
        """Whether a test is to be run."""
        text = f"{script.file} {test.name}".lower()
        return not self.words or any(word.lower() in text for word in self.words)


@dataclass(slots=True)
class _Console:
    """Where progress is shown; ``waits`` is what takes long, shown if somebody looks."""

    output: TextIO
    errors: TextIO
    colours: bool
    _shown: str = field(default="")

    def waits(self, what: str) -> None:
        """Show what a test waits for."""
        if self.errors.isatty():
            self.clear()
            self._shown = f"  {what}…"
            self.errors.write(self._shown)
            self.errors.flush()

    def clear(self) -> None:
        """Remove what was shown last."""
        if self._shown:
            self.errors.write(f"\r{' ' * len(self._shown)}\r")
            self.errors.flush()
            self._shown = ""

    def line(self, text: str = "") -> None:
        """Write a line."""
        self.clear()
        self.output.write(f"{text}\n")
        self.output.flush()

    def outcome(self, each: TestOutcome) -> None:
        """Write the outcome of a test."""
        if each.failure is None:
            self.line(f"  {self._in('ok', _GREEN)}    {each.test.name} ({each.seconds:.2f} s)")
            return
        self.line(f"  {self._in('FAIL', _RED)}  {each.test.name} ({each.seconds:.2f} s)")
        for line in str(each.failure).splitlines():
            self.line(f"{_INDENT}{line}")

    def summary(self, outcomes: Sequence[TestOutcome], left_out: int, seconds: float) -> None:
        """Write how many tests passed and failed."""
        failed = sum(each.failure is not None for each in outcomes)
        parts = [f"{len(outcomes) - failed} passed"]
        parts += [f"{failed} failed"] if failed else []
        parts += [f"{left_out} left out"] if left_out else []
        colour = _RED if failed else _GREEN
        self.line(f"{self._in(', '.join(parts), colour)} in {seconds:.1f} s")

    def _in(self, text: str, colour: str) -> str:
        return f"{colour}{text}{_PLAIN}" if self.colours else text


def run_tests(selection: SelectedTests, output: TextIO, errors: TextIO, *, colours: bool) -> int:
    """Run tests and show their outcomes; return the exit code.

    All files are read before any test is run: if one is wrong, none is.
    """
    began = time.monotonic()
    scripts = _read(selection, errors)
    if scripts is None:
        return _WRONG
    chosen = [(s, [t for t in s.tests if selection.takes(s, t)]) for s in scripts]
    every = sum(len(script.tests) for script in scripts)
    if not any(tests for _, tests in chosen):
        names = " or ".join(f'"{word}"' for word in selection.words)
        error = HeadraceError(Code.INVALID, f"no test is named {names}")
        report(error, errors, debug=False)
        return _WRONG
    console = _Console(output, errors, colours and output.isatty())
    outcomes: list[TestOutcome] = []
    prepared = PreparedDatabases(says=console.waits)
    try:
        for script, tests in chosen:
            if tests:
                console.line(str(script.file))
            for test in tests:
                outcomes.append(run(script, test, prepared, selection.functions))
                console.outcome(outcomes[-1])
    finally:
        console.clear()
        prepared.close()
    if selection.junit is not None:
        write_junit(selection.junit, outcomes)
    console.summary(outcomes, every - len(outcomes), time.monotonic() - began)
    return _FAILED if any(each.failure is not None for each in outcomes) else _DONE


def _read(selection: SelectedTests, errors: TextIO) -> list[Script] | None:
    """Read all files; None if one of them is wrong, after its error was shown."""
    found: list[Script] = []
    wrong = False
    try:
        files = list(dict.fromkeys(scripts_in(selection.paths, TESTS)))
    except HeadraceError as error:
        report(error, errors, debug=False)
        return None
    for file in files:
        try:
            found.append(Script.read(file, str(file)))
        except HeadraceError as error:
            report(error, errors, debug=False)
            wrong = True
    return None if wrong else found
