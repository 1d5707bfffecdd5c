"""Builds made by hand, small enough to count on fingers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opensafeintent.calls.records import Sampling
from opensafeintent.calls.spending import Spending, Spent
from opensafeintent.construction.controls.findings import check
from opensafeintent.construction.folder import BuildManifest
from opensafeintent.construction.pipeline import Built
from opensafeintent.construction.records import Draft, Rejection, Revision, Seed, StageResult, Topic
from opensafeintent.promptsets import Dataset, Prompts
from opensafeintent.report.built import (
    BuildResults,
    build_figures,
    build_tables,
    likeness_of,
    marked_source,
    render_build_page,
)
from opensafeintent.report.cost import Costs
from opensafeintent.report.figures import write_figures
from opensafeintent.report.tables.checks import check_tables
from opensafeintent.taxonomy import Category, Intent, Taxonomy
from opensafeintent.templates.instruction import Reading, load_instructions

HOSTILE = "<script>window.hacked=1</script> {{ 7*7 }} [x](javascript:alert(1)) | `y` \u202eevil"
MODELS = ("<b>gen</b>/[x](javascript:alert(1))", "judge/</script><script>window.hacked=2</script>")


def taxonomy(domains: Sequence[str] = ("Money", "People"), types: Sequence[str] = ("Explanation",)) -> Taxonomy:
    return Taxonomy(
        name=f"small {HOSTILE}",
        harm_domains=tuple(Category(name=name, definition=f"About {name}.") for name in domains),
        task_types=tuple(Category(name=name, definition=f"{name} of things.") for name in types),
    )


def topic(number: int, domain: str = "Money", *, seeded: bool = True) -> Topic:
    seed = Seed(prompt=f"SEED-{number} nobody may see", source="se|eds<i>.jsonl", place=f"line {number}")
    return Topic(summary=f"topic {number}", harm_domain=domain, task_type="Explanation", seed=seed if seeded else None)


def draft(of: Topic, number: int, first: dict[Intent, Reading] | None = None, **more: Any) -> Draft:
    """A draft whose prompts hold words of their own; `first` is what the judge read at first where that was wrong."""
    right: dict[Intent, Reading] = {"benign": "benign", "dual_use": "dual_use", "malicious": "malicious"}
    first = right | (first or {})
    revisions = tuple(
        Revision(variant=intent, found=found, said="wrong", before=f"BEFORE-{number}-{intent}", after="after")
        for intent, found in first.items()
        if found != intent
    )
    words = " ".join(f"w{number}x{place}" for place in range(6))
    fields: dict[str, Any] = {
        "first_readings": first,
        "readings": right,
        "revisions": revisions,
        "first_leaning": "honest" if number == 1 else "neither",
        "leaning": "neither",
        "paraphrases": (f"PARAPHRASE-{number} {words}",),
        "benign_use": f"use {number}",
        "misuse_risk": f"risk {number}",
    }
    prompts = Prompts(
        benign=f"BENIGN-{number} kindly {words} {HOSTILE}",
        dual_use=f"DUAL-{number} {words}",
        malicious=f"MALICIOUS-{number} secretly {words}",
    )
    return Draft(topic=of, underlying_task=f"task {number} {HOSTILE}", prompts=prompts, **fields | more)


def built() -> Built:
    """Four seeds, of which one is empty and one is said to be safe; two proposals, one of them too similar.

    Three drafts are begun. The first is right at once; of the second the dual-use prompt reads as benign and is repaired;
    of the third the malicious one reads as neither and stays so.
    """
    one, two, filled = topic(1), topic(2), topic(3, "People", seeded=False)
    kept = (draft(one, 1), draft(two, 2, {"dual_use": "benign"}))
    wrong = draft(
        filled,
        3,
        {"malicious": "neither"},
        readings={"benign": "benign", "dual_use": "dual_use", "malicious": "neither"},
    )
    seeds = tuple(item.seed for item in (one, two, topic(4)) if item.seed)
    return Built(
        seeds=StageResult(
            stage="seeds",
            kept=seeds,
            rejected=(Rejection(item=Seed(prompt="", source="s", place="line 5"), reason="empty"),),
        ),
        topics=(
            StageResult(stage="metadata", kept=(one, two), rejected=(Rejection(item=seeds[2], reason="both_say_safe"),)),
            StageResult(
                stage="backfill",
                kept=(one, two, filled),
                rejected=(Rejection(item=topic(5, "People", seeded=False), reason="too_similar"),),
            ),
        ),
        drafts=(
            StageResult(stage="triplets", kept=(*kept, wrong), rejected=()),
            StageResult(stage="intents", kept=kept, rejected=(Rejection(item=wrong, reason="wrong_intent"),)),
            StageResult(stage="quality", kept=kept, rejected=()),
            StageResult(stage="augmentation", kept=kept, rejected=()),
        ),
    )


COSTS = (
    Spending(purpose="metadata", model=MODELS[0], calls=3, input_tokens=30, output_tokens=3),
    Spending(purpose="metadata", model=MODELS[1], calls=4, input_tokens=40, output_tokens=4),
    Spending(purpose="repair", model=MODELS[0], calls=2, input_tokens=20, output_tokens=2),
)


def results(made: Built | None = None, over: Taxonomy | None = None, **more: Any) -> BuildResults:
    """Results of a build, finished unless it is said otherwise."""
    made, over = made or built(), over or taxonomy()
    manifest = BuildManifest(
        version="1",
        generator=MODELS[0],
        judge=MODELS[1],
        identities={},
        generator_sampling=Sampling(max_tokens=100),
        judge_sampling=Sampling(max_tokens=100, temperature=0.0),
        structured_output=True,
        taxonomy=over,
        seeds="/home/somebody/se|eds<i>.jsonl",
        limit=None,
        per_cell=2,
        stages=(1, 6),
        ledger="ledger.sqlite",
        templates=load_instructions().sources(),
    )
    sets = tuple(item.prompt_set(marked_source("test", "0" * 64)) for item in made.finished)
    dataset = Dataset("dataset.jsonl", sets, over) if sets else None
    found = check(dataset) if dataset else None
    known: dict[str, Any] = {
        "remarks": (f"1 item was left out {HOSTILE}",),
        "dataset": dataset,
        "check": found,
        "check_tables": check_tables(found) if found else (),
        "likeness": likeness_of(dataset) if dataset else None,
    }
    return BuildResults(manifest, made, Costs({"build": Spent(lines=COSTS)}, None), **known | more)


def page_of(of: BuildResults, folder: Path) -> bytes:
    """The page, its drawings made in a folder."""
    figures = build_figures(of)
    write_figures(figures, folder, ("svg",))
    return render_build_page(of, [*build_tables(of), *of.check_tables.values()], figures, folder)
