"""Options, names and environment variables: whatever they hold, a command ends with a documented
code and plain lines.
"""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given, strategies as st

from endtoend import osi
from fuzz.contract import FUZZ, SLOW, TRIED, bounded, fit_to_print
from fuzz.faults import LITERALS, TEXTS

ODD = (*TEXTS, *LITERALS, "\udcff", "a\udc80b", "inf", "-inf", "1e400")


def argument(text: str) -> str:
    """Return what an argument or a variable can hold of a text: no NUL, and no lone surrogates but
    those that stand for bytes that are not UTF-8.
    """
    return re.sub("[\0\ud800-\udc7f\udd00-\udfff]", "", text)


SHORT = st.sampled_from([text for text in ODD if len(text) < 9000])
hostile = st.one_of(SHORT, st.text(max_size=40)).map(argument)
OPTIONS = (
    *("--dataset", "--taxonomy", "--suite", "--limit", "--epochs", "--temperature", "--max-tokens"),
    *("--system", "--ledger", "--reasoning-effort", "-M", "--audit retest", "--budget-calls"),
    *("--prices", "--rubrics", "--mode-judge", "--judge", "--max-missing", "--max-connections"),
    *("--judge-arg", "max_tokens=--out"),
)
STARTS = (
    *("", "openai/", "openai-api/loop/", "baseline/", "replay/", "baseline/refuse-all:"),
    "anthropic/",
)
COMMANDS = (
    *(("dataset", "check"), ("report",)),
    *(("compare",), ("grade",), ("trace", "--set", "x"), ("import", "--out", "x")),
    ("export", "--format", "jsonl", "--out", "x.jsonl"),
    *(("agreement",), ("annotate", "import")),
)


def ends_well(reader: str, *arguments: str, **variables: str) -> None:
    with bounded():
        ran = osi(*arguments, **variables)
    assert ran.code in {0, 1, 2, 3, 4}, ran.code
    if ran.code == 2 and not ran.err.startswith("Usage"):  # click's own words take several lines
        for line in ran.err.split("\n")[:-1]:
            fit_to_print(line)
    TRIED[reader, "refused" if ran.code == 2 else "read"] += 1


def asks_well(reader: str, run: Path, *arguments: str, **variables: str) -> None:
    """A dry run makes the key of every call."""
    common = ("evaluate", "--dry-run", "--limit", "1", "--out", str(run))
    ends_well(reader, *common, *arguments, **variables)


@SLOW
@given(option=st.sampled_from(OPTIONS), value=hostile)
def test_options_of_evaluate(tmp_path: Path, option: str, value: str) -> None:
    models = ("baseline/redirect", "--judge", "baseline/judge")
    asks_well("options", tmp_path / "run", *models, option, value)


@SLOW
@given(start=st.sampled_from(("", "k=", "top_p=", "a.b=")), value=hostile)
def test_further_fields_of_a_request(tmp_path: Path, start: str, value: str) -> None:
    models = ("baseline/refuse-all", "--judge", "baseline/judge")
    asks_well("-M key=value", tmp_path / "run", *models, f"-M{start}{value}")


@SLOW
@given(start=st.sampled_from(STARTS), name=hostile)
def test_names_of_models(tmp_path: Path, start: str, name: str) -> None:
    served = {"LOOP_BASE_URL": "http://127.0.0.1:9/v1", "LOOP_API_KEY": "k"}
    models = (f"--judge={start}{name}", "--", f"{start}{name}")
    asks_well("names of models", tmp_path / "run", *models, **served)


@SLOW
@given(url=st.one_of(hostile, hostile.map(lambda text: f"http://{text}/v1")), key=hostile)
def test_variables_of_a_provider(tmp_path: Path, url: str, key: str) -> None:
    models = ("openai-api/loop/m", "--judge", "openai-api/loop/m")
    asks_well("environment", tmp_path / "run", *models, LOOP_BASE_URL=url, LOOP_API_KEY=key)


@FUZZ
@given(
    option=st.sampled_from(("--fail-under", "--fail-over", "--max-missing", "--human-labels")),
    value=st.one_of(hostile, hostile.map(lambda text: f"triplet_safety={text}")),
)
def test_thresholds(tmp_path: Path, option: str, value: str) -> None:
    ends_well("thresholds", "report", str(tmp_path / "none"), option, value)


@FUZZ
@given(st.sampled_from(COMMANDS), hostile.filter(lambda text: not re.match(r"hf:|-", text)))
def test_paths(tmp_path: Path, command: tuple[str, ...], name: str) -> None:
    ends_well("paths", *command, f"{tmp_path}/{name}")
