"""Prompt-sets: the record, every loader and writer, samples, and the shipped starter set."""

from opensafeintent.promptsets.loading import load_dataset, read_dataset
from opensafeintent.promptsets.record import Dataset, Prompts, PromptSet, write_dataset
from opensafeintent.promptsets.sampling import drawn, sample_order, sampled

__all__ = [
    "Dataset",
    "PromptSet",
    "Prompts",
    "drawn",
    "load_dataset",
    "read_dataset",
    "sample_order",
    "sampled",
    "write_dataset",
]
