"""Run the command over the fake database, with stdin as the terminal that Ctrl-C comes from."""

from __future__ import annotations

import fcntl
import sys
import termios

from fake_database import FakeDatabase

from headrace.cli.command import main

if __name__ == "__main__":
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    # Nothing sleeps here: the fake waits for Ctrl-C as a subscription does, a moment at a time.
    import time

    sys.exit(main(sys.argv[1:], lambda _: FakeDatabase(at_end=lambda: time.sleep(0.01))))
