"""A run's headline metrics in the formats in which results are shared: Every Eval Ever, and files
for model repositories on the Hugging Face hub.
"""
