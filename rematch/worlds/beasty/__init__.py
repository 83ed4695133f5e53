"""The card game Beasty Bar: rules, opponents and a search in C, a readable reference of each in Python."""
