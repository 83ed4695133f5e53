"""Emulated consoles: one PyBoy, pools of them in threads or worker processes, and fast savestates in C."""
