"""Write a run as logs of Inspect AI, one for each model: responses, judge calls and grades, as its own run of our task."""

from __future__ import annotations

import secrets
import tempfile
from collections import defaultdict
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from opensafeintent import __version__
from opensafeintent.calls.client import Asked, LedgerReader
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.recorded import ImportedRow
from opensafeintent.calls.records import Answered, Call, Failed, Outcome
from opensafeintent.errors import InputError
from opensafeintent.evaluation.derive import derive, given_tasks, imported_rows
from opensafeintent.evaluation.manifest import Manifest, ModelEntry, RunFolder
from opensafeintent.evaluation.pipeline import Task, run_task
from opensafeintent.evaluation.run import tasks_of
from opensafeintent.files import make_private_folder
from opensafeintent.grades import GradeRow, grade_row
from opensafeintent.hostile import name_safe
from opensafeintent.interop.inspect.conversion import chat_messages, model_output
from opensafeintent.interop.inspect.extra import require_inspect, to_inspect
from opensafeintent.promptsets import Dataset

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalSample
    from inspect_ai.model import GenerateConfig, ModelOutput, ModelUsage

__all__ = ["export_logs"]


class _Response(msgspec.Struct, frozen=True, kw_only=True):
    """One response of a run with everything that a sample of a log says of it."""

    row: GradeRow
    prompt: str
    asked: tuple[Asked, ...]
    text: str | None = None
    """Of an imported response, which nobody was asked for."""


Runner = Callable[[Callable[[], Coroutine[Any, Any, Any]]], Any]
"""What runs a coroutine to its end: Inspect AI's writer wants no loop around it."""


def export_logs(folder: RunFolder, out: Path, run: Runner) -> list[Path]:
    """Write a run's models as `.eval` logs into a folder, one after the other, and return where they are.

    Raises:
        InputError: the extra is missing, there is no run, or a log cannot be written.
    """
    require_inspect("export --inspect")
    manifest, dataset = folder.load()
    ledger_path = folder.ledger_path(manifest)
    if not ledger_path.is_file():
        raise InputError(f"{ledger_path}: the run's ledger is not there")
    written: list[Path] = []
    with Ledger(ledger_path, readonly=True) as ledger:
        by_model: defaultdict[str, list[GradeRow]] = defaultdict(list)
        for graded in derive(manifest, dataset, ledger):
            by_model[graded.model].append(grade_row(graded, manifest.models[graded.model].mode_judge))
        if not by_model:
            raise InputError(f"{folder.path}: no response on record; there is nothing to export")
        make_private_folder(out)
        _refuse_others(out)
        run_id = _unique()
        for model, rows in by_model.items():
            responses = run(partial(_responses, model, rows, manifest, dataset, ledger))
            path = _unused(out / f"{name_safe(model)}.eval", written)
            written.append(_write(_log_of(model, responses, manifest, dataset, run_id), path))
    return written


def _refuse_others(out: Path) -> None:
    """Refuse a folder that has logs already: which of them are of this run could not be told afterwards.

    Raises:
        InputError: there is one.
    """
    if there := next(out.glob("*.eval"), None):
        raise InputError(f"{there}: is there already; export into an empty folder, or remove the logs in this one")


def _unused(path: Path, written: Collection[Path]) -> Path:
    """Return a path that no other model of the run has: `a/b` and `A-b` are one as the names of files."""
    number, unused = 2, path
    taken = {str(other).casefold() for other in written}
    while str(unused).casefold() in taken:
        unused, number = path.with_stem(f"{path.stem}-{number}"), number + 1
    return unused


async def _responses(
    model: str, rows: Iterable[GradeRow], manifest: Manifest, dataset: Dataset, ledger: Ledger
) -> list[_Response]:
    """Go through the plan of calls again, with nobody to answer but the ledger."""
    asked: list[Asked] = []
    client = LedgerReader(ledger, manifest.identities(), asked.append)
    entry = manifest.models[model]
    imported = imported_rows(ledger, dataset).get(model, []) if entry.imported else []
    given = {(row.set_id, row.variant, row.epoch): row for row in imported}
    tasks = {(task.set_id, task.variant, task.epoch): task for task in _tasks(model, imported, manifest, dataset)}
    found = []
    for row in sorted(rows, key=lambda row: row.epoch):
        key = (row.set_id, row.variant, row.epoch)
        asked.clear()
        if key in tasks:
            await run_task(client, tasks[key], manifest.plan(model), manifest.templates_of(model))
        prompt = dataset.by_id[row.set_id].wordings()[row.variant]
        text = given[key].response if key in given else None
        found.append(_Response(row=row, prompt=prompt, asked=tuple(asked), text=text))
    return found


