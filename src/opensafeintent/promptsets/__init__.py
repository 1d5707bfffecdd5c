"""Prompt-sets: the record, every loader and writer, samples, and the shipped starter set."""

from opensafeintent.promptsets.loading import (
    draw_sets,
    load_dataset,
    read_dataset,
    sample_order,
    sample_sets,
)
from opensafeintent.promptsets.record import Dataset, Prompts, PromptSet, write_dataset

__all__ = [
    "Dataset",
    "PromptSet",
    "Prompts",
    "draw_sets",
    "load_dataset",
    "read_dataset",
    "sample_order",
    "sample_sets",
    "write_dataset",
]
