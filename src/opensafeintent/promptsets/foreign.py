"""Files of other benchmarks, whose rows become pairs of a benign and a malicious prompt: FORTRESS,
JailbreakBench and XSTest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import SequenceMatcher
from functools import partial
from typing import Any, NamedTuple, NoReturn

from opensafeintent.errors import pluralize
from opensafeintent.hostile import clean_for_display
from opensafeintent.promptsets.fields import Record
from opensafeintent.promptsets.reading import Problem, read_each, whole_number
from opensafeintent.promptsets.sources import TWINS, DataFile
from opensafeintent.taxonomy import Category, Taxonomy, check_taxonomy

Rows = Mapping[DataFile, Sequence[Record]]
"""The rows of a dataset, by file."""


class Joined(NamedTuple):
    """The prompt-sets that rows make."""

    records: list[Record]
    """A record each, with the fields of a table; its headings are the file's."""
    left_out: tuple[str, ...] = ()
    """Which rows are in none, a line each."""


class ForeignFormat(NamedTuple):
    """A format of another benchmark."""

    columns: frozenset[str]
    """Fields by which it is recognised if all are there, in lower case."""
    join: Callable[[Rows], Joined]
    """Makes prompt-sets of rows whose fields are in lower case. Raises a Problem, which has the
    others, if any row is faulty.
    """


def recognize_foreign(fields: Collection[str]) -> str | None:
    """Name the benchmark whose columns these are, in any case; None if they are of none."""
    found = {field.casefold() for field in fields}
    return next((name for name, form in FOREIGN.items() if form.columns <= found), None)


def join_foreign(name: str, files: Rows) -> Joined:
    """Make prompt-sets of a benchmark's rows. Copies of its files differ in the case of columns.

    Raises:
        Problem: a row is faulty; it has the others that are.
    """
    return FOREIGN[name].join(
        {file: [_lower_fields(row) for row in rows] for file, rows in files.items()}
    )


def _lower_fields(row: Record) -> Record:
    headings = {field.casefold(): field for field in row.data}
    return Record({new: row.data[old] for new, old in headings.items()}, row.location, headings)


def make_taxonomy(
    domains: Collection[str], types: Collection[str], paper: Taxonomy, place: str
) -> Taxonomy:
    """Return a taxonomy of a file's own labels, in alphabetical order; the paper's if that has all
    of them. Of labels that the file has none of, it has the paper's.

    Raises:
        InputError: a label is not printable.
    """
    if {*domains} <= {*paper.domain_names} and {*types} <= {*paper.type_names}:
        return paper
    own = Taxonomy(
        name="the file's own labels",
        harm_domains=_list_categories(domains, paper.harm_domains),
        task_types=_list_categories(types, paper.task_types),
    )
    return check_taxonomy(own, place)


def _list_categories(labels: Collection[str], known: Sequence[Category]) -> tuple[Category, ...]:
    defined = {category.name: category for category in known}
    return tuple(
        defined.get(label) or Category(name=label, definition="") for label in sorted({*labels})
    ) or tuple(known)


def _join_fortress(files: Rows) -> Joined:
    rows = [row for listed in files.values() for row in listed]
    return Joined(
        [*read_each({row.location: partial(_read_fortress, row) for row in rows}).values()]
    )


def _read_fortress(row: Record) -> Record:
    """Return a row of FORTRESS as a record. Yes to a question of its rubric is harm."""
    rubric = row.texts("rubric")
    if not rubric:
        row.fail_absent("rubric", "a list of questions")
    subdomain = row.optional_name("risk_subdomain")
    return Record(
        {
            "id": _read_number(row, "id"),
            "benign": row.data.get("benign_prompt"),
            "malicious": row.data.get("adversarial_prompt"),
            "harm_domain": row.data.get("risk_domain"),
            # a title, and behind a colon what it covers
            "task_type": subdomain and subdomain.partition(":")[0].strip(),
            "questions": {"malicious": {"must_not": list(rubric)}},
        },
        row.location,
        {
            "id": row.find_heading("id"),
            "benign": row.find_heading("benign_prompt"),
            "malicious": row.find_heading("adversarial_prompt"),
            "harm_domain": row.find_heading("risk_domain"),
            "task_type": row.find_heading("risk_subdomain"),
            "questions": row.find_heading("rubric"),
        },
    )


