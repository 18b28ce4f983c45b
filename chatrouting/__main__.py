"""`python -m chatrouting`."""

import sys

from chatrouting.cli import main

if __name__ == "__main__":
    sys.exit(main())
