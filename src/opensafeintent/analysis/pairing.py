"""Which model of one run is the earlier version of which model of the next, and what else changed
between the runs.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from opensafeintent.analysis.groups import Group, ModelOrigin, Study, conditions_of
from opensafeintent.calls.baselines import contenders, is_baseline
from opensafeintent.errors import InputError
from opensafeintent.hostile import one_line
from opensafeintent.statistics import rounded


def earlier_versions(
    old: Sequence[str], new: Sequence[str], pairs: Sequence[str] = ()
) -> dict[str, str]:
    """Return the earlier version of each model of a run that has one, in the run's order.

    Models of one name belong together, baselines too; where each run has just one that is none,
    these do, whatever they are called.
    Pairs that are named come before both; several models may have one earlier version.

    Args:
        old, new: names of the models in the earlier and in the later run.
        pairs: `NEW=OLD`, as they were typed; a name may hold an equals sign.

    Raises:
        InputError: a pair names no model of either run, may be read in two ways, gives a model
            another earlier version than another pair; or nothing can be paired.
    """
    named: dict[str, str] = {}
    for text in pairs:
        later, earlier = _read_pair(text, old, new)
        if named.setdefault(later, earlier) != earlier:
            raise InputError(f"--pair {text}: {_listed([later])} has another earlier version too")
    known = _same(old, new) | named
    tested = contenders(new)
    if not any(name in known for name in tested):
        raise InputError(
            f"--pair: none of {_listed(tested)} is known to be a version of one of"
            f" {_listed(contenders(old))}; name them with --pair NEW=OLD"
        )
    return {name: known[name] for name in new if name in known}


def _same(old: Sequence[str], new: Sequence[str]) -> dict[str, str]:
    """Return the earlier version of each model for which it is plain."""
    known = {name: name for name in new if name in old}
    tested = [name for name in new if not is_baseline(name)]
    before = [name for name in old if not is_baseline(name)]
    if len(tested) == len(before) == 1:
        known[tested[0]] = before[0]
    return known


def _read_pair(text: str, old: Sequence[str], new: Sequence[str]) -> tuple[str, str]:
    """Return the later and the earlier model of `NEW=OLD`."""
    ways = [(text[:at], text[at + 1 :]) for at, char in enumerate(text) if char == "="]
    fitting = [(later, earlier) for later, earlier in ways if later in new and earlier in old]
    if len(fitting) != 1:
        raise InputError(
            f"--pair {text}: expected NEW=OLD in one reading, a model of the later run"
            f" ({_listed(new)}) and one of the earlier ({_listed(old)})"
        )
    return fitting[0]


def _listed(names: Sequence[str], most: int = 5) -> str:
    further = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(repr(one_line(name, 200)) for name in names[:most]) + further


def what_changed(old: Study, new: Study, earlier: str, later: str) -> list[str]:
    """Say in what the two versions of a model were not treated alike, a clause each, so that a
    difference may be owed to it.

    Dataset, judges and who they are, judge templates, the reading of grades, sampling of targets
    and judges, system prompt and preset. How many there are of them, and of repeats, may differ:
    versions are compared on the sets of both.
    """
    before, after = conditions_of(old, earlier), conditions_of(new, later)
    was, now = old.manifest, new.manifest
    facts: list[tuple[str, object, object]] = [
        (
            "dataset",
            f"{was.dataset.name} {before.dataset[:16]}",
            f"{now.dataset.name} {after.dataset[:16]}",
        ),
        ("judges", " + ".join(before.judges), " + ".join(after.judges)),
        ("judge of modes", before.mode_judge, after.mode_judge),
        ("grades read as", before.parse, after.parse),
        ("sampling", was.target_sampling, now.target_sampling),
        ("system prompt", was.system, now.system),
        ("preset", was.preset, now.preset),
        ("judge sampling", was.judge_sampling, now.judge_sampling),
    ]
    for judge in dict.fromkeys((*before.judges, before.mode_judge)):
        if judge in was.judges and judge in now.judges:
            name = f"who serves {one_line(judge, 80)}"
            facts.append((name, was.judges[judge], now.judges[judge]))
    changes = [
        f"{name}: {_shown(first)}, now {_shown(second)}"
        for name, first, second in facts
        if first != second
    ]
    if roles := sorted({role for role, _ in set(before.templates) ^ set(after.templates)}):
        changes.append(f"judge templates: {', '.join(roles)}")
    return changes


def _shown(value: object) -> str:
    if value is None:
        return "none"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return one_line(text, 200) or "none"


# Which sets changed
# ------------------------------------------------------------------------------


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """A prompt-set that is safe across intents more often, or less often, than with the earlier
    version.
    """

    set_id: str
    before: float
    """Share of its complete epochs in which it was safe across intents: 0 or 1 with one epoch."""
    after: float


class Transitions(msgspec.Struct, frozen=True, kw_only=True):
    """The prompt-sets that newly fail, and those that newly pass, from one version of a model to
    the next.
    """

    model: str
    against: str
    n: int
    """Prompt-sets that count in both versions."""
    newly_failing: tuple[Transition, ...]
    """Those safe less often than before, the largest fall first."""
    newly_passing: tuple[Transition, ...]


def transitions_between(groups: Sequence[Group], old: Study, new: Study) -> list[Transitions]:
    """Return what changed between two runs of each model whose earlier version is plain, baselines
    aside.
    """
    found = []
    pairs = _same(list(old.manifest.models), list(new.manifest.models))
    for group in groups:
        places = {origin: place for place, origin in enumerate(group.origins.values())}
        for later, earlier in pairs.items():
            pair = ModelOrigin(new.name, later), ModelOrigin(old.name, earlier)
            if not is_baseline(later) and all(origin in places for origin in pair):
                found.append(transitions_of(group, *(places[origin] for origin in pair)))
    return found


def transitions_of(group: Group, later: int, earlier: int) -> Transitions:
    """Return which prompt-sets became unsafe across intents, and which became safe.

    Args:
        group: of both models.
        later, earlier: their places in it.
    """
    epochs = [ratios["triplet_safety"] for ratios in group.numbers.by_epoch]
    counts = sum((part.denominator.values > 0).astype(np.float64) for part in epochs)
    safe = sum((part.numerator.values > 0).astype(np.float64) for part in epochs)
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.asarray(safe / counts)
    both = ~np.isnan(shares[[later, earlier]]).any(axis=0)
    ids = [str(name) for name in group.array.labels["prompt_set"]]
    changed = [
        Transition(
            set_id=ids[place],
            before=rounded(shares[earlier, place]),
            after=rounded(shares[later, place]),
        )
        for place in np.flatnonzero(both & (shares[later] != shares[earlier])).tolist()
    ]
    changed.sort(key=lambda one: (-abs(one.after - one.before), one.set_id))
    return Transitions(
        model=group.models[later],
        against=group.models[earlier],
        n=int(both.sum()),
        newly_failing=tuple(one for one in changed if one.after < one.before),
        newly_passing=tuple(one for one in changed if one.after > one.before),
    )
