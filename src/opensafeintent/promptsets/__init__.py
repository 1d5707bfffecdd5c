"""Prompt-sets: the record, every loader and writer, samples, and the shipped starter set."""

from opensafeintent.promptsets.loading import (
    drawn,
    load_dataset,
    read_dataset,
    sample_order,
    sampled,
)
from opensafeintent.promptsets.record import Dataset, Prompts, PromptSet, write_dataset

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
