"""Runs over a Ray cluster of this machine: the same results as one process, also when workers or
commands are killed.

One cluster serves all tests of this module, for it takes seconds to start. It is started without
the variables of the models: tasks know endpoint and key from the command alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import re
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

import endtoend
from endtoend import (
    JUDGE,
    TARGET,
    Ran,
    begin,
    environment,
    evaluate,
    finish,
    osi,
    some_sets,
    total,
    wait_until,
)
from loopback import Fault, LoopbackProcess, LoopbackServer, Match
from matched_sets import KINDS, ask_about, make_sets
from opensafeintent import __version__
from opensafeintent.calls.client import Client
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.providers import loads_weights
from opensafeintent.commands.session import run_async
from opensafeintent.errors import InputError
from opensafeintent.evaluation.manifest import RunFolder, list_tasks
from opensafeintent.evaluation.pipeline import ModelWork
from opensafeintent.promptsets import write_dataset
from opensafeintent.ray import cluster as cluster_module, shards as shards_module
from opensafeintent.ray.cluster import Cluster, check_address, check_reachable, collect_variables
from opensafeintent.ray.shards import Job, Shards, check_models, cut_work, run_shard
from opensafeintent.taxonomy import CORE_VARIANTS
from samples import json_lines

SECOND = "openai-api/loop/second"
CONNECTIONS = 8
JUDGED = "baseline/judge"
CLUSTER = [pytest.mark.slow, pytest.mark.xdist_group("ray"), pytest.mark.timeout(600)]


@pytest.fixture(scope="class")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster of two cores and two GPUs, which nobody asks anything of."""
    fcntl = pytest.importorskip("fcntl")
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # if tests are handed out singly to several processes, one of them has its cluster at a time
    with (tmp_path_factory.getbasetemp().parent / "ray.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        here = os.pathsep.join(
            filter(None, (str(endtoend.REPO / "tests"), os.environ.get("PYTHONPATH")))
        )
        with mock.patch.dict(os.environ, PYTHONPATH=here):  # for `_note`, which a worker imports
            head = {"num_cpus": 2, "num_gpus": 2, "include_dashboard": False}
            running = Cluster(initialize_head=True, head_node_args=head)
        ray.init(address=running.address, logging_level="ERROR", log_to_driver=False)
        yield str(running.address)
        assert ray.is_initialized()  # commands leave a connection that is there as it is
        ray.shutdown()
        running.shutdown()


