"""One training run: its components, its loop and its log."""
