"""What keeps `make release` from making a release."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from endtoend import REPO

FILES = {
    "pyproject.toml": 'version = "1.2.3"\n',
    "src/opensafeintent/__init__.py": '__version__ = "1.2.3"\n',
    "CITATION.cff": "version: 1.2.3\n",
    "CHANGELOG.md": "# Changelog\n\n## 1.2.3 (2030-01-31)\n",
}

pytestmark = pytest.mark.skipif(
    not (REPO / ".ci").is_dir() or not shutil.which("git"), reason="needs git and a checkout"
)


def git(folder: Path, *arguments: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.example")
    subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A repository as far as the checks look at it, of which 1.2.3 may be released."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / ".ci").mkdir()
    shutil.copy(REPO / ".ci" / "release", tmp_path / ".ci")
    for command in ("init --quiet", "add .", "commit --quiet --message Release"):
        git(tmp_path, *command.split())
    return tmp_path


def refused(folder: Path, version: str = "1.2.3") -> str:
    """Return why nothing was released; a release that is not refused ends at once, for Python does
    nothing but fail.
    """
    programs = folder.parent / f"{folder.name}-programs"
    programs.mkdir(exist_ok=True)
    for name in ("bash", "dirname", "git", "grep", "mktemp", "rm"):
        if not (programs / name).exists():
            (programs / name).symlink_to(str(shutil.which(name)))
    (programs / "python3").write_text("#!/bin/sh\necho checked >&2\nexit 1\n")
    (programs / "python3").chmod(0o755)
    command, env = ["bash", ".ci/release", version], {"PATH": str(programs)}
    ran = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode
    return ran.stderr


def test_what_may_be_released_gets_as_far_as_the_build(project: Path) -> None:
    assert refused(project) == "checked\n"


@pytest.mark.parametrize("version", ["", "1.2", "v1.2.3", "1.2.3rc1", "1.2.4"])
def test_another_version_is_refused(project: Path, version: str) -> None:
    assert "not released: " in refused(project, version)


PACKAGE = "src/opensafeintent/__init__.py"
PLACEHOLDER = 'version = "1.2.3"\nSource = "https://placeholder.invalid/OWNER/x"\n'


@pytest.mark.parametrize(
    ("file", "text", "why"),
    [
        ("pyproject.toml", 'version = "1.2.30"\n', "pyproject.toml has another version"),
        (PACKAGE, '__version__ = "1.2.2"\n', "opensafeintent.__version__ is not 1.2.3"),
        ("CITATION.cff", "version: 0.1.0\n", "CITATION.cff has another version"),
        ("CHANGELOG.md", "# Changelog\n\n## 1.2.30\n", "CHANGELOG.md has no heading for 1.2.3"),
        ("CHANGELOG.md", "# Changelog\n\n## 1.2.3 (unreleased)\n", "calls 1.2.3 unreleased"),
        ("pyproject.toml", PLACEHOLDER, "still has a placeholder"),
    ],
)
def test_what_does_not_agree_with_the_version_is_refused(
    project: Path, file: str, text: str, why: str
) -> None:
    (project / file).write_text(text)
    assert "there are changes that are not committed" in refused(project)
    git(project, "commit", "--quiet", "--all", "--message", "Something else")
    assert why in refused(project)


def test_a_version_that_is_tagged_is_refused(project: Path) -> None:
    git(project, "tag", "v1.2.3")
    assert "there is a tag v1.2.3 already" in refused(project)
