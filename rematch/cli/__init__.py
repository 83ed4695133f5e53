"""The command line: `python -m rematch.cli` and the script `rematch`."""
