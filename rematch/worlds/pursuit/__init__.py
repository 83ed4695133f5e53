"""Pursuit: two robots in a walled arena, a pursuer and an evader."""
