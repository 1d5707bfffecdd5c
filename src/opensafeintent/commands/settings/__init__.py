"""Settings of commands. Each has a type, limits and its option, and is checked when it is made. No
heavy module is loaded for them: `--help` reads these records.
"""

from opensafeintent.commands.settings.base import Data, Settings
from opensafeintent.commands.settings.by_command import (
    AgreementSettings,
    AnnotateDatasetSettings,
    AnnotateRunSettings,
    BatchesSettings,
    BuildSettings,
    CompareSettings,
    EvaluateSettings,
    ExportSettings,
    Gating,
    GradeSettings,
    ImportAnnotationsSettings,
    ImportSettings,
    JudgeCheckSettings,
    ReportSettings,
    SampleSizeSettings,
    TraceSettings,
)
from opensafeintent.commands.settings.calling import Calling, Judging

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
