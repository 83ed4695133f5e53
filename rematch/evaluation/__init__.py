"""Matches, intervals and verdicts: how strong a policy is."""
