"""Agreement: how far people agree on a dataset or on grades, and how far a judge can be trusted (docs/agreement.md)."""

from opensafeintent.people.agreement.answers import Answers, Item, SourcedLabel, gather, read_all, refuse
from opensafeintent.people.agreement.judging import (
    Dimension,
    HumanGrades,
    JudgeGrades,
    JudgeStudy,
    SafeCall,
    consensus,
    judge_study,
)
from opensafeintent.people.agreement.quality import Consistency, Quality, Question, dataset_quality, self_consistency

__all__ = [
    "Answers",
    "Consistency",
    "Dimension",
    "HumanGrades",
    "Item",
    "JudgeGrades",
    "JudgeStudy",
    "Quality",
    "Question",
    "SafeCall",
    "SourcedLabel",
    "consensus",
    "dataset_quality",
    "gather",
    "judge_study",
    "read_all",
    "refuse",
    "self_consistency",
]
