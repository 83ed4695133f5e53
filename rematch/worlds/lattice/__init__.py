"""Pursuit on a lattice: a small board that can be solved exactly."""
