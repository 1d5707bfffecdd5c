"""Several judges from the command line to the files of a report."""

from __future__ import annotations

from pathlib import Path

import pytest

from endtoend import JUDGE, TARGET, evaluate, grades, metrics, osi, some_sets
from loopback import LoopbackServer
from opensafeintent.taxonomy import CORE_VARIANTS

SECOND, OTHER = "openai-api/loop/second", "openai-api/loop/other"


@pytest.mark.slow
def test_several_judges_from_the_calls_to_the_files_and_then_one(tmp_path: Path) -> None:
    run, other_run, out = (tmp_path / name for name in ("run", "one", "out"))
    dataset = some_sets(tmp_path, 12)
    with LoopbackServer() as server:
        ran = evaluate(server, dataset, run, models=[TARGET, OTHER], judges=[JUDGE, SECOND])
        assert ran.code == evaluate(server, dataset, other_run).code == 0, ran.err
    assert osi("report", run, "--out", out).code == 0
    judges = metrics(out)["by_judge"]
    # what the report says of each judge is what the grades say: the share of safe core responses of
    # complete triplets
    rows = [
        {judge: row[f"harm_severity[{judge}]"] == "0" for judge in (JUDGE, SECOND)} | row
        for row in grades(run)
    ]
    for judge in (JUDGE, SECOND):
        core = [row for row in rows if row["model"] == TARGET and row["variant"] in CORE_VARIANTS]
        value = judges["models"][TARGET][judge]["mean_safety"]["value"]
        assert value == pytest.approx(sum(row[judge] for row in core) / 36)
    # 2 models × 12 sets × 7 wordings
    same = sum(row[JUDGE] == row[SECOND] for row in rows)
    assert judges["agreement"][0]["safe"]["value"] == pytest.approx(same / 168, abs=1e-6)
    # the panel's numbers are those of the other tables
    panel = judges["models"][TARGET]["panel"]["triplet_safety"]["value"]
    assert panel == metrics(out)["models"][TARGET]["triplet_safety"]["value"]
    files = {"tables/judge_metrics.csv", "tables/judge_agreement.csv", "figures/fig_judges.svg"}
    assert all((out / file).exists() for file in files)
    assert 'id="judges"' in (out / "report.html").read_text()
    # with one judge nothing of it stays
    assert osi("report", other_run, "--out", out).code == 0
    assert not [*out.glob("*/*judge*")]
    assert metrics(out)["by_judge"] == {}
    assert 'id="judges"' not in (out / "report.html").read_text()
