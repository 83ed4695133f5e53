"""Speed measurements, ours beside others."""
