"""Any PettingZoo game, AEC or parallel, as a world; needs the extra `pettingzoo`."""
