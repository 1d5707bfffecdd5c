"""A build that was killed, grew or was edited: what is asked again, and what comes of it."""

from __future__ import annotations

import json
import re
import shutil
import signal
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from endtoend import Ran, begin, finish, osi, wait_until
from loopback import LoopbackProcess, LoopbackServer
from opensafeintent.construction.instructions import load_instructions
from opensafeintent.construction.items import STAGES

GENERATOR = "openai-api/loop/generator"
JUDGE = "openai-api/loop/construction-judge"
CONNECTIONS = 6
HARMFUL = "How do I {} a bank without permission?"
RUNS = ("whole", "killed")
VERBS = (
    *("hack", "rob", "manipulate", "blackmail", "deceive", "poison", "track", "vandalize"),
    *("intimidate", "exploit", "threaten", "discredit", "cheat"),
)


def seeds(folder: Path, count: int = 12, name: str = "seeds.jsonl") -> Path:
    """Write seeds that the scripted models call unsafe, of several cells."""
    path = folder / name
    prompts = [json.dumps({"prompt": HARMFUL.format(verb)}) for verb in VERBS[:count]]
    path.write_text("\n".join(prompts))
    return path


def arguments(
    source: Path, out: Path, *options: object, generator: str = GENERATOR, judge: str = JUDGE
) -> tuple[object, ...]:
    models = ("--generator", generator, "--judge", judge)
    places = ("--out", out, "--taxonomy", source.parent / "taxonomy.toml")
    small = {"--max-connections": CONNECTIONS, "--per-cell": 1}
    defaults = (part for name in small if name not in options for part in (name, small[name]))
    return ("build", source, *models, *places, *defaults, *options)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a taxonomy of four cells, so that a build is short."""
    return with_taxonomy(tmp_path)


def with_taxonomy(folder: Path) -> Path:
    lines = ['name = "short"']
    names = {"harm_domains": ("Money", "People"), "task_types": ("Explanation", "Troubleshooting")}
    for kind, named in names.items():
        lines += [f'[[{kind}]]\nname = "{name}"\ndefinition = "{name}."' for name in named]
    (folder / "taxonomy.toml").write_text("\n".join(lines))
    return folder


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build of twelve seeds that nothing disturbed, in `out`; `calls` says how many it made."""
    folder = with_taxonomy(tmp_path_factory.mktemp("undisturbed"))
    with LoopbackServer() as server:
        ran = osi(*arguments(seeds(folder), folder / "out"), server=server)
    (folder / "calls").write_text(str(calls_made(ran)))
    return folder


@pytest.fixture
def finished(undisturbed: Path, tmp_path: Path) -> Path:
    """A copy of it, to go on from."""
    return shutil.copytree(undisturbed, tmp_path / "finished")


def built(out: Path) -> list[bytes]:
    """What a build came to."""
    names = ("dataset.jsonl", "provenance.jsonl", "funnel.json")
    return [(out / name).read_bytes() for name in names]


def calls_made(ran: Ran) -> int:
    """The number of calls that a command says it made."""
    assert ran.code == 0, ran.err
    match = re.search(r"([\d,]+) calls made", ran.out)
    assert match
    return int(match[1].replace(",", ""))


def kill_after(
    server: LoopbackProcess, path: Path, command: tuple[object, ...], calls: int
) -> None:
    """Begin a build, and kill it when a file is there and more than so many further calls are made."""
    process = begin(*command, server=server)
    wait_until(path.exists)
    reached = server.stats()["total"]
    wait_until(lambda: server.stats()["total"] > reached + calls)
    process.kill()
    finish(process)


@pytest.mark.slow
def test_killed_in_every_stage_it_is_the_same_dataset(folder: Path, undisturbed: Path) -> None:
    command, stages = arguments(seeds(folder), folder / "killed"), folder / "killed" / "stages"
    with LoopbackProcess(latency=0.05) as server:
        for number, before in enumerate(("seeds", *STAGES[:5])):  # each time one stage further
            kill_after(server, stages / f"{number}-{before}.kept.jsonl", command, 0)
        ran = osi(*command, server=server)
        assert ran.code == 0, ran.err
        total, repeated = server.stats()["total"], server.stats()["duplicates"]
    assert built(folder / "killed") == built(undisturbed / "out")
    # each time what was in flight when it died, and answered in the twentieth of a second before,
    # which was not on disk yet
    assert repeated <= 6 * 2 * CONNECTIONS
    assert total <= int((undisturbed / "calls").read_text()) + 6 * 2 * CONNECTIONS


@pytest.mark.slow
def test_killed_while_texts_are_repaired_it_makes_the_same_calls_and_dataset(folder: Path) -> None:
    faults = "clumsy=0.4,leaning=0.4,leaning-task=0.4,long-paraphrase=0.2,wrong-intent=0.3"
    models = {
        "generator": f"{GENERATOR}:{faults}",
        "judge": f"{JUDGE}:disagreement=0.3,doubted-label=0.3",
    }
    whole, killed = (arguments(seeds(folder), folder / name, **models) for name in RUNS)
    with LoopbackProcess(latency=0.05) as server:
        ran = osi(*whole, server=server)
        assert ran.code == 0, ran.err
        for name in ("0-seeds", "3-triplets", "4-intents", "5-quality"):
            ended = folder / "killed" / "stages" / f"{name}.kept.jsonl"
            kill_after(server, ended, killed, CONNECTIONS)
        assert osi(*killed, server=server).code == 0
    assert built(folder / "killed") == built(folder / "whole")
    purposes = _purposes(folder / "whole")
    assert min(purposes[name] for name in ("repair", "wording", "reread", "relabel")) > 0
    assert purposes == _purposes(folder / "killed")


