"""The workflows of the repository's own checks."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from endtoend import REPO

yaml = pytest.importorskip("yaml")

FOLDER = REPO / ".github" / "workflows"
PROGRAMS = Path(sys.executable).parent

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="needs a checkout")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yml")), ids=lambda path: path.name)
def test_a_linter_of_workflows_finds_nothing(path: Path) -> None:
    if not (PROGRAMS / "actionlint").exists():
        pytest.skip("needs actionlint")
    done = subprocess.run(
        [PROGRAMS / "actionlint", "-shellcheck", PROGRAMS / "shellcheck", path],
        cwd=REPO,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_each_supported_python_is_tested() -> None:
    job = yaml.safe_load((FOLDER / "test.yml").read_text("utf-8"))["jobs"]["test"]
    tested = job["strategy"]["matrix"]["python"]
    project = tomllib.loads((REPO / "pyproject.toml").read_text("utf-8"))["project"]
    named = [line.rpartition(" ")[2] for line in project["classifiers"] if "Python :: 3." in line]
    assert project["requires-python"] == f">={tested[0]}"
    assert tested[: len(named)] == named
    assert job["steps"][-1]["run"].startswith("make test ")