@pytest.fixture(scope="module")
def server() -> Iterator[LoopbackProcess]:
    with LoopbackProcess(latency=0.05) as running:
        yield running


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve sets: 84 prompts for each model."""
    return some_sets(tmp_path_factory.mktemp("sets"), 12)


class Study:
    """Two models on a server, evaluated into any folder; and how many calls that has made."""

    def __init__(self, server: LoopbackProcess, dataset: Path) -> None:
        self.server, self.dataset, self.begun = server, dataset, total(server)

    def evaluate(self, out: Path, *options: object) -> Ran:
        """Evaluate in this process, without a failure."""
        ran = evaluate(self.server, self.dataset, out, *options, models=(TARGET, SECOND))
        assert ran.code == 0, ran.err
        return ran

    @property
    def calls_made(self) -> int:
        return total(self.server) - self.begun

    def half_way(self) -> bool:
        return self.calls_made > 200


@pytest.fixture
def study(alone: Path, server: LoopbackProcess, dataset: Path) -> Study:
    return Study(server, dataset)


@pytest.fixture(scope="module")
def alone(server: LoopbackProcess, dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of one process, which the others are to equal."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    Study(server, dataset).evaluate(folder, "--max-connections", 64)
    return folder


def on(address: str, shards: int = 2) -> tuple[object, ...]:
    return ("--ray", address, "--shards", shards, "--max-connections", CONNECTIONS)


def rows(ledger: Path) -> list[tuple[bytes, str]]:
    with closing(sqlite3.connect(ledger)) as connection:
        return sorted(connection.execute("SELECT key, status FROM calls").fetchall())


def check_same(out: Path, alone: Path) -> None:
    """The same results to the last byte, and every call in the ledger once, as in the run of one
    process.
    """
    assert endtoend.results(out) == endtoend.results(alone)
    assert rows(out / "ledger.sqlite") == rows(alone / "ledger.sqlite")
    assert not (out / "shards").exists()


def workers(out: Path) -> list[int]:
    """The processes that write the ledgers of shards, as their locks say."""
    locks = (path.read_text() for path in (out / "shards").glob("*/.ledger.sqlite.lock"))
    return [int(match[1]) for text in locks if (match := re.match(r"process (\d+) on", text))]


def printed_text(ran: Ran) -> str:
    return " ".join(ran.out.split())


def responses_to(dataset: Path, path: Path) -> Path:
    """Write three responses to each set, the same to all sets."""
    texts = {intent: f"A plain answer, number {n}." for n, intent in enumerate(CORE_VARIANTS)}
    sets = [json.loads(line)["id"] for line in dataset.read_text().splitlines()]
    records = (
        {"id": set_id, "variant": intent, "response": text}
        for set_id in sets
        for intent, text in texts.items()
    )
    return json_lines(path, records)


# On a cluster
# ------------------------------------------------------------------------------


class TestCluster:
    pytestmark = CLUSTER

    def test_shards_come_to_what_one_process_comes_to_and_keys_to_no_file(
        self, address: str, study: Study, alone: Path, tmp_path: Path
    ) -> None:
        import ray

        needed = len(rows(alone / "ledger.sqlite"))
        ran = study.evaluate(tmp_path / "run", *on(address))
        check_same(tmp_path / "run", alone)
        assert study.calls_made == needed
        assert f"{needed:,} calls made." in printed_text(ran)
        assert "4 of 4 shards" in ran.err
        assert study.server.stats()["max_in_flight"] <= 64
        session = Path(ray._private.worker._global_node.get_session_dir_path())
        files = [path for path in session.rglob("*") if path.is_file()]
        assert files and not [path for path in files if endtoend.KEY.encode() in path.read_bytes()]
        # again, it does not even need a cluster
        again = study.evaluate(tmp_path / "run", "--ray", "127.0.0.1:9")
        assert study.calls_made == needed
        assert f"{needed:,} taken from the ledger" in printed_text(again)

    @pytest.mark.parametrize("kind", KINDS)
    def test_pairs_come_to_what_one_process_comes_to(
        self, address: str, server: LoopbackProcess, tmp_path: Path, kind: str
    ) -> None:
        dataset = tmp_path / f"{kind}.jsonl"
        write_dataset(make_sets(kind), dataset)
        assert evaluate(server, dataset, tmp_path / "alone").code == 0
        ran = evaluate(server, dataset, tmp_path / "run", *on(address))
        assert ran.code == 0, ran.err
        check_same(tmp_path / "run", tmp_path / "alone")

    def test_questions_come_to_what_one_process_comes_to(
        self, address: str, server: LoopbackProcess, tmp_path: Path
    ) -> None:
        dataset, asked = tmp_path / "asked.jsonl", ("--judge-by", "both")
        write_dataset(ask_about(make_sets("pairs")), dataset)
        assert evaluate(server, dataset, tmp_path / "alone", *asked).code == 0
        ran = evaluate(server, dataset, tmp_path / "run", *on(address), *asked)
        assert ran.code == 0, ran.err
        check_same(tmp_path / "run", tmp_path / "alone")

    def test_a_cluster_of_this_machine_ends_with_the_command_and_imports_nothing_of_its_folder(
        self, tmp_path: Path
    ) -> None:
        planted, log_path = tmp_path / "planted", tmp_path / "seen"
        planted.mkdir()
        for name in ("secrets", "typing_extensions", "msgspec", "yaml", "colorama"):
            text = f"open({str(log_path)!r}, 'a').write({name!r})\nraise ImportError({name!r})\n"
            (planted / f"{name}.py").write_text(text)
        options = (
            "--judge",
            JUDGED,
            "--limit",
            "1",
            "--ray",
            "local",
            "--out",
            str(tmp_path / "run"),
        )
        done = subprocess.run(
            [
                sys.executable,
                "-P",
                "-m",
                "opensafeintent",
                "evaluate",
                "baseline/redirect",
                *options,
            ],
            cwd=planted,
            text=True,
            capture_output=True,
            check=False,
            env=environment(None),
        )
        assert done.returncode == 0, done.stderr
        assert "ray" not in done.stderr.lower(), done.stderr
        assert rows(tmp_path / "run" / "ledger.sqlite")
        assert not log_path.exists()

    def test_a_worker_that_is_killed_costs_its_last_calls_alone(
        self, address: str, study: Study, alone: Path, tmp_path: Path
    ) -> None:
        out = tmp_path / "run"

        def kill() -> None:
            wait_until(study.half_way, 60)
            os.kill(workers(out)[0], signal.SIGKILL)

        with ThreadPoolExecutor() as beside:
            killing = beside.submit(kill)
            study.evaluate(out, *on(address))
            killing.result()
        check_same(out, alone)
        # in flight over all tasks, and answered in the last twentieth of a second, not on disk yet
        assert study.calls_made - len(rows(alone / "ledger.sqlite")) <= 2 * CONNECTIONS

    @pytest.mark.parametrize("signals", [["SIGINT"], ["SIGINT", "SIGTERM"], ["SIGKILL"]])
    def test_a_command_that_ends_half_way_is_taken_up(
        self, address: str, study: Study, alone: Path, tmp_path: Path, signals: list[str]
    ) -> None:
        """The first signal has every task finish what is in flight; the second ends them, and what
        they recorded stays.
        """
        out, orderly = tmp_path / "run", signals == ["SIGINT"]
        command = ("evaluate", TARGET, SECOND, "--judge", JUDGE, "--dataset", study.dataset)
        # with such a variable it is not forked: Ray watches over processes
        plainly = {"PYTHONDONTWRITEBYTECODE": "1"}
        process = begin(*command, "--out", out, *on(address), server=study.server, **plainly)
        wait_until(study.half_way, 90)
        for name in signals:
            process.send_signal(signal.Signals[name])
        ran = finish(process, 60)
        assert ran.code == (-signal.SIGKILL if signals == ["SIGKILL"] else 130)
        assert "Traceback" not in ran.err
        leftovers = [path.name for path in (out / "shards").glob("*")]
        assert bool(leftovers) != orderly
        if orderly:
            assert study.calls_made == len(rows(out / "ledger.sqlite"))
        # the next run needs no cluster: it takes up what is there, and makes the rest itself
        again = study.evaluate(out)
        assert ("shards of an interrupted run: " in printed_text(again)) != orderly
        if (out / "shards").exists():  # on a busy machine a task outlives its command
            study.evaluate(out)
        check_same(out, alone)
        excess = study.calls_made - len(rows(alone / "ledger.sqlite"))
        assert 0 <= excess <= (0 if orderly else 3 * CONNECTIONS)

    def test_imported_responses_are_graded(
        self, address: str, dataset: Path, tmp_path: Path
    ) -> None:
        responses = responses_to(dataset, tmp_path / "model.jsonl")
        share = ("--max-missing", 1)
        with LoopbackServer() as server:
            for name, options in (("one", ()), ("many", on(address))):
                run = tmp_path / name / "run"
                brought = osi("import", responses, "--dataset", dataset, "--out", run, *share)
                graded = osi("grade", run, "--judge", JUDGE, *share, *options, server=server)
                assert (brought.code, graded.code) == (0, 0), graded.err
        check_same(tmp_path / "many" / "run", tmp_path / "one" / "run")

    @pytest.mark.parametrize(("model", "status"), [("second", 404), ("judge", 401)])
    def test_a_target_that_stops_costs_its_own_shards_and_a_judge_ends_the_run(
        self, address: str, dataset: Path, tmp_path: Path, model: str, status: int
    ) -> None:
        fault = Fault(action="status", status=status, match=Match(model=model, skip=20))
        out, models = tmp_path / "run", (TARGET, SECOND)
        with LoopbackServer(faults=[fault]) as server:
            ran = evaluate(server, dataset, out, *on(address, shards=6), models=models)
            made_calls = endtoend.calls(server)
        assert ran.code == 3
        # the words, for a folder of the test or a port may hold the same digits
        stopped = f"/{model}: stopped: {status} from "
        assert len([line for line in (ran.out + ran.err).splitlines() if stopped in line]) == 1
        assert len(rows(out / "ledger.sqlite")) == made_calls.total()  # what was answered is kept
        assert (out / "metrics.json").exists() == (model == "second")
        if model == "second":
            coverage = json.loads((out / "metrics.json").read_text())["coverage"]
            assert coverage[TARGET]["responses"] == 84

    def test_a_cluster_is_told_from_another_service_and_from_none(
        self, address: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run_async(lambda: check_reachable(address))
        monkeypatch.setattr(cluster_module, "_CONNECT_SECONDS", 1)
        monkeypatch.setattr(cluster_module, "_ANSWER_SECONDS", 5.0)
        with another_service() as other_service, socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))  # bound, and nobody listens
            for wrong in (other_service, f"127.0.0.1:{closed.getsockname()[1]}", "a..b:6379"):
                with pytest.raises(InputError, match=f"--ray {wrong}: no cluster there"):
                    run_async(lambda wrong=wrong: check_reachable(wrong))

    def test_a_cluster_is_not_looked_for_if_no_python_can_be_started(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sys, "executable", "")
        with pytest.raises(InputError, match="--ray a:1: cannot start Python to look for a"):
            run_async(lambda: check_reachable("a:1"))

    @pytest.mark.usefixtures("address")
    def test_a_process_ends_with_its_task(self, run: Path, tmp_path: Path) -> None:
        """Else the next model finds the weights and keys of this one, and a GPU that is another's
        by now.
        """
        import ray

        job = job_of(run, tmp_path)._replace(run=_note)
        job = job._replace(work=work_of(run, "hf/org/m")[0])

        async def one_after_the_other() -> list[Any]:
            with Ledger(run / "ledger.sqlite") as ledger:
                shard_runner = shards(run, ledger)
                shard_runner._ray = ray
                return [await shard_runner._run_to_end(job, gpus) for gpus in (1.0, 0.5, 0.0)]

        process_records = run_async(one_after_the_other)
        assert len({process for process, *_ in process_records}) == 3
        assert {gpu for _, gpu, *_ in process_records[:2]} <= {"0", "1"}

    def test_a_shard_that_is_damaged_is_named(
        self, address: str, study: Study, alone: Path, tmp_path: Path
    ) -> None:
        out, damaged = tmp_path / "run", tmp_path / "run" / "shards" / "00001" / "ledger.sqlite"
        study.evaluate(out, "--limit", 1)
        damaged.parent.mkdir(parents=True)
        damaged.write_bytes(b"no database at all" * 300)
        grown = (*on(address), "--limit", 100)
        ran = evaluate(study.server, study.dataset, out, *grown, models=(TARGET, SECOND))
        assert ran.code == 2
        assert str(damaged) in ran.errors[0]
        damaged.unlink()
        study.evaluate(out, *grown)
        check_same(out, alone)


# A node
# ------------------------------------------------------------------------------


LOOP = {"LOOP_API_KEY", "LOOP_BASE_URL"}
OPENAI = {"OPENAI_API_KEY", "OPENAI_BASE_URL"}


def test_tasks_get_the_variables_of_their_models_alone() -> None:
    other_names = {"OPENAI_ORG", "ANTHROPIC_API_KEY", "AWS_PROFILE", "HF_TOKEN", "HF_HOME", "HOME"}
    environment = dict.fromkeys(
        OPENAI | LOOP | other_names | {"GROQ_API_KEY", "VLLM_BASE_URL"}, "set"
    )
    for names, expected in (
        (("openai/gpt", "openai-api/loop/m"), OPENAI | LOOP),
        (("anthropic/bedrock/claude",), {"ANTHROPIC_API_KEY", "AWS_PROFILE"}),
        (("bedrock/m",), {"AWS_PROFILE"}),
        (("vllm-completions/m",), {"VLLM_BASE_URL"}),
        (("hf/org/m", "baseline/refuse-all"), {"HF_TOKEN"}),
    ):
        assert set(collect_variables(names, environment)) == expected
    headers = {"openai/gpt": {"x-a": "AWS_PROFILE"}, "groq/m": {"x-a": "HOME"}}
    assert set(collect_variables(["openai/gpt"], environment, headers)) == OPENAI | {"AWS_PROFILE"}


def test_which_models_load_weights_where_they_are_asked() -> None:
    servers = dict.fromkeys(("VLLM_BASE_URL", "SGLANG_BASE_URL"), "http://a/v1")
    completions = ("vllm-completions/org/m", "inspect/vllm/org/m", "inspect/sglang/org/m")
    for name in ("hf/org/m", *completions):
        assert loads_weights(name, {})
        assert loads_weights(name, servers) == name.startswith("hf/")
    for name in ("vllm/org/m", "anthropic/claude"):
        assert not loads_weights(name, {}) and not loads_weights(name, servers)


@pytest.fixture
def run(dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small run of a model that needs no server; a shard in this process may leave its folder."""
    monkeypatch.chdir(tmp_path)
    options = ("--judge", "baseline/judge", "--dataset", dataset, "--limit", 1)
    out = tmp_path / "run"
    assert osi("evaluate", "baseline/redirect", *options, "--out", out).code in (0, 1)
    return out


