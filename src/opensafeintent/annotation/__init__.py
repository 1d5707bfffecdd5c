"""People in the loop: what annotators are given, what comes back, and how far they agree."""
