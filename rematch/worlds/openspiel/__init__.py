"""OpenSpiel's two-player games: games.py (what can be played), history_table.py (histories), world.py and
exploitability.py."""
