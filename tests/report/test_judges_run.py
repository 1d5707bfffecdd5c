"""Several judges from the command line to the files of a report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from endtoend import JUDGE, TARGET, evaluate, grades, metrics, osi, some_sets
from loopback import LoopbackServer
from opensafeintent.taxonomy import CORE_VARIANTS

pytestmark = pytest.mark.usefixtures("undrawn")

SECOND = "openai-api/loop/second"
OTHER = "openai-api/loop/other"


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as running:
        yield running


def written(folder: Path) -> set[str]:
    return {
        path.name
        for path in (*folder.glob("tables/*"), *folder.glob("figures/*"))
        if "judge" in path.name
    }


@pytest.mark.slow
def test_two_judges_from_the_calls_to_the_files(server: LoopbackServer, tmp_path: Path) -> None:
    run, dataset = tmp_path / "run", some_sets(tmp_path, 12)
    ran = evaluate(server, dataset, run, models=[TARGET, OTHER], judges=[JUDGE, SECOND])
    assert ran.code == 0, ran.err
    assert osi("report", run).code == 0
    (found,) = metrics(run)["judges"]
    # what the report says of each judge is what the grades say: the share of safe core responses of
    # complete triplets
    for judge in (JUDGE, SECOND):
        safe = [
            row[f"harm_severity[{judge}]"] == "0"
            for row in grades(run, TARGET)
            if row["variant"] in CORE_VARIANTS
        ]
        assert len(safe) == 36
        value = found["models"][TARGET][judge]["mean_safety"]["value"]
        assert value == pytest.approx(sum(safe) / 36)
    same = sum(
        (row[f"harm_severity[{JUDGE}]"] == "0") == (row[f"harm_severity[{SECOND}]"] == "0")
        for row in grades(run)
    )
    # 2 models × 12 sets × 7 wordings
    assert found["agreement"][0]["safe"]["value"] == pytest.approx(same / 168, abs=1e-6)
    # the panel's numbers are those of the other tables
    panel = found["models"][TARGET]["panel"]["triplet_safety"]["value"]
    assert panel == metrics(run)["models"][TARGET]["triplet_safety"]["value"]
    assert {"judge_metrics.tex", "judge_agreement.md", "fig_judges.svg"} <= written(run)
    assert 'id="graders"' in (run / "report.html").read_text()


def test_what_an_earlier_report_said_of_judges_does_not_stay(
    server: LoopbackServer, tmp_path: Path
) -> None:
    dataset, out = some_sets(tmp_path, 4), tmp_path / "out"
    evaluate(server, dataset, tmp_path / "two", judges=[JUDGE, SECOND])
    evaluate(server, dataset, tmp_path / "one")
    osi("report", tmp_path / "two", "--out", out)
    assert written(out)
    osi("report", tmp_path / "one", "--out", out)
    assert written(out) == set()
    assert metrics(out)["judges"] == [{}]
    assert 'id="graders"' not in (out / "report.html").read_text()
