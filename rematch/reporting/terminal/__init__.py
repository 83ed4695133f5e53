"""Drawing on a terminal: lines that are drawn again in place, progress bars, trends."""
