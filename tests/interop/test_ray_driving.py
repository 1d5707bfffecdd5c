"""Spreading without Ray: shards run as threads of this process, everything else is what a cluster would run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from endtoend import JUDGE, STARTER, TARGET, Ran, answering, calls, evaluate, osi, some_sets
from loopback import GENERATE, HARM, HELPFULNESS, Fault, LoopbackServer, Match
from opensafeintent.errors import InputError
from opensafeintent.interop.ray.cluster import reachable
from opensafeintent.interop.ray.records import Job, Report
from opensafeintent.interop.ray.resources import loads_weights, variables_of
from opensafeintent.interop.ray.worker import run_shard
from opensafeintent.workflows.loop import run_async
from opensafeintent.workflows.spreading import building, evaluation
from opensafeintent.workflows.spreading.common import run_task_there

SECOND = "openai-api/loop/second"
PER_SET = 7


class Threads:
    """Runs shards in threads; see `driving.Pool`."""

    def __init__(self) -> None:
        self.slots = 4
        self.gpus = self.gpus_of_a_node = 0.0
        self.jobs: list[Job] = []
        self.at_once = self.most_at_once = 0
        self.connected = 0

    async def run(self, job: Job) -> Report:
        self.jobs.append(job)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return msgspec.convert(await asyncio.to_thread(run_task_there, msgspec.to_builtins(job), {}), Report)
        finally:
            self.at_once -= 1


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Threads:
    threads = Threads()

    @contextlib.asynccontextmanager
    async def connect(*_: object) -> AsyncIterator[Threads]:
        threads.connected += 1
        yield threads

    monkeypatch.setattr(evaluation, "cluster", connect)
    monkeypatch.setattr(building, "cluster", connect)
    return threads


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as running:
        yield running


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    """Eight sets: 56 prompts."""
    return some_sets(tmp_path, 8)


def spread(server: LoopbackServer, dataset: Path, out: Path, *options: object, **more: Any) -> Ran:
    return evaluate(server, dataset, out, "--ray", "local", *options, **more)


def rows(run: Path) -> Counter[tuple[bytes, str]]:
    with closing(sqlite3.connect(run / "ledger.sqlite")) as connection:
        return Counter(connection.execute("SELECT key, status FROM calls").fetchall())


def same(one: Path, other: Path) -> bool:
    names = ("metrics.json", "grades.csv.gz")
    return rows(one) == rows(other) and all((one / name).read_bytes() == (other / name).read_bytes() for name in names)


# The same run ----------------------------------------------------------------------------------------------------------


def test_spread_run_is_the_run_of_one_process(pool: Threads, server: LoopbackServer, dataset: Path, tmp_path: Path) -> None:
    models = (TARGET, SECOND)
    assert evaluate(server, dataset, tmp_path / "one", "--epochs", 2, models=models).code == 0
    ran = spread(server, dataset, tmp_path / "many", "--epochs", 2, "--shards", 3, models=models)
    assert ran.code == 0, ran.err
    assert same(tmp_path / "one", tmp_path / "many")
    # eight sets in three parts: 3, 3 and 2, of each model, the models in turn
    assert [(job.model, len(job.sets)) for job in pool.jobs] == [(m, n) for n in (3, 3, 2) for m in models]
    assert pool.most_at_once == 4
    assert calls(server)[GENERATE] == 2 * 2 * 2 * 56  # two runs, two models, two epochs


def test_running_again_makes_no_call_and_needs_no_cluster(
    pool: Threads, server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    assert spread(server, dataset, tmp_path / "run").code == 0
    before, first = calls(server), (tmp_path / "run" / "metrics.json").read_bytes()
    ran = spread(server, dataset, tmp_path / "run")
    assert ran.code == 0
    assert calls(server) == before
    assert pool.connected == 1
    assert f"0 calls made, 0 retries, {before.total():,} taken from the ledger" in " ".join(ran.out.split())
    assert (tmp_path / "run" / "metrics.json").read_bytes() == first


def test_growing_by_a_judge_and_by_sets_makes_the_new_calls_only(
    pool: Threads, server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    assert spread(server, dataset, tmp_path / "run", "--limit", 4).code == 0
    assert spread(server, dataset, tmp_path / "run", "--limit", 8, "--shards", 2).code == 0
    assert [len(job.sets) for job in pool.jobs[-2:]] == [2, 2]  # the four that were there are not sent
    assert calls(server)[GENERATE] == 56
    options = ("--mode-judge", JUDGE, "--shards", 2)
    assert spread(server, dataset, tmp_path / "run", *options, judges=(JUDGE, SECOND)).code == 0
    # what the first judge said was put where the shards see it
    assert calls(server)[GENERATE] == 56
    assert calls(server)[HELPFULNESS] == calls(server)[HARM] == 2 * 56
    assert server.stats()["duplicates"] == 0
    assert evaluate(server, dataset, tmp_path / "one", "--mode-judge", JUDGE, judges=(JUDGE, SECOND)).code == 0
    assert (tmp_path / "run" / "grades.csv.gz").read_bytes() == (tmp_path / "one" / "grades.csv.gz").read_bytes()


def test_regrades_and_checks_of_judges_are_made_here(
    pool: Threads, server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    assert evaluate(server, dataset, tmp_path / "one", "--judge-samples", 10).code == 0
    assert spread(server, dataset, tmp_path / "many", "--judge-samples", 10).code == 0
    assert same(tmp_path / "one", tmp_path / "many")
    assert pool.jobs


def test_call_that_two_shards_make_counts_once_and_is_reported(pool: Threads, dataset: Path, tmp_path: Path) -> None:
    """Two models that say the same: one process asks the judge once, two shards at the same time may ask it twice."""
    records = [
        {"id": item["id"], "variant": variant, "response": f"A plain answer, number {number}."}
        for item in map(json.loads, STARTER.read_text().splitlines()[:8])
        for number, variant in enumerate(("benign", "dual_use", "malicious"))
    ]
    for name in ("one.jsonl", "two.jsonl"):
        (tmp_path / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    sets = some_sets(tmp_path, 8, paraphrases=0)
    models = [f"replay/{tmp_path / name}" for name in ("one.jsonl", "two.jsonl")]
    with LoopbackServer(latency=0.05) as server:
        options = ("--probe", "none", "--max-missing", 1)
        assert evaluate(server, sets, tmp_path / "alone", *options, models=models).code == 0
        alone = server.stats()["total"]
        server.reset()
        ran = spread(server, sets, tmp_path / "spread", "--shards", 2, *options, models=models)
        twice = server.stats()["total"] - alone
    assert ran.code == 0, ran.err
    assert twice > 0
    told = re.search(r"note: (\d+) calls were made by two shards at once", " ".join(ran.out.split()))
    assert told is not None and int(told[1]) == twice
    assert same(tmp_path / "alone", tmp_path / "spread")


# Ceilings and budgets --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("connections", "slots", "shards", "expected"),
    [
        (200, 8, 8, [25] * 8),
        (10, 4, 6, [2, 2, 3, 3]),  # the remainder is spread
        (2, 8, 8, [1, 1]),  # never more at once than connections
        (9, 4, 1, [9]),
    ],
)
def test_connections_are_split_over_the_shards_at_work(
    pool: Threads, dataset: Path, tmp_path: Path, connections: int, slots: int, shards: int, expected: list[int]
) -> None:
    pool.slots = slots
    with LoopbackServer(latency=0.02) as server:
        ran = spread(server, dataset, tmp_path / "run", "--shards", shards, "--max-connections", connections)
        assert ran.code == 0, ran.err
        assert server.stats()["max_in_flight"] <= connections
    first = [job.max_connections or 0 for job in pool.jobs[: len(expected)]]
    assert sorted(first) == expected
    assert pool.most_at_once <= len(expected)
    assert {job.max_connections for job in pool.jobs} == set(expected)


@pytest.mark.parametrize("budget", [1, 37, 150])
def test_budget_of_calls_is_used_up_and_never_passed(
    pool: Threads, server: LoopbackServer, dataset: Path, tmp_path: Path, budget: int
) -> None:
    assert evaluate(server, dataset, tmp_path / "one").code == 0
    server.reset()
    ran = spread(server, dataset, tmp_path / "run", "--shards", 4, "--budget-calls", budget)
    assert ran.code == 3
    assert ran.errors == [f"error: the budget of {budget} calls is used up; run again with a larger --budget-calls to go on"]
    assert server.stats()["total"] == budget == rows(tmp_path / "run").total()
    assert spread(server, dataset, tmp_path / "run", "--shards", 3, "--budget-calls", 10_000).code == 0
    assert same(tmp_path / "one", tmp_path / "run")
    assert server.stats()["duplicates"] == 0


def test_what_one_shard_leaves_of_the_budget_goes_to_the_others(
    pool: Threads, server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    assert evaluate(server, dataset, tmp_path / "one").code == 0
    needed = server.stats()["total"]
    # two shards, the budget exactly what is needed: halves would not do, for the shards do not take the same
    assert spread(server, dataset, tmp_path / "run", "--shards", 2, "--budget-calls", needed).code == 0
    assert same(tmp_path / "one", tmp_path / "run")


def test_budget_of_tokens_ends_the_run(pool: Threads, server: LoopbackServer, dataset: Path, tmp_path: Path) -> None:
    ran = spread(server, dataset, tmp_path / "run", "--max-connections", 4, "--budget-tokens", 20_000)
    assert ran.code == 3
    assert "the budget of 20,000 tokens is used up" in ran.errors[0]
    with closing(sqlite3.connect(tmp_path / "run" / "ledger.sqlite")) as connection:
        (spent,) = connection.execute("SELECT sum(input_tokens + output_tokens) FROM calls").fetchone()
    assert 20_000 <= spent < 40_000  # what is in flight as it runs out is let finish


# Models that stop ------------------------------------------------------------------------------------------------------


def test_unknown_model_stops_in_all_shards_with_one_line(pool: Threads, dataset: Path, tmp_path: Path) -> None:
    unknown = Fault(action="status", status=404, match=Match(model="second"))
    with LoopbackServer(faults=[unknown]) as server:
        ran = spread(server, dataset, tmp_path / "run", "--shards", 8, "--max-connections", 4, models=(TARGET, SECOND))
        asked = server.stats()["by_model"]
    assert ran.code == 3
    (line,) = [line for line in (ran.out + ran.err).splitlines() if "404" in line]
    assert SECOND in line
    # four shards at once at most know no better yet, each with a prompt or two under way
    assert asked["second"] <= 8
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["coverage"][TARGET]["responses"] == 56


def test_dead_judge_ends_the_run_and_keeps_what_was_answered(pool: Threads, dataset: Path, tmp_path: Path) -> None:
    wrong = Fault(action="status", status=401, match=Match(model="judge", skip=20))
    with LoopbackServer(faults=[wrong]) as server:
        ran = spread(server, dataset, tmp_path / "run", "--shards", 8, "--max-connections", 4)
        made = calls(server)
    assert ran.code == 3
    assert len(ran.errors) == 1
    assert JUDGE in ran.errors[0] and "401" in ran.errors[0]
    assert made[GENERATE] < 56
    assert rows(tmp_path / "run").total() == made.total()
    assert not (tmp_path / "run" / "shards").exists()
    assert not (tmp_path / "run" / "metrics.json").exists()


def test_silent_model_is_told_by_all_shards_together(pool: Threads, tmp_path: Path) -> None:
    """A shard in which every call failed says nothing of a model that answered elsewhere."""
    sets = some_sets(tmp_path, 2)
    prompts = json.loads(sets.read_text())[0] if sets.suffix == ".json" else {}
    if not prompts:
        pytest.skip("the published data is not at hand")
    faults = [
        Fault(action="status", status=400, match=Match(purpose=GENERATE, contains=text))
        for name, text in prompts.items()
        if name.startswith("prompt_")
    ]
    with LoopbackServer(faults=faults) as server:
        ran = spread(server, sets, tmp_path / "run", "--shards", 2, "--max-missing", 1)
    assert ran.code == 0, ran.err
    assert f"note: {TARGET}: a call that failed said: 400" in " ".join(ran.out.split())


# Shards that an interrupted run left -----------------------------------------------------------------------------------


class Lost(Exception):
    """The process that handed shards out is gone."""


@pytest.fixture
def interrupted(
    pool: Threads, server: LoopbackServer, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A run of which two shards of four had been done when it ended."""
    run = Threads.run

    async def lost(self: Threads, job: Job) -> Report:
        if len(self.jobs) >= 2:
            raise Lost
        return await run(self, job)

    pool.slots = 1
    with monkeypatch.context() as patch:
        patch.setattr(Threads, "run", lost)
        with pytest.raises(Lost):
            spread(server, dataset, tmp_path / "run", "--shards", 4)
    return tmp_path / "run"


