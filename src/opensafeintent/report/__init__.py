"""Outputs for readers: `metrics.json`, tables, figures and the page."""
