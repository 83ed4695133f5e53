"""Protection against collapse and forgetting."""
