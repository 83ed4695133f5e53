"""Speed measurements of Rematch and of other libraries."""
