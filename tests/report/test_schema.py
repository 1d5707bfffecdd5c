"""The JSON Schema of `metrics.json`; every `metrics.json` that a test writes is held to its types."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from endtoend import REPO, osi
from opensafeintent.commands import reporting as report
from opensafeintent.files import to_json
from opensafeintent.numbers.metrics import CHECKLIST_METRICS, METRICS
from opensafeintent.report.metrics_json import MetricsFile, make_metrics_file, schema
from report.runs import cohort_with, many_sets, rows_of

PUBLISHED = REPO / "docs/_static/metrics.schema.json"


def plain(part: object) -> object:
    """Return a part of a schema without descriptions."""
    if isinstance(part, dict):
        return {key: plain(value) for key, value in part.items() if key != "description"}
    return [plain(value) for value in part] if isinstance(part, list | tuple) else part


def test_the_published_schema_is_that_of_the_types() -> None:
    """After a change: `make docs`. Descriptions may lag: they are docstrings."""
    assert plain(json.loads(PUBLISHED.read_text())) == plain(schema())


@pytest.mark.slow
def test_a_run_with_another_key_fails_in_any_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `conftest.py` sees to."""
    monkeypatch.setattr(report.Costs, "other_models", [{"more": 1}])
    ran = osi("demo", "--out", tmp_path / "run")
    assert ran.code == 70 and "unknown field `more`" in ran.err


def test_metrics_json_has_the_types_and_no_other_key() -> None:
    sets = many_sets(12, 0)
    rows = rows_of("m", sets, {item.id: "40 41 10" for item in sets.prompt_sets})
    written = msgspec.to_builtins(make_metrics_file(cohort_with(sets, rows)))
    read = msgspec.json.decode(to_json(written), type=MetricsFile)
    of_grades = METRICS.keys() - {metric.name for metric in CHECKLIST_METRICS}
    assert read.models["m"].keys() == of_grades | {"paraphrase_effect"}
    assert read.models["m"]["triplet_safety"].value == 0
    with pytest.raises(msgspec.ValidationError, match="more"):
        msgspec.json.decode(to_json(written | {"more": 1}), type=MetricsFile)
    with pytest.raises(msgspec.ValidationError, match="primary"):
        msgspec.json.decode(to_json(written | {"primary": None}), type=MetricsFile)
