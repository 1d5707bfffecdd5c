"""OpenSafeIntent: does a model give the right amount of help as intent shifts, on the same task?

Every command of `opensafeintent` is one function here, and takes the same settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:  # for type checkers; a test compares it with `_NAMES`
    from opensafeintent.calls.python_models import FunctionModel as FunctionModel
    from opensafeintent.calls.ledger_merge import Merged as Merged, merge_ledgers as merge_ledgers
    from opensafeintent.construction.controls import DatasetCheck as DatasetCheck
    from opensafeintent.construction.similarity import Deduplication as Deduplication
    from opensafeintent.errors import OpenSafeIntentError as OpenSafeIntentError
    from opensafeintent.exports.publication import Publication as Publication
    from opensafeintent.any_model import served_models as served_models
    from opensafeintent.promptsets import (
        Dataset as Dataset,
        PromptSet as PromptSet,
        load_dataset as load_dataset,
        write_dataset as write_dataset,
    )
    from opensafeintent.taxonomy import Taxonomy as Taxonomy, load_taxonomy as load_taxonomy
    from opensafeintent.commands.labelling import (
        Agreement as Agreement,
        ExportedStudy as ExportedStudy,
        agreement as agreement,
        annotate_dataset as annotate_dataset,
        annotate_run as annotate_run,
        import_annotations as import_annotations,
    )
    from opensafeintent.commands.batching import batches as batches
    from opensafeintent.commands.building import BuildOutcome as BuildOutcome, build as build
    from opensafeintent.commands.dataset_tools import (
        DatasetExport as DatasetExport,
        CheckedDataset as CheckedDataset,
        check_dataset as check_dataset,
        convert_dataset as convert_dataset,
        dataset_template as dataset_template,
        dedup_dataset as dedup_dataset,
        export_dataset as export_dataset,
    )
    from opensafeintent.commands.evaluate import demo as demo, evaluate as evaluate
    from opensafeintent.commands.exporting import Exported as Exported, export_run as export_run
    from opensafeintent.commands.grading import grade as grade
    from opensafeintent.commands.notebooks import Run as Run, load_run as load_run
    from opensafeintent.commands.importing_runs import import_files as import_files
    from opensafeintent.commands.checking_judges import check_judges as check_judges
    from opensafeintent.commands.reporting import compare as compare, write_report as write_report
    from opensafeintent.commands.outcome import RunOutcome as RunOutcome
    from opensafeintent.commands.sample_size import (
        GatePlan as GatePlan,
        SampleSize as SampleSize,
        sample_size as sample_size,
    )
    from opensafeintent.commands.settings import (
        AgreementSettings as AgreementSettings,
        AnnotateDatasetSettings as AnnotateDatasetSettings,
        AnnotateRunSettings as AnnotateRunSettings,
        BatchesSettings as BatchesSettings,
        BuildSettings as BuildSettings,
        CompareSettings as CompareSettings,
        EvaluateSettings as EvaluateSettings,
        ExportSettings as ExportSettings,
        GradeSettings as GradeSettings,
        ImportAnnotationsSettings as ImportAnnotationsSettings,
        ImportSettings as ImportSettings,
        JudgeCheckSettings as JudgeCheckSettings,
        ReportSettings as ReportSettings,
        SampleSizeSettings as SampleSizeSettings,
        TraceSettings as TraceSettings,
    )
    from opensafeintent.commands.trace import (
        Trace as Trace,
        fragile_sets as fragile_sets,
        rejections as rejections,
        trace as trace,
        traces as traces,
    )

_NAMES = {
    "any_model": "served_models",
    "calls.ledger_merge": "Merged merge_ledgers",
    "calls.python_models": "FunctionModel",
    "construction.controls": "DatasetCheck",
    "construction.similarity": "Deduplication",
    "errors": "OpenSafeIntentError",
    "exports.publication": "Publication",
    "promptsets": "Dataset PromptSet load_dataset write_dataset",
    "taxonomy": "Taxonomy load_taxonomy",
    "commands.labelling": (
        "Agreement ExportedStudy agreement annotate_dataset annotate_run import_annotations"
    ),
    "commands.batching": "batches",
    "commands.building": "BuildOutcome build",
    "commands.dataset_tools": (
        "CheckedDataset DatasetExport check_dataset convert_dataset "
        "dataset_template dedup_dataset export_dataset"
    ),
    "commands.evaluate": "demo evaluate",
    "commands.exporting": "Exported export_run",
    "commands.grading": "grade",
    "commands.notebooks": "Run load_run",
    "commands.importing_runs": "import_files",
    "commands.checking_judges": "check_judges",
    "commands.outcome": "RunOutcome",
    "commands.reporting": "compare write_report",
    "commands.sample_size": "GatePlan SampleSize sample_size",
    "commands.settings": (
        "AgreementSettings AnnotateDatasetSettings AnnotateRunSettings BatchesSettings "
        "BuildSettings CompareSettings EvaluateSettings ExportSettings GradeSettings "
        "ImportAnnotationsSettings ImportSettings JudgeCheckSettings ReportSettings "
        "SampleSizeSettings TraceSettings"
    ),
    "commands.trace": "Trace fragile_sets rejections trace traces",
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
    """Load a public name on first use, so that importing the package stays cheap."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
