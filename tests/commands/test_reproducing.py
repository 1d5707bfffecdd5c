"""The commands under "Reproduce and cite": run as printed, they make the same run again."""

from __future__ import annotations

import html
import json
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from endtoend import osi
from opensafeintent import (
    BuildSettings,
    EvaluateSettings,
    ReportSettings,
    build,
    evaluate,
    write_report,
)
from opensafeintent.commands import reproduce
from opensafeintent.commands.building import stated_of_build
from opensafeintent.commands.reproduce import (
    NOT_STATED_FOR_REPORT,
    evaluation_commands,
    placed,
    reproduction,
)
from opensafeintent.commands.settings.base import Group, Opt, settings_of
from opensafeintent.construction.folder import BuildFolder
from opensafeintent.evaluation.manifest import RunFolder
from opensafeintent.files import MOST_ROWS

MODELS = ("baseline/comply-all", "baseline/redirect", "baseline/refuse-all")
OTHER_PLACES = ("version", "ledger", "stop_when", "panels_before")


def shell(command: str) -> list[str]:
    """The words that a shell makes of a command."""
    program = ["bash", "-c", f"printf '%s\\0' {command}"]
    printed = subprocess.run(program, capture_output=True, check=True).stdout
    return printed.decode().split("\0")[:-1]


def stored(run: Path) -> dict[str, Any]:
    """The settings of a run, without the places of its files."""
    manifest = json.loads((run / "run.json").read_text("utf-8"))
    manifest["dataset"].pop("name")
    return {name: value for name, value in manifest.items() if name not in OTHER_PLACES}


def again(run: Path) -> dict[str, Any]:
    """The settings of a run that the printed commands of another make."""
    new = run.parent / "again"
    for command in evaluation_commands(RunFolder(run).manifest(), str(run), str(new)):
        ran = osi(*shell(command)[1:])
        assert ran.code in (0, 1), ran.err
    return stored(new)


class _Wider(EvaluateSettings, frozen=True, kw_only=True):
    """`evaluate` with three options more."""

    tone: Annotated[str, Opt("What it decides on.", group=Group.MODELS)] = "plain"
    weights: Annotated[Mapping[str, float], Opt("Also.", name="--weight")] = {}
    loud: Annotated[bool, Opt("How calls are made.", group=Group.BUDGET)] = False


def test_a_new_option_is_kept_and_stated_without_a_second_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reproduce, "EvaluateSettings", _Wider)
    run = tmp_path / "run"
    same: dict[str, Any] = {"judges": ("baseline/judge",), "limit": 1, "out": run}
    evaluate(_Wider(models=MODELS[:1], tone="very warm", weights={"a": 0.5}, loud=True, **same))
    evaluate(_Wider(models=MODELS[1:2], **same))
    first, second = evaluation_commands(RunFolder(run).manifest(), "run")
    assert shell(first)[-4:] == ["--tone", "very warm", "--weight", "a=0.5"]
    assert shell(second) == [*shell(first)[:2], MODELS[1], *shell(first)[3:-4]]


def test_settings_of_a_run_have_a_place_in_it_and_others_say_that_they_have_none(
    tmp_path: Path,
) -> None:
    run = tmp_path / "run"
    evaluate(EvaluateSettings(models=MODELS[:1], judges=("baseline/judge",), limit=1, out=run))
    fields = {setting.name: setting for setting in settings_of(EvaluateSettings)}
    named = placed(RunFolder(run).manifest(), MODELS[:1], "run", "NEW").keys()
    decide = {name for name, setting in fields.items() if setting.of_run}
    assert decide < named < fields.keys()
    assert named - decide == {"models", "out", "header"} - decide
    assert NOT_STATED_FOR_REPORT.keys() < {one.name for one in settings_of(ReportSettings)}


def test_every_setting_of_a_build_that_decides_on_it_is_stated(tmp_path: Path) -> None:
    models = {"generator": "baseline/generator", "judge": "baseline/construction-judge"}
    (tmp_path / "seeds.jsonl").write_text('{"prompt": "How do I rob a bank?"}')
    seeds = str(tmp_path / "seeds.jsonl")
    build(BuildSettings(seeds=seeds, out=tmp_path / "build", stages=(1, 1), **models))
    manifest = BuildFolder(tmp_path / "build").load()
    assert manifest is not None
    named = stated_of_build(manifest, "build").keys()
    decide = {setting.name for setting in settings_of(BuildSettings) if setting.of_run}
    assert decide <= named


TEXTS = st.text(
    st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Z"), include_characters="\n\t"),
    min_size=1,
    max_size=20,
)
FIELDS = st.dictionaries(
    st.sampled_from(("top_p", "seed", "stop")),
    st.one_of(st.integers(0, 9), st.floats(0, 1), st.booleans(), TEXTS, st.just("0.9"), st.none()),
    max_size=2,
)


