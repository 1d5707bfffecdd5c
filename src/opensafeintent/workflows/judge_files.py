"""The results of `judge-check`: one file for each judge, to which each check adds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from opensafeintent.analysis.judge_checks import accepted_at_lines
from opensafeintent.analysis.label_checks import LabelCheck
from opensafeintent.errors import InputError
from opensafeintent.evaluation.judge_check import JudgeCheck, with_checks
from opensafeintent.files import read_json, sha256_hex, to_json, write_private
from opensafeintent.hostile import name_safe
from opensafeintent.workflows.settings.base import CHECKS

_SCHEMA = 2
_LONGEST_NAME = 80
_DERIVED = ("accepted", "cases", "missing", "passed", "reasons")
_COSTS = "cost.json"
"""The file in the folder that holds no results of a judge."""


class JudgeFile(msgspec.Struct, frozen=True, kw_only=True):
    """Every result of one judge, or of a panel."""

    schema: int = _SCHEMA
    judge: str
    checks: tuple[JudgeCheck, ...] = ()
    """On the gold cases, of each setting the latest."""
    labels: tuple[LabelCheck, ...] = ()
    """On labelled responses, of each file and setting the latest."""
    left_out: tuple[str, ...] = ()
    """Fields of a request that the judge turned out not to take."""


def read_judge_files(folder: Path) -> list[JudgeFile]:
    """Return the results in a folder, in the order of their files; none if the folder of the
    default is not there.

    Raises:
        InputError: the folder is not there, or a file holds something else.
    """
    if not folder.is_dir():
        if folder in (CHECKS, CHECKS.absolute()):
            return []
        raise InputError(f"--checks {folder}: no such folder; expected one of judge-check")
    return list(_files_in(folder).values())


def default_judge_files() -> tuple[list[JudgeFile], list[str]]:
    """Return the results of `judge-check` in the folder of the default, and a note if they cannot
    be read: calls that were paid for are not lost by that.
    """
    try:
        return read_judge_files(CHECKS), []
    except InputError as error:
        return [], [str(error)]


def _files_in(folder: Path) -> dict[Path, JudgeFile]:
    return {
        path: read_json(path, JudgeFile, "the results of a judge", schema=_SCHEMA)
        for path in sorted(folder.glob("*.json"))
        if path.name != _COSTS and path.is_file()
    }


def write_judge_files(
    folder: Path,
    staged: Path,
    *,
    checks: Sequence[JudgeCheck] = (),
    labels: Sequence[LabelCheck] = (),
    left_out: Mapping[str, Iterable[str]],
) -> dict[str, Path]:
    """Write the results of judges, with the earlier ones in a folder.

    Args:
        folder: has the earlier results.
        staged: is where the new files are written.
        checks, labels: the new results.
        left_out: by judge, fields of a request that it turned out not to take.

    Returns:
        By judge, its file in `folder`.

    Raises:
        InputError: an earlier file cannot be read, or a new one not written.
    """
    earlier = {file.judge: (path, file) for path, file in _files_in(folder).items()}
    taken = {path.name.casefold() for path, _ in earlier.values()}
    written: dict[str, Path] = {}
    named: list[JudgeCheck | LabelCheck] = [*checks, *labels]
    for judge in dict.fromkeys(item.judge for item in named):
        nothing = JudgeFile(judge=judge)
        path, before = earlier.get(judge) or (_new_path(folder, judge, taken), nothing)
        taken.add(path.name.casefold())
        file = JudgeFile(
            judge=judge,
            checks=with_checks(before.checks, [item for item in checks if item.judge == judge]),
            labels=with_labels(before.labels, [item for item in labels if item.judge == judge]),
            left_out=tuple(sorted({*before.left_out, *left_out.get(judge, ())})),
        )
        write_private(staged / path.name, _content(file))
        written[judge] = path
    return written


def _new_path(folder: Path, judge: str, taken: Iterable[str]) -> Path:
    """Return a path for a judge: two names that are equal as file names get two files."""
    name = name_safe(judge, _LONGEST_NAME)
    unlike = f"{name}-{sha256_hex(judge)[:8]}"
    is_taken = f"{name}.json".casefold() in {*taken, _COSTS}
    return folder / f"{unlike if is_taken else name}.json"


def with_labels(old: Sequence[LabelCheck], new: Sequence[LabelCheck]) -> tuple[LabelCheck, ...]:
    """Return all comparisons with people, a newer one in the place of an older one of the same
    judges, settings, labels and number of responses.
    """
    newer = {_subject(check) for check in new}
    return (*(check for check in old if _subject(check) not in newer), *new)


def _subject(check: LabelCheck) -> bytes:
    source = check.source
    return msgspec.json.encode(
        [check.judge, check.members, source.sha256, source.responses], order="sorted"
    )


def _content(file: JudgeFile) -> bytes:
    content: dict[str, Any] = msgspec.to_builtins(file)
    for record, check in zip(content["checks"], file.checks, strict=True):
        record |= {name: getattr(check, name) for name in _DERIVED}
        record["groups"] = msgspec.to_builtins(accepted_at_lines(check))
    return to_json(content)
