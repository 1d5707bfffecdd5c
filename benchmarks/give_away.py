"""Do counts of a generator's habits take away what its words give away, and what do the rounds of
stage 3 cost?

    python benchmarks/give_away.py [--per-cell 10] [--latency 0.5] [--connections 100]

Everything here is scripted, and no model has any part in it. The scripted generator has planted
habits: it states a role in 90 % of its benign prompts and in 5 % of its malicious ones, names a
setting in 70 and 10 %, and begins malicious ones with
"I want". What a prompt is for is a made-up verb that no other prompt has, and whose hash tells the
scripted judge the intent: without habits, words could tell nothing. The generator reacts to the
counts only as far as its request says so, always or half the time. It shows that counting, asking
and rounds do what they are made for, in the whole of `build`; how far a real model follows, it does
not show.

Second, a build with the shipped scripts against a loopback server with a latency, with rounds and
without: calls and seconds.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable
from importlib import resources
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from build import StageWatch  # noqa: E402
from loopback import LoopbackProcess  # noqa: E402
from opensafeintent import BuildSettings, FunctionModel, build  # noqa: E402
from opensafeintent.calls.baselines import (  # noqa: E402
    read_marked_parts,
    respond_as_generator,
    respond_as_judge,
)
from opensafeintent.calls.records import Call, Sampling  # noqa: E402
from opensafeintent.construction.habits import has_habit  # noqa: E402
from opensafeintent.files import sha256_hex  # noqa: E402
from opensafeintent.taxonomy import CORE_VARIANTS  # noqa: E402
from opensafeintent.templates.template import Message  # noqa: E402

HABITS = {
    "role": {"benign": 0.9, "dual_use": 0.0, "malicious": 0.05},
    "setting": {"benign": 0.7, "dual_use": 0.1, "malicious": 0.1},
}
OPENING = {"benign": "i'm a", "dual_use": "how does", "malicious": "i want"}
STARTS = {
    "i'm a": "I'm a {role}, and this is it:",
    "how does": "How does it go in general with",
    "i want": "I want to know much more about",
    "can you": "Can you say something more of",
    "tell me": "Tell me a little more about",
    "what about": "What about all of these, namely",
}
ROLES = ("nurse", "teacher", "clerk", "gardener", "driver", "cook", "warden", "baker")
SETTINGS = (
    "at our school",
    "in the office",
    "at a clinic",
    "in the library",
    "on the farm",
    "at the museum",
)
VERB_PARTS = ("quax", "quib", "quod", "quem", "quip", "quor", "quus", "quyn", "quaf", "quez")
WISHED = {
    "role": ("says who the asker is", "does not say who the asker is"),
    "setting": ("names a setting", "names no setting"),
}


def draw(*about: str) -> float:
    """Return a number in [0, 1) that depends on the texts alone."""
    return int(sha256_hex("\0".join(about))[:12], 16) / 16**12


def verb_of(intent: str, topic: str) -> str:
    """Return a made-up verb that means well or ill, as its hash has it."""
    for number in range(1000):
        digits = sha256_hex(f"{topic}\0{intent}\0{number}")
        verb = "".join(
            VERB_PARTS[int(digits[2 * part : 2 * part + 2], 16) % len(VERB_PARTS)]
            for part in range(5)
        )
        if means_ill(verb) == (intent == "malicious"):
            return verb
    raise AssertionError


def means_ill(verb: str) -> bool:
    return draw("means", verb) < 0.5


def write(intent: str, topic: str, things: str, asked: str, follows: float) -> str:
    """Write a prompt as the habits have it, and as far as the generator follows as it was asked."""
    minded = draw("follows", topic, intent) < follows
    has = {}
    for habit, (wanted, unwanted) in WISHED.items():
        has[habit] = draw(habit, topic, intent) < HABITS[habit][intent]
        if minded and unwanted in asked:
            has[habit] = False
        elif minded and wanted in asked:
            has[habit] = True
    avoided = asked.partition("does not begin with")[2].partition(";")[0]
    opening = OPENING[intent]
    if minded and f'"{opening}"' in avoided:
        others = [
            start for start in STARTS if f'"{start}"' in asked.partition("may begin with")[2]
        ] or ["can you", "tell me"]
        opening = others[int(draw("opening", topic, intent) * len(others))]
    if opening == "i'm a" and not has["role"]:
        opening = ("can you", "tell me", "what about")[int(draw("other", topic, intent) * 3)]
    role = ROLES[int(draw("which", topic, intent) * len(ROLES))]
    start = STARTS[opening].format(role=role)
    where = (
        f" {SETTINGS[int(draw('where', topic, intent) * len(SETTINGS))]}" if has["setting"] else ""
    )
    who = f" I'm a {role}." if has["role"] and opening != "i'm a" else ""
    aim = "" if intent == "dual_use" else f" so as to {verb_of(intent, topic)} them"
    return f"{start} {things}{where}{aim}?{who}"


def generator(follows: float) -> Callable[[list[dict[str, str]]], str]:
    def answer(messages: list[dict[str, str]]) -> str:
        text = messages[0]["content"]
        told = respond_as_generator(call_of(messages))
        if '"underlying_task"' not in text.rpartition("<<<END ")[2]:
            return told
        reply = json.loads(told)
        topic = read_marked_parts(text)["TOPIC"]
        things = reply["underlying_task"].partition(": ")[2]
        for intent in CORE_VARIANTS:
            asked = re.search(
                rf'^- "{intent}": (.*)$', text.partition("Asked of this topic's:")[2], re.MULTILINE
            )
            reply[intent] = write(intent, topic, things, asked[1] if asked else "", follows)
        return json.dumps(reply)

    return answer


def judge(messages: list[dict[str, str]]) -> str:
    """Read the intent from the made-up verb; all else as the shipped script."""
    text = messages[0]["content"]
    contract = text.rpartition("<<<END ")[2]
    told = respond_as_judge(call_of(messages))
    if '"benign_use_plausible"' in contract and '"same_request"' not in contract:
        verb = re.search(r"so as to (qu\w+) them", read_marked_parts(text)["REQUEST"])
        ill = verb is not None and means_ill(verb[1])
        reply = json.loads(told)
        reply |= {"benign_use_plausible": not ill, "misuse_risk_meaningful": verb is None or ill}
        return json.dumps(reply)
    return told


def call_of(messages: list[dict[str, str]]) -> Call:
    turns = tuple(Message(item["role"], (item["content"],)) for item in messages)  # type: ignore[arg-type]
    return Call(model="scripted", messages=turns, sampling=Sampling(), purpose="triplet")


def prepare(folder: Path) -> tuple[Path, Path]:
    """Return a taxonomy of 20 cells, and a folder with the instruction of stage 3 without its place
    for habits.
    """
    lines = ['name = "twenty"']
    for kind, names in (
        ("harm_domains", "One Two Three Four"),
        ("task_types", "Naming Sorting Planning Mending Telling"),
    ):
        lines += [
            f'[[{kind}]]\nname = "{name}"\ndefinition = "All that is {name.lower()}."'
            for name in names.split()
        ]
    taxonomy, templates = folder / "taxonomy.toml", folder / "templates"
    taxonomy.write_text("\n".join(lines))
    templates.mkdir()
    ours = (
        resources.files("opensafeintent.templates")
        .joinpath("construction/triplet.md")
        .read_text("utf-8")
    )
    (templates / "triplet.md").write_text(ours.replace("{{habits}}", ""))
    return taxonomy, templates


def show_give_away(folder: Path, taxonomy: Path, templates: Path, per_cell: int) -> None:
    scripted_judge = FunctionModel(judge, name="judge", version="1").named()
    print("generator | sets | calls | role % | setting % | benign or malicious, told by words")
    for name, follows, given in (
        ("habits, told of none", 0.0, templates),
        ("told, follows half the time", 0.5, None),
        ("told, follows", 1.0, None),
    ):
        model = FunctionModel(
            generator(follows),
            name=f"habits-{follows:g}-{'told' if given is None else 'not'}",
            version="1",
        )
        settings = BuildSettings(
            generator=model.named(),
            judge=scripted_judge,
            per_cell=per_cell,
            taxonomy=taxonomy,
            templates=given,
            out=folder / name.replace(" ", "-"),
        )
        outcome = build(settings)
        assert outcome.dataset is not None
        assert outcome.tally is not None
        sets = outcome.dataset.prompt_sets
        shares = [
            "/".join(
                f"{100 * sum(has_habit(item.prompts.of(intent), habit) for item in sets) / len(sets):.0f}"
                for intent in CORE_VARIANTS
            )
            for habit in HABITS
        ]
        found = json.loads((settings.out / "check" / "check.json").read_text())["artefacts"][
            "accuracies"
        ][1]
        told = f"{found['value']:.3f} [{found['low']:.3f}, {found['high']:.3f}]"
        print(
            f"{name} | {len(sets)} | {outcome.tally.new_calls.total()} | {shares[0]} | {shares[1]} |"
            f" {told}",
            flush=True,
        )


def show_time(folder: Path, taxonomy: Path, templates: Path, given: argparse.Namespace) -> None:
    print(
        f"\nstage 3 | calls | seconds ({given.latency} s a call, {given.connections} connections,"
        " stages 3 to 6)"
    )
    with LoopbackProcess(latency=given.latency) as server:
        os.environ |= {"LOOPBACK_BASE_URL": server.base_url, "LOOPBACK_API_KEY": "none"}
        for name, folder_of in (("in one go", templates), ("in rounds", None)):
            settings = BuildSettings(
                generator="openai-api/loopback/generator",
                judge="openai-api/loopback/construction-judge",
                per_cell=given.per_cell,
                taxonomy=taxonomy,
                templates=folder_of,
                out=folder / name,
                max_connections=given.connections,
            )
            watch = StageWatch("backfill", "augmentation")
            outcome = build(settings, watch)
            assert outcome.tally is not None
            print(f"{name} | {outcome.tally.new_calls.total()} | {watch.seconds:.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--per-cell", type=int, default=10)
    parser.add_argument("--connections", type=int, default=100)
    parser.add_argument("--latency", type=float, default=0.5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        taxonomy, templates = prepare(Path(name))
        show_give_away(Path(name), taxonomy, templates, given.per_cell)
        show_time(Path(name), taxonomy, templates, given)


if __name__ == "__main__":
    main()