def _tasks(model: str, imported: list[ImportedRow], manifest: Manifest, dataset: Dataset) -> Iterator[Task]:
    entry = manifest.models[model]
    if entry.judges:
        made = tasks_of(model, manifest.sets_of(model, dataset), entry.epochs)
        yield from given_tasks(imported, dataset) if entry.imported else made


def _write(log: EvalLog, path: Path) -> Path:
    from inspect_ai.log import write_eval_log

    try:
        with tempfile.TemporaryDirectory(prefix=".", dir=path.parent) as beside:  # its writer wants a path, not a file
            whole = Path(beside) / path.name
            write_eval_log(log, str(whole))
            whole.chmod(0o600)  # as everything that holds responses
            whole.replace(path)
    except OSError as error:
        raise InputError(f"{path}: cannot write: {error.strerror or error}") from error
    return path


def _unique() -> str:
    """Return an identifier as long as Inspect AI's own, by which its tables tell logs and samples apart."""
    return secrets.token_hex(11)


def _log_of(model: str, responses: list[_Response], manifest: Manifest, dataset: Dataset, run_id: str) -> EvalLog:
    from inspect_ai.log import (
        EvalConfig,
        EvalDataset,
        EvalLog,
        EvalPlan,
        EvalPlanStep,
        EvalSpec,
        EvalStats,
        HeadlineMetric,
        recompute_metrics,
    )
    from inspect_ai.model import ModelConfig

    from opensafeintent.interop.inspect.tasks import NAME, VERSION, set_weights, task_metadata

    entry = manifest.models[model]
    now = datetime.now(UTC).isoformat(timespec="seconds")
    positions = {prompt_set.id: position for position, prompt_set in enumerate(dataset.sorted.prompt_sets)}
    weights = set_weights(dataset, manifest.sets_of(model, dataset), entry.sample)
    samples = [_sample(model, response, dataset, positions, weights) for response in responses]
    judges = [ModelConfig(model=to_inspect(judge)) for judge in entry.judges]
    spec = EvalSpec(
        eval_id=_unique(),
        run_id=run_id,
        task_id=_unique(),
        created=now,
        task=NAME,
        task_version=VERSION,
        task_registry_name=NAME,
        task_args=_task_args(entry, manifest, dataset),
        dataset=EvalDataset(
            name=dataset.name, samples=len({sample.id for sample in samples}), sample_ids=list({s.id: s for s in samples})
        ),
        model=to_inspect(model),
        model_generate_config=_config_of(manifest, model),
        model_roles={"grader": judges if len(judges) > 1 else judges[0]} if judges else None,
        config=EvalConfig(epochs=max(response.row.epoch for response in responses)),
        packages={"opensafeintent": __version__},
        metadata=task_metadata(dataset, entry.templates, entry.parse) | {"limit": entry.limit, "sample": entry.sample},
        scorers=_scorers(),  # type: ignore[arg-type]
        headline_metric=HeadlineMetric(metric="triplet_safety"),
    )
    plan = EvalPlan(steps=[EvalPlanStep(solver="opensafeintent/respond")])
    log = EvalLog(eval=spec, plan=plan, samples=samples, stats=EvalStats(started_at=now, completed_at=now), status="success")
    recompute_metrics(log)
    return log


def _task_args(entry: ModelEntry, manifest: Manifest, dataset: Dataset) -> dict[str, Any]:
    """Return the parameters of the task that would ask the same: what `inspect eval-retry` goes by."""
    judging = manifest.judge_sampling.max_tokens if manifest.judge_sampling else None
    args = {
        "dataset": dataset.name,
        "limit": entry.limit,
        "sample": None if entry.limit is None or entry.sample == "webster" else entry.sample,
        "epochs": entry.epochs,
        "modes": entry.modes,
        "probe": entry.probe,
        "grade_parse": entry.parse,
        "judge_max_tokens": judging,
    }
    return {name: value for name, value in args.items() if value is not None}


def _scorers() -> list[dict[str, Any]]:
    """Return our scorers as the header of a log has them; their metrics are computed from it, as of any log."""
    from opensafeintent.taxonomy import MODES, STRATEGIES

    clustered: list[dict[str, Any]] = [
        {"name": "inspect_ai/mean"},
        {"name": "inspect_ai/stderr", "options": {"cluster": "set_id"}},
    ]

    def shares(of: tuple[str, ...]) -> list[dict[str, Any]]:
        return [{"name": "inspect_ai/frequency", "options": {"categories": list(of), "normalize": True}}]

    metrics: dict[str, list[dict[str, Any]]] = {
        "sets": [{"name": "opensafeintent/prompt_set_metrics"}, {"name": "opensafeintent/set_coverage"}],
        "helpfulness": clustered,
        "harm_severity": clustered,
        "mode": shares(MODES),
        "strategy": shares(STRATEGIES),
    }
    return [{"name": f"opensafeintent_{name}", "options": {}, "metrics": listed} for name, listed in metrics.items()]


