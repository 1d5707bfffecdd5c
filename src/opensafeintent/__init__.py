"""OpenSafeIntent: does a model give the right amount of help as intent shifts, on the same task?

Every command of `opensafeintent` is one function here, and takes the same settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:  # what type checkers read; the tests hold it to `_NAMES`
    from opensafeintent.calls.functions import FunctionModel as FunctionModel
    from opensafeintent.calls.merging import Merged as Merged
    from opensafeintent.calls.merging import merge_ledgers as merge_ledgers
    from opensafeintent.construction.controls.records import DatasetCheck as DatasetCheck
    from opensafeintent.errors import OpenSafeIntentError as OpenSafeIntentError
    from opensafeintent.interop.hub import Publication as Publication
    from opensafeintent.interop.inspect.models import served_models as served_models
    from opensafeintent.promptsets import Dataset as Dataset
    from opensafeintent.promptsets import PromptSet as PromptSet
    from opensafeintent.promptsets import load_dataset as load_dataset
    from opensafeintent.promptsets import write_dataset as write_dataset
    from opensafeintent.taxonomy import Taxonomy as Taxonomy
    from opensafeintent.taxonomy import load_taxonomy as load_taxonomy
    from opensafeintent.workflows.annotate import Agreement as Agreement
    from opensafeintent.workflows.annotate import AgreementSettings as AgreementSettings
    from opensafeintent.workflows.annotate import (
        AnnotateDatasetSettings as AnnotateDatasetSettings,
    )
    from opensafeintent.workflows.annotate import AnnotateRunSettings as AnnotateRunSettings
    from opensafeintent.workflows.annotate import ExportedStudy as ExportedStudy
    from opensafeintent.workflows.annotate import (
        ImportAnnotationsSettings as ImportAnnotationsSettings,
    )
    from opensafeintent.workflows.annotate import agreement as agreement
    from opensafeintent.workflows.annotate import annotate_dataset as annotate_dataset
    from opensafeintent.workflows.annotate import annotate_run as annotate_run
    from opensafeintent.workflows.annotate import import_annotations as import_annotations
    from opensafeintent.workflows.building import BuildOutcome as BuildOutcome
    from opensafeintent.workflows.building import BuildSettings as BuildSettings
    from opensafeintent.workflows.building import build as build
    from opensafeintent.workflows.datasets import Deduplication as Deduplication
    from opensafeintent.workflows.datasets import check_dataset as check_dataset
    from opensafeintent.workflows.datasets import convert_dataset as convert_dataset
    from opensafeintent.workflows.datasets import dataset_info as dataset_info
    from opensafeintent.workflows.datasets import dedup_dataset as dedup_dataset
    from opensafeintent.workflows.datasets import export_dataset as export_dataset
    from opensafeintent.workflows.datasets import validate_dataset as validate_dataset
    from opensafeintent.workflows.evaluating import demo as demo
    from opensafeintent.workflows.evaluating import evaluate as evaluate
    from opensafeintent.workflows.frames import Run as Run
    from opensafeintent.workflows.frames import load_run as load_run
    from opensafeintent.workflows.importing import ImportSettings as ImportSettings
    from opensafeintent.workflows.importing import import_files as import_files
    from opensafeintent.workflows.judging import JudgeChecks as JudgeChecks
    from opensafeintent.workflows.judging import check_judges as check_judges
    from opensafeintent.workflows.judging import grade as grade
    from opensafeintent.workflows.reporting import CompareSettings as CompareSettings
    from opensafeintent.workflows.reporting import Outcome as Outcome
    from opensafeintent.workflows.reporting import ReportSettings as ReportSettings
    from opensafeintent.workflows.reporting import compare as compare
    from opensafeintent.workflows.reporting import write_report as write_report
    from opensafeintent.workflows.settings import EvaluateSettings as EvaluateSettings
    from opensafeintent.workflows.settings import GradeSettings as GradeSettings
    from opensafeintent.workflows.settings import JudgeCheckSettings as JudgeCheckSettings
    from opensafeintent.workflows.tracing import Trace as Trace
    from opensafeintent.workflows.tracing import TraceSettings as TraceSettings
    from opensafeintent.workflows.tracing import trace as trace
    from opensafeintent.workflows.tracing import traces as traces

_NAMES = {
    "calls.functions": "FunctionModel",
    "calls.merging": "Merged merge_ledgers",
    "construction.controls.records": "DatasetCheck",
    "errors": "OpenSafeIntentError",
    "interop.hub": "Publication",
    "interop.inspect.models": "served_models",
    "promptsets": "Dataset PromptSet load_dataset write_dataset",
    "taxonomy": "Taxonomy load_taxonomy",
    "workflows.annotate": (
        "Agreement AgreementSettings AnnotateDatasetSettings AnnotateRunSettings ExportedStudy "
        "ImportAnnotationsSettings agreement annotate_dataset annotate_run import_annotations"
    ),
    "workflows.building": "BuildOutcome BuildSettings build",
    "workflows.datasets": (
        "Deduplication check_dataset convert_dataset dataset_info "
        "dedup_dataset export_dataset validate_dataset"
    ),
    "workflows.evaluating": "demo evaluate",
    "workflows.frames": "Run load_run",
    "workflows.importing": "ImportSettings import_files",
    "workflows.judging": "JudgeChecks check_judges grade",
    "workflows.reporting": "CompareSettings Outcome ReportSettings compare write_report",
    "workflows.settings": "EvaluateSettings GradeSettings JudgeCheckSettings",
    "workflows.tracing": "Trace TraceSettings trace traces",
}
"""The public names by module: none is loaded before it is asked for, and no source has to be there
to be read.
"""

_MODULES = {
    name: f"{__name__}.{module}" for module, names in _NAMES.items() for name in names.split()
}

__all__ = ["__version__"]
__all__ += list(_MODULES)


def __getattr__(name: str) -> Any:
    """Load what is asked for, and nothing before: importing the package stays cheap."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
