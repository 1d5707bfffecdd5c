"""Inspect AI, both ways: its providers behind our client, our evaluation as one of its tasks, and
logs.
"""