def work_of(run: Path, *models: str) -> list[ModelWork]:
    """The work of that run, as if it were that of other models."""
    manifest, sets = RunFolder(run).load()
    plan, templates = manifest.judge_plan("baseline/redirect"), manifest.judge_templates()
    first = sets.prompt_sets[:3]
    return [
        ModelWork(model=model, plan=plan, templates=templates, tasks=list_tasks(model, first, 1))
        for model in models
    ]


def job_of(run: Path, folder: Path, **identities: str) -> Job:
    (work,) = work_of(run, "baseline/redirect")
    named = RunFolder(run).load()[0].identities() | identities
    return Job(folder, work, named, {}, Cluster(address="local"), folder, run_async)


def test_weights_are_loaded_by_one_task_which_comes_first(run: Path) -> None:
    parts = cut_work(work_of(run, "openai/gpt", "hf/org/m"), 2)
    sets = [(part.model, list(dict.fromkeys(task.set_id for task in part.tasks))) for part in parts]
    first_set, second_set, third_set = sets[0][1]
    shards_of_gpt = [("openai/gpt", [first_set, third_set]), ("openai/gpt", [second_set])]
    assert sets == [("hf/org/m", [first_set, second_set, third_set]), *shards_of_gpt]
    assert [len(part.tasks) for part in parts] == [21, 14, 7]


