"""Outputs for readers: `metrics.json`, tables, the terminal summary."""
