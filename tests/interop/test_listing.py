"""What the register of Inspect evals reads of us says what is so."""

from __future__ import annotations

from pathlib import Path

import pytest

from endtoend import REPO
from interop.support import quiet
from opensafeintent.promptsets import load_dataset

yaml = pytest.importorskip("yaml")
pytestmark = quiet
FOLDER = REPO / "src" / "opensafeintent" / "interop" / "inspect"


def test_the_listing_agrees_with_the_task() -> None:
    from opensafeintent.interop.inspect import task as tasks

    listing = yaml.safe_load((FOLDER / "eval.yaml").read_text())
    (task,) = listing["tasks"]
    prompts = sum(len(prompt_set.wordings()) for prompt_set in load_dataset("starter").prompt_sets)
    assert (listing["version"], task["dataset_samples"]) == (tasks.VERSION, prompts)
    assert REPO / task["task_path"] == Path(tasks.__file__)


def test_the_readme_names_every_parameter_and_score() -> None:
    import inspect as python_inspect

    from opensafeintent.interop.inspect.task import SCORERS, opensafeintent

    readme = (FOLDER / "README.md").read_text()
    for name in (
        *python_inspect.signature(opensafeintent).parameters,
        *(scorer.__name__ for scorer in SCORERS),
    ):
        assert f"`{name}`" in readme
