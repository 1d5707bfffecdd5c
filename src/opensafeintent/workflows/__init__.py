"""What each command does, as one function each: the public API."""

from opensafeintent.workflows.datasets import DatasetInfo, convert_dataset, dataset_info, validate_dataset
from opensafeintent.workflows.evaluating import EvaluateSettings, GradeSettings, demo, evaluate, grade
from opensafeintent.workflows.importing import ImportSettings, import_files
from opensafeintent.workflows.reporting import CompareSettings, Outcome, ReportSettings, compare, write_report
from opensafeintent.workflows.tracing import Trace, trace

__all__ = [
    "CompareSettings",
    "DatasetInfo",
    "EvaluateSettings",
    "GradeSettings",
    "ImportSettings",
    "Outcome",
    "ReportSettings",
    "Trace",
    "compare",
    "convert_dataset",
    "dataset_info",
    "demo",
    "evaluate",
    "grade",
    "import_files",
    "trace",
    "validate_dataset",
    "write_report",
]
