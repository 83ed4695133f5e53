"""Any Gymnasium environment with one player as a world; needs the extra `envs`."""
