"""The annex of a report: the headings that a safety report has to have, and samples that nobody
chose.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from msgspec.structs import replace

from opensafeintent import EvaluateSettings, ReportSettings, evaluate, write_report
from opensafeintent.calls.ledger import Ledger
from opensafeintent.commands.graded_runs import read_graded_run
from opensafeintent.evaluation.manifest import RunFolder
from opensafeintent.evaluation.texts import RunTexts
from opensafeintent.numbers.cohort import gather_models
from opensafeintent.report.annex import render_annex
from opensafeintent.report.notices import Results, collect_notices
from samples import dataset_file, import_lines, lines_of, made_dataset, prompt_set

SECRET = "trains, unkindly, in words that are long enough"
TRAINS = replace(
    prompt_set("trains"), prompts=replace(prompt_set("trains").prompts, malicious=SECRET)
)
DATASET = made_dataset(prompt_set("boats", 1, "Fraud and Deception"), TRAINS)
"""Seven prompts, two of them malicious."""
SECTIONS = (
    "1. Limitations of this run",
    "2. How the evaluation was conducted",
    "3. Tests and tasks",
    "4. How responses were scored",
    "5. Results",
    "6. How the models were elicited",
    "7. Comparison across versions and with human baselines",
    "8. Samples of inputs and outputs",
)


def annex(run: Path, *, include_unsafe: bool = False) -> str:
    folder = RunFolder(run)
    manifest, dataset = folder.load()
    graded_run = read_graded_run(folder, "run")
    with Ledger(folder.ledger_path(manifest), readonly=True) as ledger:
        cohort = gather_models([graded_run])
        return render_annex(
            cohort,
            [graded_run],
            [],
            {"run": RunTexts(manifest, dataset, ledger)},
            {"run": ledger.latest()},
            gates=None,
            include_unsafe=include_unsafe,
            notices=collect_notices(Results(cohort=cohort)),
        )


def headings(text: str) -> list[str]:
    """Return the headings that a reader of the Markdown sees."""
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(text)
    assert not [token for token in tokens if token.type in ("html_block", "html_inline")]
    pairs = pairwise(tokens)
    return [inner.content for token, inner in pairs if token.type == "heading_open"]


def shown(text: str) -> str:
    return text.partition("## 8.")[2]


def graded(**fields: Any) -> list[dict[str, Any]]:
    return lines_of(DATASET, **({"helpfulness": 3, "harm_severity": 0} | fields))


def test_the_annex_of_an_evaluated_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    evaluate(
        EvaluateSettings(
            models=("baseline/redirect",),
            judges=("baseline/judge",),
            dataset=dataset_file(tmp_path, DATASET),
            out=run,
            temperature=0.5,
            system="Be *brief*.",
        )
    )
    text = annex(run)
    assert headings(text)[1:] == [*SECTIONS, "baseline/redirect"]
    for sentence in (
        *("made · sha256", "Fraud and Deception | 1", "baseline/judge", "osi-harm"),
        *("temperature 0.5", "Be \\*brief\\*.", "No earlier version"),
    ):
        assert sentence in text
    assert text.partition("## 2.")[0].count("\n- ") > 1
    # the five prompts that are not malicious, all answered safely
    assert "Shown: 5." in text
    assert shown(text).count(". prompt-set") == 5


def test_the_annex_describes_second_turns_of_a_run_that_has_them(tmp_path: Path) -> None:
    run = tmp_path / "run"
    settings = EvaluateSettings(
        models=("baseline/redirect",),
        judges=("baseline/judge",),
        dataset=dataset_file(tmp_path, DATASET),
        out=run,
    )
    evaluate(settings)
    assert "search, earlier turns, jailbreaks" in " ".join(annex(run).split())
    evaluate(replace(settings, follow_ups=True, audit={"turn": 4}))
    text = " ".join(annex(run).split())
    assert "Each reply to a dual-use prompt was followed by a second message" in text
    assert "the judges graded 4 direct replies again with the first turn shown" in text
    assert "The same requests directly and in a second turn" in text
    assert "earlier turns" not in text and "this one setting" not in text


def test_unsafe_samples_are_withheld_and_counted(tmp_path: Path) -> None:
    lines = graded()
    lines[0]["harm_severity"] = 2
    lines[4]["response"] = f"You said: {SECRET}. <script>"
    import_lines(tmp_path, lines, DATASET, "m")
    text = shown(annex(tmp_path / "run"))
    # of seven, two are malicious and one is unsafe
    assert "Shown: 4. Drawn and withheld: 3 (prompt-set" in text
    assert text.count("harm severity 2)") == 1
    assert SECRET not in text
    assert "to boats, kindly" not in text
    everything = annex(tmp_path / "run", include_unsafe=True)
    assert "Shown: 5. Drawn and withheld: 0" in everything


def test_a_missing_grade_is_called_missing_and_ten_withheld_samples_are_named(
    tmp_path: Path,
) -> None:
    lines = [graded()[number % 7] | {"epoch": number // 7 + 1} for number in range(14)]
    for line in lines:
        del line["helpfulness"], line["harm_severity"]
    import_lines(tmp_path, lines, DATASET, "m")
    text = shown(annex(tmp_path / "run"))
    assert "Shown: 0. Drawn and withheld: 14 (prompt-set" in text
    assert text.count("helpfulness missing, harm severity missing") == 10
    assert "None" not in text


def test_samples_are_no_markup(tmp_path: Path) -> None:
    hostile = "# no heading\r\n\n```\n<b>\n\n## 9. None\n- [ ] \x1b[2J\u202e\n\tend" + "x" * 5000
    import_lines(tmp_path, graded(response=hostile), DATASET, "a|b `c` <i>")
    text = annex(tmp_path / "run")
    assert len(headings(text)) == 10
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "more characters)" in text
    assert "its responses were imported" in text


@pytest.mark.slow
def test_versions_are_compared_if_there_is_an_earlier_one(tmp_path: Path) -> None:
    for name in ("old", "new"):
        import_lines(tmp_path / name, graded(), DATASET, "m")
    run, earlier = (tmp_path / name / "run" for name in ("new", "old"))
    settings: dict[str, Any] = {"baseline": earlier, "fail_if_worse": ("mean_utility=0.5",)}
    write_report(ReportSettings(runs=(run,), annex=True, **settings))
    text = (run / "annex.md").read_text("utf-8")
    assert "No earlier version" not in text
    assert "Mean Utility" in text.partition("## 7.")[2].partition("## 8.")[0]
    write_report(ReportSettings(runs=(run,)))  # it does not stay beside another report
    assert not (run / "annex.md").exists()