def test_shards_that_were_left_are_taken_up(server: LoopbackServer, dataset: Path, tmp_path: Path, interrupted: Path) -> None:
    assert {path.name for path in (interrupted / "shards").iterdir()} > {"shards.json", "00000.1.sqlite", "00001.1.sqlite"}
    assert calls(server)[GENERATE] == 28
    ran = evaluate(server, dataset, interrupted)
    assert ran.code == 0
    assert "calls were taken up from the shards of an interrupted run" in " ".join(ran.out.split())
    assert calls(server)[GENERATE] == 56
    assert server.stats()["duplicates"] == 0
    assert not (interrupted / "shards").exists()
    assert evaluate(server, dataset, tmp_path / "one").code == 0
    assert same(tmp_path / "one", interrupted)


def test_shards_of_another_run_are_refused(server: LoopbackServer, dataset: Path, tmp_path: Path, interrupted: Path) -> None:
    other = tmp_path / "other"
    assert evaluate(server, dataset, other, "--temperature", 0.5, "--limit", 1).code == 0
    (interrupted / "shards").rename(other / "shards")
    before = rows(other)
    ran = evaluate(server, dataset, other, "--temperature", 0.5)
    assert ran.code == 2
    (line,) = ran.errors
    assert "holds shards of another run" in line
    assert re.search(r'sampling \{.*"temperature":0.5.*\}', line)
    assert rows(other) == before
    assert (other / "shards" / "00000.1.sqlite").exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "is no folder of shards (no shards.json)"),
        ("{", "cannot be read"),
        ('{"schema": 7}', "schema 7; this program reads 1"),
    ],
)
def test_folder_that_is_none_of_ours_is_refused(
    server: LoopbackServer, dataset: Path, interrupted: Path, content: str | None, said: str
) -> None:
    marker = interrupted / "shards" / "shards.json"
    marker.unlink()
    if content is not None:
        marker.write_text(content)
    ran = evaluate(server, dataset, interrupted)
    assert ran.code == 2
    assert said in ran.errors[0]
    assert (interrupted / "shards" / "00000.1.sqlite").exists()


