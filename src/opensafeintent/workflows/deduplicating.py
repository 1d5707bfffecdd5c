"""Drop prompt-sets that are too similar to earlier ones."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import msgspec

from opensafeintent.errors import InputError, nearest
from opensafeintent.files import make_private_folder, write_private
from opensafeintent.hostile import one_line
from opensafeintent.promptsets import Dataset, PromptSet, load_dataset, write_dataset
from opensafeintent.promptsets.reading import MOST_ROWS
from opensafeintent.taxonomy import load_taxonomy

if TYPE_CHECKING:
    from opensafeintent.construction.similarity import Match, Rule

__all__ = ["Deduplication", "DroppedSet", "dedup_dataset"]


class DroppedSet(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the report: a set that was dropped, and the pair of prompts that shows why."""

    id: str
    twin: str
    """The earlier set, which was kept."""
    harm_domain: str
    task_type: str
    variant: str
    twin_variant: str
    prompt: str
    twin_prompt: str
    score: float
    """ROUGE-L F1, 2·LCS/(words + twin_words)."""
    lcs: int
    words: int
    twin_words: int


class Deduplication(msgspec.Struct, frozen=True, kw_only=True):
    """What `dataset dedup` found."""

    kept: Dataset
    dropped: tuple[DroppedSet, ...]
    """In the dataset's order."""


def dedup_dataset(
    name: str,
    out: Path,
    report: Path,
    *,
    threshold: Fraction | float | str = "0.7",
    rule: Rule = "paper",
    taxonomy: Path | None = None,
    max_rows: int | None = MOST_ROWS,
) -> Deduplication:
    """Write the prompt-sets that are not too similar to an earlier one of their cell, and a line on each of the others.

    Args:
        name: `starter`, a path, or `hf:owner/name[@revision]`.
        out: where the sets that are kept go; its suffix names the format: `.jsonl` or `.parquet`.
        report: where the others go, as JSONL: a `DroppedSet` a line. Private to the user: it holds prompts.
        threshold: the ROUGE-L F1 from which on two prompts are too similar; read as it is written, so that 0.7 is 7/10.
        rule: `paper` compares every prompt with every prompt, paraphrases too, and drops above the threshold; `authors`
            compares the three core prompts joined, and drops at the threshold as well.
        taxonomy: TOML file of the valid labels; the paper's by default.
        max_rows: prompt-sets that the dataset may have; None sets no limit.

    Raises:
        InputError: the dataset is not valid, the threshold or the rule is none, or a file cannot be written or is the input.
    """
    from opensafeintent.construction.similarity import Item, Rule, duplicates

    if rule not in get_args(Rule):
        raise InputError(f"rule {one_line(rule, 60)!r}: {nearest(rule, get_args(Rule))}")
    _refuse_overwriting(name, out, report, taxonomy)
    dataset = load_dataset(name, load_taxonomy(taxonomy) if taxonomy else None, max_rows)
    items = [Item(prompt_set.id, prompt_set.cell, prompt_set.wordings()) for prompt_set in dataset.prompt_sets]
    found = duplicates(items, threshold, rule).dropped
    kept = tuple(prompt_set for prompt_set in dataset.prompt_sets if prompt_set.id not in found)
    dropped = tuple(_line(item, found[item.id]) for item in dataset.prompt_sets if item.id in found)
    result = Deduplication(kept=Dataset(out.stem, kept, dataset.taxonomy), dropped=dropped)
    make_private_folder(report.parent)
    write_dataset(result.kept, out)
    write_private(report, b"".join(msgspec.json.encode(line) + b"\n" for line in dropped))
    return result


def _line(prompt_set: PromptSet, match: Match) -> DroppedSet:
    return DroppedSet(
        id=prompt_set.id,
        twin=match.twin,
        harm_domain=prompt_set.harm_domain,
        task_type=prompt_set.task_type,
        variant=match.variant,
        twin_variant=match.twin_variant,
        prompt=match.prompt,
        twin_prompt=match.twin_prompt,
        score=match.overlap.score,
        lcs=match.overlap.lcs,
        words=match.overlap.words,
        twin_words=match.overlap.other_words,
    )


def _refuse_overwriting(name: str, out: Path, report: Path, taxonomy: Path | None) -> None:
    if out.suffix not in (".jsonl", ".parquet"):
        raise InputError(f"{out}: cannot tell the format; valid suffixes: .jsonl, .parquet")
    if report.suffix != ".jsonl":
        raise InputError(f"{report}: the report is JSONL; expected a name that ends in .jsonl")
    if _same(out, report):
        raise InputError(f"{out}: named for the sets that are kept and for the report; expected two files")
    for written in (out, report):
        for read in (Path(name), taxonomy):
            if read is not None and _same(written, read):
                raise InputError(f"{written}: is the input, which stays as it is; expected another file")


def _same(one: Path, other: Path) -> bool:
    try:
        return one.resolve() == other.resolve() or (one.exists() and other.exists() and one.samefile(other))
    except (OSError, RuntimeError, ValueError):  # a name that no file can have is not another's
        return False
