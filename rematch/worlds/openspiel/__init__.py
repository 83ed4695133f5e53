"""OpenSpiel's two-player games: games.py (what can be played), table.py (histories), world.py, exact.py."""
