"""Which model of one run is the earlier version of which model of the next, and what else changed between the runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from opensafeintent.analysis.groups import Study, conditions_of
from opensafeintent.calls.baselines import is_baseline
from opensafeintent.errors import InputError, nearest
from opensafeintent.evaluation.manifest import ModelEntry
from opensafeintent.hostile import one_line

__all__ = ["Pair", "pair_models", "read_pairs", "what_changed"]


class Pair(NamedTuple):
    """A model and its earlier version, by their names in their runs."""

    old: str
    new: str


def pair_models(old: Sequence[str], new: Sequence[str], named: Iterable[Pair] = ()) -> tuple[Pair, ...]:
    """Pair the models of a run with their earlier versions in another, in the order of the later run.

    Models of one name belong together, baselines too; where each run has just one that is none, these do, whatever they are
    called.
    Pairs that are named come before both.

    Args:
        old, new: names of the models in the earlier and in the later run.
        named: pairs named by hand (`read_pairs`); several models may have one earlier version, but none has two.

    Raises:
        InputError: a model is named that is not in its run, one is given two earlier versions, or nothing can be paired.
    """
    by_hand: dict[str, str] = {}
    for pair in named:
        _check(pair, old, new)
        if by_hand.setdefault(pair.new, pair.old) != pair.old:
            raise InputError(
                f"--pair: {_shown(pair.new)} has two earlier versions, {_several((by_hand[pair.new], pair.old))}"
            )
    tested_new, tested_old = _tested(new), _tested(old)
    alone = {tested_new[0]: tested_old[0]} if len(tested_new) == len(tested_old) == 1 else {}
    found = {name: name for name in new if name in set(old)} | alone | by_hand
    if not any(name in found for name in tested_new or new):
        raise InputError(
            f"--pair: no model of the later run is known to be a version of one of the earlier: "
            f"{_several(tested_new or new)} and "
            f"{_several(tested_old or old)}; name them with --pair NEW=OLD"
        )
    return tuple(Pair(found[name], name) for name in new if name in found)


def read_pairs(texts: Sequence[str], steps: Sequence[tuple[Sequence[str], Sequence[str]]]) -> list[list[Pair]]:
    """Read `NEW=OLD` of the command line; a name may hold an equals sign.

    Args:
        texts: as they were typed.
        steps: the names of the models of every two runs that follow one another, the earlier run's first.

    Returns:
        For each step, the pairs that are named for it.

    Raises:
        InputError: a text names no two models that follow one another, or may be read in two ways.
    """
    found: list[list[Pair]] = [[] for _ in steps]
    for text in texts:
        ways = [Pair(text[at + 1 :], text[:at]) for at, char in enumerate(text) if char == "="]
        if not ways or not (ways[0].new and ways[-1].old):
            raise InputError(f"--pair {text}: expected NEW=OLD, two models by their names")
        fitting = {way for way in ways if any(way.new in new and way.old in old for old, new in steps)}
        if len(fitting) > 1:
            raise InputError(f"--pair {text}: can be read in {len(fitting)} ways; rename a model with --label")
        if not fitting:
            raise InputError(f"--pair {text}: {_misfit(ways, steps)}")
        (pair,) = fitting
        for place, (old, new) in enumerate(steps):
            if pair.new in new and pair.old in old:
                found[place].append(pair)
    return found


def _misfit(ways: Sequence[Pair], steps: Sequence[tuple[Sequence[str], Sequence[str]]]) -> str:
    """Say what is wrong with a pair that belongs to no step."""
    later, earlier = ([name for step in steps for name in step[place]] for place in (1, 0))
    way = next((way for way in ways if way.new in later or way.old in earlier), ways[0])
    if way.new not in later:
        return f"no later run has the model {_shown(way.new)}; {nearest(way.new, dict.fromkeys(later))}"
    if way.old not in earlier:
        return f"no earlier run has the model {_shown(way.old)}; {nearest(way.old, dict.fromkeys(earlier))}"
    return f"{_shown(way.old)} is not in the run just before that of {_shown(way.new)}"


def what_changed(old: Study, new: Study, pair: Pair) -> list[str]:
    """Say in what the two versions of a model were not treated alike, a clause each, so that a difference may be owed to it.

    Dataset, judges and who they are, judge templates, the reading of grades, sampling of targets and judges, system prompt
    and preset, and the rule by which prompt-sets were drawn. How many there are of them, and of repeats, may differ: versions
    are compared on the sets of both.
    """
    before, after = conditions_of(old, pair.old), conditions_of(new, pair.new)
    was, now = old.manifest, new.manifest
    found = []
    if before.dataset != after.dataset:
        found.append(
            _from_to("dataset", f"{was.dataset.name} {before.dataset[:8]}", f"{now.dataset.name} {after.dataset[:8]}")
        )
    if before.judges != after.judges:
        found.append(_from_to("judges", " + ".join(before.judges), " + ".join(after.judges)))
    if before.mode_judge != after.mode_judge:
        found.append(_from_to("judge of modes", before.mode_judge, after.mode_judge))
    for judge in dict.fromkeys((*before.judges, before.mode_judge)):
        if judge in was.judges and judge in now.judges and was.judges[judge] != now.judges[judge]:
            found.append(_from_to(f"who serves {one_line(judge, 80)}", was.judges[judge], now.judges[judge]))
    if roles := sorted({role for role, _ in set(before.templates) ^ set(after.templates)}):
        found.append(f"judge templates: {', '.join(roles)}")
    if before.parse != after.parse:
        found.append(_from_to("grades read as", before.parse, after.parse))
    drawn = [_drawn(study.manifest.models[name]) for study, name in ((old, pair.old), (new, pair.new))]
    if drawn[0] != drawn[1] and ("all" not in drawn or "per_cell" in drawn):
        found.append(_from_to("how prompt-sets were drawn", *drawn))
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


def _drawn(entry: ModelEntry) -> str:
    """Return the rule by which a model's prompt-sets were drawn."""
    return "all" if entry.limit is None else entry.sample


def _from_to(what: str, old: str, new: str) -> str:
    return f"{what}: {one_line(old, 200) or 'none'}, now {one_line(new, 200) or 'none'}"


def _told(value: object) -> str:
    return "" if value is None else msgspec.json.encode(value).decode()


def _check(pair: Pair, old: Sequence[str], new: Sequence[str]) -> None:
    for name, names, which in ((pair.new, new, "later"), (pair.old, old, "earlier")):
        if name not in names:
            raise InputError(f"--pair: the {which} run has no model {_shown(name)}; {nearest(name, names)}")


def _tested(names: Sequence[str]) -> list[str]:
    return [name for name in names if not is_baseline(name)]


def _shown(name: str) -> str:
    return repr(one_line(name, 200))


def _several(names: Sequence[str], most: int = 5) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(_shown(name) for name in names[:most]) + rest if names else "none"
