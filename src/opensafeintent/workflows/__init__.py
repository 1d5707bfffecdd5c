"""What each command does, as one function each: the public API."""

from opensafeintent.workflows.datasets import DatasetInfo, convert_dataset, dataset_info, validate_dataset
from opensafeintent.workflows.evaluating import EvaluateSettings, GradeSettings, demo, evaluate, grade
from opensafeintent.workflows.importing import ImportSettings, import_files
from opensafeintent.workflows.reporting import Outcome, ReportSettings, write_report

__all__ = [
    "DatasetInfo",
    "EvaluateSettings",
    "GradeSettings",
    "ImportSettings",
    "Outcome",
    "ReportSettings",
    "convert_dataset",
    "dataset_info",
    "demo",
    "evaluate",
    "grade",
    "import_files",
    "validate_dataset",
    "write_report",
]
