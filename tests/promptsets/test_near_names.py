"""A slip in a record is told, where it would be passed over in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opensafeintent.calls.recorded_file import read_recorded
from opensafeintent.errors import InputError
from opensafeintent.promptsets import load_dataset
from samples import json_lines, prompt_set

GIVEN = prompt_set("a").to_json()
THRICE = dict.fromkeys(("benign", "dual_use", "malicious"), "Tell me.")


@pytest.mark.parametrize(
    ("slip", "message"),
    [
        ({"ID": "a"}, "field ID: is not known; did you mean 'id'?"),
        ({"languages": "de"}, "field languages: is not known; did you mean 'language'?"),
        ({"id": "a\nb"}, "field id: has several lines"),
        ({"prompts": THRICE}, "is also the dual_use and the malicious prompt"),
        ({"underlying_task": "\u200b\ufeff"}, "field underlying_task: is empty"),
    ],
)
def test_slips_of_a_prompt_set(tmp_path: Path, slip: dict[str, Any], message: str) -> None:
    record = {name: value for name, value in GIVEN.items() if name != "id"} | slip
    with pytest.raises(InputError) as error:
        load_dataset(str(json_lines(tmp_path / "x.jsonl", [record])))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("slip", "meant"),
    [("harmSeverity", "harm_severity"), ("helpfullness", "helpfulness"), ("Mode", "mode")],
)
def test_slips_of_an_import(tmp_path: Path, slip: str, meant: str) -> None:
    record = {"id": "a", "variant": "benign", "response": "yes", slip: 1}
    with pytest.raises(InputError, match=f"field {slip}: is not known; did you mean '{meant}'"):
        read_recorded(json_lines(tmp_path / "x.jsonl", [record]))


def test_of_equally_near_names_the_first_number_is_meant(tmp_path: Path) -> None:
    core = {"benign": "Mend it.", "dual_use": "Open it.", "malicious": "Break it."}
    labels = {name: GIVEN[name] for name in ("harm_domain", "task_type", "underlying_task")}
    row = labels | core | {"dual_use_paraphrase": "Unlock it."}
    for taken, meant in ({}, 1), ({"dual_use_paraphrase_1": "Undo it."}, 2):
        with pytest.raises(InputError, match=f"did you mean 'dual_use_paraphrase_{meant}'"):
            load_dataset(str(json_lines(tmp_path / "x.jsonl", [row | taken])))


def test_other_fields_are_passed_over(tmp_path: Path) -> None:
    """Also one that is near a name, if that is there as well."""
    record = GIVEN | {"Id": "b", "comment": "ours", "sourced": "by hand"}
    assert load_dataset(str(json_lines(tmp_path / "x.jsonl", [record]))).prompt_sets[0].id == "a"