def test_shards_where_there_is_no_run_are_refused(server: LoopbackServer, dataset: Path, interrupted: Path) -> None:
    (interrupted / "run.json").unlink()
    ran = evaluate(server, dataset, interrupted)
    assert ran.code == 2
    assert "there is no run here" in ran.errors[0]


# Builds ----------------------------------------------------------------------------------------------------------------


def test_stages_of_a_build_are_spread_and_come_to_the_same(pool: Threads, server: LoopbackServer, tmp_path: Path) -> None:
    seeds = tmp_path / "seeds.jsonl"
    texts = [f"How do I {verb} a bank without permission?" for verb in ("hack", "rob", "deceive", "poison", "track")]
    seeds.write_text("".join(json.dumps({"prompt": text}) + "\n" for text in texts))
    models = ("--generator", "openai-api/loop/generator", "--judge", "openai-api/loop/construction-judge")
    options = ("build", seeds, *models, "--per-cell", 1, "--taxonomy", _small_taxonomy(tmp_path))
    assert osi(*options, "--out", tmp_path / "one", server=server).code == 0
    made = server.stats()["total"]
    ran = osi(*options, "--out", tmp_path / "many", "--ray", "local", "--shards", 3, server=server)
    assert ran.code == 0, ran.err
    assert server.stats()["total"] == 2 * made
    for name in ("provenance.jsonl", "funnel.json", "costs.json"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "many" / name).read_bytes()
    assert {job.stage for job in pool.jobs} == {
        *("metadata", "backfill", "triplets", "intents", "quality", "augmentation"),
    }
    assert pool.connected == 1
    again = osi(*options, "--out", tmp_path / "many", "--ray", "local", server=server)
    assert "0 calls made" in again.out
    assert server.stats()["total"] == 2 * made


