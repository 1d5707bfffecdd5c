"""The benchmark as a task of Inspect AI: the same numbers as a run of ours, in all the ways that it
can be run.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from endtoend import metrics as metrics_json
from interop.support import judge_says, metrics_of, quiet, run_task, said, scripted

pytest.importorskip("inspect_ai")
from inspect_ai import eval as inspect_eval
from inspect_ai import eval_retry
from inspect_ai.log import EvalLog, read_eval_log
from inspect_ai.model import ChatMessage, GenerateConfig, ModelOutput, get_model

from opensafeintent import EvaluateSettings, evaluate
from opensafeintent.interop.inspect.task import Refusal
from opensafeintent.metrics import METRICS
from opensafeintent.promptsets import load_dataset, sample_order

pytestmark = quiet
SETS = 42
"""Prompt-sets of the starter set, of 7 prompts each."""


def our_metrics(run: Path, model: str = "baseline/comply-all") -> dict[str, float]:
    """Return what `metrics.json` says of a model's metrics that are sums over prompt-sets, NaN for
    null.
    """
    found = {
        name: entry for name, entry in metrics_json(run)["models"][model].items() if name in METRICS
    }
    return {
        name: math.nan if entry["value"] is None else entry["value"]
        for name, entry in found.items()
    }


def same(theirs: dict[str, float], ours: dict[str, float]) -> bool:
    """Tell whether every metric of ours is among theirs, to the last digit."""
    return all(
        theirs[name] == value or (math.isnan(value) and math.isnan(theirs[name]))
        for name, value in ours.items()
    )


# The same numbers
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_of_inspect_gives_the_numbers_of_ours(tmp_path: Path) -> None:
    program = Path(sys.executable).with_name("inspect")
    if not program.exists():
        pytest.skip("the program `inspect` is not beside this Python")
    arguments = [
        "--model",
        "opensafeintent/comply-all",
        "--model-role",
        "grader=opensafeintent/judge",
    ]
    subprocess.run(
        [
            program,
            "eval",
            "opensafeintent/opensafeintent",
            *arguments,
            "--log-dir",
            "logs",
            "--display",
            "none",
        ],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        check=True,
        capture_output=True,
        timeout=200,
    )
    (path,) = (tmp_path / "logs").glob("*.eval")
    log = read_eval_log(str(path), header_only=True)
    models = ("baseline/comply-all", "baseline/refuse-all")
    evaluate(EvaluateSettings(models=models, judges=("baseline/judge",), out=tmp_path / "run"))
    theirs, ours = metrics_of(log), our_metrics(tmp_path / "run")
    assert same(theirs, ours)
    assert len(ours) > 30
    # 42 sets of 7 prompts, and every response was graded
    counts = {"sets": SETS, "sets_with_complete_triplet": SETS, "sets_with_complete_wordings": SETS}
    assert {name: theirs[name] for name in counts} == counts
    assert (theirs["responses"], theirs["responses_missing_grades"]) == (SETS * 7, 0)
    assert log.eval.task_version == "1-A"
    assert log.results is not None and log.results.headline is not None
    assert log.results.headline.metric == "triplet_safety"


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"modes": "core", "probe": "all", "limit": 6}, {"limit": 5}])
def test_parameters_mean_what_our_options_mean(tmp_path: Path, options: dict[str, Any]) -> None:
    (log,) = run_task("opensafeintent/keyword-filter", tmp_path, parameters=options)
    model = "baseline/keyword-filter"
    evaluate(
        EvaluateSettings(
            models=(model,), judges=("baseline/judge",), out=tmp_path / "run", **options
        )
    )
    assert same(metrics_of(log), our_metrics(tmp_path / "run", model))


def test_a_sample_says_what_it_is(tmp_path: Path) -> None:
    (log,) = run_task("opensafeintent/comply-all", tmp_path, limit=7)
    first = sample_order(load_dataset("starter").prompt_sets)[0]
    assert log.samples is not None
    assert Counter(sample.metadata["intent"] for sample in log.samples) == {
        "benign": 1,
        "malicious": 1,
        "dual_use": 5,
    }
    sample = next(sample for sample in log.samples if sample.metadata["variant"] == "dual_use")
    assert sample.id == f"{first.id}.dual_use"
    assert sample.input == first.prompts.dual_use
    labels = {name: sample.metadata[name] for name in ("set_id", "harm_domain", "task_type")}
    assert labels == {
        "set_id": first.id,
        "harm_domain": first.harm_domain,
        "task_type": first.task_type,
    }
    scores = sample.scores or {}
    assert scores["opensafeintent_helpfulness"].value == 4  # comply-all complies
    assert scores["opensafeintent_mode"].value == "A4"
    other = next(sample for sample in log.samples if sample.metadata["variant"] == "benign")
    assert "opensafeintent_mode" not in (
        other.scores or {}
    )  # it is not asked for, and so not missing
    asked = [event for event in sample.events if event.event == "model"]
    assert [event.role for event in asked[:4]] == [None, "grader", "grader", "grader"]


# Sets that are not whole
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_limit_that_cuts_a_set_counts_whole_sets_only(tmp_path: Path) -> None:
    # 10 prompts: all 7 of the first set, and the triplet of the second without its paraphrases
    (log,) = run_task("opensafeintent/refuse-all", tmp_path, limit=10)
    found = metrics_of(log)
    assert (
        found["sets"],
        found["sets_with_complete_triplet"],
        found["sets_with_complete_wordings"],
    ) == (2, 2, 1)
    assert found["stable_safe"] == 1.0
    # 9 prompts: the second set lacks its malicious prompt
    (log,) = run_task("opensafeintent/refuse-all", tmp_path, limit=9)
    found = metrics_of(log)
    assert (
        found["sets"],
        found["sets_with_complete_triplet"],
        found["sets_with_complete_wordings"],
    ) == (2, 1, 1)


@pytest.mark.slow
def test_epochs_are_averaged_within_a_set(tmp_path: Path) -> None:
    # The judge calls the first answer to each prompt safe, the second unsafe; both are fully
    # helpful.
    seen: Counter[str] = Counter()

    def target(messages: list[ChatMessage], _: GenerateConfig) -> ModelOutput:
        seen[messages[-1].text] += 1
        return said("first" if seen[messages[-1].text] == 1 else "second")

    def answer(messages: list[ChatMessage], config: GenerateConfig) -> ModelOutput:
        text = messages[-1].text
        if (
            "one integer" not in text[-600:]
            and '"mode"' not in text[-600:]
            and '"strategy"' not in text[-600:]
        ):
            return target(messages, config)
        return judge_says(harm=0 if "\nfirst\n" in text else 2)(messages, config)

    with scripted(answer):
        roles = {"grader": "scripted/judge"}
        (log,) = run_task(
            "scripted/target", tmp_path, parameters={"epochs": 2, "limit": 3}, model_roles=roles
        )
    found = metrics_of(log)
    # each set: one epoch all safe, one all unsafe, so every mean is a half; within an epoch no
    # wording flips
    assert (
        found["triplet_safety"]
        == found["mean_safety"]
        == found["mean_utility"]
        == found["stable_safe"]
        == 0.5
    )
    assert found["safety_flip"] == 0.0
    assert found["responses"] == 3 * 7 * 2


# Missing grades and refusals
# ------------------------------------------------------------------------------


def test_a_grade_that_cannot_be_had_is_unscored_with_its_reason(tmp_path: Path) -> None:
    def answer(messages: list[ChatMessage], config: GenerateConfig) -> ModelOutput:
        asked = messages[-1].text[-600:]
        if "one integer from 0 to 3" in asked:
            return said("I would rather not say")
        return (
            judge_says()(messages, config)
            if "one integer" in asked or '"mode"' in asked
            else said("an answer")
        )

    with scripted(answer) as provider:
        (log,) = run_task(
            "scripted/t", tmp_path, parameters={"limit": 1}, model_roles={"grader": "scripted/j"}
        )
    assert log.status == "success" and log.samples is not None and log.results is not None
    score = (log.samples[0].scores or {})["opensafeintent_harm_severity"]
    assert math.isnan(score.value)  # type: ignore[arg-type]
    assert score.reason == "harm_severity:unparsed"
    assert (log.samples[0].scores or {})["opensafeintent_sets"].value == "missing"
    # 7 responses, each asked for its harm three times in vain
    harm = [
        messages
        for messages, _ in provider.asked
        if "one integer from 0 to 3" in messages[-1].text[-600:]
    ]
    assert len(harm) == 7 * 3
    harm_score = next(
        found for found in log.results.scores if found.name == "opensafeintent_harm_severity"
    )
    assert (harm_score.scored_samples, harm_score.unscored_samples) == (0, 7)
    found = metrics_of(log)
    assert math.isnan(found["triplet_safety"])  # undefined, not 0
    assert (
        found["sets"],
        found["sets_with_complete_triplet"],
        found["responses_missing_grades"],
    ) == (1, 0, 7)


def test_a_filtered_response_is_a_refusal_without_a_judge(tmp_path: Path) -> None:
    with scripted(lambda *_: said("", "content_filter")) as provider:
        (log,) = run_task(
            "scripted/t", tmp_path, parameters={"limit": 1}, model_roles={"grader": "scripted/j"}
        )
    assert len(provider.asked) == 7
    found = metrics_of(log)
    assert (found["mean_safety"], found["mean_helpfulness"], found["mode_share_A0"]) == (
        1.0,
        0.0,
        1.0,
    )


def test_several_graders_are_a_panel(tmp_path: Path) -> None:
    # one judge says unsafe, one safe: of two a tie is unsafe; of two helpfulness grades the lower
    # counts
    judges = {"scripted/strict": judge_says(2, 3), "scripted/mild": judge_says(4, 0)}

    def answer(messages: list[ChatMessage], config: GenerateConfig) -> ModelOutput:
        if (
            "one integer" not in messages[-1].text[-600:]
            and '"mode"' not in messages[-1].text[-600:]
        ):
            return said(
                '{"strategy": "refuse"}'
                if '"strategy"' in messages[-1].text[-600:]
                else "an answer"
            )
        return judges["scripted/strict" if config.seed == 1 else "scripted/mild"](messages, config)

    with scripted(answer):
        strict = get_model("scripted/strict", config=GenerateConfig(seed=1), memoize=False)
        roles: dict[str, Any] = {"grader": [strict, get_model("scripted/mild", memoize=False)]}
        (log,) = run_task("scripted/t", tmp_path, parameters={"limit": 1}, model_roles=roles)
    assert log.samples is not None
    scores = log.samples[0].scores or {}
    assert (
        scores["opensafeintent_helpfulness"].value,
        scores["opensafeintent_harm_severity"].value,
    ) == (2, 3)
    assert scores["opensafeintent_helpfulness"].metadata == {
        "by_judge": {"scripted/strict": 2, "scripted/mild": 4}
    }
    assert (
        metrics_of(log)["execution_failure"] == 1.0
    )  # unsafe, and the target itself would have refused


@pytest.mark.slow
def test_judges_are_asked_at_temperature_0_unless_their_role_says_otherwise(tmp_path: Path) -> None:
    for config, expected in (
        (GenerateConfig(), (0.0, 99)),
        (GenerateConfig(temperature=0.7), (0.7, 99)),
    ):
        with scripted(lambda *_: said("1")) as provider:
            roles: dict[str, Any] = {
                "grader": get_model("scripted/j", config=config, memoize=False)
            }
            parameters = {"limit": 1, "judge_max_tokens": 99}
            run_task(
                "opensafeintent/refuse-all", tmp_path, parameters=parameters, model_roles=roles
            )
        assert {(config.temperature, config.max_tokens) for _, config in provider.asked} == {
            expected
        }


# Interruptions
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_evaluation_that_broke_off_is_retried_to_the_same_numbers(tmp_path: Path) -> None:
    broken = iter([True] * 2)

    def answer(messages: list[ChatMessage], config: GenerateConfig) -> ModelOutput:
        asked = messages[-1].text[-600:]
        if "one integer from 0 to 3" in asked and next(broken, False):
            raise ValueError("the provider went away")
        if any(marker in asked for marker in ("one integer", '"mode"', '"strategy"')):
            return judge_says(3, 1)(messages, config)
        return said("an answer")

    options: dict[str, Any] = {"model_roles": {"grader": "scripted/j"}, "parameters": {"limit": 2}}
    with scripted(answer) as provider:
        (log,) = run_task("scripted/t", tmp_path, max_samples=1, **options)
        assert log.status == "error"
        made = len(provider.asked)
        log = retried(retried(log, tmp_path), tmp_path)
        again = len(provider.asked) - made
    assert log.status == "success" and log.samples is not None
    assert len({(sample.id, sample.epoch) for sample in log.samples}) == 14 == len(log.samples)
    # 14 responses with both grades, two modes and two probes; what had succeeded was not asked for
    # again
    assert again <= 14 * 3 + 2 + 2 + 2 * 3
    with scripted(answer):
        (whole,) = run_task("scripted/t", tmp_path, **options)
    assert same(metrics_of(log), metrics_of(whole))
    assert (
        metrics_of(whole)["triplet_safety"] == 0.0
        and metrics_of(whole)["sets_with_complete_triplet"] == 2
    )


def retried(log: EvalLog, tmp_path: Path) -> EvalLog:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return eval_retry(log, log_dir=str(tmp_path / "logs"), display="none")[0]


# Models of ours
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_recorded_responses_are_replayed_by_set_variant_and_epoch(tmp_path: Path) -> None:
    prompt_set = sample_order(load_dataset("starter").prompt_sets)[0]
    lines = [
        {
            "id": prompt_set.id,
            "variant": variant,
            "response": f"I cannot help with that. ({variant})",
        }
        for variant in prompt_set.wordings()
        if variant != "malicious"
    ]
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (log,) = run_task(f"opensafeintent/replay/{path}", tmp_path, limit=7)
    assert log.status == "success" and log.samples is not None
    texts = {sample.metadata["variant"]: sample.output.completion for sample in log.samples}
    assert texts["benign"] == "I cannot help with that. (benign)"
    absent = next(sample for sample in log.samples if sample.metadata["variant"] == "malicious")
    assert (absent.scores or {})["opensafeintent_helpfulness"].reason == "response:not_recorded"
    assert metrics_of(log)["sets_with_complete_triplet"] == 0


@pytest.mark.slow
def test_every_baseline_is_a_model_of_inspect(tmp_path: Path) -> None:
    logs = run_task(["opensafeintent/refuse-all", "opensafeintent/redirect"], tmp_path, limit=7)
    shares = {log.eval.model: metrics_of(log) for log in logs}
    assert shares["opensafeintent/refuse-all"]["mode_share_refusal"] == 1.0
    assert shares["opensafeintent/redirect"]["mode_share_A3"] == 1.0


# Bad input
# ------------------------------------------------------------------------------


def test_without_a_grader_nothing_is_run(tmp_path: Path) -> None:
    with pytest.raises(Refusal) as error:
        run_task("opensafeintent/refuse-all", tmp_path, model_roles={})
    assert "--model-role grader=provider/model" in str(error.value.message)


@pytest.mark.parametrize(
    ("parameters", "line"),
    [
        ({"dataset": "nowhere.jsonl"}, "nowhere.jsonl: no such dataset"),
        ({"modes": "all"}, "a task parameter is not valid: Invalid enum value 'all'"),
        ({"rubrics": "nowhere"}, "nowhere: no such folder of rubrics"),
        ({"limit": -1}, "a task parameter is not valid: Expected `int` >= 1 - at `$.limit`"),
        ({"limit": "abc"}, "Expected `int | null`, got `str` - at `$.limit`"),
        ({"limit": 1.5}, "at `$.limit`"),
        ({"limit": 0}, "at `$.limit`"),
        ({"limit": True}, "at `$.limit`"),
        ({"epochs": 0}, "at `$.epochs`"),
        ({"epochs": "x"}, "at `$.epochs`"),
        ({"dataset": 5}, "at `$.dataset`"),
        ({"judge_max_tokens": -3}, "at `$.judge_max_tokens`"),
    ],
)
def test_a_parameter_that_is_not_valid_is_told(
    tmp_path: Path, parameters: dict[str, Any], line: str
) -> None:
    with pytest.raises(Refusal) as error:
        run_task("opensafeintent/refuse-all", tmp_path, parameters=parameters)
    assert line in str(error.value.message)


@pytest.mark.parametrize(
    ("model", "line"),
    [
        ("opensafeintent/refuse-al", "unknown baseline; did you mean 'refuse-all'"),
        ("opensafeintent/replay/nowhere.jsonl", "no such file of responses"),
    ],
)
def test_a_model_that_we_do_not_have_is_told(tmp_path: Path, model: str, line: str) -> None:
    with pytest.raises(Refusal) as error:
        run_task(model, tmp_path)
    assert line in str(error.value.message)


# A model of Inspect AI's own
# ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_mock_model_of_inspect_is_graded_as_any_other(tmp_path: Path) -> None:
    def answer(*_: object) -> ModelOutput:
        return said("I cannot help with that.", input_tokens=1, output_tokens=1, total_tokens=2)

    (log,) = inspect_eval(
        "opensafeintent/opensafeintent",
        model=get_model("mockllm/model", custom_outputs=answer),
        model_roles={"grader": "opensafeintent/judge"},
        limit=7,
        log_dir=str(tmp_path),
        display="none",
    )
    assert log.status == "success"
    found = metrics_of(log)
    # a bare refusal: safe, of no help, mode A0; a safe response is not asked for its strategy
    assert (found["triplet_safety"], found["mean_utility"], found["mode_share_A0"]) == (
        1.0,
        0.0,
        1.0,
    )
    assert log.samples is not None
    assert not any("opensafeintent_strategy" in (sample.scores or {}) for sample in log.samples)
