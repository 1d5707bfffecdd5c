"""Evaluation: the plan of calls for a prompt, the judges, the manifest of a run, and the run
itself.
"""
