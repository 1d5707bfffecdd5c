"""What a decision and a budget can be expected to take: no call is made, and what is known from runs is used."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from endtoend import JUDGE, TARGET, Ran, calls, evaluate, some_sets
from loopback import LoopbackServer
from opensafeintent.calls.progress import Quiet
from opensafeintent.promptsets import load_dataset
from opensafeintent.workflows.planning import Plan, power_plan
from opensafeintent.workflows.settings import EvaluateSettings

OTHER = "openai-api/loop/other"
BETTER = f"{TARGET} better triplet_safety"


@pytest.fixture(scope="module")
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as running:
        yield running


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty sets without paraphrases: three wordings each."""
    return some_sets(tmp_path_factory.mktemp("sets"), 40, paraphrases=0)


@pytest.fixture(scope="module")
def pilot(server: LoopbackServer, dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two models, two epochs and two judges on every set."""
    run = tmp_path_factory.mktemp("runs") / "pilot"
    judges = (JUDGE, "openai-api/loop/second")
    assert evaluate(server, dataset, run, "--epochs", 2, models=(TARGET, OTHER), judges=judges).code == 0
    return run


def plan(dataset: Path, out: Path, *models: str, **settings: object) -> Plan:
    made = EvaluateSettings(
        models=models or (TARGET,),
        judges=(JUDGE,),
        dataset=str(dataset),
        out=out,
        power_plan=True,
        **settings,  # type: ignore[arg-type]
    )
    return power_plan(made, made.targets, load_dataset(str(dataset)), Quiet())


def planned(server: LoopbackServer, dataset: Path, out: Path, *options: object) -> Ran:
    return evaluate(server, dataset, out, "--power-plan", *options)


def test_no_call_is_made_and_nothing_written(server: LoopbackServer, dataset: Path, tmp_path: Path) -> None:
    before = calls(server)
    ran = planned(server, dataset, tmp_path / "run", "--decide", "triplet_safety >= 0.6")
    assert ran.code == 0, ran.err
    assert calls(server) == before
    assert not (tmp_path / "run").exists()
    assert "40 prompt-sets at most, 20 looks" in ran.out
    assert "No call was made" in ran.out


def test_a_threshold_needs_no_variance(dataset: Path, tmp_path: Path) -> None:
    (power,) = plan(dataset, tmp_path / "run", decide="triplet_safety >= 0.6").power
    tested = next(row for row in power.rows if row.truth == 0.6)
    assert tested.yes <= 0.05
    assert tested.no <= 0.05
    far = next(row for row in power.rows if row.truth == 0.8)
    assert far.yes > tested.yes
    assert far.sets < tested.sets
    # three responses with two grades each, and one mode, for a set
    assert far.calls == pytest.approx(far.sets * (3 + 6 + 1), abs=0.001)


def test_models_and_pairs_share_the_error(dataset: Path, tmp_path: Path) -> None:
    one = plan(dataset, tmp_path / "run", decide="triplet_safety >= 0.6").design
    two = plan(dataset, tmp_path / "run", TARGET, OTHER, decide="triplet_safety >= 0.6").design
    assert one and two
    assert two.alpha == pytest.approx(one.alpha / 2)


@pytest.mark.slow
def test_the_spread_of_a_pair_is_assumed_or_a_runs(dataset: Path, pilot: Path, tmp_path: Path) -> None:
    (assumed,) = plan(dataset, tmp_path / "run", TARGET, OTHER, decide=BETTER).power
    assert assumed.source.startswith("assumed")
    (known,) = plan(dataset, tmp_path / "run", TARGET, OTHER, decide=BETTER, power_from=pilot).power
    assert known.source == f"from pilot: {TARGET} against {OTHER}"
    (own,) = plan(dataset, pilot, TARGET, OTHER, decide=BETTER).power
    assert own.rows == known.rows
    # where the models part in the pilot is known from its grades, and is not what is assumed
    assert own.rows != assumed.rows
    (others,) = plan(
        dataset, tmp_path / "run", "lab/a", "lab/b", decide="lab/a better triplet_safety", power_from=pilot
    ).power
    assert others.source == f"from pilot: {OTHER} against {TARGET}"


def test_sets_win_until_they_run_out(dataset: Path, pilot: Path, tmp_path: Path) -> None:
    (triplet, utility) = plan(dataset, tmp_path / "run", power_from=pilot).precision
    assert (triplet.metric, utility.metric) == ("triplet_safety", "mean_utility")
    (best,) = (row for row in triplet.rows if row.best)
    assert (best.sets, best.epochs, best.judges, best.calls) == (40, 1, 1, 400)
    assert "assumed" not in triplet.source  # two epochs and two judges tell all three parts
    (more, _) = plan(dataset, tmp_path / "run", power_from=pilot, budget_calls=4000).precision
    (best,) = (row for row in more.rows if row.best)
    assert best.sets == 40
    assert best.epochs * best.judges > 1


def test_a_budget_limits_the_sets_to_decide_by(dataset: Path, tmp_path: Path) -> None:
    found = plan(dataset, tmp_path / "run", decide="triplet_safety >= 0.6", budget_calls=305)
    assert found.design and found.design.sets == 30
    assert found.notes == ("305 calls pay for 30 of 40 prompt-sets: this is for --limit 30",)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--decide", "triplet_safety >= 0.6", "--budget-calls", 100), "--budget-calls 100: pays for 10 prompt-sets"),
        (("--decide", "triplet_safety > 0.6"), "expected 'METRIC >= X'"),
        (("--power-from", "nowhere"), "no run here"),
    ],
)
def test_what_cannot_be_planned_is_refused(
    server: LoopbackServer, dataset: Path, tmp_path: Path, options: tuple[object, ...], says: str
) -> None:
    ran = planned(server, dataset, tmp_path / "run", *options)
    assert ran.code == 2
    assert says in ran.err


def test_a_run_to_plan_from_belongs_to_a_plan(server: LoopbackServer, dataset: Path, tmp_path: Path) -> None:
    ran = evaluate(server, dataset, tmp_path / "run", "--power-from", tmp_path)
    assert ran.code == 2
    assert "--power-plan" in ran.err
