"""The large-run document's package: its command and its module names, as thin names for Rematch's own."""
