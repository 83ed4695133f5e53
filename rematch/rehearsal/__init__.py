"""rematch check: a short trial of every enabled component before a long run."""
