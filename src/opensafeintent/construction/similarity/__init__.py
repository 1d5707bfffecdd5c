"""Which prompts are too similar: exact ROUGE-L between different prompt-sets of one cell (paper, section 3, stages 2, 5)."""

from opensafeintent.construction.similarity.index import CellIndex, Match
from opensafeintent.construction.similarity.join import (
    Deduplicated,
    Item,
    Rule,
    ScoreBlock,
    Scores,
    duplicates,
    score_blocks,
    scores,
    similar_pairs,
)
from opensafeintent.construction.similarity.rouge import PAPER_THRESHOLD, Overlap, Threshold, overlap, words

__all__ = [
    "PAPER_THRESHOLD",
    "CellIndex",
    "Deduplicated",
    "Item",
    "Match",
    "Overlap",
    "Rule",
    "ScoreBlock",
    "Scores",
    "Threshold",
    "duplicates",
    "overlap",
    "score_blocks",
    "scores",
    "similar_pairs",
    "words",
]
