"""Options, names and environment variables: whatever they hold, a command ends with a documented
code and plain lines.
"""

from __future__ import annotations

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from endtoend import osi
from fuzz.contract import FUZZ, SLOW, TRIED, bounded, fit_to_print
from fuzz.faults import LITERALS, TEXTS

# What an argument or a variable can hold: no NUL, and bytes that are not UTF-8 as lone surrogates.
hostile = st.one_of(
    st.sampled_from(
        [
            text
            for text in (*TEXTS, *LITERALS, "\udcff", "a\udc80b", "nan", "inf", "-inf", "1e400")
            if len(text) < 9000
        ]
    ),
    st.text(max_size=40),
).map(
    lambda text: "".join(
        char
        for char in text
        if char != "\0" and not 0xD800 <= ord(char) < 0xDC80 and not 0xDD00 <= ord(char) < 0xE000
    )
)
OPTIONS = (
    *(
        "--dataset",
        "--taxonomy",
        "--suite",
        "--limit",
        "--epochs",
        "--temperature",
        "--max-tokens",
        "--system",
        "--ledger",
    ),
    *(
        "--reasoning-effort",
        "-M",
        "--judge-samples",
        "--budget-calls",
        "--prices",
        "--rubrics",
        "--mode-judge",
        "--judge",
    ),
    *("--max-missing", "--max-connections", "--judge-max-tokens", "--out"),
)
CODES = {0, 1, 2, 3, 4}


def ends_well(reader: str, *arguments: str, **variables: str) -> None:
    with bounded():
        ran = osi(*arguments, **variables)
    assert ran.code in CODES, ran.code
    if ran.code == 2 and not ran.err.startswith(
        "Usage"
    ):  # click's own words on usage take several lines
        for line in ran.err.split("\n")[:-1]:
            fit_to_print(line)
    TRIED[reader, "refused" if ran.code == 2 else "read"] += 1


@SLOW
@given(option=st.sampled_from(OPTIONS), value=hostile)
def test_options_of_evaluate(tmp_path: Path, option: str, value: str) -> None:
    common = (
        "evaluate",
        "baseline/redirect",
        "--judge",
        "baseline/judge",
        "--dry-run",
        "--limit",
        "1",
    )
    ends_well("options", *common, "--out", str(tmp_path / "run"), option, value)


@SLOW
@given(start=st.sampled_from(("", "k=", "top_p=", "a.b=")), value=hostile)
def test_further_fields_of_a_request(tmp_path: Path, start: str, value: str) -> None:
    """A dry run makes the key of every call."""
    common = (
        "evaluate",
        "baseline/refuse-all",
        "--judge",
        "baseline/judge",
        "--limit",
        "1",
        "--dry-run",
    )
    ends_well("-M key=value", *common, "--out", str(tmp_path / "run"), f"-M{start}{value}")


@SLOW
@given(
    start=st.sampled_from(
        (
            "",
            "openai/",
            "openai-api/loop/",
            "baseline/",
            "replay/",
            "baseline/refuse-all:",
            "anthropic/",
        )
    ),
    name=hostile,
)
def test_names_of_models(tmp_path: Path, start: str, name: str) -> None:
    arguments = (
        "evaluate",
        f"--judge={start}{name}",
        "--dry-run",
        "--limit",
        "1",
        "--out",
        str(tmp_path / "run"),
        "--",
    )
    ends_well(
        "names of models",
        *arguments,
        f"{start}{name}",
        LOOP_BASE_URL="http://127.0.0.1:9/v1",
        LOOP_API_KEY="k",
    )


@SLOW
@given(url=st.one_of(hostile, hostile.map(lambda text: f"http://{text}/v1")), key=hostile)
def test_variables_of_a_provider(tmp_path: Path, url: str, key: str) -> None:
    model = "openai-api/loop/m"
    arguments = (
        "evaluate",
        model,
        "--judge",
        model,
        "--dry-run",
        "--limit",
        "1",
        "--out",
        str(tmp_path / "run"),
    )
    ends_well("environment", *arguments, LOOP_BASE_URL=url, LOOP_API_KEY=key)


@FUZZ
@given(
    option=st.sampled_from(("--fail-under", "--fail-over", "--max-missing", "--human-labels")),
    value=st.one_of(hostile, hostile.map(lambda text: f"triplet_safety={text}")),
)
def test_thresholds(tmp_path: Path, option: str, value: str) -> None:
    ends_well("thresholds", "report", str(tmp_path / "none"), option, value)


@FUZZ
@given(
    command=st.sampled_from(
        (
            *(
                ("dataset", "info"),
                ("dataset", "validate"),
                ("dataset", "check"),
                ("report",),
                ("compare",),
                ("grade",),
            ),
            *(
                ("trace", "--set", "x"),
                ("import", "--out", "x"),
                ("agreement",),
                ("annotate", "import"),
            ),
        )
    ),
    name=hostile.filter(lambda text: not re.match(r"hf:|-", text)),
)
def test_paths(tmp_path: Path, command: tuple[str, ...], name: str) -> None:
    ends_well("paths", *command, f"{tmp_path}/{name}")
