"""Components of a run that belong to no feature package."""
