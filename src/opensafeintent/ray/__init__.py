"""Evaluate and grade on a Ray cluster.

A task takes a part of one model's prompt-sets, and makes their calls as a command does. It writes a
ledger of its own into the run's folder, which all nodes share. When the task ends, its ledger is
merged into the run's.
"""
