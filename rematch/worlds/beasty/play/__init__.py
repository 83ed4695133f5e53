"""A game with a person at the table: its session, what a seat knows of it, and its files."""
