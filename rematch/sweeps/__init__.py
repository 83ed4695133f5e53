"""Several runs of one recipe: seeds and settings side by side."""
