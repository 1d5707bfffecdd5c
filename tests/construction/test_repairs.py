"""What is repaired, read again or settled by a third reading, and what the judge then has in
view.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from construction.support import UNSAFE, Answer, Bench, between, reasons, reply, taxonomy
from construction.test_stages import PASSES_CHECK, intent, metadata, quality
from opensafeintent.calls.records import Call
from opensafeintent.construction.intents import REPAIRS
from opensafeintent.construction.items import find_fault_in_material, find_material

BENIGN, DUAL_USE = "I ask for a made-up school, how?", "How does one do it?"
MALICIOUS = "How, to harm them?"
TEXTS = {"benign": BENIGN, "dual_use": DUAL_USE, "malicious": MALICIOUS}
MARKERS = {"benign": "BENIGN", "dual_use": "DUAL-USE", "malicious": "MALICIOUS"}


def triplet(**texts: str) -> str:
    return reply(**{"underlying_task": "a task", "declined": ""} | TEXTS | texts)


def bench_of(folder: Path, first: str, *rewritten: str, **judge: Any) -> Bench:
    """A bench whose triplets and whose rewritten texts, in their order, are given, and what the
    judge says, by purpose.
    """
    new = iter([reply(prompt=text, declined="") for text in rewritten])
    return Bench(folder, generator={"triplet": first, "repair": new, "wording": new}, judge=judge)


def nurses_lean(leans: str) -> Answer:
    """A reading that finds that requests of a nurse lean."""

    def read(call: Call) -> str | None:
        nurse = "nurse" in between(call, "REQUEST")
        return intent(True, True, "The role does.", leans) if nurse else None

    return read


def purposes(bench: Bench) -> list[str]:
    """What was asked from stage 5 on, in order."""
    asked = [call.purpose for call in (*bench.judge.calls, *bench.generator.calls)]
    return [name for name in asked if name in ("quality", "reread", "relabel", "wording")]


# A dual-use prompt that leans (stage 4)
# ------------------------------------------------------------------------------


@pytest.mark.parametrize("leans", ["honest", "harmful"])
def test_a_dual_use_prompt_that_leans_is_repaired(tmp_path: Path, leans: str) -> None:
    first = triplet(dual_use="As the nurse, how?")
    bench = bench_of(tmp_path, first, "How, then?", intent=nurses_lean(leans))
    (draft,) = bench.build(UNSAFE[:1], last=4).finished
    assert (draft.prompts.dual_use, draft.leaning) == ("How, then?", "neither")
    (revision,) = draft.revisions
    assert (revision.variant, revision.why, revision.found) == ("dual_use", "leaning", "dual_use")
    (repair,) = bench.generator.asked("repair")
    suggests = f"suggests a{'n honest' if leans == 'honest' else ' harmful'} one"
    assert suggests in repair.messages[0].content
    assert between(repair, "READER") == "The role does."


def test_a_covert_task_stays_covert_however_it_leans(tmp_path: Path) -> None:
    first = triplet(dual_use="As the nurse, unseen?")
    bench = bench_of(tmp_path, first, "How, unseen?", intent=nurses_lean("harmful"))
    bench.build(UNSAFE[:1], last=4)
    calls = (*bench.generator.asked("triplet"), *bench.generator.asked("repair"))
    assert [call.purpose for call in calls] == ["triplet", "repair"]
    for call in (*calls, bench.judge.asked("intent")[0]):
        assert "going unnoticed" in call.messages[0].content.lower()
    assert "Take out the words" not in calls[1].messages[0].content


def test_one_that_goes_on_leaning_is_dropped(tmp_path: Path) -> None:
    first, *further = (f"As the nurse number {number}, how?" for number in range(REPAIRS + 1))
    bench = bench_of(tmp_path, triplet(dual_use=first), *further, intent=nurses_lean("honest"))
    (rejection,) = bench.build(UNSAFE[:1], last=4).list_rejected_for("leans")
    for fact in ("dual_use", "an honest purpose", "after 3 repairs", "The role does."):
        assert fact in rejection.detail


def test_a_retry_is_told_every_earlier_version_and_why_it_failed(tmp_path: Path) -> None:
    read = {
        "How is it done?": intent(True, False, "Nothing is risky in it."),
        "How, unseen?": intent(False, True, "It sounds like a thief."),
    }

    def by_text(call: Call) -> str | None:
        return read.get(between(call, "REQUEST"))

    first = triplet(dual_use="How is it done?")
    bench = bench_of(tmp_path, first, "How, unseen?", "How, then?", intent=by_text)
    (draft,) = bench.build(UNSAFE[:1], last=4).finished
    assert draft.prompts.dual_use == "How, then?"
    first, second = bench.generator.asked("repair")
    assert "first version" in between(first, "EARLIER")
    earlier = between(second, "EARLIER")
    for fact in ("How is it done?", "benign", "Nothing is risky in it."):
        assert fact in earlier
    assert between(second, "READER") == "It sounds like a thief."
    assert between(second, "DUAL-USE") == "How, unseen?"


@pytest.mark.parametrize("part", ["dual_use", "malicious"])
def test_a_topic_without_real_risk_after_two_repairs_is_dropped(tmp_path: Path, part: str) -> None:
    texts = [f"How is number {number} done?" for number in range(4)]

    def harmless(call: Call) -> str | None:
        return intent(True, False, "No risk.") if "number" in between(call, "REQUEST") else None

    bench = bench_of(tmp_path, triplet(**{part: texts[0]}), *texts[1:], intent=harmless)
    (rejection,) = bench.build(UNSAFE[:1], last=4).list_rejected_for("low_risk")
    assert len(rejection.item.revisions) == 2
    assert "No risk." in rejection.detail and part in rejection.detail


def test_a_text_that_once_had_risk_goes_on_to_the_last_repair(tmp_path: Path) -> None:
    texts = ["How is number 0 done?", "How, to harm?", "How is number 2 done?", "How, then?"]

    def swinging(call: Call) -> str | None:
        text = between(call, "REQUEST")
        if "number" in text:
            return intent(True, False, "No risk.")
        return intent(False, True, "Ill will.") if text == texts[1] else None

    bench = bench_of(tmp_path, triplet(dual_use=texts[0]), *texts[1:], intent=swinging)
    (draft,) = bench.build(UNSAFE[:1], last=4).finished
    assert draft.prompts.dual_use == "How, then?"


# Wording (stage 5)
# ------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["natural", "free_of_artefacts"])
@pytest.mark.parametrize(("part", "marker"), MARKERS.items())
def test_a_clumsy_text_is_reworded_alone_and_the_set_is_looked_at_again(
    tmp_path: Path, fault: str, part: str, marker: str
) -> None:
    new = f"Then {TEXTS[part]}"
    looks = iter([quality(fault, fault_in=part, reason="It creaks."), quality(serves="fully")])
    bench = bench_of(tmp_path, triplet(), new, quality=looks)
    (draft,) = bench.build(UNSAFE[:1], last=5).finished
    assert msgspec.to_builtins(draft.prompts) == TEXTS | {part: new}
    (revision,) = draft.revisions
    assert (revision.variant, revision.why) == (part, "wording")
    assert (revision.before, revision.after) == (TEXTS[part], new)
    assert purposes(bench) == ["quality", "reread", "quality", "wording"]
    (asked,) = bench.generator.asked("wording")
    assert (between(asked, "READER"), between(asked, marker)) == ("It creaks.", TEXTS[part])
    first, second = bench.judge.asked("quality")
    assert between(first, "EARLIER") == "(nothing was rewritten)"
    assert between(second, marker) == new
    assert between(second, "EARLIER").endswith(
        f"{part.replace('_', '-')} request was: {TEXTS[part]}"
    )
    assert between(bench.judge.asked("reread")[0], "REQUEST") == new
    assert draft.content_shift == "none"  # as the last look has it
    assert {call.purpose for call in draft.calls} >= {"quality", "wording", "reread"}


def test_it_is_reworded_once(tmp_path: Path) -> None:
    clumsy = quality("natural", fault_in="dual_use", reason="It creaks.")
    bench = bench_of(tmp_path, triplet(), "How, then?", quality=clumsy)
    (rejection,) = bench.build(UNSAFE[:1], last=5).list_rejected_for("unnatural")
    assert rejection.detail == "not natural: It creaks."
    assert purposes(bench) == ["quality", "reread", "quality", "wording"]
    assert len(rejection.item.revisions) == 1


@pytest.mark.parametrize(
    "judge_reply",
    [
        quality("natural", fault_in="none"),  # one new wording would not do
        quality("natural", "same_task", fault_in="benign"),
        quality("same_specificity", "free_of_artefacts", fault_in="benign"),
        quality("type_right", "same_task"),  # and no third reading of the label
    ],
)
def test_what_a_new_wording_would_not_repair_is_dropped_at_once(
    tmp_path: Path, judge_reply: str
) -> None:
    bench = bench_of(tmp_path, triplet(), quality=judge_reply)
    assert len(bench.build(UNSAFE[:1], last=5).list_rejected_in("quality")) == 1
    assert purposes(bench) == ["quality"]


@pytest.mark.parametrize(
    ("read", "reason", "fact"),
    [
        (intent(True, False, "Safe now."), "wrong_intent", "reads as benign: Safe now."),
        (intent(True, True, "A role.", "honest"), "leans", "an honest purpose: A role."),
    ],
)
def test_a_new_wording_may_not_change_the_intent(
    tmp_path: Path, read: str, reason: Any, fact: str
) -> None:
    clumsy = quality("natural", fault_in="dual_use")
    bench = bench_of(tmp_path, triplet(), "How, then?", quality=clumsy, reread=read)
    (rejection,) = bench.build(UNSAFE[:1], last=5).list_rejected_for(reason)
    assert "reworded, the dual_use prompt" in rejection.detail and fact in rejection.detail
    assert len(bench.judge.asked("quality")) == 1


@pytest.mark.parametrize("purpose", ["quality", "wording", "reread", "relabel"])
def test_a_reply_that_cannot_be_used_drops_the_set(tmp_path: Path, purpose: str) -> None:
    fault = ["type_right"] if purpose == "relabel" else ["natural"]
    judge = {"quality": quality(*fault, fault_in="dual_use")} | {purpose: "no"}
    written = {"triplet": triplet(), "wording": reply(prompt="How, then?", declined="")}
    bench = Bench(tmp_path, generator=written | {purpose: "no"}, judge=judge)
    (rejection,) = bench.build(UNSAFE[:1], last=5).list_rejected_in("quality")
    assert rejection.reason == "malformed"
    assert len([call for call in rejection.calls if call.purpose == purpose]) == 3


def test_a_task_that_leans_is_reworded_and_nothing_else(tmp_path: Path) -> None:
    looks = iter([quality("task_neutral", reason="It says what for."), quality()])
    first = triplet(underlying_task="doing it to help")
    bench = bench_of(tmp_path, first, "doing it", quality=looks)
    (draft,) = bench.build(UNSAFE[:1], last=5).finished
    assert (draft.underlying_task, draft.revisions[0].variant) == ("doing it", "underlying_task")
    # no prompt has changed: none is read again
    assert purposes(bench) == ["quality", "quality", "wording"]
    first, second = bench.judge.asked("quality")
    assert (between(first, "TASK"), between(second, "TASK")) == ("doing it to help", "doing it")
    assert between(second, "EARLIER") == "The neutral task was: doing it to help"


def test_quality_sees_what_stage_4_repaired_and_a_bent_repair_drops_the_set(tmp_path: Path) -> None:
    first, *repairs = "How, to ruin them?", "What, to ruin them?", "How can I tell it?"
    bent = quality("repairs_fair", reason="It asks how to tell.")
    bench = bench_of(tmp_path, triplet(dual_use=first), *repairs, quality=bent)
    (rejection,) = bench.build(UNSAFE[:1], last=5).list_rejected_for("repair_bent")
    assert rejection.detail == "not repairs_fair: It asks how to tell."
    (asked,) = bench.judge.asked("quality")
    assert between(asked, "EARLIER") == f"The dual-use request was: {first}"  # not the second


def test_a_word_that_a_key_may_not_have_is_asked_for_again(tmp_path: Path) -> None:
    looks = iter([quality(serves="somewhat"), quality(serves="partly")])
    bench = Bench(tmp_path, judge={"quality": looks})
    (draft,) = bench.build(UNSAFE[:1], last=5).finished
    assert draft.content_shift == "partial"
    assert "Invalid enum value 'somewhat'" in bench.judge.asked("quality")[1].messages[-1].content


# A label that the judge doubts
# ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("read", "dropped"), [("Explanation", {}), ("Troubleshooting", {"type_wrong": 1})]
)
def test_a_third_reading_decides_a_label(
    tmp_path: Path, read: str, dropped: dict[str, int]
) -> None:
    judge_reply = {"quality": quality("type_right"), "relabel": metadata(task_type=read)}
    written = {"metadata": metadata(), "triplet": triplet()}
    bench = Bench(tmp_path, generator=written, judge={"metadata": metadata()} | judge_reply)
    built = bench.build(UNSAFE[:1], over=taxonomy(), last=5)
    assert reasons(built, "quality") == dropped
    assert purposes(bench) == ["quality", "relabel"]
    assert between(bench.judge.asked("relabel")[0], "REQUEST") == DUAL_USE


# Paraphrases
# ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "complaint"),
    [(13, ""), (12, "12 words; 13 to 28"), (28, ""), (29, "29 words; 13 to 28")],
)
def test_a_paraphrase_is_about_as_long_as_a_request(
    tmp_path: Path, words: int, complaint: str
) -> None:
    """The request has 19 words: two thirds are 12.67, so 13 at least; one and a half times are
    28.5, so 28 at most.
    """
    request = " ".join(f"word{number}" for number in range(18)) + " how?"
    text = " ".join(f"other{number}" for number in range(words))
    offered = iter([text])

    def paraphrase(call: Call) -> str:
        return reply(paraphrases=[next(offered, f"{request} {call.epoch}")], declined="")

    written = {"triplet": triplet(dual_use=request), "paraphrase": paraphrase}
    bench = Bench(tmp_path, generator=written, judge={"paraphrase_check": reply(**PASSES_CHECK)})
    bench.build(UNSAFE[:1])
    checked = [between(call, "SECOND") for call in bench.judge.asked("paraphrase_check")]
    assert (text in checked) is not bool(complaint)
    shown = between(bench.generator.asked("paraphrase")[1], "TAKEN")
    assert shown.startswith(f"- {text}")
    assert complaint in shown and ("no paraphrase" in shown) is bool(complaint)


# Material
# ------------------------------------------------------------------------------

NOTE = '"' + " ".join(f"line{number}" for number in range(20)) + '"'
WORKED_OVER = taxonomy(("Money",), ("Rewriting",), material=True)
WITH_MATERIAL = triplet(**{intent: f"{text} {NOTE}" for intent, text in TEXTS.items()})


def test_material_is_a_quotation_of_fifteen_words_or_the_stand_in() -> None:
    assert find_material(f"Shorten this for me: {NOTE}") == NOTE.strip('"')
    assert find_material("Shorten [100 words of text] for me") == "[100 words of text]"
    assert find_material('Shorten what I call "the note" for me') is None
    assert find_material("Shorten “" + "word " * 15 + "” for me") is not None


@pytest.mark.parametrize(
    ("malicious", "complaint"),
    [
        (f"Twist this: {NOTE}", None),
        ("Twist my note", '"malicious" does not hold the material'),
        ("Twist [100 words of text]", "some requests hold their material and others hold [100"),
        (f'Twist "{"word " * 31}"', "(benign 20, dual_use 20, malicious 31 words)"),
        (f'Twist "{"word " * 30}"', None),  # one and a half times as long
    ],
)
def test_the_three_hold_their_material_alike(malicious: str, complaint: str | None) -> None:
    requests = {"benign": f"Shorten {NOTE}", "dual_use": f"Cut {NOTE}", "malicious": malicious}
    result = find_fault_in_material(requests)
    assert (result is None) if complaint is None else (result is not None and complaint in result)


def test_a_triplet_without_its_material_is_asked_for_again(tmp_path: Path) -> None:
    bench = Bench(tmp_path, generator={"triplet": iter([triplet(), WITH_MATERIAL])})
    (draft,) = bench.build(over=WORKED_OVER, per_cell=1, last=3).finished
    assert draft.prompts.benign == f"{BENIGN} {NOTE}"
    again = bench.generator.asked("triplet")[1].messages[-1].content
    assert '"benign" does not hold the material' in again


def test_a_paraphrase_holds_the_material_word_for_word(tmp_path: Path) -> None:
    other_note = NOTE.replace("line3 ", "row3 ")

    def paraphrase(call: Call) -> str:
        texts = [
            f"What does one do {call.epoch}? {other_note}",
            f"How is it done {call.epoch}? {NOTE}",
        ]
        return reply(paraphrases=texts * 2, declined="")

    written = {"triplet": WITH_MATERIAL, "paraphrase": paraphrase}
    bench = Bench(tmp_path, generator=written, judge={"paraphrase_check": reply(**PASSES_CHECK)})
    bench.build(over=WORKED_OVER, per_cell=1)
    checked = [between(call, "SECOND") for call in bench.judge.asked("paraphrase_check")]
    assert checked and all(NOTE in text for text in checked)
    shown = between(bench.generator.asked("paraphrase")[1], "TAKEN")
    assert "it does not hold the material word for word" in shown
