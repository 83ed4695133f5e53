"""Parts of commands that a Ray cluster does: the check of its nodes, shards of matches, best responses."""
