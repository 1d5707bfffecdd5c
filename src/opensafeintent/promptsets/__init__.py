"""Prompt-sets: the record, every loader and writer, sampling, and the shipped starter set."""

from opensafeintent.promptsets.loading import load_dataset, read_dataset
from opensafeintent.promptsets.record import Dataset, Prompts, PromptSet, stratified_sample
from opensafeintent.promptsets.writing import write_dataset

__all__ = ["Dataset", "PromptSet", "Prompts", "load_dataset", "read_dataset", "stratified_sample", "write_dataset"]
