"""Two robots in a walled arena: one hunts, one hides."""
