"""Runs and their games on the machines of a Ray cluster; the same bytes as on one machine."""
