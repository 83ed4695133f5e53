"""The game of Nim as a world of Rematch, installed as a package of its own."""
