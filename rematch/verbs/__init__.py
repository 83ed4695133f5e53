"""The commands as Python functions: one file per command, each with the result that it returns."""
