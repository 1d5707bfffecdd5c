"""Studies made up from seeded random grades: for tests of reports, and for looking at figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from opensafeintent.calls.records import Sampling
from opensafeintent.evaluation.manifest import DatasetEntry, Manifest, ModelEntry
from opensafeintent.evaluation.plan import Plan
from opensafeintent.files import to_json
from opensafeintent.numbers.cohort import Cohort, GradedRun, gather_models
from opensafeintent.promptsets import Dataset
from opensafeintent.report.columns import Table
from opensafeintent.report.metrics_json import make_metrics_file
from opensafeintent.report.notices import Results, collect_notices
from opensafeintent.report.tables import make_all_tables
from opensafeintent.responses import GradedResponse
from opensafeintent.taxonomy import MODES, STRATEGIES, default_taxonomy
from samples import grade_line, made_dataset, prompt_set

MODELS = (
    *("openai/gpt-5.4", "anthropic/claude-sonnet-4-6", "google/gemini-3-flash"),
    *("anthropic/claude-haiku-4-5", "google/gemini-3.1-flash-lite"),
    "openai-api/together/meta-llama/Llama-4-Scout-17B-16E-Instruct",
    *("vllm/meta-llama/Llama-3.3-70B-Instruct", "vllm/openai/gpt-oss-120b"),
    *("vllm/openai/gpt-oss-20b", "deepseek/DeepSeek-V3.1", "deepseek/DeepSeek-R1-0528"),
    *("hf/deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "vllm/Qwen/Qwen3-Next-80B-A3B-Instruct"),
    *("vllm/Qwen/Qwen3-32B", "vllm/Qwen/Qwen3-4B", "mistral/mistral-medium-2505"),
    *("mistral/Mistral-Small-3.1-24B-Instruct-2503", "hf/données/modèle-précis-éà-日本語-модель"),
    "hf//mnt/checkpoints/2026-07-02T10:00:00/experiment_with_a_very_long_name/step-00012000/model",
    "google/gemma-4-26b",
)
"""Names of every awkward kind: long, path-like, alike at both ends, not ASCII."""


def metrics_json(cohort: Cohort) -> Any:
    """Return what `metrics.json` has of the models."""
    return msgspec.json.decode(to_json(make_metrics_file(cohort)))


def notices_of(cohort: Cohort, *levels: str, **results: Any) -> list[str]:
    """Return the texts of the notices on models, all of them or those of some levels."""
    notices = collect_notices(Results(cohort=cohort, **results))
    return [
        said.text.replace("\u00a0", " ") for said in notices if not levels or said.level in levels
    ]


def many_sets(count: int, paraphrases: int = 4) -> Dataset:
    """Spread prompt-sets unevenly over the 42 cells, as the published ones are: Hazardous Agent Use
    is thin.
    """
    cells = [
        cell
        for n, cell in enumerate(default_taxonomy().cells)
        for _ in range(1 if 6 <= n < 12 else 2 + n % 3 * 2)
    ]
    return made_dataset(
        *(prompt_set(f"s{n:04}", paraphrases, *cells[n * 37 % len(cells)]) for n in range(count))
    )


def random_rows(
    model: str,
    dataset: Dataset,
    seed: int,
    *,
    judge: str,
    safe: float,
    helpful: float,
    missing: float = 0.01,
) -> Iterator[GradedResponse]:
    """Yield every response of one model; grades within a set are alike, and worse the less benign
    the prompt is.
    """
    generator = np.random.default_rng(seed)
    for item in dataset.prompt_sets:
        hard, good = generator.normal(size=2) * 0.7
        domain = default_taxonomy().domain_names.index(item.harm_domain) * 0.12
        for variant in item.wordings():
            shift = {"benign": 1.2, "malicious": -0.2}.get(variant, 0.0)
            unsafe = generator.normal() * 0.8 + hard > safe + shift - domain
            level = generator.normal() * 0.8 + good + helpful + shift
            if generator.random() < missing:
                yield grade_line(model, item.id, variant, "--", missing=("harm_severity:unparsed",))
                continue
            core = variant == "dual_use"
            helpfulness = 1 + sum(level > cut for cut in (-1.0, 0.0, 1.0))
            pair = f"{helpfulness}{generator.integers(1, 4) if unsafe else 0}"
            mode = str(generator.choice(MODES, p=(0.05, 0.05, 0.25, 0.3, 0.35))) if core else None
            probed = core and unsafe
            strategy = str(generator.choice(STRATEGIES, p=(0.4, 0.5, 0.1))) if probed else None
            graders = {judge: (None, None)}
            yield grade_line(
                *(model, item.id, variant, pair), mode=mode, strategy=strategy, by_judge=graders
            )


def rows_of(model: str, dataset: Dataset, grades: dict[str, str]) -> list[GradedResponse]:
    """Make a row for each pair (helpfulness, harm severity) that a set's variants have in order;
    `--` is missing.
    """
    missing = {True: ("helpfulness:unparsed",), False: ()}
    return [
        grade_line(model, item.id, variant, pair, missing=missing["-" in pair])
        for item in dataset.prompt_sets
        for variant, pair in zip(item.wordings(), grades[item.id].split(), strict=True)
    ]


def run_with(
    rows: Sequence[GradedResponse],
    dataset: Dataset,
    models: Sequence[str] = (),
    *,
    judge: str = "anthropic/claude-sonnet-4-6",
    name: str = "run",
) -> GradedRun:
    """Put rows into a run's study, graded by one judge; the models are the rows' if none are
    named.
    """
    entry = DatasetEntry(
        name=dataset.name, hash=dataset.hash, sets=len(dataset), taxonomy=dataset.taxonomy
    )
    entries = {
        model: ModelEntry(identity=model)
        for model in models or dict.fromkeys(row.model for row in rows)
    }
    plan = Plan(
        judges=(judge,),
        mode_judge=judge,
        judge_samplings={judge: Sampling()},
        target_sampling=Sampling(),
    )
    manifest = Manifest(version="0", dataset=entry, models=entries, plan=plan)
    return GradedRun(name, manifest, dataset, rows)


def changed(run: GradedRun, *, entry: dict[str, Any] | None = None, **fields: Any) -> GradedRun:
    """Return a run whose manifest, plan, or models' entries are others."""
    manifest = run.manifest
    of_entry, fields = dict(entry or {}), dict(fields)
    of_plan = {
        name: some.pop(name)
        for some in (of_entry, fields)
        for name in [*some]
        if name in Plan.__struct_fields__
        and not (name == "judges" and isinstance(some[name], dict))
    }
    entries = {
        model: replace(model_entry, **of_entry) for model, model_entry in manifest.models.items()
    }
    changes = {"models": entries, "plan": replace(manifest.plan, **of_plan)} | fields
    return run._replace(manifest=replace(manifest, **changes))


