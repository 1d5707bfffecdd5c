"""Work spread over Ray: two nodes of a real cluster on this machine, workers and nodes that are lost half-way.

One cluster serves all tests of this module, for it takes seconds to start. The cluster is started without the variables of
the models: what tasks know of endpoint and key came with them.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from endtoend import JUDGE, KEY, TARGET, Ran, begin, evaluate, finish, osi, some_sets, wait_until
from loopback import LoopbackProcess
from opensafeintent.errors import InputError
from opensafeintent.interop.ray.cluster import cluster, reachable
from opensafeintent.interop.ray.folder import Job
from opensafeintent.workflows.loop import run_async

ray = pytest.importorskip("ray")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("ray"),
    pytest.mark.timeout(600),
]

SECOND = "openai-api/loop/second"
CONNECTIONS = 8
LATENCY = 0.05


class TwoNodes:
    """A cluster of a head and a second node, which can be taken away and given back."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster

        noticing = {"health_check_period_ms": 500, "health_check_failure_threshold": 3, "health_check_initial_delay_ms": 0}
        head = {"num_cpus": 2, "num_gpus": 2, "include_dashboard": False, "_system_config": noticing}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self._second: Any = None

    @property
    def address(self) -> str:
        return str(self.cluster.address)

    def with_second(self) -> None:
        """See that the second node is there."""
        if self._second is None:
            self._second = self.cluster.add_node(num_cpus=2)

    def lose_second(self) -> None:
        """Kill it, as a machine dies: without a word."""
        self.cluster.remove_node(self._second, allow_graceful=False)
        self._second = None


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNodes]:
    fcntl = pytest.importorskip("fcntl")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    # where tests are handed out singly to several processes, one of them has its cluster at a time
    with (tmp_path_factory.getbasetemp().parent / "ray.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        running = TwoNodes()
        yield running
        ray.shutdown()
        running.cluster.shutdown()


@pytest.fixture
def connected(nodes: TwoNodes) -> Iterator[None]:
    """This process has a connection to Ray already, as in a notebook: commands use it, and leave it as it is."""
    if not ray.is_initialized():
        ray.init(address=nodes.address, logging_level="ERROR", log_to_driver=False)
    yield
    assert ray.is_initialized()


@pytest.fixture(scope="module")
def server() -> Iterator[LoopbackProcess]:
    with LoopbackProcess(latency=LATENCY) as running:
        yield running


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve sets: 84 prompts for each target."""
    return some_sets(tmp_path_factory.mktemp("sets"), 12)


@pytest.fixture(scope="module")
def alone(server: LoopbackProcess, dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run on this machine alone, which the others are to equal."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    ran = evaluate(server, dataset, folder, "--max-connections", 64, models=(TARGET, SECOND))
    assert ran.code == 0, ran.err
    return folder


def spread_over(nodes: TwoNodes) -> tuple[object, ...]:
    return ("--ray", nodes.address, "--shards", 3, "--max-connections", CONNECTIONS)


def start(nodes: TwoNodes, server: LoopbackProcess, dataset: Path, out: Path) -> subprocess.Popen[str]:
    command = ("evaluate", TARGET, SECOND, "--judge", JUDGE, "--dataset", dataset, "--out", out)
    return begin(*command, *spread_over(nodes), server=server)


def processes(out: Path) -> set[int]:
    """The processes that work on shards, as their progress files say."""
    found = set()
    for path in (out / "shards").glob("*.*.json"):
        text = path.read_text() if path.exists() else ""
        if match := re.search(r'"process":(\d+)', text):
            found.add(int(match[1]))
    return found


def half_way(server: LoopbackProcess, before: int) -> Callable[[], bool]:
    return lambda: bool(server.stats()["total"] - before > 200)


def rows(ledger: Path) -> list[tuple[bytes, str]]:
    with closing(sqlite3.connect(ledger)) as connection:
        return connection.execute("SELECT key, status FROM calls").fetchall()


def check_same(out: Path, alone: Path) -> None:
    """The same results to the last byte, and every call recorded once, as in the run on one machine."""
    for name in ("metrics.json", "grades.csv.gz"):
        assert (out / name).read_bytes() == (alone / name).read_bytes(), name
    assert sorted(rows(out / "ledger.sqlite")) == sorted(rows(alone / "ledger.sqlite"))
    assert not (out / "shards").exists()


def reported(ran: Ran) -> tuple[int, int]:
    """(in flight when a worker was lost, made again), as the command says."""
    found = re.search(r"([\d,]+) calls were in flight when their worker was lost; ([\d,]+)", " ".join(ran.out.split()))
    return (int(found[1]), int(found[2])) if found else (0, 0)


def test_two_nodes_come_to_what_one_process_comes_to(
    nodes: TwoNodes, server: LoopbackProcess, dataset: Path, alone: Path, tmp_path: Path
) -> None:
    nodes.with_second()
    before = server.stats()["total"]
    ran = finish(start(nodes, server, dataset, tmp_path / "run"), 120)
    assert ran.code == 0, ran.err
    made = server.stats()["total"] - before
    check_same(tmp_path / "run", alone)
    assert made == len(rows(alone / "ledger.sqlite"))
    assert f"{made:,} calls made, 0 retries, 0 taken from the ledger" in " ".join(ran.out.split())
    assert "ray" not in ran.err.lower(), ran.err
    # again, it does not even need a cluster
    again = evaluate(server, dataset, tmp_path / "run", "--ray", "127.0.0.1:9", models=(TARGET, SECOND))
    assert again.code == 0, again.err
    assert server.stats()["total"] - before == made
    assert f"{made:,} taken from the ledger" in " ".join(again.out.split())


def test_only_the_head_of_a_cluster_is_taken_for_one(nodes: TwoNodes) -> None:
    run_async(lambda: reachable(nodes.address))
    elsewhere = f"{nodes.address.rpartition(':')[0]}:{nodes.cluster.head_node.node_manager_port}"
    with pytest.raises(InputError, match=f"--ray {elsewhere}: what answers there is no cluster's head"):
        run_async(lambda: reachable(elsewhere))


def test_cluster_of_this_machine_lives_as_long_as_the_command(server: LoopbackProcess, dataset: Path, tmp_path: Path) -> None:
    command = ("evaluate", TARGET, "--judge", JUDGE, "--limit", 1)
    ran = finish(begin(*command, "--dataset", dataset, "--out", tmp_path / "run", "--ray", "local", server=server))
    assert ran.code == 0, ran.err
    assert rows(tmp_path / "run" / "ledger.sqlite")
    assert not (tmp_path / "run" / "shards").exists()


def test_key_is_in_no_file_of_rays(nodes: TwoNodes) -> None:
    session = Path(nodes.cluster.head_node.get_session_dir_path())
    files = [path for path in session.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if KEY.encode() in path.read_bytes()]


@pytest.mark.usefixtures("connected")
@pytest.mark.parametrize("lost", ["worker", "node"])
def test_what_is_lost_half_way_is_made_again_and_nothing_else(
    nodes: TwoNodes, server: LoopbackProcess, dataset: Path, alone: Path, tmp_path: Path, lost: str
) -> None:
    nodes.with_second()
    before, repeats = server.stats()["total"], server.stats()["duplicates"]
    out = tmp_path / "run"

    def lose() -> None:
        wait_until(half_way(server, before), 60)
        if lost == "worker":
            os.kill(min(processes(out)), signal.SIGKILL)
        else:
            nodes.lose_second()

    with ThreadPoolExecutor() as beside:
        losing = beside.submit(lose)
        ran = evaluate(server, dataset, out, *spread_over(nodes), models=(TARGET, SECOND))
        losing.result()
    assert ran.code == 0, ran.err
    check_same(out, alone)
    in_flight, again = reported(ran)
    extra = server.stats()["total"] - before - len(rows(alone / "ledger.sqlite"))
    # the server sees what was sent; a request that was begun and not yet sent is lost as well
    assert 0 < extra <= again == in_flight
    # in flight over all lanes at most, and answered in the twentieth of a second before that, not on disk yet
    assert in_flight <= 2 * CONNECTIONS
    assert server.stats()["duplicates"] - repeats >= extra


@pytest.mark.parametrize("second", [False, True])
def test_interrupted_run_keeps_what_shards_recorded(
    nodes: TwoNodes, server: LoopbackProcess, dataset: Path, alone: Path, tmp_path: Path, second: bool
) -> None:
    """The first signal has every task finish what is in flight; the second ends them, and what they recorded stays."""
    before = server.stats()["total"]
    out = tmp_path / "run"
    process = start(nodes, server, dataset, out)
    wait_until(half_way(server, before), 90)
    process.send_signal(signal.SIGINT)
    if second:
        process.send_signal(signal.SIGTERM)
    ran = finish(process, 60)
    assert ran.code == 130
    assert "interrupted; everything" in ran.errors[-1]
    assert "Traceback" not in ran.err
    shards = (out / "shards" / "shards.json").is_file()
    assert shards == second
    if second:
        assert KEY not in (out / "shards" / "shards.json").read_text()
        wait_until(lambda: not any(_alive(pid) for pid in processes(out)))
    else:
        assert "no new call begins" in ran.err
        assert server.stats()["total"] - before == len(rows(out / "ledger.sqlite"))
    # the next run needs no cluster: it takes up what is there, and makes the rest itself
    ran = evaluate(server, dataset, out, models=(TARGET, SECOND))
    assert ran.code == 0, ran.err
    assert ("were taken up from the shards of an interrupted run" in " ".join(ran.out.split())) == second
    check_same(out, alone)
    more = server.stats()["total"] - before - len(rows(alone / "ledger.sqlite"))
    assert 0 <= more <= 2 * CONNECTIONS * second


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.usefixtures("connected")
def test_process_that_loads_weights_ends_with_its_task(nodes: TwoNodes) -> None:
    """Else the next model finds the weights of this one in memory, and a GPU that is another's by now."""

    def entry(*_: object) -> dict[str, Any]:
        return {"ended": "done", "line": f"{os.getpid()} {os.environ.get('CUDA_VISIBLE_DEVICES')}"}

    job = Job(name="00000", run="", working_folder="", token="", version="", kind="evaluate", models=(), model="hf/org/m")

    async def one_after_the_other() -> list[list[str]]:
        async with cluster(nodes.address, entry, {}) as pool:
            lines = [(await pool.run(msgspec.structs.replace(job, gpus=gpus))).line for gpus in (1.0, 1.0, 0.5, 0.0)]
        return [line.split() for line in lines]

    found = run_async(one_after_the_other)
    assert len({pid for pid, _ in found}) == 4
    assert {gpu for _, gpu in found[:3]} <= {"0", "1"}


@pytest.mark.usefixtures("connected")
def test_build_on_the_cluster_is_the_build_of_one_process(nodes: TwoNodes, tmp_path: Path) -> None:
    seeds = tmp_path / "seeds.jsonl"
    verbs = ("hack", "rob", "manipulate", "blackmail", "deceive", "poison", "track", "vandalize")
    seeds.write_text("".join(json.dumps({"prompt": f"How do I {verb} a bank without permission?"}) + "\n" for verb in verbs))
    lines = ['name = "short"']
    for kind, names in (("harm_domains", ("Money", "People")), ("task_types", ("Explanation", "Troubleshooting"))):
        lines += [f'[[{kind}]]\nname = "{name}"\ndefinition = "All that concerns {name.lower()}."' for name in names]
    (tmp_path / "taxonomy.toml").write_text("\n".join(lines))
    models = ("--generator", "openai-api/loop/generator", "--judge", "openai-api/loop/construction-judge")
    options = ("build", seeds, *models, "--per-cell", 1, "--taxonomy", tmp_path / "taxonomy.toml")
    with LoopbackProcess() as server:
        here = osi(*options, "--out", tmp_path / "alone", server=server)
        made = server.stats()["total"]
        spread = ("--ray", nodes.address, "--shards", 2, "--max-connections", CONNECTIONS)
        there = osi(*options, "--out", tmp_path / "spread", *spread, server=server)
        assert here.code == there.code == 0, here.err + there.err
        assert server.stats()["total"] == 2 * made
    for name in ("provenance.jsonl", "funnel.json", "cost.json"):
        assert (tmp_path / "alone" / name).read_bytes() == (tmp_path / "spread" / name).read_bytes()
    assert f"{made:,} calls made" in there.out
    assert not (tmp_path / "spread" / "shards").exists()