@st.composite
def evaluations(draw: st.DrawFn) -> dict[str, Any]:
    models = draw(st.lists(st.sampled_from(MODELS), min_size=1, max_size=2, unique=True))
    judges = draw(
        st.lists(
            st.sampled_from(("baseline/judge", "baseline/keyword-filter")),
            min_size=1,
            max_size=2,
            unique=True,
        )
    )
    reasons = draw(st.booleans())
    preset = draw(st.sampled_from((None, "paper", "paper-code")))
    own = {f"{judges[0]}:top_k": 3} if draw(st.booleans()) else {}
    follow_ups = draw(st.booleans())
    return {
        "models": models,
        "judges": judges,
        "limit": draw(st.sampled_from((1, 2))),
        "epochs": draw(st.sampled_from((1, 2))),
        "system": draw(st.none() | TEXTS),
        "temperature": draw(st.none() | st.floats(0, 2)),
        "reasoning_effort": draw(st.sampled_from((None, "high"))),
        "max_tokens": 4096 if preset else draw(st.sampled_from((64, 4096))),
        "preset": preset,
        "extra": draw(FIELDS),
        "mode_judge": draw(st.sampled_from((None, "baseline/judge"))),
        "modes": draw(st.sampled_from(("dual_use", "core"))),
        "probe": draw(st.sampled_from(("none", "unsafe", "all"))),
        "judge_max_tokens": draw(st.sampled_from((512, 2048))),
        "judge_reasoning_effort": draw(st.sampled_from((None, "low"))),
        "judge_args": draw(FIELDS) | own,
        "judge_reasons": reasons,
        "grade_parse": "strict" if reasons else draw(st.sampled_from(("strict", "paper"))),
        "judge_retest": draw(st.none() | st.integers(1, 5)),
        "request_swap": draw(st.none() | st.just(1)),
        "follow_ups": follow_ups,
        "follow_up_audit": draw(st.integers(1, 3)) if follow_ups else None,
    }


@pytest.mark.slow
@settings(max_examples=8, deadline=None)
@given(evaluations())
def test_the_printed_command_makes_the_same_run(options: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "it's a run"
        evaluate(EvaluateSettings(out=run, **options))
        assert again(run) == stored(run)


@pytest.mark.slow
def test_rubrics_and_a_taxonomy_of_ones_own_come_from_the_run(tmp_path: Path) -> None:
    rubrics = tmp_path / "rubrics"
    rubrics.mkdir()
    ours = Path(evaluate.__code__.co_filename).parents[1] / "templates" / "harm.md"
    text = ours.read_text("utf-8").replace("version = ", "version = 9")
    (rubrics / "harm.md").write_text(text, "utf-8")
    taxonomy = ours.parents[1] / "data" / "taxonomy.toml"
    other = tmp_path / "taxonomy.toml"
    other.write_text(
        re.sub('name = "', 'name = "My ', taxonomy.read_text("utf-8"), count=1), "utf-8"
    )
    run = tmp_path / "run"
    evaluate(
        EvaluateSettings(
            models=MODELS[:1],
            judges=("baseline/judge",),
            limit=1,
            rubrics=rubrics,
            taxonomy=other,
            out=run,
        )
    )
    for path in (rubrics / "harm.md", other):
        path.unlink()
    assert again(run) == stored(run)
    # a second model, graded by our own templates, needs a command of its own
    evaluate(
        EvaluateSettings(
            models=MODELS[1:], judges=("baseline/judge",), limit=2, taxonomy=run, out=run
        )
    )
    assert len(evaluation_commands(RunFolder(run).manifest(), "run")) == 2
    (tmp_path / "again").rename(tmp_path / "first")
    assert again(run) == stored(run)
    ran = osi("judge-check", "--judge", "baseline/judge", "--rubrics", run, "--out", tmp_path / "c")
    assert ran.errors == [f"error: {run}: its models were graded by different templates"]


def test_labels_large_datasets_and_parts_that_no_command_makes_again(tmp_path: Path) -> None:
    run = tmp_path / "run"
    evaluate(EvaluateSettings(models=MODELS[:2], judges=("baseline/judge",), limit=1, out=run))
    manifest = RunFolder(run).manifest()
    entry = manifest.models[MODELS[0]]
    replaced = {
        "openai/new": msgspec.structs.replace(entry, label="Ours, new"),
        "elsewhere": msgspec.structs.replace(entry, imported=True),
        "python/mine@1": entry,
    }
    manifest = msgspec.structs.replace(
        manifest,
        models=replaced,
        dataset=msgspec.structs.replace(manifest.dataset, sets=MOST_ROWS + 1),
    )
    (command,) = evaluation_commands(manifest, "run")
    words = shell(command)
    assert words[2:4] == ["openai/new", "python/mine@1"]
    assert words[words.index("--label") + 1] == "openai/new=Ours, new"
    shown = reproduction(ReportSettings(runs=(run,)), {"run": manifest}, {"run": "."})
    assert [note.split()[0] for note in shown.notes] == ["The", "Python"]
    assert shell(shown.report) == ["opensafeintent", "report", "."] and not shown.apart


def test_the_page_of_a_copy_says_what_its_commands_need(tmp_path: Path) -> None:
    run, copy = tmp_path / "run", tmp_path / "copy"
    evaluate(
        EvaluateSettings(models="baseline/redirect", judges="baseline/judge", limit=2, out=run)
    )
    lines = ("which a copy of this page does not", "Neither is beside this page")
    for report in (ReportSettings(runs=(run,)), ReportSettings(runs=(run,), out=copy)):
        write_report(report)
        page = ((report.out or run) / "report.html").read_text("utf-8")
        assert [line in page for line in lines] == [report.out is not None] * 2


@pytest.mark.slow
def test_the_report_command_has_the_settings_of_the_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, model in zip("ab", MODELS, strict=False):
        options = ("--judge", "baseline/judge", "--limit", "2", "--out", tmp_path / name)
        assert osi("evaluate", model, *options).code == 0
    page = tmp_path / "page"
    options = ("--out", page, "--include-unsafe", "--max-missing", "0.5", "--annex")
    assert osi("report", tmp_path / "a", tmp_path / "b", *options).code == 0
    first = (page / "report.html").read_bytes()
    monkeypatch.chdir(page)
    text = html.unescape(first.decode())
    *evaluations, report = re.findall('<code class="command">(opensafeintent [^<]*)', text)
    assert len(evaluations) == 2
    assert osi(*shell(report)[1:]).code == 0
    assert (page / "report.html").read_bytes() == first