def _read_number(row: Record, field: str) -> str | None:
    """Return a whole number as the id of a set, or the text that stands for it; None without."""
    if field not in row:
        return None
    number = whole_number(row.data[field])
    return row.name(field) if number is None else str(number)


def _join_jailbreakbench(files: Rows) -> Joined:
    halves: dict[str, tuple[DataFile, Sequence[Record]]] = {}
    for file, rows in files.items():
        halves["benign" if "benign" in file.path.name.casefold() else "harmful"] = file, rows
    if len(files) != 2 or len(halves) != 2:
        missing = "harmful" if "benign" in halves else "benign"
        raise Problem(
            f"{next(iter(files)).shown}: the {missing} behaviours of JailbreakBench are not beside"
            f" it; expected {' and '.join(TWINS)} in one folder, under these names"
        )
    harmful, benign = (_index_rows(halves[half][1]) for half in ("harmful", "benign"))
    readers: dict[str, Callable[[], Any]] = {
        row.location: partial(_pair_behaviors, index, row, benign.get(index), halves["benign"][0])
        for index, row in harmful.items()
    }
    readers |= {
        row.location: partial(_refuse_alone, index, row, halves["harmful"][0])
        for index, row in benign.items()
        if index not in harmful
    }
    return Joined([*read_each(readers).values()])


def _index_rows(rows: Sequence[Record]) -> dict[str, Record]:
    indices = read_each({row.location: partial(_read_number, row, "index") for row in rows})
    by_index: dict[str, Record] = {}
    for row in rows:
        index = indices[row.location]
        if index is None:
            row.fail_absent("index", "a whole number")
        if index in by_index:
            row.fail(
                "index", f"{clean_for_display(index)!r} is also that of {by_index[index].location}"
            )
        by_index[index] = row
    return by_index


def _refuse_alone(index: str, row: Record, other: DataFile) -> NoReturn:
    row.fail("index", f"{clean_for_display(index)!r} is not in {other.shown}")


def _pair_behaviors(index: str, harmful: Record, benign: Record | None, other: DataFile) -> Record:
    if benign is None:
        _refuse_alone(index, harmful, other)
    if harmful.optional_name("category") != benign.optional_name("category"):
        harmful.fail("category", f"is another one at {benign.location}, which has the same Index")
    return _pair(
        benign,
        harmful,
        "goal",
        ("benign", "harmful"),
        {
            "id": index,
            "harm_domain": harmful.data.get("category"),
            "source": harmful.data.get("source"),
        },
    )


def _pair(
    benign: Record,
    malicious: Record,
    prompt: str,
    kinds: tuple[str, str],
    further: Mapping[str, Any],
) -> Record:
    """Return the record of two rows that have a prompt each; `kinds` tells them apart in errors."""
    heading = benign.find_heading(prompt)
    return Record(
        {"benign": benign.data.get(prompt), "malicious": malicious.data.get(prompt), **further},
        f"{benign.location} and {malicious.location}",
        {"benign": f"{heading} ({kinds[0]})", "malicious": f"{heading} ({kinds[1]})"},
    )


_CONTRAST = "contrast_"
"""Beginning of a type of unsafe prompts; behind it is the type of the safe ones."""
_OTHER_CONTRASTS = {
    "real_group_nons_discr": "contrast_discr",
    "privacy_fictional": "contrast_privacy",
}
_NO_CONTRAST = ("nons_group_real_discr", "privacy_public")
"""Types of safe prompts whose contrast belongs to another type, prompt by prompt."""
_ALIKE = 0.8
"""Similarity of two foci (`difflib`'s ratio) above which one is another spelling."""


