"""Agreement: how far people agree on a dataset or on grades, and how far a judge can be trusted (docs/agreement.md)."""

from opensafeintent.people.agreement.consistency import self_consistency
from opensafeintent.people.agreement.gathering import Answers, Item, Placed, gather, read_all
from opensafeintent.people.agreement.judges import consensus, judge_study
from opensafeintent.people.agreement.quality import dataset_quality
from opensafeintent.people.agreement.records import (
    Consistency,
    Dimension,
    HumanGrades,
    JudgeGrades,
    JudgeStudy,
    Quality,
    Question,
    SafeCall,
)

__all__ = [
    "Answers",
    "Consistency",
    "Dimension",
    "HumanGrades",
    "Item",
    "JudgeGrades",
    "JudgeStudy",
    "Placed",
    "Quality",
    "Question",
    "SafeCall",
    "consensus",
    "dataset_quality",
    "gather",
    "judge_study",
    "read_all",
    "self_consistency",
]
