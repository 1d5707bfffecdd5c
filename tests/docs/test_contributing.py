"""CONTRIBUTING.md names what is there."""

from __future__ import annotations

import re

from endtoend import REPO

TEXT = (REPO / "CONTRIBUTING.md").read_text("utf-8")


def test_every_path_is_there() -> None:
    paths = set(re.findall(r"(?<![\w/])(?:src|tests|docs)/[\w./-]*\w/?", TEXT))
    assert len(paths) > 20
    assert [path for path in sorted(paths) if not (REPO / path).exists()] == []


def test_every_target_of_make_is_there() -> None:
    targets = set(re.findall(r"make ([a-z][\w-]*)", TEXT))
    known_targets = set(
        re.findall(r"^([\w-]+):", (REPO / "Makefile").read_text("utf-8"), re.MULTILINE)
    )
    assert len(targets) > 5
    assert not targets - known_targets
