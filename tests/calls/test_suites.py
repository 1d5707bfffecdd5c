"""Named lists of models."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from endtoend import osi
from opensafeintent.calls.providers import ENDPOINTS, INSPECT_PROVIDERS
from opensafeintent.calls.suites import load_suite
from opensafeintent.errors import InputError
from opensafeintent.workflows import EvaluateSettings

# Appendix B of the paper names these, of which the last five were run from weights.
PAPER = """Claude Haiku 4.5,
Claude Sonnet 4.6, Gemini 3 Flash, Gemini 3.1 Flash-Lite, Gemma 4 26B A4B, Llama-3.3-70B-Instruct,
Llama-4-Scout-17B-16E-Instruct, gpt-oss 20B, gpt-oss 120B, DeepSeek-V3.1, DeepSeek-R1-0528, Qwen3-Next-80B-A3B-Instruct,
Mistral-Small-3.1-24B-Instruct-2503, mistral-medium-2505, GPT-5.4, Llama-3.1-8B-Instruct, DeepSeek-R1-Distill-Llama-8B,
Qwen3 4B, Qwen3 32B, Mistral-Small-24B-Instruct-2501"""


def test_the_suite_of_the_paper_has_its_twenty_models() -> None:
    suite = load_suite("paper")
    assert {item.paper for item in suite.models} == set(re.split(r",\s+", PAPER))
    assert len(suite.names) == 20
    providers = {name.partition("/")[0] for name in suite.names}
    assert providers <= {*ENDPOINTS, *INSPECT_PROVIDERS}


def test_a_suite_of_ones_own_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\n[[models]]\nmodel = "baseline/redirect"\n[[models]]\nmodel = "baseline/refuse-all"\n')
    assert load_suite(str(path)).names == ("baseline/redirect", "baseline/refuse-all")
    settings = EvaluateSettings(models=("baseline/refuse-all",), suite=str(path), judges=("baseline/judge",))
    assert settings.targets == ("baseline/refuse-all", "baseline/redirect")  # each once, those that are named first


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "cannot read"),
        ("name = 1", "not a suite"),
        ('name = "x"\nmodels = []', "no models in it"),
        ('name = "x"\n[[models]]\nmodle = "a/b"', r"not a suite \(.*\): Object contains unknown field `modle`"),
        ('name = "x"\n[[models]]\nmodel = "a/b"\n[[models]]\nmodel = "a/b"', "a/b is there twice"),
        ("name =", "not a suite"),
    ],
)
def test_a_file_that_is_no_suite_is_told(tmp_path: Path, content: str | None, line: str) -> None:
    path = tmp_path / "mine.toml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=line):
        load_suite(str(path))


def test_the_command_takes_a_suite(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\n[[models]]\nmodel = "baseline/redirect"\n[[models]]\nmodel = "baseline/refuse-all"\n')
    arguments = ("--suite", path, "--judge", "baseline/judge", "--limit", 1, "--out", tmp_path / "run")
    ran = osi("evaluate", *arguments)
    assert ran.code == 0
    assert "baseline/redirect" in ran.out and "baseline/refuse-all" in ran.out
    assert osi("evaluate", "--judge", "baseline/judge").errors == [
        "error: no model to evaluate: name at least one, or a --suite"
    ]
    assert osi("evaluate", "--suite", "papr", "--judge", "baseline/judge").errors == [
        "error: --suite papr: no such suite, and not the name of a .toml file; did you mean 'paper'?"
    ]


def test_everything_that_a_suite_lacks_is_told_at_once(tmp_path: Path) -> None:
    ran = osi("evaluate", "--suite", "paper", "--judge", "baseline/judge", "--out", tmp_path / "run")
    assert ran.code == 2
    told = [line for line in ran.errors if line.startswith("error: openrouter/")]
    assert len(told) == 9  # the open weights that the suite has from one service
    assert all(line.endswith("no key; set OPENROUTER_API_KEY") for line in told)
    assert not (tmp_path / "run" / "run.json").exists()
