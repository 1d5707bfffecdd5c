"""What a dataset controls for, measured: balance, parity of the intents, telling words, alike
prompts.
"""
