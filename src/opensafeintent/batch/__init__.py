"""Batches: many calls in one submission, at half the price, answered within a day.

A run with batches fills its ledger in rounds. Each round is the plan of calls, replayed against the
ledger: the calls that it lacks are submitted as batches, and their results become rows of the
ledger, as those of plain calls do. The ordinary run then finds them there.
"""
