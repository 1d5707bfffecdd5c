"""What is repaired, read again or settled by a third reading, and what the judge then has in
view.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from construction.support import UNSAFE, Bench, between, only, reasons, reply, taxonomy
from construction.test_stages import PASSES_CHECK, intent, metadata, quality
from opensafeintent.calls.records import Call
from opensafeintent.construction.asking import (
    RepairReply,
    Reply,
    complaint_of_material,
    material_of,
)
from opensafeintent.construction.judging import REPAIRS, IntentReply, QualityReply
from opensafeintent.construction.pipeline import Built
from opensafeintent.construction.prompts import (
    AnnotationReply,
    ParaphraseCheckReply,
    ParaphraseReply,
    TripletReply,
)
from opensafeintent.construction.records import Draft
from opensafeintent.construction.topics import BackfillReply, MetadataReply
from opensafeintent.errors import InputError
from opensafeintent.taxonomy import Category, Taxonomy
from opensafeintent.templates.template import load_instructions, parse_instructions

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
        if call.purpose in ("repair", "wording"):
            return reply(prompt=next(texts), declined="")
        return first if call.purpose == "triplet" else None

    return answer


def judge(**said: str | Callable[[Call], str | None]) -> Callable[[Call], str | None]:
    """A judge that says so for some purposes."""

    def answer(call: Call) -> str | None:
        found = said.get(call.purpose)
        return found(call) if callable(found) else found

    return answer


def nurses_lean(leans: str) -> Callable[[Call], str | None]:
    """A judge that finds that requests of a nurse lean."""

    def read(call: Call) -> str | None:
        nurse = "nurse" in between(call, "REQUEST")
        return intent(True, True, "The role does.", leans) if nurse else None

    return judge(intent=read)


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


@pytest.mark.parametrize("leans", ["honest", "harmful"])
def test_a_dual_use_prompt_that_leans_is_mended(tmp_path: Path, leans: str) -> None:
    bench = Bench(
        tmp_path,
        generator=generator(triplet(dual_use="As the nurse, how?"), "How, then?"),
        judge=nurses_lean(leans),
    )
    draft = kept(bench.build(UNSAFE[:1], last=4))
    assert (draft.prompts.dual_use, draft.leaning) == ("How, then?", "neither")
    (revision,) = draft.revisions
    assert (revision.variant, revision.why, revision.found) == ("dual_use", "leaning", "dual_use")
    (repair,) = bench.generator.asked("repair")
    assert f"suggests a{'n honest' if leans == 'honest' else ' harmful'} one" in (
        repair.messages[0].content
    )
    assert between(repair, "READER") == "The role does."


def test_one_that_goes_on_leaning_is_dropped(tmp_path: Path) -> None:
    nurses = [f"As the nurse number {number}, how?" for number in range(REPAIRS + 1)]
    bench = Bench(
        tmp_path,
        generator=generator(triplet(dual_use=nurses[0]), *nurses[1:]),
        judge=nurses_lean("honest"),
    )
    (rejection,) = bench.build(UNSAFE[:1], last=4).rejected_for("leans")
    for fact in ("dual_use", "an honest purpose", "after 3 repairs", "The role does."):
        assert fact in rejection.detail


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
    old = {"benign": BENIGN, "dual_use": DUAL_USE, "malicious": MALICIOUS}
    new = f"Then {old[part]}"
    looks = iter([quality(fault, fault_in=part, reason="It creaks."), quality(serves="fully")])
    bench = Bench(
        tmp_path, generator=generator(triplet(), new), judge=judge(quality=lambda _: next(looks))
    )
    draft = kept(bench.build(UNSAFE[:1], last=5))
    assert msgspec.to_builtins(draft.prompts) == old | {part: new}
    (revision,) = draft.revisions
    assert (revision.variant, revision.why) == (part, "wording")
    assert (revision.before, revision.after) == (old[part], new)
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
    ("read", "reason", "fact"),
    [
        (
            intent(True, False, "It is safe now."),
            "wrong_intent",
            "reads as benign: It is safe now.",
        ),
        (intent(True, True, "A role.", "honest"), "leans", "an honest purpose: A role."),
    ],
)
def test_a_new_wording_that_changes_the_intent_drops_the_set(
    tmp_path: Path, read: str, reason: Any, fact: str
) -> None:
    bench = Bench(
        tmp_path,
        generator=generator(triplet(), "How, then?"),
        judge=judge(quality=quality("natural", fault_in="dual_use"), reread=read),
    )
    (rejection,) = bench.build(UNSAFE[:1], last=5).rejected_for(reason)
    assert "reworded, the dual_use prompt" in rejection.detail and fact in rejection.detail
    assert len(bench.judge.asked("quality")) == 1


@pytest.mark.parametrize("purpose", ["quality", "wording", "reread", "relabel"])
def test_a_reply_that_cannot_be_used_drops_the_set(tmp_path: Path, purpose: str) -> None:
    doubt = quality("type_right") if purpose == "relabel" else None
    said = {"quality": doubt or quality("natural", fault_in="dual_use")} | {purpose: "no"}
    write = generator(triplet(), "How, then?")
    bench = Bench(
        tmp_path,
        generator=lambda call: "no" if call.purpose == purpose else write(call),
        judge=judge(**said),
    )
    (rejection,) = bench.build(UNSAFE[:1], last=5).rejected_in("quality")
    assert rejection.reason == "malformed"
    assert len([call for call in rejection.calls if call.purpose == purpose]) == 3


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
    # no prompt has changed: none is read again
    assert purposes(bench) == ["quality", "quality", "wording"]
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
    first, *repairs = "How, to ruin them?", "What, to ruin them?", "How can I tell it?"
    bench = Bench(
        tmp_path,
        generator=generator(triplet(dual_use=first), *repairs),
        judge=judge(quality=quality("repairs_fair", reason="It asks how to tell.")),
    )
    (rejection,) = bench.build(UNSAFE[:1], last=5).rejected_for("repair_bent")
    assert rejection.detail == "not repairs_fair: It asks how to tell."
    (asked,) = bench.judge.asked("quality")
    assert between(asked, "EARLIER") == f"The dual-use request was: {first}"  # not the second


def test_structured_output_names_the_words_that_a_key_may_have(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.build(UNSAFE[:1], last=5)
    fields: dict[str, Any] = {}
    for purpose in ("intent", "quality"):
        schema = bench.judge.asked(purpose)[0].sampling.json_schema
        assert schema is not None
        fields |= schema["properties"]
    assert fields["leans"] == {"type": "string", "enum": ["honest", "harmful", "neither"]}
    assert fields["benign_use_plausible"] == {"type": "boolean"}
    assert fields["fault_in"]["enum"] == ["benign", "dual_use", "malicious", "none"]
    assert fields["serves_malicious"]["enum"] == ["fully", "partly", "not"]


def test_a_word_that_a_key_may_not_have_is_asked_for_again(tmp_path: Path) -> None:
    def look(call: Call) -> str:
        return quality(serves="partly" if call.attempt else "somewhat")

    bench = Bench(tmp_path, judge=only("quality", look))
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
    write = generator(triplet())
    bench = Bench(
        tmp_path,
        generator=lambda call: metadata() if call.purpose == "metadata" else write(call),
        judge=judge(
            metadata=metadata(), quality=quality("type_right"), relabel=metadata(task_type=read)
        ),
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
    asked = iter([[text]])

    def answer(call: Call) -> str | None:
        if call.purpose == "paraphrase":
            texts = next(asked, [f"{request} {call.epoch}"])
            return reply(paraphrases=texts, declined="")
        return triplet(dual_use=request) if call.purpose == "triplet" else None

    bench = Bench(tmp_path, generator=answer, judge=judge(paraphrase_check=reply(**PASSES_CHECK)))
    bench.build(UNSAFE[:1])
    checked = [between(call, "SECOND") for call in bench.judge.asked("paraphrase_check")]
    assert (text in checked) is not bool(told)
    taken = between(bench.generator.asked("paraphrase")[1], "TAKEN")
    assert taken.startswith(f"- {text}")
    assert told in taken and ("no paraphrase" in taken) is bool(told)


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
        ("Twist [100 words of text]", "some requests hold their material and others hold [100"),
        (f'Twist "{"word " * 31}"', "(benign 20, dual_use 20, malicious 31 words)"),
        (f'Twist "{"word " * 30}"', None),  # one and a half times as long
    ],
)
def test_the_three_hold_their_material_alike(malicious: str, told: str | None) -> None:
    requests = {"benign": f"Shorten {NOTE}", "dual_use": f"Cut {NOTE}", "malicious": malicious}
    found = complaint_of_material(requests)
    assert (found is None) if told is None else (found is not None and told in found)


HELD = triplet(
    benign=f"{BENIGN} {NOTE}", dual_use=f"{DUAL_USE} {NOTE}", malicious=f"{MALICIOUS} {NOTE}"
)


def test_a_triplet_without_its_material_is_asked_for_again(tmp_path: Path) -> None:
    bench = Bench(
        tmp_path, generator=only("triplet", lambda call: HELD if call.attempt else triplet())
    )
    built = bench.build(over=WORKED_OVER, per_cell=1, last=3)
    assert kept(built).prompts.benign == f"{BENIGN} {NOTE}"
    again = bench.generator.asked("triplet")[1].messages[-1].content
    assert '"benign" does not hold the material' in again


def test_a_paraphrase_holds_the_material_word_for_word(tmp_path: Path) -> None:
    other = NOTE.replace("line3 ", "row3 ")

    def answer(call: Call) -> str | None:
        texts = [f"What does one do {call.epoch}? {other}", f"How is it done {call.epoch}? {NOTE}"]
        answers = {"triplet": HELD, "paraphrase": reply(paraphrases=texts * 2, declined="")}
        return answers.get(call.purpose)

    bench = Bench(tmp_path, generator=answer, judge=judge(paraphrase_check=reply(**PASSES_CHECK)))
    bench.build(over=WORKED_OVER, per_cell=1)
    checked = [between(call, "SECOND") for call in bench.judge.asked("paraphrase_check")]
    assert checked and all(NOTE in text for text in checked)
    taken = between(bench.generator.asked("paraphrase")[1], "TAKEN")
    assert "it does not hold the material word for word" in taken


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
    for key in set(kind.__struct_fields__) - {"declined"}:
        without = sources[file].replace(f'"{key}"', '"another"', 1)
        assert without != sources[file]
        with pytest.raises(InputError, match=f'^{file}: .* "{key}"'):
            parse_instructions(sources | {file: without})


@pytest.mark.parametrize("about", ["[wording]", "[underlying_task]", "honest =", "harmful ="])
def test_a_list_of_reasons_that_lacks_one_is_refused(about: str) -> None:
    sources = load_instructions().sources()
    name = "repair_reasons.toml"
    without = sources[name].replace(about, "[other]" if "[" in about else "other =")
    with pytest.raises(InputError, match=r"repair_reasons\.toml: no reason for "):
        parse_instructions(sources | {name: without})
