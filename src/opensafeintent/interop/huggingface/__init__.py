"""A dataset as a folder for the Hugging Face hub: Parquet, a card, Croissant metadata."""

from opensafeintent.interop.huggingface.folder import write_hub_folder
from opensafeintent.interop.huggingface.metadata import LICENSES, Publication

__all__ = ["LICENSES", "Publication", "write_hub_folder"]