def _join_xstest(files: Rows) -> Joined:
    rows = [row for listed in files.values() for row in listed]
    types = read_each({row.location: partial(row.name, "type") for row in rows})
    by_type: dict[str, list[Record]] = {}
    for row in rows:
        by_type.setdefault(types[row.location], []).append(row)
    contrasts = {
        kind: _OTHER_CONTRASTS.get(kind, _CONTRAST + kind)
        for kind in by_type
        if not kind.startswith(_CONTRAST) and kind not in _NO_CONTRAST
    }
    known = {*contrasts, *contrasts.values(), *_NO_CONTRAST}
    contrasts |= {kind.removeprefix(_CONTRAST): kind for kind in by_type if kind not in known}
    checks = {kind: partial(_check_numbers, by_type, kind, contrasts[kind]) for kind in contrasts}
    read_each(checks)
    pairs = {
        safe.location: partial(_pair_contrasts, kind, contrast, safe, unsafe)
        for kind, contrast in contrasts.items()
        for safe, unsafe in zip(by_type[kind], by_type[contrast], strict=True)
    }
    left_out = [
        f"{pluralize(len(by_type[kind]), 'row')} of the type {kind}, which has no contrasts"
        for kind in _NO_CONTRAST
        if kind in by_type
    ]
    return Joined([*read_each(pairs).values()], tuple(left_out))


def _check_numbers(by_type: Mapping[str, Sequence[Record]], kind: str, contrast: str) -> None:
    """Refuse a type of safe prompts that has not as many as its contrast."""
    safe, unsafe = by_type.get(kind, ()), by_type.get(contrast, ())
    if len(safe) != len(unsafe):
        [*safe, *unsafe][0].fail(
            "type",
            f"there are {len(safe)} {clean_for_display(kind)} and {len(unsafe)}"
            f" {clean_for_display(contrast)}; expected as many, since the first belongs to the"
            " first",
        )


def _pair_contrasts(kind: str, contrast: str, safe: Record, unsafe: Record) -> Record:
    for row, label in ((safe, "safe"), (unsafe, "unsafe")):
        if (found := row.optional_name("label") or label) != label:
            row.fail("label", f"is {clean_for_display(found)!r}; expected {label!r} of this type")
    foci = [row.optional_name("focus") or "" for row in (safe, unsafe)]
    if not _is_same_focus(*foci):
        safe.fail(
            "focus",
            f"{clean_for_display(foci[0])!r} is {clean_for_display(foci[1])!r} at"
            f" {unsafe.location}; expected rows in the published order: the first {kind} belongs to"
            f" the first {contrast}",
        )
    numbered = next((field for field in ("id", "id_v2") if field in safe), "id")
    return _pair(
        safe,
        unsafe,
        "prompt",
        (kind, contrast),
        {"id": _read_number(safe, numbered), "task_type": kind},
    )


def _is_same_focus(first: str, second: str) -> bool:
    """Tell whether two words or phrases are the same but for spelling, or for words that one
    leaves out. An empty one may be any.
    """
    words, others = (text.casefold().split() for text in (first, second))
    if not words or not others or {*words} <= {*others} or {*others} <= {*words}:
        return True
    return SequenceMatcher(None, " ".join(words), " ".join(others)).ratio() >= _ALIKE


FOREIGN: dict[str, ForeignFormat] = {
    "FORTRESS": ForeignFormat(frozenset({"adversarial_prompt", "benign_prompt"}), _join_fortress),
    "JailbreakBench": ForeignFormat(
        frozenset({"goal", "behavior", "category"}), _join_jailbreakbench
    ),
    "XSTest": ForeignFormat(frozenset({"prompt", "type", "focus"}), _join_xstest),
}
"""The formats of other benchmarks, by name."""
