"""The page in the browser: `rematch serve` shows run folders, live, finished and dead ones alike."""
