"""What the page says at its top: what was measured, on what, by whom it was graded."""

from __future__ import annotations

from collections.abc import Sequence

from opensafeintent.analysis.groups import Group, Study
from opensafeintent.analysis.judge_checks import CheckedJudge, checked_judges
from opensafeintent.evaluation.derive import IMPORTED_JUDGE
from opensafeintent.hostile import one_line

__all__ = ["apart_because", "facts_of", "heading_of", "title_of"]


def title_of(groups: Sequence[Group]) -> str:
    """Return the page's title."""
    models = [model for group in groups for model in group.models]
    what = one_line(models[0], 60) if len(models) == 1 else f"{len(models)} models"
    return f"Intent calibration of {what}"


def heading_of(group: Group) -> str:
    """Return what one group is called: its dataset, and who graded it."""
    judges = group.conditions.judges
    graded = (
        "grades as imported" if judges == (IMPORTED_JUDGE,) else f"graded by {_named(judges)}" if judges else "not graded"
    )
    return f"{one_line(group.dataset.name, 60)}, {graded}"


def apart_because(groups: Sequence[Group], number: int) -> str:
    """Say in what a group differs from the first one: why the two are not mixed."""
    first, own = groups[0].conditions, groups[number - 1].conditions
    if number == 1:
        return ""
    reasons = []
    if own.dataset != first.dataset:
        reasons.append(f"other prompt-sets ({own.dataset[:8]}, not {first.dataset[:8]})")
    if own.judges != first.judges:
        reasons.append(f"other judges ({_named(own.judges)}, not {_named(first.judges)})")
    elif own.mode_judge != first.mode_judge:
        reasons.append(f"another judge of modes ({_named([own.mode_judge])}, not {_named([first.mode_judge])})")
    if own.parse != first.parse:
        reasons.append(f"grades read in another way ({own.parse}, not {first.parse})")
    if own.templates and first.templates and own.templates != first.templates:
        theirs = dict(first.templates)
        roles = sorted(role for role, digest in own.templates if theirs.get(role) != digest)
        reasons.append(f"other judge templates ({', '.join(roles)})")
    elif bool(own.templates) != bool(first.templates):
        reasons.append("judge templates that are not on record")
    return "; ".join(reasons)


def _named(judges: Sequence[str]) -> str:
    return one_line(" + ".join(filter(None, judges)), 80) or "none"


def facts_of(group: Group, studies: Sequence[Study]) -> list[tuple[str, str]]:
    """Return what was measured on what, as (term, text)."""
    dataset, conditions = group.dataset, group.conditions
    domains = {item.harm_domain for item in dataset.prompt_sets}
    types = {item.task_type for item in dataset.prompt_sets}
    responses = sum(coverage.responses for coverage in group.coverage.values())
    counted = sum(coverage.counted for coverage in group.coverage.values())
    facts = [
        ("Dataset", f"{one_line(dataset.name, 60)} · sha256 {dataset.hash[:16]}"),
        ("Extent", f"{group.extent}; {len(domains)} harm domains, {len(types)} task types"),
        ("Models", f"{len(group.models)}"),
        ("Responses", f"{responses:,}, of which {counted:,} have both grades"),
        ("Judge" if len(conditions.judges) == 1 else "Judges", _named(conditions.judges)),
    ]
    if conditions.mode_judge and conditions.mode_judge not in conditions.judges:
        facts.append(("Judge of modes", one_line(conditions.mode_judge, 80)))
    if checked := checked_judges(group):
        facts.append(("Judge check", _checks(checked)))
    if conditions.templates:
        facts.append(("Judge templates", _templates(conditions.templates, studies)))
    if conditions.parse != "strict":
        facts.append(("Grades read as", conditions.parse))
    if group.array.sizes["epoch"] > 1:
        facts.append(("Repeats", f"{group.array.sizes['epoch']} of each prompt"))
    facts += _sampling(group, studies)
    return facts


def _checks(checked: Sequence[CheckedJudge]) -> str:
    """Say how each judge did on the anchor cases; a judge is named where there are several."""
    texts = []
    for item in checked:
        text = {"unchecked": "not checked", "stale": "not with these templates and settings"}.get(item.state, item.state)
        if item.check is not None and item.state != "stale":
            low, high = item.interval
            text += f", {item.check.accepted} of {item.check.cases} anchor cases ({100 * low:.0f} to {100 * high:.0f} %)"
        texts.append(f"{one_line(item.judge, 80)}: {text}" if len(checked) > 1 else text)
    return "; ".join(texts)


def _templates(templates: Sequence[tuple[str, str]], studies: Sequence[Study]) -> str:
    stored = {digest: item for study in studies for digest, item in study.manifest.templates.items()}
    texts = []
    for role, digest in templates:
        item = stored.get(digest)
        texts.append(f"{item.id} v{item.version} ({digest[:8]})" if item else f"{role} ({digest[:8]})")
    return one_line(", ".join(texts), 400)


def _sampling(group: Group, studies: Sequence[Study]) -> list[tuple[str, str]]:
    """Return how the targets were sampled, where all of the group's runs agree on it."""
    runs = {origin.run for origin in group.origins.values()}
    found = {
        (sampling.temperature, sampling.max_tokens, study.manifest.system is not None, study.manifest.preset)
        for study in studies
        if study.name in runs and (sampling := study.manifest.target_sampling) is not None
    }
    if len(found) != 1:
        return [("Sampling", "differs between runs")] if found else []
    temperature, tokens, system, preset = found.pop()
    text = "provider’s temperature" if temperature is None else f"temperature {temperature:g}"
    text += f", at most {tokens:,} tokens" if tokens else ""
    text += ", with a system prompt" if system else ""
    return [("Sampling", f"{text}, preset {preset}" if preset else text)]