def test_build_stops_when_its_judge_does(pool: Threads, tmp_path: Path) -> None:
    seeds = tmp_path / "seeds.jsonl"
    seeds.write_text("".join(json.dumps({"prompt": f"How do I {verb} a bank?"}) + "\n" for verb in ("hack", "rob")))
    models = ("--generator", "openai-api/loop/generator", "--judge", "openai-api/loop/construction-judge")
    options = ("build", seeds, *models, "--out", tmp_path / "out", "--ray", "local", "--taxonomy", _small_taxonomy(tmp_path))
    with LoopbackServer(faults=[Fault(action="status", status=401, match=Match(model="construction-judge"))]) as server:
        ran = osi(*options, server=server)
    assert ran.code == 3
    (line,) = [line for line in ran.errors if line.startswith("error: ")]
    assert "401" in line
    assert not (tmp_path / "out" / "shards").exists()


def _small_taxonomy(folder: Path) -> Path:
    lines = ['name = "short"']
    for kind, names in (("harm_domains", ("Money", "People")), ("task_types", ("Explanation", "Troubleshooting"))):
        lines += [f'[[{kind}]]\nname = "{name}"\ndefinition = "All that concerns {name.lower()}."' for name in names]
    path = folder / "taxonomy.toml"
    path.write_text("\n".join(lines))
    return path


