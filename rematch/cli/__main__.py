"""Runs the command line: `python -m rematch.cli`."""

import sys

from rematch.cli.main import main

sys.exit(main())
