"""``python -m headrace``: the ``headrace`` command."""

import sys

from headrace.cli.command import main

if __name__ == "__main__":
    sys.exit(main())
