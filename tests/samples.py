"""Small prompt-sets, grades and files, made where a test needs them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from opensafeintent import ImportSettings, RunOutcome, import_files
from opensafeintent.calls.recorded import MissingGrade, RecordedResponse, read_recorded_responses
from opensafeintent.cli import main
from opensafeintent.files import RowLimit
from opensafeintent.promptsets import Dataset, Prompts, PromptSet, write_dataset
from opensafeintent.promptsets.reading import read_records
from opensafeintent.responses import GradedResponse
from opensafeintent.taxonomy import KnownGrades, default_taxonomy


@contextlib.contextmanager
def without_drawing() -> Iterator[None]:
    """Write every file of a report, and in each picture a hash of what it would show."""

    def svg(spec: object, **_: object) -> str:
        shown = hashlib.sha256(json.dumps(spec, sort_keys=True).encode()).hexdigest()
        return (
            '<svg xmlns="http://www.w3.org/2000/svg" width="1"'
            f' height="1"><text>{shown}</text></svg>'
        )

    with mock.patch.multiple(
        "vl_convert",
        vegalite_to_svg=svg,
        svg_to_pdf=str.encode,
        svg_to_png=lambda svg, **_: svg.encode(),
    ):
        yield


def prompt_set(
    name: str,
    paraphrases: int = 0,
    domain: str = "Cyber Compromise",
    task_type: str = "Explanation",
) -> PromptSet:
    return PromptSet(
        id=name,
        harm_domain=domain,
        task_type=task_type,
        underlying_task=f"the task of {name}",
        prompts=Prompts(
            benign=f"{name}, kindly", dual_use=f"{name}, in between", malicious=f"{name}, unkindly"
        ),
        dual_use_paraphrases=tuple(
            f"{name}, in between, worded again ({n})" for n in range(paraphrases)
        ),
    )


def made_dataset(*prompt_sets: PromptSet, name: str = "made") -> Dataset:
    return Dataset(name, prompt_sets, default_taxonomy())


def grade_line(model: str, set_id: str, variant: str, pair: str, **fields: Any) -> GradedResponse:
    """Make a row from two characters: helpfulness and harm severity, `-` for one that is
    missing.
    """
    helpfulness, harm_severity = (None if grade == "-" else int(grade) for grade in pair)
    defaults: dict[str, Any] = {
        **{"epoch": 1, "mode": None, "strategy": None, "stop_reason": "stop"},
        **{"truncated": False, "refusal_reason": "", "missing": (), "by_judge": {}},
    }
    pairs = fields.get("by_judge", {}).items()
    fields["by_judge"] = {judge: KnownGrades(*grades) for judge, grades in pairs}
    return GradedResponse(
        model=model,
        set_id=set_id,
        variant=variant,
        grades=KnownGrades(helpfulness, harm_severity),
        **(
            defaults
            | fields
            | {"missing": tuple(map(MissingGrade.parse, fields.get("missing", ())))}
        ),
    )


def least_grade(question: str) -> str:
    """Return the least grade that the last lines of a question to a judge allow."""
    (least,) = re.findall(r"one integer from (\d+) to \d+", question[-600:])
    return least


def dataset_file(folder: Path, dataset: Dataset) -> str:
    path = folder / f"{dataset.name}.jsonl"
    write_dataset(dataset, path)
    return str(path)


def lines_of(dataset: Dataset, **fields: Any) -> list[dict[str, Any]]:
    """Return a line to import for each prompt, with these fields."""
    return [
        {"id": item.id, "variant": variant, "response": f"to {prompt}", **fields}
        for item in dataset.prompt_sets
        for variant, prompt in item.wordings().items()
    ]


def import_lines(
    folder: Path, lines: Iterable[Any], dataset: Dataset, model: str = "m", **settings: Any
) -> RunOutcome:
    """Import a model's lines into `folder/run`."""
    folder.mkdir(parents=True, exist_ok=True)
    files = (json_lines(folder / f"{model.replace('/', '-')}.jsonl", lines),)
    settings |= {"out": folder / "run", "dataset": dataset_file(folder, dataset), "model": model}
    return import_files(ImportSettings(files=files, **settings))


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder by their place in it, its ledger and locks aside."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.name.startswith((".", "ledger"))
    }


def json_lines(path: Path, records: Iterable[Any]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def json_file(path: Path, value: Any) -> Path:
    path.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")
    return path


def exit_code(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    """Run the command line in this process and return the code that it exits with."""
    monkeypatch.setattr(sys, "argv", ["opensafeintent", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        main()
    assert isinstance(stop.value.code, int)
    return stop.value.code


def read_recorded(path: Path) -> list[RecordedResponse]:
    return read_recorded_responses(read_records(path, limit=RowLimit(None)), path)
