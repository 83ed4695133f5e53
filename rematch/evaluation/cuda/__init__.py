"""Matches on a GPU."""