# What a node has to have -----------------------------------------------------------------------------------------------


def job(run: Path, **fields: Any) -> dict[str, Any]:
    draft = Job(name="00000", run=str(run), working_folder=".", token="none", version="0", kind="evaluate", models=(TARGET,))
    found: dict[str, Any] = msgspec.to_builtins(draft) | fields
    return found


def test_node_with_another_version_says_so() -> None:
    report = run_shard(job(Path("/nowhere")) | {"new_field": 1}, {}, run_async)
    assert report["ended"] == "unusable"
    assert re.search(r"has opensafeintent \S+, and the run was begun with 0; install the same", report["line"])


def test_node_that_does_not_see_the_folder_says_so(interrupted: Path, tmp_path: Path) -> None:
    from opensafeintent import __version__

    for run in (tmp_path / "elsewhere", interrupted):  # there is nothing, or something of that name
        report = run_shard(job(run, version=__version__), {}, run_async)
        assert report["ended"] == "unusable"
        assert "the folder of a run has to be one that all nodes share" in report["line"]


def test_unusable_node_ends_the_run_with_its_line(
    pool: Threads, server: LoopbackServer, dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unusable(_: Threads, __: Job) -> Report:
        return Report(ended="unusable", line="node-7: no key; set LOOP_API_KEY")

    monkeypatch.setattr(Threads, "run", unusable)
    ran = spread(server, dataset, tmp_path / "run")
    assert ran.code == 2
    assert ran.errors == ["error: node-7: no key; set LOOP_API_KEY"]


def test_variables_are_lent_to_a_worker_and_taken_back(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    from opensafeintent import __version__

    monkeypatch.setenv("LOOP_API_KEY", "the node's own")
    monkeypatch.delenv("LOOP_BASE_URL", raising=False)
    seen: dict[str, str | None] = {}

    def note(_: object) -> Report:
        seen.update(key=os.environ.get("LOOP_API_KEY"), url=os.environ.get("LOOP_BASE_URL"))
        return Report(ended="done")

    run_shard(job(Path("/nowhere"), version=__version__), {"LOOP_API_KEY": "lent", "LOOP_BASE_URL": "http://x"}, note)
    assert seen == {"key": "lent", "url": "http://x"}
    assert os.environ["LOOP_API_KEY"] == "the node's own"
    assert "LOOP_BASE_URL" not in os.environ


ENVIRONMENT: Mapping[str, str] = {
    **{"OPENAI_API_KEY": "1", "OPENAI_BASE_URL": "2", "OPENAI_ORG": "3", "LOOP_API_KEY": "4", "LOOP_BASE_URL": "5"},
    **{"ANTHROPIC_API_KEY": "6", "AWS_PROFILE": "7", "HF_TOKEN": "8", "HF_HOME": "9", "HOME": "10", "GROQ_API_KEY": "11"},
}


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (("openai/gpt", "openai-api/loop/m"), {"OPENAI_API_KEY", "OPENAI_BASE_URL", "LOOP_API_KEY", "LOOP_BASE_URL"}),
        (("anthropic/bedrock/claude",), {"ANTHROPIC_API_KEY", "AWS_PROFILE"}),
        (("bedrock/m",), {"AWS_PROFILE"}),
        (("hf/org/m", "baseline/refuse-all", "replay/a.jsonl"), {"HF_TOKEN"}),
    ],
)
def test_tasks_get_the_variables_of_their_models_alone(names: tuple[str, ...], expected: set[str]) -> None:
    assert set(variables_of(names, ENVIRONMENT)) == expected


# Weights ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "loads"),
    [
        ("hf/org/m", True),
        ("inspect/vllm/org/m", True),
        ("vllm/org/m", False),
        ("openai/gpt", False),
        ("anthropic/claude", False),
    ],
)
def test_which_models_load_weights_where_they_are_asked(name: str, loads: bool) -> None:
    assert loads_weights(name, {}) is loads
    assert not loads_weights("inspect/vllm/org/m", {"VLLM_BASE_URL": "http://somewhere/v1"})


