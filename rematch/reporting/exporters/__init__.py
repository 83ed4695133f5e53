"""Others' tools: notifications, TensorBoard, Weights & Biases. They read run folders only."""
