"""The command line: `python -m rematch` and the script `rematch`."""
