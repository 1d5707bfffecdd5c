"""OpenSafeIntent: does a model give the right amount of help as intent shifts, on the same task?

Every command of `opensafeintent` is one function here, and takes the same settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "CompareSettings",
    "Dataset",
    "EvaluateSettings",
    "GradeSettings",
    "ImportSettings",
    "OpenSafeIntentError",
    "Outcome",
    "PromptSet",
    "ReportSettings",
    "Taxonomy",
    "Trace",
    "__version__",
    "compare",
    "convert_dataset",
    "dataset_info",
    "demo",
    "evaluate",
    "grade",
    "import_files",
    "load_dataset",
    "load_taxonomy",
    "served_models",
    "trace",
    "validate_dataset",
    "write_dataset",
    "write_report",
]

if TYPE_CHECKING:
    from opensafeintent.calls.models import served_models
    from opensafeintent.errors import OpenSafeIntentError
    from opensafeintent.promptsets import Dataset, PromptSet, load_dataset, write_dataset
    from opensafeintent.taxonomy import Taxonomy, load_taxonomy
    from opensafeintent.workflows import (
        CompareSettings,
        EvaluateSettings,
        GradeSettings,
        ImportSettings,
        Outcome,
        ReportSettings,
        Trace,
        compare,
        convert_dataset,
        dataset_info,
        demo,
        evaluate,
        grade,
        import_files,
        trace,
        validate_dataset,
        write_report,
    )

_HOME = {
    "served_models": "calls.models",
    "OpenSafeIntentError": "errors",
    "Dataset": "promptsets",
    "PromptSet": "promptsets",
    "load_dataset": "promptsets",
    "write_dataset": "promptsets",
    "Taxonomy": "taxonomy",
    "load_taxonomy": "taxonomy",
}


def __getattr__(name: str) -> Any:
    """Load what is asked for, and nothing before: importing the package stays cheap."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOME.get(name, 'workflows')}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