def shards(run: Path, ledger: Ledger, gpus: float | None = None) -> Shards:
    cluster = Cluster(address="local", gpus_per_model=gpus)
    return Shards(cluster, run / "shards", Client(ledger, {}), run_async)


def test_gpus_of_a_task(run: Path) -> None:
    loading, remote = work_of(run, "hf/org/m"), work_of(run, "openai/gpt")
    with Ledger(run / "ledger.sqlite") as ledger:
        for wanted, most, expected in (None, 0, 0), (None, 2, 1), (0.5, 2, 0.5), (2.0, 2, 2):
            assert shards(run, ledger, wanted)._choose_gpus(loading, most) == expected
        many = shards(run, ledger, 4.0)
        assert many._choose_gpus(remote, 0) is not None  # no weights: nothing to refuse
        with pytest.raises(InputError, match=r"--gpus-per-model 4: .* \(2 at most\) for hf/org/m"):
            many._choose_gpus(loading, 2)


def test_models_that_tasks_cannot_ask_are_refused(run: Path) -> None:
    (work,) = work_of(run, "python/mine@1")
    with pytest.raises(InputError, match="--ray: python/mine@1 is a function in this process"):
        check_models([work])
    (work,) = work_of(run, "openai/gpt")
    judged = msgspec.structs.replace(work.plan, judges=("inspect/vllm/org/judge",))
    with pytest.raises(InputError, match="inspect/vllm/org/judge would be loaded by each of them"):
        check_models([msgspec.structs.replace(work, plan=judged)])


