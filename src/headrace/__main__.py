"""``python -m headrace``: the ``headrace`` command."""

import sys

from headrace.tools.cli.command import main

if __name__ == "__main__":
    sys.exit(main())
