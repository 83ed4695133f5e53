"""Runs the command line: `python -m rematch`."""

import sys

from rematch.cli.main import main

sys.exit(main())
