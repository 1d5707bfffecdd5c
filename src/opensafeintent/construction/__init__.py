"""From unsafe seed prompts to prompt-sets: one module a stage, similarity, controls, and the
pipeline that chains them.
"""
