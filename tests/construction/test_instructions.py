"""Templates of construction that lack what a stage needs are refused."""

from __future__ import annotations

import pytest

from opensafeintent.construction.asking import Reply
from opensafeintent.construction.augmentation import (
    AnnotationReply,
    ParaphraseCheckReply,
    ParaphraseReply,
)
from opensafeintent.construction.backfill import BackfillReply
from opensafeintent.construction.instructions import load_instructions, parse_instructions
from opensafeintent.construction.intents import IntentReply
from opensafeintent.construction.metadata import MetadataReply
from opensafeintent.construction.quality import QualityReply
from opensafeintent.construction.triplets import RepairReply, TripletReply
from opensafeintent.errors import InputError

REPLIES: tuple[type[Reply], ...] = (
    MetadataReply,
    BackfillReply,
    TripletReply,
    IntentReply,
    RepairReply,
    QualityReply,
    ParaphraseReply,
    ParaphraseCheckReply,
    AnnotationReply,
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


def test_an_instruction_has_no_nonce_in_its_contract() -> None:
    sources = dict(load_instructions().sources())
    opening = "contract = '''"
    sources["intent.md"] = sources["intent.md"].replace(opening, f"{opening}{{{{nonce}}}} ")
    with pytest.raises(InputError, match=r"intent\.md: unknown place \{\{nonce\}\}"):
        parse_instructions(sources)
