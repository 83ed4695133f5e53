"""The operating system and Python itself: signals, memory, imported code."""