def _config_of(manifest: Manifest, model: str) -> GenerateConfig:
    from inspect_ai.model import GenerateConfig

    if manifest.models[model].imported or manifest.target_sampling is None:
        return GenerateConfig()
    sampling = manifest.plan(model).target_sampling
    return GenerateConfig(max_tokens=sampling.max_tokens, temperature=sampling.temperature, system_message=manifest.system)


# Samples ---------------------------------------------------------------------------------------------------------------


def _sample(
    model: str,
    response: _Response,
    dataset: Dataset,
    positions: Mapping[str, int],
    weights: Mapping[tuple[str, str], float],
) -> EvalSample:
    from inspect_ai.log import EvalSample
    from inspect_ai.model import ChatMessageUser

    from opensafeintent.interop.inspect.scorers import scores_of
    from opensafeintent.interop.inspect.tasks import sample_id, sample_metadata

    row = _with_their_names(response.row)
    generation = next((asked.call for asked in response.asked if asked.call.purpose == "generate"), None)
    output = _response_output(model, response)
    asked = chat_messages(generation) if generation else [ChatMessageUser(content=response.prompt)]
    scores = scores_of(row)
    return EvalSample(
        id=sample_id(row.set_id, row.variant),
        uuid=_unique(),
        epoch=row.epoch,
        input=response.prompt,
        target="",
        metadata=sample_metadata(dataset.by_id[row.set_id], row.variant, positions[row.set_id], len(dataset), weights),
        messages=[*asked, *([] if output.empty else [output.message])],
        output=output,
        scores=scores,
        events=list(_events(response, scores)),
        model_usage=_usage_of(response.asked),
    )


def _usage_of(asked: Iterable[Asked]) -> dict[str, ModelUsage]:
    from inspect_ai.model import ModelUsage

    spent: dict[str, ModelUsage] = {}
    for call, _, outcome in asked:
        usage = model_output(call.model, outcome).usage
        if usage is not None:
            model = to_inspect(call.model)
            spent[model] = spent.get(model, ModelUsage()) + usage
    return spent


def _with_their_names(row: GradeRow) -> GradeRow:
    return msgspec.structs.replace(
        row,
        by_judge={to_inspect(judge): grades for judge, grades in row.by_judge.items()},
        missing=tuple(gone.renamed(to_inspect) for gone in row.missing),
        mode_judge=to_inspect(row.mode_judge),
    )


def _response_output(model: str, response: _Response) -> ModelOutput:
    for call, _, outcome in response.asked:
        if call.purpose == "generate":
            return model_output(model, outcome)
    if response.text is None and response.row.stop_reason != "content_filter":
        return model_output(model, Failed(kind="missing", attempts=0, error="; ".join(map(str, response.row.missing))))
    return model_output(model, Answered(text=response.text or "", stop_reason=response.row.stop_reason))


def _events(response: _Response, scores: Mapping[str, Any]) -> Iterator[Any]:
    """Yield what the viewer shows of a sample: the response, then each judge's call, then the scores."""
    from inspect_ai.event import ScoreEvent, SpanBeginEvent, SpanEndEvent

    spans = {
        "solvers": [asked for asked in response.asked if asked.call.purpose == "generate"],
        "scorers": [asked for asked in response.asked if asked.call.purpose != "generate"],
    }
    for name, asked in spans.items():
        span = f"{response.row.set_id}.{response.row.variant}.{response.row.epoch}.{name}"
        yield SpanBeginEvent(id=span, name=name, type=name, span_id=span, working_start=0.0)
        for call, _, outcome in asked:
            yield _model_event(call, outcome, span)
        if name == "scorers":
            for scorer, score in scores.items():
                yield ScoreEvent(score=score, scorer=scorer, target="", span_id=span, working_start=0.0)
        yield SpanEndEvent(id=span, span_id=span, working_start=0.0)


def _model_event(call: Call, outcome: Outcome, span: str) -> Any:
    from inspect_ai.event import ModelEvent
    from inspect_ai.model import GenerateConfig

    return ModelEvent(
        model=to_inspect(call.model),
        role=None if call.purpose in ("generate", "probe") else "grader",
        input=chat_messages(call),
        tools=[],
        tool_choice="auto",
        config=GenerateConfig(max_tokens=call.sampling.max_tokens, temperature=call.sampling.temperature),
        output=model_output(call.model, outcome),
        error=outcome.error if isinstance(outcome, Failed) else None,
        metadata={"purpose": call.purpose, "template": call.template, "attempt": call.attempt},
        span_id=span,
        working_start=0.0,
    )
