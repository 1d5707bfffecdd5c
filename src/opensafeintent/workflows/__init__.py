"""What each command does, as one function each: the public API. A name is loaded when it is asked for, with what it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from opensafeintent.workflows.agreeing import Agreement, AgreementSettings, agreement
    from opensafeintent.workflows.annotating import (
        AnnotateDatasetSettings,
        AnnotateRunSettings,
        ExportedStudy,
        ImportAnnotationsSettings,
        annotate_dataset,
        annotate_run,
        import_annotations,
    )
    from opensafeintent.workflows.building import BuildOutcome, BuildSettings, build
    from opensafeintent.workflows.checking import DatasetCheck, check_dataset
    from opensafeintent.workflows.datasets import DatasetInfo, convert_dataset, dataset_info, validate_dataset
    from opensafeintent.workflows.deduplicating import Deduplication, DroppedSet, dedup_dataset
    from opensafeintent.workflows.evaluating import EvaluateSettings, demo, evaluate
    from opensafeintent.workflows.exporting import ExportSettings, export_inspect
    from opensafeintent.workflows.exporting_dataset import ExportDatasetSettings, ExportedDataset, export_dataset
    from opensafeintent.workflows.grading import GradeSettings, grade
    from opensafeintent.workflows.importing import ImportSettings, import_files
    from opensafeintent.workflows.judge_checking import JudgeChecks, JudgeCheckSettings, check_judges
    from opensafeintent.workflows.reporting import CompareSettings, Outcome, ReportSettings, compare, write_report
    from opensafeintent.workflows.tracing import Trace, trace

__all__ = [
    "Agreement",
    "AgreementSettings",
    "AnnotateDatasetSettings",
    "AnnotateRunSettings",
    "BuildOutcome",
    "BuildSettings",
    "CompareSettings",
    "DatasetCheck",
    "DatasetInfo",
    "Deduplication",
    "DroppedSet",
    "EvaluateSettings",
    "ExportDatasetSettings",
    "ExportSettings",
    "ExportedDataset",
    "ExportedStudy",
    "GradeSettings",
    "ImportAnnotationsSettings",
    "ImportSettings",
    "JudgeCheckSettings",
    "JudgeChecks",
    "Outcome",
    "ReportSettings",
    "Trace",
    "agreement",
    "annotate_dataset",
    "annotate_run",
    "build",
    "check_dataset",
    "check_judges",
    "compare",
    "convert_dataset",
    "dataset_info",
    "dedup_dataset",
    "demo",
    "evaluate",
    "export_dataset",
    "export_inspect",
    "grade",
    "import_annotations",
    "import_files",
    "trace",
    "validate_dataset",
    "write_report",
]

_HOME = {
    "Agreement": "agreeing",
    "AgreementSettings": "agreeing",
    "AnnotateDatasetSettings": "annotating",
    "AnnotateRunSettings": "annotating",
    "BuildOutcome": "building",
    "BuildSettings": "building",
    "CompareSettings": "reporting",
    "DatasetCheck": "checking",
    "DatasetInfo": "datasets",
    "Deduplication": "deduplicating",
    "DroppedSet": "deduplicating",
    "EvaluateSettings": "evaluating",
    "ExportDatasetSettings": "exporting_dataset",
    "ExportSettings": "exporting",
    "ExportedDataset": "exporting_dataset",
    "ExportedStudy": "annotating",
    "GradeSettings": "grading",
    "ImportAnnotationsSettings": "annotating",
    "ImportSettings": "importing",
    "JudgeCheckSettings": "judge_checking",
    "JudgeChecks": "judge_checking",
    "Outcome": "reporting",
    "ReportSettings": "reporting",
    "Trace": "tracing",
    "agreement": "agreeing",
    "annotate_dataset": "annotating",
    "annotate_run": "annotating",
    "build": "building",
    "check_dataset": "checking",
    "check_judges": "judge_checking",
    "compare": "reporting",
    "convert_dataset": "datasets",
    "dataset_info": "datasets",
    "dedup_dataset": "deduplicating",
    "demo": "evaluating",
    "evaluate": "evaluating",
    "export_dataset": "exporting_dataset",
    "export_inspect": "exporting",
    "grade": "grading",
    "import_annotations": "annotating",
    "import_files": "importing",
    "trace": "tracing",
    "validate_dataset": "datasets",
    "write_report": "reporting",
}


def __getattr__(name: str) -> Any:
    """Load what is asked for, and nothing before."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
