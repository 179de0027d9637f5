"""Run the command with stdin as the terminal that Ctrl-C comes from; ``fake`` needs no Spark."""

from __future__ import annotations

import fcntl
import sys
import termios
import time

from fake_database import FakeDatabase

from headrace.tools.cli.command import main

if __name__ == "__main__":
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    kind, *arguments = sys.argv[1:]
    if kind == "fake":
        # The fake waits for Ctrl-C as a subscription does, a moment at a time.
        database = FakeDatabase(at_end=lambda: time.sleep(0.01))
        sys.exit(main(arguments, lambda *_, **_how: database))
    sys.exit(main(arguments))
