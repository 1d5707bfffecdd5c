"""What a reader sees: `metrics.json`, tables, the terminal summary."""
