"""Commands that use a GPU for several runs at once."""
