"""Learners: each turns a rollout into a better policy."""