def cohort_of(*runs: GradedRun) -> Cohort:
    """Return the models of runs."""
    return gather_models(runs)


def cohort_with(
    dataset: Dataset, rows: Sequence[GradedResponse], judge: str = "some/judge"
) -> Cohort:
    """Put rows of one run into the one group that they make."""
    return cohort_of(run_with(rows, dataset, judge=judge))


def table_of(cohort: Cohort, name: str) -> Table:
    (table,) = (table for table in make_all_tables(cohort) if table.name == name)
    return table


def random_run(
    models: Sequence[str] = MODELS,
    sets: int = 115,
    *,
    judge: str = "anthropic/claude-sonnet-4-6",
    seed: int = 7,
    paraphrases: int = 4,
) -> GradedRun:
    """Make a study of some models on some prompt-sets, with missing grades, from one seed."""
    dataset = many_sets(sets, paraphrases)
    places = np.random.default_rng(seed).normal(size=(len(models), 2))
    rows: list[GradedResponse] = []
    for n, (model, (safe, helpful)) in enumerate(zip(models, places.tolist(), strict=True)):
        levels = {"safe": 0.6 + 0.45 * safe, "helpful": 0.2 + 0.4 * helpful}
        rows += random_rows(model, dataset, seed + n, judge=judge, **levels)
    return run_with(rows, dataset, models, judge=judge)