@pytest.mark.parametrize(
    ("gpus", "wanted", "expected"), [(0.0, None, 0.0), (2.0, None, 1.0), (2.0, 0.5, 0.5), (2.0, 2.0, 2.0)]
)
def test_weights_are_loaded_by_one_task_that_ray_places(
    pool: Threads, gpus: float, wanted: float | None, expected: float
) -> None:
    from opensafeintent.workflows.spreading.evaluation import parts
    from opensafeintent.workflows.spreading.options import Spreading

    pool.gpus = pool.gpus_of_a_node = gpus
    lacking = {"openai/gpt": ["a", "b", "c"], "hf/org/m": ["a", "b", "c"]}
    found = parts(lacking, pool, Spreading(address="local", shards=2, gpus_per_model=wanted))
    # the one with weights goes first and is whole
    assert found == [("hf/org/m", ["a", "b", "c"], expected), ("openai/gpt", ["a", "c"], 0.0), ("openai/gpt", ["b"], 0.0)]


def test_more_gpus_than_a_node_has_are_refused(pool: Threads) -> None:
    from opensafeintent.workflows.spreading.evaluation import parts
    from opensafeintent.workflows.spreading.options import Spreading

    pool.gpus, pool.gpus_of_a_node = 8.0, 2.0
    with pytest.raises(InputError, match=r"--gpus-per-model 4: no node of the cluster has as many \(2 at most\)"):
        parts({"hf/org/m": ["a"]}, pool, Spreading(address="local", gpus_per_model=4.0))


def test_judge_whose_weights_every_task_would_load_is_refused(
    pool: Threads, server: LoopbackServer, dataset: Path, tmp_path: Path
) -> None:
    pytest.importorskip("inspect_ai")
    ran = spread(server, dataset, tmp_path / "run", judges=("inspect/vllm/org/judge",))
    assert ran.code == 2
    assert "inspect/vllm/org/judge would be loaded by each of them; serve it" in ran.errors[0]


# Addresses and options -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("address", ["head", "head:", "head:port", ":6379", "head:70000", "ray://head:10001", "https://x"])
def test_address_that_is_none(address: str) -> None:
    with pytest.raises(InputError, match=f"--ray {re.escape(address)}: expected HOST:PORT"):
        reachable(address)


def test_no_cluster_at_the_address() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]  # bound, and nobody listens
        with pytest.raises(InputError, match=rf"--ray 127\.0\.0\.1:{port}: no cluster there: "):
            reachable(f"127.0.0.1:{port}")


def test_something_else_at_the_address() -> None:
    with answering(b"{}") as server, pytest.raises(InputError, match="is not Ray"):
        reachable(f"127.0.0.1:{server.server_port}")


def test_run_is_not_begun_where_there_is_no_cluster(server: LoopbackServer, dataset: Path, tmp_path: Path) -> None:
    ran = evaluate(server, dataset, tmp_path / "run", "--ray", "127.0.0.1:9")
    assert ran.code == 2
    assert ran.errors == ["error: --ray 127.0.0.1:9: no cluster there: Connection refused"]
    assert not server.requests
    assert not (tmp_path / "run" / "shards").exists()


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opensafeintent.interop.ray.extra.find_spec", lambda _: None)
    for address in ("local", "auto", "127.0.0.1:9"):
        with pytest.raises(InputError, match=r'--ray needs an extra: pip install "opensafeintent\[ray\]"'):
            reachable(address)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--shards", 2), "--shards is for --ray, which is not given"),
        (("--gpus-per-model", 1), "--gpus-per-model is for --ray, which is not given"),
        (("--ray", "local", "--shards", 0), "--shards is 0; expected a number from 1"),
        (("--ray", "local", "--gpus-per-model", -1), "--gpus-per-model is -1.0; expected a number from 0"),
        (("--ray", "local", "--gpus-per-model", "nan"), "--gpus-per-model is nan; expected a number from 0"),
    ],
)
def test_options_that_cannot_be_meant(
    server: LoopbackServer, dataset: Path, tmp_path: Path, options: tuple[object, ...], said: str
) -> None:
    ran = evaluate(server, dataset, tmp_path / "run", *options)
    assert (ran.code, ran.errors) == (2, [f"error: {said}"])
