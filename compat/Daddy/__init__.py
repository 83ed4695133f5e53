"""Package of the earlier project's large Game Boy run: its command and module names, mapped to Rematch."""
