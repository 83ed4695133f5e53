"""A gradient step of PPO on the GPU, for networks that torch computes."""