def shard(job: Job, **variables: str) -> Any:
    """Do a shard in this process, as a worker does."""
    return run_shard(__version__, pickle.dumps(job), variables)


def test_a_shard_has_its_own_ledger_and_knows_what_the_run_has(run: Path, tmp_path: Path) -> None:
    (folder := tmp_path / "shard").mkdir()
    job = job_of(run, folder)
    report = shard(job)
    assert (report.rows, report.tally.new_calls.total()) == (
        len(rows(folder / "ledger.sqlite")),
    ) * 2
    with Ledger(folder / "ledger.sqlite", readonly=True) as ledger:
        located_by_key = ledger.find_all([key for key, _ in rows(folder / "ledger.sqlite")])
    stored_outcomes = {key: located.outcome for key, located in located_by_key.items()}
    again = shard(job._replace(folder=tmp_path, stored=stored_outcomes))
    assert (again.rows, again.tally.new_calls.total(), again.tally.reused_calls) == (
        0,
        0,
        report.rows,
    )


@pytest.mark.slow
def test_a_node_that_is_amiss_says_so(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards_module, "_APPEARS_SECONDS", 1)
    host = re.escape(socket.gethostname())
    with pytest.raises(InputError, match=f"{host}: .*the run was begun with 0; install the same"):
        run_shard("0", b"", {})  # told before anything is unpickled
    for job, message in (
        (job_of(run, tmp_path / "nowhere"), "the folder of a run has to be one that all nodes"),
        (job_of(run, tmp_path, **{JUDGED: "another"}), f"{JUDGED}: is .* on this node; the run"),
    ):
        with pytest.raises(InputError, match=f"{host}: .*{message}"):
            shard(job)
    late = tmp_path / "late"  # as on a network file system
    threading.Timer(0.3, late.mkdir).start()
    assert shard(job_of(run, late)).rows > 0


