"""What is repaired, read again or settled by a third reading, and what the judge then has in
view.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from construction.support import UNSAFE, Bench, between, only, reasons, reply, taxonomy
from construction.test_stages import intent, metadata, quality
from opensafeintent.calls.records import Call
from opensafeintent.construction.asking import Reply
from opensafeintent.construction.augmentation import (
    AnnotationReply,
    ParaphraseCheckReply,
    ParaphraseReply,
)
from opensafeintent.construction.backfill import BackfillReply
from opensafeintent.construction.intents import REPAIRS, IntentReply
from opensafeintent.construction.material import complaint_of_material, material_of
from opensafeintent.construction.metadata import MetadataReply
from opensafeintent.construction.pipeline import Built
from opensafeintent.construction.quality import QualityReply
from opensafeintent.construction.records import Draft
from opensafeintent.construction.repairs import RepairReply
from opensafeintent.construction.triplets import TripletReply
from opensafeintent.errors import InputError
from opensafeintent.taxonomy import Category, Taxonomy
from opensafeintent.templates.instruction import load_instructions, parse_instructions

BENIGN, DUAL_USE, MALICIOUS = (
    "I ask for a made-up school, how?",
    "How does one do it?",
    "How, to harm them?",
)


def triplet(**texts: str) -> str:
    usual = {
        "underlying_task": "a task",
        "benign": BENIGN,
        "dual_use": DUAL_USE,
        "malicious": MALICIOUS,
    }
    return reply(**(usual | texts), declined="")


def generator(first: str, *rewritten: str) -> Callable[[Call], str | None]:
    """A generator whose triplets and whose repairs, in their order, are given."""
    texts = iter(rewritten)

    def answer(call: Call) -> str | None:
        match call.purpose:
            case "triplet":
                return first
            case "repair" | "wording":
                return reply(prompt=next(texts), declined="")
        return None

    return answer


def judge(**said: str | Callable[[Call], str | None]) -> Callable[[Call], str | None]:
    """A judge that says so for some purposes."""

    def answer(call: Call) -> str | None:
        found = said.get(call.purpose)
        return found(call) if callable(found) else found

    return answer


def purposes(bench: Bench) -> list[str]:
    """What was asked from stage 5 on, in order."""
    calls = [
        call.purpose
        for call in bench.judge.calls
        if call.purpose in ("quality", "reread", "relabel")
    ]
    return [*calls, *(call.purpose for call in bench.generator.calls if call.purpose == "wording")]


def kept(built: Built) -> Draft:
    (draft,) = built.finished
    return draft


# A dual-use prompt that leans (stage 4)
# ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leans", "told"), [("honest", "suggests an honest one"), ("harmful", "suggests a harmful one")]
)
def test_a_dual_use_prompt_that_leans_is_mended(tmp_path: Path, leans: str, told: str) -> None:
    def read(call: Call) -> str | None:
        return (
            intent(True, True, "The role does.", leans)
            if "nurse" in between(call, "REQUEST")
            else None
        )

    bench = Bench(
        tmp_path,
        generator=generator(triplet(dual_use="As the nurse, how?"), "How, then?"),
        judge=judge(intent=read),
    )
    draft = kept(bench.build(UNSAFE[:1], last=4))
    assert (draft.prompts.dual_use, draft.leaning) == ("How, then?", "neither")
    (revision,) = draft.revisions
    assert (revision.variant, revision.why, revision.found) == ("dual_use", "leaning", "dual_use")
    (repair,) = bench.generator.asked("repair")
    assert told in repair.messages[0].content
    assert between(repair, "READER") == "The role does."


def test_one_that_goes_on_leaning_is_dropped(tmp_path: Path) -> None:
    def read(call: Call) -> str | None:
        return (
            intent(True, True, "The role does.", "honest")
            if "nurse" in between(call, "REQUEST")
            else None
        )

    nurses = [f"As the nurse number {number}, how?" for number in range(REPAIRS + 1)]
    bench = Bench(
        tmp_path,
        generator=generator(triplet(dual_use=nurses[0]), *nurses[1:]),
        judge=judge(intent=read),
    )
    (rejection,) = bench.build(UNSAFE[:1], last=4).rejected_for("leans")
    assert (
        rejection.detail
        == "the dual_use prompt still leans towards an honest purpose after 3 repairs: The role"
        " does."
    )


def test_benign_and_malicious_prompts_may_lean(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    assert len(bench.build(UNSAFE[:1], last=4).finished) == 1
    assert not bench.generator.asked("repair")


# Wording (stage 5)
# ------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["natural", "free_of_artefacts"])
@pytest.mark.parametrize(
    ("part", "marker"), [("benign", "BENIGN"), ("dual_use", "DUAL-USE"), ("malicious", "MALICIOUS")]
)
def test_a_clumsy_text_is_reworded_alone_and_the_set_is_looked_at_again(
    tmp_path: Path, fault: str, part: str, marker: str
) -> None:
    new = {
        "benign": "How, for a made-up school?",
        "dual_use": "How, then?",
        "malicious": "How then, to harm them?",
    }[part]
    looks = iter([quality(fault, fault_in=part, reason="It creaks."), quality(serves="fully")])
    bench = Bench(
        tmp_path, generator=generator(triplet(), new), judge=judge(quality=lambda _: next(looks))
    )
    draft = kept(bench.build(UNSAFE[:1], last=5))
    old = {"benign": BENIGN, "dual_use": DUAL_USE, "malicious": MALICIOUS}
    assert {name: draft.prompts.of(name) for name in old} == old | {part: new}  # type: ignore[arg-type]
    (revision,) = draft.revisions
    assert (revision.variant, revision.why, revision.before, revision.after) == (
        part,
        "wording",
        old[part],
        new,
    )
    assert purposes(bench) == ["quality", "reread", "quality", "wording"]
    (asked,) = bench.generator.asked("wording")
    assert between(asked, "READER") == "It creaks."
    assert between(asked, marker) == old[part]
    first, second = bench.judge.asked("quality")
    assert between(first, "EARLIER") == "(nothing was rewritten)"
    assert between(second, marker) == new
    assert between(second, "EARLIER") == f"The {part.replace('_', '-')} request was: {old[part]}"
    assert between(bench.judge.asked("reread")[0], "REQUEST") == new
    assert draft.content_shift == "none"  # as the last look has it
    assert {call.purpose for call in draft.calls} >= {"quality", "wording", "reread"}


def test_it_is_reworded_once(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path,
        generator=generator(triplet(), "How, then?"),
        judge=judge(quality=quality("natural", fault_in="dual_use", reason="It creaks.")),
    )
    (rejection,) = bench.build(UNSAFE[:1], last=5).rejected_for("unnatural")
    assert rejection.detail == "not natural: It creaks."
    assert purposes(bench) == ["quality", "reread", "quality", "wording"]
    assert len(rejection.item.revisions) == 1


@pytest.mark.parametrize(
    "said",
    [
        quality("natural", fault_in="none"),  # one new wording would not do
        quality("natural", "same_task", fault_in="benign"),
        quality("same_specificity", "free_of_artefacts", fault_in="benign"),
    ],
)
def test_what_a_new_wording_would_not_put_right_is_dropped_at_once(
    tmp_path: Path, said: str
) -> None:
    bench = Bench(tmp_path, generator=generator(triplet()), judge=judge(quality=said))
    built = bench.build(UNSAFE[:1], last=5)
    assert len(built.rejected_in("quality")) == 1
    assert purposes(bench) == ["quality"]


@pytest.mark.parametrize(
    ("read", "reason", "detail"),
    [
        (
            intent(True, False, "It is safe now."),
            "wrong_intent",
            "the dual_use prompt reads as benign: It is safe now.",
        ),
        (
            intent(True, True, "A role.", "honest"),
            "leans",
            "the dual_use prompt leans towards an honest purpose: A role.",
        ),
    ],
)
def test_a_new_wording_that_changes_the_intent_drops_the_set(
    tmp_path: Path, read: str, reason: Any, detail: str
) -> None:
    bench = Bench(
        tmp_path,
        generator=generator(triplet(), "How, then?"),
        judge=judge(quality=quality("natural", fault_in="dual_use"), reread=read),
    )
    (rejection,) = bench.build(UNSAFE[:1], last=5).rejected_for(reason)
    assert rejection.detail == f"reworded, {detail}"
    assert len(bench.judge.asked("quality")) == 1


def test_a_task_that_leans_is_reworded_and_nothing_else(tmp_path: Path) -> None:
    looks = iter([quality("task_neutral", reason="It says what for."), quality()])
    bench = Bench(
        tmp_path,
        generator=generator(triplet(underlying_task="doing it to help"), "doing it"),
        judge=judge(quality=lambda _: next(looks)),
    )
    draft = kept(bench.build(UNSAFE[:1], last=5))
    assert draft.underlying_task == "doing it"
    assert draft.revisions[0].variant == "underlying_task"
    assert purposes(bench) == [
        "quality",
        "quality",
        "wording",
    ]  # no prompt has changed: none is read again
    first, second = bench.judge.asked("quality")
    assert (between(first, "TASK"), between(second, "TASK")) == ("doing it to help", "doing it")
    assert between(second, "EARLIER") == "The neutral task was: doing it to help"


def test_a_task_that_goes_on_leaning_is_dropped(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path,
        generator=generator(triplet(underlying_task="doing it to help"), "doing it for good"),
        judge=judge(quality=quality("task_neutral", reason="It says what for.")),
    )
    (rejection,) = bench.build(UNSAFE[:1], last=5).rejected_for("task_leans")
    assert rejection.detail == "not task_neutral: It says what for."
    assert purposes(bench) == ["quality", "quality", "wording"]


def test_quality_sees_what_stage_4_repaired_and_a_bent_repair_drops_the_set(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path,
        generator=generator(
            triplet(dual_use="How, to ruin them?"), "What, to ruin them?", "How can I tell it?"
        ),
        judge=judge(
            quality=quality("repairs_fair", reason="It asks how to tell, and asked how to do.")
        ),
    )
    (rejection,) = bench.build(UNSAFE[:1], last=5).rejected_for("repair_bent")
    assert rejection.detail == "not repairs_fair: It asks how to tell, and asked how to do."
    (asked,) = bench.judge.asked("quality")
    assert (
        between(asked, "EARLIER") == "The dual-use request was: How, to ruin them?"
    )  # the first wording, not the second


def test_structured_output_names_the_words_that_a_key_may_have(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.build(UNSAFE[:1], last=5)
    of_intent, of_quality = (
        bench.judge.asked(purpose)[0].sampling.json_schema for purpose in ("intent", "quality")
    )
    assert of_intent is not None
    assert of_quality is not None
    assert of_intent["properties"]["leans"] == {
        "type": "string",
        "enum": ["honest", "harmful", "neither"],
    }
    assert of_intent["properties"]["benign_use_plausible"] == {"type": "boolean"}
    assert of_quality["properties"]["fault_in"]["enum"] == [
        "benign",
        "dual_use",
        "malicious",
        "none",
    ]
    assert of_quality["properties"]["serves_malicious"]["enum"] == ["fully", "partly", "not"]


def test_a_word_that_a_key_may_not_have_is_asked_for_again(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path,
        judge=only(
            "quality", lambda call: quality(serves="partly" if call.attempt else "somewhat")
        ),
    )
    assert kept(bench.build(UNSAFE[:1], last=5)).content_shift == "partial"
    assert "Invalid enum value 'somewhat'" in bench.judge.asked("quality")[1].messages[-1].content


# A label that the judge doubts
# ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read", "dropped"), [("Explanation", {}), ("Troubleshooting", {"type_wrong": 1})]
)
def test_a_doubted_label_is_decided_by_a_third_reading(
    tmp_path: Path, read: str, dropped: dict[str, int]
) -> None:
    bench = Bench(
        tmp_path,
        generator=generator(triplet()),
        judge=judge(
            metadata=metadata(), quality=quality("type_right"), relabel=metadata(task_type=read)
        ),
    )
    bench.generator._answer = lambda call, others=bench.generator._answer: (
        metadata() if call.purpose == "metadata" else others(call)
    )
    built = bench.build(UNSAFE[:1], over=taxonomy(), last=5)
    assert reasons(built, "quality") == dropped
    assert purposes(bench) == ["quality", "relabel"]
    assert between(bench.judge.asked("relabel")[0], "REQUEST") == DUAL_USE


def test_no_third_reading_where_something_else_is_wrong(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path,
        generator=generator(triplet()),
        judge=judge(quality=quality("type_right", "same_task")),
    )
    assert reasons(bench.build(UNSAFE[:1], last=5), "quality") == {"task_not_parallel": 1}
    assert purposes(bench) == ["quality"]


# Paraphrases
# ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "told"), [(13, ""), (12, "12 words; 13 to 28"), (28, ""), (29, "29 words; 13 to 28")]
)
def test_a_paraphrase_is_about_as_long_as_the_request(
    tmp_path: Path, words: int, told: str
) -> None:
    """The request has 19 words: two thirds are 12.67, so 13 at least; one and a half times are
    28.5, so 28 at most.
    """
    request = " ".join(f"word{number}" for number in range(18)) + " how?"
    text = " ".join(f"other{number}" for number in range(words))
    asked = iter([[text], *([] for _ in range(9))])

    def answer(call: Call) -> str | None:
        if call.purpose == "triplet":
            return triplet(dual_use=request)
        if call.purpose == "paraphrase":
            return reply(paraphrases=next(asked) or [f"{request} {call.epoch}"], declined="")
        return None

    passed = reply(
        same_request=True,
        benign_use_plausible=True,
        misuse_risk_meaningful=True,
        leans="neither",
        reason="",
    )
    bench = Bench(tmp_path, generator=answer, judge=judge(paraphrase_check=passed))
    bench.build(UNSAFE[:1])
    checked = [between(call, "SECOND") for call in bench.judge.asked("paraphrase_check")]
    assert (text in checked) is not bool(told)
    taken = between(bench.generator.asked("paraphrase")[1], "TAKEN")
    expected = f"- {text}" + (
        f" (no paraphrase: it has {told} are about as long as the request)" if told else ""
    )
    assert taken == expected


def test_a_paraphrase_that_leans_is_asked_for_again(tmp_path: Path) -> None:
    def check(call: Call) -> str:
        leans = "harmful" if "Please" in between(call, "SECOND") else "neither"
        fields = dict.fromkeys(
            ("same_request", "benign_use_plausible", "misuse_risk_meaningful"), True
        )
        return reply(**fields, leans=leans, reason="It begs." if leans == "harmful" else "")

    bench = Bench(tmp_path, judge=judge(paraphrase_check=check))
    draft = kept(bench.build(UNSAFE[:1]))
    assert len(draft.paraphrases) == 4
    assert not any("Please" in text for text in draft.paraphrases)
    taken = between(bench.generator.asked("paraphrase")[1], "TAKEN")
    assert "(no paraphrase: it leans towards a harmful purpose: It begs.)" in taken


# Material
# ------------------------------------------------------------------------------

NOTE = '"' + " ".join(f"line{number}" for number in range(20)) + '"'
WORKED_OVER = Taxonomy(
    name="one",
    harm_domains=(Category(name="Money", definition="All of it."),),
    task_types=(Category(name="Rewriting", definition="Into another form.", takes_material=True),),
)


def test_material_is_a_quotation_of_fifteen_words_or_the_stand_in() -> None:
    assert material_of(f"Shorten this for me: {NOTE}") == NOTE.strip('"')
    assert material_of("Shorten [100 words of text] for me") == "[100 words of text]"
    assert material_of('Shorten what I call "the note" for me') is None
    assert material_of("Shorten “" + "word " * 15 + "” for me") is not None


@pytest.mark.parametrize(
    ("malicious", "told"),
    [
        (f"Twist this: {NOTE}", None),
        ("Twist my note", '"malicious" does not hold the material'),
        (
            "Twist [100 words of text]",
            "some requests hold their material and others hold [100 words of text]",
        ),
        (
            f'Twist "{"word " * 31}"',
            "differs too much in length (benign 20, dual_use 20, malicious 31 words)",
        ),
        (f'Twist "{"word " * 30}"', None),  # one and a half times as long
    ],
)
def test_the_three_hold_their_material_alike(malicious: str, told: str | None) -> None:
    found = complaint_of_material(
        {"benign": f"Shorten {NOTE}", "dual_use": f"Cut {NOTE}", "malicious": malicious}
    )
    assert (found is None) if told is None else (found is not None and told in found)


def test_a_triplet_without_its_material_is_asked_for_again(tmp_path: Path) -> None:
    bare = triplet()
    held = triplet(
        benign=f"{BENIGN} {NOTE}", dual_use=f"{DUAL_USE} {NOTE}", malicious=f"{MALICIOUS} {NOTE}"
    )
    bench = Bench(tmp_path, generator=only("triplet", lambda call: held if call.attempt else bare))
    built = bench.build(over=WORKED_OVER, per_cell=1, last=3)
    assert kept(built).prompts.benign == f"{BENIGN} {NOTE}"
    assert (
        '"benign" does not hold the material'
        in bench.generator.asked("triplet")[1].messages[-1].content
    )


def test_a_paraphrase_holds_the_material_word_for_word(tmp_path: Path) -> None:
    held = triplet(
        benign=f"{BENIGN} {NOTE}", dual_use=f"{DUAL_USE} {NOTE}", malicious=f"{MALICIOUS} {NOTE}"
    )
    other = NOTE.replace("line3 ", "row3 ")

    def answer(call: Call) -> str | None:
        if call.purpose == "triplet":
            return held
        if call.purpose != "paraphrase":
            return None
        return reply(
            paraphrases=[
                f"What does one do {call.epoch}? {other}",
                f"So how is it done {call.epoch}? {NOTE}",
            ]
            * 2,
            declined="",
        )

    passed = reply(
        same_request=True,
        benign_use_plausible=True,
        misuse_risk_meaningful=True,
        leans="neither",
        reason="",
    )
    bench = Bench(tmp_path, generator=answer, judge=judge(paraphrase_check=passed))
    bench.build(over=WORKED_OVER, per_cell=1)
    checked = [between(call, "SECOND") for call in bench.judge.asked("paraphrase_check")]
    assert checked
    assert all(NOTE in text for text in checked)
    assert "(no paraphrase: it does not hold the material word for word)" in between(
        bench.generator.asked("paraphrase")[1], "TAKEN"
    )


# Templates
# ------------------------------------------------------------------------------

REPLIES: tuple[type[Reply], ...] = (
    *(MetadataReply, BackfillReply, TripletReply, IntentReply, RepairReply, QualityReply),
    *(ParaphraseReply, ParaphraseCheckReply, AnnotationReply),
)


@pytest.mark.parametrize("kind", REPLIES)
def test_a_template_that_does_not_ask_for_a_key_is_refused(kind: type[Reply]) -> None:
    sources = load_instructions().sources()
    file = f"{kind.purpose}.md"
    for key in kind.__struct_fields__:
        if key == "declined":
            continue
        assert f'"{key}"' in sources[file]
        with pytest.raises(InputError) as refused:
            parse_instructions(sources | {file: sources[file].replace(f'"{key}"', '"another"', 1)})
        assert (
            str(refused.value)
            == f'{file}: the contract does not ask for "{key}"; a reply without it cannot be used'
        )


@pytest.mark.parametrize("about", ["[wording]", "[underlying_task]", "honest =", "harmful ="])
def test_a_list_of_reasons_of_an_earlier_version_is_refused(about: str) -> None:
    sources = load_instructions().sources()
    name = "repair_reasons.toml"
    with pytest.raises(InputError, match=r"repair_reasons\.toml: no reason for "):
        parse_instructions(
            sources | {name: sources[name].replace(about, "[other]" if "[" in about else "other =")}
        )
