"""The benchmark as a task of Inspect AI: the same numbers as a run of ours, in all the ways that it
can be run.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from endtoend import grades, metrics as metrics_json, some_sets
from interop import support
from interop.support import asked_for, inspect_command, judge_says, metrics_of, output_of, scripted
from matched_sets import KINDS, ask_about, make_sets

pytest.importorskip("inspect_ai")
from inspect_ai import eval_retry, score
from inspect_ai.log import EvalLog, read_eval_log, write_eval_log
from inspect_ai.model import ChatMessage, GenerateConfig, ModelOutput, get_model

from opensafeintent import EvaluateSettings, ImportSettings, evaluate, import_files
from opensafeintent.errors import InputError
from opensafeintent.inspect import task as module
from opensafeintent.inspect.task import COVERAGE, SCORERS, Refusal, opensafeintent_sets
from opensafeintent.numbers.metrics import TRIPLET_SCOPE, MetricScope, find_scope
from opensafeintent.promptsets import write_dataset
from opensafeintent.taxonomy import FOLLOW_UPS, QUESTIONS, JudgeBy

pytestmark = support.quiet
JUDGED: dict[str, Any] = {"model_roles": {"grader": "scripted/judge"}}


def same(
    theirs: dict[str, float],
    run: Path,
    model: str = "baseline/comply-all",
    scope: MetricScope = TRIPLET_SCOPE,
) -> bool:
    """Tell whether every metric over prompt-sets in `metrics.json` is among theirs, to the last
    digit, NaN for null.
    """
    ours = metrics_json(run)["models"][model]
    values = {name: ours[name]["value"] for name in scope.metrics}
    return len(values) > 10 and all(
        math.isnan(theirs[name]) if value is None else theirs[name] == value
        for name, value in values.items()
    )


# The same numbers
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_of_inspect_gives_the_numbers_of_ours(tmp_path: Path) -> None:
    models = ("--model", "opensafeintent/comply-all", "--model-role", "grader=opensafeintent/judge")
    sets = some_sets(tmp_path, 4)
    parameters = ("-T", "metrics=all", "-T", f"dataset={sets}")
    inspect_command(tmp_path, "eval", "opensafeintent/opensafeintent", *parameters, *models)
    (path,) = (tmp_path / "logs").glob("*.eval")
    log = read_eval_log(str(path), header_only=True)
    baselines = ("baseline/comply-all", "baseline/refuse-all")
    judges = ("baseline/judge",)
    settings = EvaluateSettings(
        models=baselines, judges=judges, dataset=str(sets), out=tmp_path / "run"
    )
    evaluate(settings)
    theirs = metrics_of(log)
    assert same(theirs, tmp_path / "run")
    # without a limit all 4 sets of 7 prompts, and every response was graded
    counts = [theirs[name] for name in COVERAGE]
    assert counts == [4, 4, 4, 4 * 7, 0]
    assert log.results is not None and log.results.headline is not None
    assert log.results.headline.metric == "triplet_safety"


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_pairs_have_the_numbers_of_ours(tmp_path: Path, kind: str) -> None:
    sets = make_sets(kind)
    path = tmp_path / f"{kind}.jsonl"
    write_dataset(sets, path)
    parameters = {"dataset": str(path), "modes": "core", "probe": "all"}
    (log,) = support.run_task("opensafeintent/redirect", tmp_path, parameters=parameters)
    evaluate(
        EvaluateSettings(
            models=("baseline/redirect",),
            judges=("baseline/judge",),
            out=tmp_path / "run",
            dataset=str(path),
            modes="core",
            probe="all",
        )
    )
    theirs, scope = metrics_of(log), find_scope(sets)
    assert same(theirs, tmp_path / "run", "baseline/redirect", scope)
    assert {*theirs} == {*COVERAGE, *scope.metrics}
    assert (theirs["sets_complete"], theirs["responses_missing_grades"]) == (12, 0)
    assert log.results is not None and log.results.headline is not None
    assert log.results.headline.metric == scope.safety
    imported = import_files(
        ImportSettings(files=(Path(log.location),), out=tmp_path / "log", dataset=str(path))
    )
    assert imported.cohort is not None
    (again,) = metrics_json(tmp_path / "log")["models"].values()
    for name in scope.headlines:
        assert again[name]["value"] == theirs[name]


def import_log(log: EvalLog, out: Path, dataset: Path) -> list[dict[str, str]]:
    """Import a whole log, and return the lines of its grades."""
    settings = ImportSettings(files=(Path(log.location),), out=out, dataset=str(dataset))
    assert import_files(settings).notes == []
    return grades(out)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "judge_by"), [("pairs", "questions"), ("mixed", "questions"), ("mixed", "both")]
)
def test_questions_of_the_sets_are_asked_as_in_a_run_of_ours(
    tmp_path: Path, kind: str, judge_by: JudgeBy
) -> None:
    path, run = tmp_path / f"{kind}.jsonl", tmp_path / "run"
    write_dataset(ask_about(make_sets(kind)), path)
    (log,) = support.run_task(
        "opensafeintent/comply-all",
        tmp_path,
        parameters={"dataset": str(path), "judge_by": judge_by},
    )
    model, judges = ("baseline/comply-all",), ("baseline/judge",)
    evaluate(
        EvaluateSettings(models=model, judges=judges, dataset=str(path), out=run, judge_by=judge_by)
    )
    ours = metrics_json(run)
    lines = import_log(log, tmp_path / "log", path)
    assert lines == grades(run) and any("yes" in line["answers"] for line in lines)
    imported = metrics_json(tmp_path / "log")
    assert imported["models"] == ours["models"] and imported["primary"] == ours["primary"]
    assert imported["questions"] == ours["questions"]
    theirs = metrics_of(log)
    values = {name: own["value"] for name, own in ours["models"][model[0]].items()}
    assert "item_success" in values
    for name in values.keys() - {"mode_share", "strategy_share"}:
        if name in theirs and values[name] is not None:
            assert theirs[name] == values[name]
    assert values.keys() & theirs.keys() >= {"item_success", "no_harm_item", "must_met_benign"}
    assert [theirs[name] for name in ("sets", "sets_complete")] == [12, 12]
    assert (theirs["responses"], theirs["responses_missing_grades"]) == (len(lines), 0)
    assert log.results is not None and log.results.headline is not None
    assert log.results.headline.metric == ours["primary"][0]
    named = {result.name for result in log.results.scores}
    assert ("opensafeintent_harm_severity" in named) == (judge_by == "both")


@pytest.mark.slow
def test_answers_of_a_panel_come_with_what_is_missing(tmp_path: Path) -> None:
    """One judge leaves the same question out in every reply; on the others the two differ."""
    path = tmp_path / "asked.jsonl"
    write_dataset(ask_about(make_sets("pairs", 2)), path)

    def answer(messages: list[ChatMessage], config: GenerateConfig) -> ModelOutput:
        asked = re.findall(r"^(q\d+): .*part 0", messages[0].text, re.MULTILINE)
        given = {name: "yes" for name in ("q1", "q2", "q3") if name not in asked}
        return output_of(json.dumps({"answers": given}))

    with scripted(answer):
        roles: dict[str, Any] = {
            "grader": [get_model("scripted/gaps"), get_model("opensafeintent/judge")]
        }
        parameters = {"dataset": str(path), "judge_by": "questions"}
        (log,) = support.run_task(
            "opensafeintent/refuse-all", tmp_path, parameters=parameters, model_roles=roles
        )
    lines = {line["variant"]: line for line in import_log(log, tmp_path / "log", path)}
    gaps, strict = "answers[scripted/gaps]", "answers[baseline/judge]"
    assert json.loads(lines["benign"][gaps]) == {"m0": None, "m1": "yes"}
    assert json.loads(lines["benign"][strict]) == {"m0": "no", "m1": "no"}
    assert json.loads(lines["benign"]["answers"]) == {"m0": None, "m1": None}
    missing = {line["missing"] for line in lines.values()}
    assert missing == {"checklist[scripted/gaps]:left_out; checklist:tie"}
    assert metrics_of(log)["responses_missing_grades"] == 4
    assert math.isnan(metrics_of(log)["no_harm_item"])


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"judge_by": "questions"}, "has no questions of its own"),
        ({"judge_by": "questions", "modes": "core"}, "modes is about grades by rubric"),
        ({"judge_by": "questions", "follow_ups": True}, "follow_ups is about grades by rubric"),
        ({"judge_by": "checklist"}, "a task parameter is not valid"),
    ],
)
def test_questions_that_cannot_be_asked_are_refused(
    tmp_path: Path, parameters: dict[str, Any], reason: str
) -> None:
    with pytest.raises(Refusal, match=reason):
        support.run_task("opensafeintent/refuse-all", tmp_path, parameters=parameters)


@pytest.mark.slow
def test_answers_to_other_questions_are_not_imported(tmp_path: Path) -> None:
    asked, plain = tmp_path / "asked.jsonl", tmp_path / "plain.jsonl"
    write_dataset(ask_about(make_sets("pairs", 2)), asked)
    write_dataset(make_sets("pairs", 2), plain)
    parameters = {"dataset": str(asked), "judge_by": "questions"}
    (log,) = support.run_task("opensafeintent/refuse-all", tmp_path, parameters=parameters)
    with pytest.raises(InputError, match="judges were asked other questions"):
        import_log(log, tmp_path / "log", plain)
    assert not (tmp_path / "log").exists()


@pytest.mark.slow
def test_a_log_by_rubric_can_be_graded_again_by_questions(tmp_path: Path) -> None:
    path = tmp_path / "asked.jsonl"
    write_dataset(ask_about(make_sets("mixed", 2)), path)
    (log,) = support.run_task(
        "opensafeintent/comply-all", tmp_path, parameters={"dataset": str(path), "probe": "none"}
    )
    roles = {"grader": get_model("opensafeintent/judge")}
    again = score(
        log,
        opensafeintent_sets(judge_by="both", probe="none"),
        model_roles=roles,
        action="overwrite",
    )
    write_eval_log(again, str(tmp_path / "again.eval"))
    again.location = str(tmp_path / "again.eval")
    run = tmp_path / "run"
    evaluate(
        EvaluateSettings(
            models=("baseline/comply-all",),
            judges=("baseline/judge",),
            dataset=str(path),
            out=run,
            judge_by="both",
            probe="none",
        )
    )
    assert import_log(again, tmp_path / "log", path) == grades(run)
    assert metrics_json(tmp_path / "log")["models"] == metrics_json(run)["models"]


@pytest.mark.slow
@pytest.mark.parametrize("options", [{"modes": "core", "probe": "all", "limit": 3}, {"limit": 2}])
def test_parameters_mean_what_our_options_mean(tmp_path: Path, options: dict[str, Any]) -> None:
    (log,) = support.run_task("opensafeintent/keyword-filter", tmp_path, parameters=options)
    models, judges = ("baseline/keyword-filter",), ("baseline/judge",)
    evaluate(EvaluateSettings(models=models, judges=judges, out=tmp_path / "run", **options))
    assert same(metrics_of(log), tmp_path / "run", *models)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("prompts", "counts"),
    # all 7 of the first set, and of the second the triplet without its paraphrases; then the
    # second lacks its malicious prompt as well
    [(10, [2, 2, 1]), (9, [2, 1, 1])],
)
def test_a_limit_counts_whole_sets_only(tmp_path: Path, prompts: int, counts: list[int]) -> None:
    (log,) = support.run_task("opensafeintent/refuse-all", tmp_path, limit=prompts)
    log_metrics = metrics_of(log)
    assert [log_metrics[name] for name in COVERAGE[:3]] == counts
    assert log_metrics["stable_safe"] == 1.0


@pytest.mark.slow
def test_epochs_are_averaged_within_a_set(tmp_path: Path) -> None:
    # The judge calls the first answer to each prompt safe, the second unsafe; both are fully
    # helpful.
    text_counts: Counter[str] = Counter()

    def answer(messages: list[ChatMessage], config: GenerateConfig) -> ModelOutput:
        text = messages[-1].text
        if asked_for(messages):
            return judge_says(harm=0 if "\nfirst\n" in text else 2)(messages, config)
        text_counts[text] += 1
        return output_of("first" if text_counts[text] == 1 else "second")

    with scripted(answer):
        (log,) = support.run_task(
            "scripted/t", tmp_path, parameters={"epochs": 2, "limit": 3}, **JUDGED
        )
    log_metrics = metrics_of(log)
    # each set: one epoch all safe, one all unsafe, so every mean is a half; within an epoch no
    # wording flips
    halves = ("triplet_safety", "mean_safety", "mean_utility", "stable_safe")
    assert {log_metrics[name] for name in halves} == {0.5}
    assert (log_metrics["safety_flip"], log_metrics["responses"]) == (0.0, 3 * 7 * 2)


@pytest.mark.slow
def test_a_second_turn_goes_on_from_a_first_reply_and_is_in_no_metric(tmp_path: Path) -> None:
    def answer(messages: list[ChatMessage], config: GenerateConfig) -> ModelOutput:
        if asked_for(messages):
            # single prompts are harmful, second turns are not
            in_conversation = "<<<FIRST-REPLY " in messages[0].text
            return judge_says(harm=0 if in_conversation else 3)(messages, config)
        return output_of("second" if len(messages) == 3 else "<think>hm</think>first")

    with scripted(answer) as provider:
        (log,) = support.run_task(
            "scripted/t", tmp_path, parameters={"limit": 1, "follow_ups": True}, **JUDGED
        )
    conversations = [messages for messages, _ in provider.asked if len(messages) == 3]
    assert {tuple(message.role for message in messages) for messages in conversations} == {
        ("user", "assistant", "user")
    }
    assert [messages[1].text for messages in conversations] == ["first"] * 3
    assert (metrics_of(log)["mean_safety"], metrics_of(log)["responses"]) == (0.0, 7)
    (path,) = (tmp_path / "logs").glob("*.eval")
    import_files(ImportSettings(files=(path,), out=tmp_path / "run"))
    rows = {row["variant"]: row for row in grades(tmp_path / "run")}
    assert [rows[variant]["harm_severity"] for variant in FOLLOW_UPS] == ["0"] * 3
    assert rows["benign"]["harm_severity"] == "3"


@pytest.mark.slow
def test_a_first_reply_without_text_ends_the_conversation(tmp_path: Path) -> None:
    def answer(messages: list[ChatMessage], config: GenerateConfig) -> ModelOutput:
        return judge_says(harm=0)(messages, config) if asked_for(messages) else output_of("")

    with scripted(answer) as provider:
        support.run_task(
            "scripted/t", tmp_path, parameters={"limit": 1, "follow_ups": True}, **JUDGED
        )
    assert not [messages for messages, _ in provider.asked if len(messages) == 3]
    (path,) = (tmp_path / "logs").glob("*.eval")
    import_files(ImportSettings(files=(path,), out=tmp_path / "run"))
    rows = {row["variant"]: row for row in grades(tmp_path / "run")}
    assert {rows[variant]["missing"] for variant in FOLLOW_UPS} == {"response:no_first_reply"}


# Grades
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_grade_that_cannot_be_had_is_unscored_with_its_reason(tmp_path: Path) -> None:
    with scripted(judge_says(harm="I would rather not say")) as provider:
        (log,) = support.run_task("scripted/t", tmp_path, parameters={"limit": 1}, **JUDGED)
    assert log.status == "success" and log.samples is not None and log.results is not None
    scores = log.samples[0].scores or {}
    score = scores["opensafeintent_harm_severity"]
    assert math.isnan(score.value)  # type: ignore[arg-type]
    assert score.reason == "grader_failed"
    assert (score.explanation or "").startswith("harm_severity:declined")
    assert scores["opensafeintent_sets"].value == "missing"
    # 7 responses, each asked for its harm three times in vain
    assert Counter(asked_for(messages) for messages, _ in provider.asked)["harm"] == 7 * 3
    (harm,) = (score for score in log.results.scores if score.name.endswith("harm_severity"))
    assert (harm.scored_samples, harm.unscored_samples) == (0, 7)
    log_metrics = metrics_of(log)
    assert math.isnan(log_metrics["triplet_safety"])  # undefined, not 0
    assert [log_metrics[name] for name in COVERAGE] == [1, 0, 0, 7, 7]


@pytest.mark.slow
def test_the_headline_metrics_come_first_and_the_others_on_request(tmp_path: Path) -> None:
    shown = {}
    for metrics in ("headline", "all"):
        parameters = {"limit": 1, "metrics": metrics}
        (log,) = support.run_task("opensafeintent/comply-all", tmp_path, parameters=parameters)
        shown[metrics] = metrics_of(log)
    first = ["triplet_safety", "mean_utility", "low_help_rate_benign"]
    assert list(shown["headline"]) == [*first, *COVERAGE]
    assert list(shown["all"])[: len(shown["headline"])] == list(shown["headline"])
    assert set(TRIPLET_SCOPE.metrics) < set(shown["all"])


@pytest.mark.slow
def test_a_filtered_response_is_a_refusal_without_a_judge(tmp_path: Path) -> None:
    with scripted(output_of("", "content_filter")) as provider:
        (log,) = support.run_task("scripted/t", tmp_path, parameters={"limit": 1}, **JUDGED)
    assert len(provider.asked) == 7
    log_metrics = metrics_of(log)
    shares = [log_metrics[name] for name in ("mean_safety", "mean_helpfulness", "mode_share_A0")]
    assert shares == [1.0, 0.0, 1.0]


@pytest.mark.slow
def test_several_graders_are_a_panel(tmp_path: Path) -> None:
    # one judge says unsafe, one safe: of two a tie is unsafe; of two helpfulness grades the lower
    # counts
    def answer(messages: list[ChatMessage], config: GenerateConfig) -> ModelOutput:
        if asked_for(messages) == "strategy":
            return output_of('{"strategy": "refuse"}')
        return judge_says(*((2, 3) if config.seed == 1 else (4, 0)))(messages, config)

    with scripted(answer):
        strict = get_model("scripted/strict", config=GenerateConfig(seed=1), memoize=False)
        roles: dict[str, Any] = {"grader": [strict, get_model("scripted/mild", memoize=False)]}
        (log,) = support.run_task(
            "scripted/t", tmp_path, parameters={"limit": 1}, model_roles=roles
        )
    assert log.samples is not None
    scores = log.samples[0].scores or {}
    helpfulness = scores["opensafeintent_helpfulness"]
    assert (helpfulness.value, scores["opensafeintent_harm_severity"].value) == (2, 3)
    assert helpfulness.metadata == {"by_judge": {"scripted/strict": 2, "scripted/mild": 4}}
    # unsafe, and the target itself would have refused
    assert metrics_of(log)["execution_failure"] == 1.0


@pytest.mark.slow
@pytest.mark.parametrize(("temperature", "expected"), [(None, 0.0), (0.7, 0.7)])
def test_judges_are_asked_at_temperature_0_unless_their_role_says_otherwise(
    tmp_path: Path, temperature: float | None, expected: float
) -> None:
    parameters = {"limit": 1, "judge_max_tokens": 99}
    with scripted(output_of("1")) as provider:
        judge = get_model(
            "scripted/j", config=GenerateConfig(temperature=temperature), memoize=False
        )
        roles = {"grader": judge}
        support.run_task(
            "opensafeintent/refuse-all", tmp_path, parameters=parameters, model_roles=roles
        )
    sent = {(config.temperature, config.max_tokens) for _, config in provider.asked}
    assert sent == {(expected, 99)}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_evaluation_that_broke_off_is_retried_to_the_same_numbers(tmp_path: Path) -> None:
    broken = iter([True] * 2)

    def answer(messages: list[ChatMessage], config: GenerateConfig) -> ModelOutput:
        if asked_for(messages) == "harm" and next(broken, False):
            raise ValueError("the provider went away")
        return judge_says(3, 1)(messages, config)

    with scripted(answer) as provider:
        options: dict[str, Any] = {"parameters": {"limit": 2}} | JUDGED
        (log,) = support.run_task("scripted/t", tmp_path, max_samples=1, **options)
        assert log.status == "error"
        asked_before = len(provider.asked)
        for _ in range(2):
            (log,) = eval_retry(log, log_dir=str(tmp_path / "logs"), display="none")
        again = len(provider.asked) - asked_before
        (whole,) = support.run_task("scripted/t", tmp_path, **options)
    assert log.status == "success"
    assert metrics_of(log) == pytest.approx(metrics_of(whole), abs=0, nan_ok=True)
    assert metrics_of(log)["responses"] == 14
    # 14 responses with their grades, two modes and two probes; what had succeeded was not asked for
    # again
    assert again <= 14 * (1 + len(QUESTIONS)) + 2 + 2 + 2 * 3


# Models of ours
# ------------------------------------------------------------------------------


def test_a_response_that_is_not_there_is_missing(tmp_path: Path) -> None:
    (log,) = support.run_task("opensafeintent/refuse-all", tmp_path, limit=7, score=False)
    for sample in log.samples or ():
        if sample.metadata["variant"] == "malicious":
            sample.output = ModelOutput(model="served-model", error="nothing came")
    roles = {"grader": get_model("opensafeintent/judge")}
    scored = score(log, [make() for make in SCORERS], model_roles=roles)
    samples = {sample.metadata["variant"]: sample for sample in scored.samples or ()}
    absent = (samples["malicious"].scores or {})["opensafeintent_helpfulness"]
    assert absent.reason == "no_response"
    assert metrics_of(scored)["sets_complete"] == 0


def refused(tmp_path: Path, model: str = "opensafeintent/refuse-all", **options: Any) -> str:
    with pytest.raises(Refusal) as error:
        support.run_task(model, tmp_path, **options)
    return str(error.value.message)


# Bad input
# ------------------------------------------------------------------------------


def test_a_parameter_that_is_not_valid_or_no_grader_is_told(tmp_path: Path) -> None:
    for parameter, value, message in (
        ("dataset", "nowhere.jsonl", "nowhere.jsonl: no such dataset"),
        ("rubrics", "nowhere", "nowhere: no such folder of rubrics"),
        ("modes", "all", "Invalid enum value 'all'"),
        *(("limit", value, "`$.limit`") for value in (-1, "abc", 1.5, True)),
        ("epochs", 0, "`$.epochs`"),
        ("dataset", 5, "`$.dataset`"),
        ("judge_max_tokens", -3, "`$.judge_max_tokens`"),
    ):
        assert message in refused(tmp_path, parameters={parameter: value})
    assert "--model-role grader=provider/model" in refused(tmp_path, model_roles={})


# What the register of Inspect evals reads of us
# ------------------------------------------------------------------------------


def test_one_line_of_the_file_declares_the_task() -> None:
    lines = Path(str(module.__file__)).read_text("utf-8").splitlines()
    assert lines.count("@task") == 1
    assert lines[lines.index("@task") + 1].startswith("def opensafeintent(")
