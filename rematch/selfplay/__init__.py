"""Opponents: snapshots, opponent pools and the schedule of learning roles."""
