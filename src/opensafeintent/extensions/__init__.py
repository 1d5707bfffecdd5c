"""Features that a run can do without, a module each."""
