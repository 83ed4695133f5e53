"""Policies, networks and learners."""
