"""What a dataset controls for, measured: balance, parity of the intents, telling words, alike prompts."""

from opensafeintent.construction.controls.findings import check
from opensafeintent.construction.controls.records import DatasetCheck

__all__ = ["DatasetCheck", "check"]
