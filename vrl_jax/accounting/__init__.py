"""Communication accounting: traffic per round, its cost in time, and the period bounds from theory."""
