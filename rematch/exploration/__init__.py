"""Intrinsic reward terms: reward that the world did not give."""
