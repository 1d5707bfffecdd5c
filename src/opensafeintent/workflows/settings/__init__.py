"""Settings of commands. Each has a type, limits and its option, and is checked when it is made. No
heavy module is loaded for them: `--help` reads these records.
"""

from opensafeintent.workflows.settings.annotate import (
    AgreementSettings,
    AnnotateDatasetSettings,
    AnnotateRunSettings,
    ImportAnnotationsSettings,
)
from opensafeintent.workflows.settings.base import Data, Settings
from opensafeintent.workflows.settings.build import BuildSettings
from opensafeintent.workflows.settings.calling import Calling, JudgeCheckSettings
from opensafeintent.workflows.settings.evaluate import EvaluateSettings
from opensafeintent.workflows.settings.judging import GradeSettings, Judging
from opensafeintent.workflows.settings.read import (
    BatchesSettings,
    CompareSettings,
    ExportSettings,
    Gating,
    ImportSettings,
    ReportSettings,
    SampleSizeSettings,
    TraceSettings,
)

__all__ = [
    "AgreementSettings",
    "AnnotateDatasetSettings",
    "AnnotateRunSettings",
    "BatchesSettings",
    "BuildSettings",
    "Calling",
    "CompareSettings",
    "Data",
    "EvaluateSettings",
    "ExportSettings",
    "Gating",
    "GradeSettings",
    "ImportAnnotationsSettings",
    "ImportSettings",
    "JudgeCheckSettings",
    "Judging",
    "ReportSettings",
    "SampleSizeSettings",
    "Settings",
    "TraceSettings",
]
