"""Run folders and checkpoints on disk: durable writes, checksums, recovery."""
