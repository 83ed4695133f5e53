"""Acting of a few games on the GPU."""
