"""Steps a world with the seated players and fills the rollout buffer."""
