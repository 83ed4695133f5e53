"""Rematch worlds as Gymnasium and PettingZoo environments."""
