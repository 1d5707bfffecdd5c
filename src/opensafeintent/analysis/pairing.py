"""Which model of one run is the earlier version of which model of the next, and what else changed
between the runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from opensafeintent.analysis.groups import Group, Origin, Study, conditions_of
from opensafeintent.calls.baselines import is_baseline
from opensafeintent.errors import InputError, nearest
from opensafeintent.hostile import one_line
from opensafeintent.statistics import rounded


class Pair(NamedTuple):
    """A model and its earlier version, by their names in their runs."""

    old: str
    new: str


def pair_models(
    old: Sequence[str], new: Sequence[str], named: Iterable[Pair] = ()
) -> tuple[Pair, ...]:
    """Pair the models of a run with their earlier versions in another, in the order of the later
    run.

    Models of one name belong together, baselines too; where each run has just one that is none,
    these do, whatever they are called.
    Pairs that are named come before both.

    Args:
        old, new: names of the models in the earlier and in the later run.
        named: pairs named by hand (`read_pairs`); several models may have one earlier version, but
            none has two.

    Raises:
        InputError: a model is named that is not in its run, one is given two earlier versions, or
            nothing can be paired.
    """
    by_hand: dict[str, str] = {}
    for pair in named:
        _check(pair, old, new)
        if by_hand.setdefault(pair.new, pair.old) != pair.old:
            raise InputError(
                f"--pair: {_shown(pair.new)} has two earlier versions,"
                f" {_several((by_hand[pair.new], pair.old))}"
            )
    found = _same(old, new) | by_hand
    tested_new, tested_old = _tested(new), _tested(old)
    if not any(name in found for name in tested_new or new):
        raise InputError(
            "--pair: no model of the later run is known to be a version of one of the earlier: "
            f"{_several(tested_new or new)} and "
            f"{_several(tested_old or old)}; name them with --pair NEW=OLD"
        )
    return tuple(Pair(found[name], name) for name in new if name in found)


def _same(old: Sequence[str], new: Sequence[str]) -> dict[str, str]:
    """Return the earlier version of each model for which it is plain."""
    tested_new, tested_old = _tested(new), _tested(old)
    alone = {tested_new[0]: tested_old[0]} if len(tested_new) == len(tested_old) == 1 else {}
    return {name: name for name in new if name in set(old)} | alone


def read_pairs(texts: Sequence[str], old: Sequence[str], new: Sequence[str]) -> list[Pair]:
    """Read `NEW=OLD` of the command line; a name may hold an equals sign.

    Args:
        texts: as they were typed.
        old, new: the names of the models of the earlier and of the later run.

    Raises:
        InputError: a text names no model of either run, or may be read in two ways.
    """
    found: list[Pair] = []
    for text in texts:
        ways = [Pair(text[at + 1 :], text[:at]) for at, char in enumerate(text) if char == "="]
        if not ways or not (ways[0].new and ways[-1].old):
            raise InputError(f"--pair {text}: expected NEW=OLD, two models by their names")
        fitting = {way for way in ways if way.new in new and way.old in old}
        if len(fitting) > 1:
            raise InputError(
                f"--pair {text}: can be read in {len(fitting)} ways; rename a model with --label"
            )
        if not fitting:
            _check(
                next((way for way in ways if way.new in new or way.old in old), ways[0]), old, new
            )
        found += fitting
    return found


def what_changed(old: Study, new: Study, pair: Pair) -> list[str]:
    """Say in what the two versions of a model were not treated alike, a clause each, so that a
    difference may be owed to it.

    Dataset, judges and who they are, judge templates, the reading of grades, sampling of targets
    and judges, system prompt and preset. How many there are of them, and of repeats, may differ:
    versions are compared on the sets of both.
    """
    before, after = conditions_of(old, pair.old), conditions_of(new, pair.new)
    was, now = old.manifest, new.manifest
    found = []
    if before.dataset != after.dataset:
        found.append(
            _from_to(
                "dataset",
                f"{was.dataset.name} {before.dataset[:8]}",
                f"{now.dataset.name} {after.dataset[:8]}",
            )
        )
    if before.judges != after.judges:
        found.append(_from_to("judges", " + ".join(before.judges), " + ".join(after.judges)))
    if before.mode_judge != after.mode_judge:
        found.append(_from_to("judge of modes", before.mode_judge, after.mode_judge))
    for judge in dict.fromkeys((*before.judges, before.mode_judge)):
        if judge in was.judges and judge in now.judges and was.judges[judge] != now.judges[judge]:
            found.append(
                _from_to(f"who serves {one_line(judge, 80)}", was.judges[judge], now.judges[judge])
            )
    if roles := sorted({role for role, _ in set(before.templates) ^ set(after.templates)}):
        found.append(f"judge templates: {', '.join(roles)}")
    if before.parse != after.parse:
        found.append(_from_to("grades read as", before.parse, after.parse))
    fields = {
        "target_sampling": "sampling",
        "system": "system prompt",
        "preset": "preset",
        "judge_sampling": "judge sampling",
    }
    for field, label in fields.items():
        if getattr(was, field) != getattr(now, field):
            found.append(_from_to(label, _told(getattr(was, field)), _told(getattr(now, field))))
    return found


def _from_to(what: str, old: str, new: str) -> str:
    return f"{what}: {one_line(old, 200) or 'none'}, now {one_line(new, 200) or 'none'}"


def _told(value: object) -> str:
    return "" if value is None else msgspec.json.encode(value).decode()


def _check(pair: Pair, old: Sequence[str], new: Sequence[str]) -> None:
    for name, names, which in ((pair.new, new, "later"), (pair.old, old, "earlier")):
        if name not in names:
            raise InputError(
                f"--pair: the {which} run has no model {_shown(name)}; {nearest(name, names)}"
            )


def _tested(names: Sequence[str]) -> list[str]:
    return [name for name in names if not is_baseline(name)]


def _shown(name: str) -> str:
    return repr(one_line(name, 200))


def _several(names: Sequence[str], most: int = 5) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(_shown(name) for name in names[:most]) + rest if names else "none"


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
            pair = Origin(new.name, later), Origin(old.name, earlier)
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
