"""Named lists of models."""

from __future__ import annotations

from pathlib import Path

import pytest

from endtoend import osi
from opensafeintent import EvaluateSettings
from opensafeintent.calls.model_names import load_suite
from opensafeintent.errors import InputError


def test_a_suite_of_ones_own_is_a_file(tmp_path: Path) -> None:
    path, names = tmp_path / "mine.toml", ("baseline/redirect", "baseline/refuse-all")
    path.write_text('name = "mine"\n' + "".join(f'[[models]]\nmodel = "{n}"\n' for n in names))
    assert load_suite(str(path)).names == names
    settings = EvaluateSettings(models=names[1:], suite=str(path), judges=("baseline/judge",))
    assert settings.under_test == names[::-1]  # each once, those that are named first


ONE = 'name = "x"\n[[models]]\nmodel = "a/b"\n'


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (None, "cannot read"),
        ('name = "x"\nmodels = []', "length >= 1"),
        (ONE.replace("model =", "modle ="), "not a suite .* field `modle`"),
        (ONE + '[[models]]\nmodel = "a/b"', "a/b is there twice"),
        ("name =", "not a suite"),
    ],
)
def test_a_file_that_is_no_suite_is_told(tmp_path: Path, content: str | None, line: str) -> None:
    path = tmp_path / "mine.toml"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=line):
        load_suite(str(path))
    with pytest.raises(InputError, match=r"--suite papr: no such suite.*did you mean 'paper'"):
        load_suite("papr")


def test_everything_that_a_suite_lacks_is_told_at_once(tmp_path: Path) -> None:
    pytest.importorskip("inspect_ai")  # else the first line names the extra
    run = tmp_path / "run"
    ran = osi("evaluate", "--suite", "paper", "--judge", "baseline/judge", "--out", run)
    assert ran.code == 2
    errors = [line for line in ran.errors if line.startswith("error: openrouter/")]
    assert len(errors) == 9  # the open weights that the suite has from one service
    assert all(line.endswith("no key; set OPENROUTER_API_KEY") for line in errors)
    assert not (run / "run.json").exists()