def test_a_worker_is_lent_keys(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOOP_API_KEY", "the node's own")
    noted = shard(job_of(run, tmp_path)._replace(run=_note), LOOP_API_KEY="lent")
    assert noted[2:] == ("lent", str(tmp_path))


def _note(_: object) -> tuple[int, str | None, str | None, str]:
    gpu, key = (os.environ.get(name) for name in ("CUDA_VISIBLE_DEVICES", "LOOP_API_KEY"))
    return os.getpid(), gpu, key, str(Path.cwd())


# Addresses and options
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_address_that_is_none() -> None:
    pytest.importorskip("ray")
    for address in ("head", ":6379", "head:70000", "head:\u0666", "https://x", ""):
        with pytest.raises(InputError, match=f"--ray {re.escape(address)}: expected HOST:PORT"):
            check_address(address)


@contextlib.contextmanager
def another_service() -> Iterator[str]:
    """A server of HTTP/2 that is not Ray's: it answers as such, and then says nothing more."""
    connections = []

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connections.append(listening.accept()[0])
                # its settings: RFC 9113, section 3.4
                connections[-1].sendall(bytes(3) + b"\x04" + bytes(5))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.slow
def test_a_run_is_not_begun_without_a_cluster_or_a_ray_that_works(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: str) -> None:
        raise ImportError("libfoo.so.1: cannot open shared object file")

    pytest.importorskip("ray")
    monkeypatch.setattr(cluster_module, "import_module", broken)
    with LoopbackServer() as server:
        ran = evaluate(server, dataset, tmp_path / "run", "--ray", "10.0.0.1:6379")
        assert (ran.code, total(server)) == (2, 0)
    assert ran.errors[-1].startswith("error: --ray 10.0.0.1:6379: cannot be used: libfoo.so.1")
    assert not (tmp_path / "run" / "shards").exists()


def test_the_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r'pip install "\.\[ray\]"'):
        check_address("local")


@pytest.mark.slow
def test_options_that_cannot_be_meant(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    local = ("--ray", "local")
    cases = {
        **{"--shards": ("--shards", 2), "--gpus-per-model": ("--gpus-per-model", 1)},
        **{"--shards 0": (*local, "--shards", 0), "--ray head": ("--ray", "head")},
        **{f"--gpus-per-model {n}": (*local, "--gpus-per-model", n) for n in ("nan", 1.5, 1e-05)},
        **{f"--budget-{kind}": (*local, f"--budget-{kind}", 9) for kind in ("calls", "dollars")},
    }
    for at_fault, options in cases.items():
        new = ("evaluate", "baseline/redirect", "--out", tmp_path / "new")
        for command in (new, ("grade", run)):
            ran = osi(*command, "--judge", "baseline/judge", *options)
            assert ran.code == 2
            assert ran.errors[0].startswith(f"error: {at_fault}: ")
