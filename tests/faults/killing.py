"""Programs that are killed: how tests start them, and how they die at a stage."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SECONDS_ALLOWED = 240.0


def start(program: Path, directory: Path, batches: int, *stage: str) -> subprocess.Popen[str]:
    """Start a program over a directory, to die at the nth time of a stage if one is given."""
    command = [sys.executable, str(program), str(directory), str(batches), *stage]
    # It lives for seconds: what the JVM's second compiler would gain, it costs many times.
    environment = {**os.environ, "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
    )


def dying(arguments: list[str]) -> Callable[[str], None]:
    """Return what kills this process at a stage; ``arguments`` are its name and which time."""
    stage, nth = (arguments[0], int(arguments[1])) if arguments else ("", 0)
    seen = 0

    def fault(reached: str) -> None:
        nonlocal seen
        seen += reached == stage
        if reached == stage and seen == nth:
            os.kill(os.getpid(), signal.SIGKILL)

    return fault