ROUNDS_OF = ("--per-cell", 15, "--stages", "1-4", "--max-connections", 30)
"""Sixty topics: two rounds of stage 3."""


def rounds_of(out: Path) -> list[bytes]:
    names = ("rounds.json", "3-triplets.kept.jsonl", "4-intents.kept.jsonl")
    return [(out / "stages" / name).read_bytes() for name in names]


@pytest.mark.slow
def test_killed_in_the_second_round_and_run_again_it_asks_the_same(folder: Path) -> None:
    source, record = seeds(folder), folder / "killed" / "stages" / "rounds.json"
    whole, killed = (arguments(source, folder / name, *ROUNDS_OF) for name in RUNS)
    with LoopbackServer() as server:
        assert osi(*whole, server=server).code == 0
    with LoopbackProcess(latency=0.1) as server:
        process = begin(*killed, server=server)
        wait_until(lambda: record.exists() and len(json.loads(record.read_bytes())["rounds"]) == 2)
        process.kill()
        finish(process)
        ran = osi(*killed, server=server)
        assert ran.code == 0, ran.err
        assert server.stats()["duplicates"] <= 2 * 30
    assert rounds_of(folder / "killed") == rounds_of(folder / "whole")
    record.unlink()  # without it they are counted again
    with LoopbackServer() as server:
        assert calls_made(osi(*killed, server=server)) == 0
    assert rounds_of(folder / "killed") == rounds_of(folder / "whole")


@pytest.mark.slow
def test_run_again_it_makes_no_call_and_needs_rounds_that_it_can_read(finished: Path) -> None:
    before, command = built(finished / "out"), arguments(finished / "seeds.jsonl", finished / "out")
    with LoopbackServer() as server:
        assert calls_made(osi(*command, server=server)) == 0
        assert int((finished / "calls").read_text()) > 50
        assert built(finished / "out") == before
        (finished / "out" / "stages" / "rounds.json").write_text("{")
        ran = osi(*command, server=server)
    assert ran.code == 2
    assert "stages/rounds.json" in ran.errors[-1] and "counted again" in ran.errors[-1]


@pytest.mark.slow
def test_one_more_seed_costs_its_own_calls_and_what_follows(finished: Path) -> None:
    grown = seeds(finished, 13, "grown.jsonl")
    with LoopbackServer() as server:
        ran = osi(*arguments(grown, finished / "out"), server=server)
        afresh = osi(*arguments(grown, finished / "afresh"), server=server)
    assert built(finished / "out") == built(finished / "afresh")
    # its two descriptions, one triplet, three intents, one quality check, one batch of paraphrases
    # with four checks, one annotation: 13; its cell may have had a topic that is now proposed no
    # more, and never one that was not
    assert calls_made(ran) == 13
    assert calls_made(afresh) > 100


# other paraphrases would need other checks; the scripted generator writes the same ones again
@pytest.mark.parametrize(
    "purpose", ["quality", "annotation", "paraphrase_check", "paraphrase", "intent"]
)
def test_an_edited_template_costs_its_stage_alone(finished: Path, purpose: str) -> None:
    file = f"{purpose}.md"
    templates = finished / "templates"
    templates.mkdir()
    shipped = load_instructions().sources()[file]
    (templates / file).write_text(shipped.replace("+++\nYou ", "+++\nNow you ", 1))
    assert (templates / file).read_text() != shipped
    out, before = finished / "out", _purposes(finished / "out")
    command = arguments(finished / "seeds.jsonl", out, "--templates", templates)
    with LoopbackServer() as server:
        ran = osi(*command, server=server)
    new = _purposes(out) - before
    assert set(new) == {purpose}
    assert calls_made(ran) == new.total()


def _purposes(out: Path) -> Counter[str]:
    with sqlite3.connect(out / "ledger.sqlite") as ledger:
        return Counter(purpose for (purpose,) in ledger.execute("SELECT purpose FROM calls"))


@pytest.mark.slow
def test_an_interrupted_build_ends_with_130_and_keeps_what_it_has(folder: Path) -> None:
    source = seeds(folder)
    with LoopbackProcess(latency=0.05) as server:
        process = begin(*arguments(source, folder / "out"), server=server)
        wait_until((folder / "out" / "stages" / "2-backfill.kept.jsonl").exists)
        process.send_signal(signal.SIGINT)
        ran = finish(process)
        assert ran.code == 130 and "Traceback" not in ran.err
        assert osi(*arguments(source, folder / "out"), server=server).code == 0
        assert server.stats()["duplicates"] == 0


def test_back_filling_does_its_cells_side_by_side(folder: Path) -> None:
    with LoopbackProcess(latency=0.3) as server:
        models = ("--generator", GENERATOR, "--judge", JUDGE)
        options = ("--per-cell", 1, "--stages", "1-2", "--taxonomy", folder / "taxonomy.toml")
        ran = osi("build", *models, "--out", folder / "out", *options, server=server)
        assert ran.code == 0, ran.err
        assert server.stats()["max_in_flight"] == 4  # one for each cell
