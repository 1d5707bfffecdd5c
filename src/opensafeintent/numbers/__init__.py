"""Numbers: cohort of comparable models, estimates by model and stratum, judges, correction."""
