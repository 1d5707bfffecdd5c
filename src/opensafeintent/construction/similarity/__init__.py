"""Which prompts are too similar: exact ROUGE-L between different prompt-sets of one cell (paper,
section 3, stages 2, 5).
"""
