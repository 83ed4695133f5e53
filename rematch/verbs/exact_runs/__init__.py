"""Commands that only exact runs can offer: fork, rewind, diff and verify."""
