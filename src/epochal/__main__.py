"""``python -m epochal`` is the command ``epochal``."""

import sys

from epochal.cli import main

if __name__ == "__main__":
    sys.exit(main())
