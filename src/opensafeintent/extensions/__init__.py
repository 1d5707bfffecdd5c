"""Features that a run can do without: each is one module or a few, which nothing else needs."""
