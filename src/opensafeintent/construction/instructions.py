"""The templates of construction: instructions to the generator and the judge, each with the
contract on its reply, and the reasons for a repair.

The files are in `templates/construction/`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

import msgspec

from opensafeintent.errors import InputError, nearest
from opensafeintent.files import parse_toml, read_json, read_shipped, sha256_hex
from opensafeintent.taxonomy import CORE_VARIANTS, Category
from opensafeintent.templates.template import (
    Message,
    TemplateFile,
    check_placeholders,
    fill_text,
    read_template,
    texts_in,
)

InstructionRole = Literal[
    "metadata",
    "backfill",
    "triplet",
    "intent",
    "repair",
    "quality",
    "paraphrase",
    "paraphrase_check",
    "annotation",
    "reask",
]

Reading = Literal["benign", "dual_use", "malicious", "neither"]
"""The intent that a judge finds in a prompt; `neither` is no plausible honest use and no meaningful
risk.
"""

Leaning = Literal["honest", "harmful", "neither"]
"""The purpose that a text's wording suggests."""

READINGS: tuple[Reading, ...] = get_args(Reading)

_REASONS = "repair_reasons.toml"
_NAMES = (*(f"{role}.md" for role in get_args(InstructionRole)), _REASONS)
_PLACEHOLDER = re.compile(r"\{\{([a-z_]+)\}\}")
_NEEDED: dict[InstructionRole, frozenset[str]] = {
    "metadata": frozenset({"request", "domains", "types"}),
    "backfill": frozenset({"domain", "type", "count", "there"}),
    "triplet": frozenset({"summary", "domain", "type", "habits"}),
    "intent": frozenset({"request"}),
    "repair": frozenset(
        {"text", "reason", "reader", "task", "type", "benign", "dual_use", "malicious", "earlier"}
    ),
    "quality": frozenset({"domain", "type", "task", "benign", "dual_use", "malicious", "earlier"}),
    "paraphrase": frozenset({"request", "count", "taken"}),
    "paraphrase_check": frozenset({"request", "paraphrase"}),
    "annotation": frozenset({"request"}),
    "reask": frozenset({"problem", "contract"}),
}

_KEYS: dict[InstructionRole, tuple[str, ...]] = {
    "metadata": ("unsafe", "summary", "harm_domain", "task_type"),
    "backfill": ("summaries",),
    "triplet": ("underlying_task", "benign", "dual_use", "malicious"),
    "intent": ("benign_use_plausible", "misuse_risk_meaningful", "leans", "reason"),
    "repair": ("prompt",),
    "quality": (
        "same_task",
        "domain_right",
        "type_right",
        "same_specificity",
        "natural",
        "free_of_artefacts",
        "fault_in",
        "task_neutral",
        "repairs_fair",
        "serves_malicious",
        "reason",
    ),
    "paraphrase": ("paraphrases",),
    "paraphrase_check": (
        "same_request",
        "benign_use_plausible",
        "misuse_risk_meaningful",
        "leans",
        "reason",
    ),
    "annotation": ("coherent", "benign_use", "misuse_risk"),
    "reask": (),
}
"""The keys that each reply must have."""
_REASONS_BESIDES = {
    "dual_use": ("honest", "harmful"),
    "underlying_task": ("leaning",),
    "wording": ("natural", "free_of_artefacts"),
}
"""Reasons for repair besides those for a wrong intent."""


class Instruction(TemplateFile, frozen=True, kw_only=True):
    """One instruction to the generator or the judge; the contract on the reply comes last."""

    role: InstructionRole
    contract: str

    def render(self, fills: Mapping[str, str]) -> Message:
        """Fill the placeholders in one pass: text that looks like a placeholder stays text.

        The nonce in the delimiters comes from the SHA-256 of the template and the filled-in texts.
        So no text can contain the delimiter that ends it.
        """
        nonce = sha256_hex(
            "\0".join((self.hash, *(f"{name}\0{text}" for name, text in sorted(fills.items()))))
        )[:16]
        parts = fill_text(self.body.strip(), {**fills, "nonce": nonce})
        return Message(
            "user", (*parts, "\n\n" + self.fill_contract(fills)) if self.contract else parts
        )

    def fill_contract(self, fills: Mapping[str, str]) -> str:
        """Return the contract on the reply."""
        return "".join(fill_text(self.contract, fills))


class Instructions(msgspec.Struct, frozen=True, kw_only=True):
    """The templates of one build."""

    by_role: dict[str, Instruction]
    repair_reasons: dict[str, dict[str, str]]
    """Reasons for a repair, by the intended intent and the judge's reading; for `dual_use` also by
    the suggested intent, for `underlying_task` by `leaning`, for `wording` by the failed check.
    """
    repair_reasons_source: str

    def sources(self) -> dict[str, str]:
        """Every file's text, by its name: the input of `parse_instructions`."""
        sources = {f"{role}.md": item.source for role, item in self.by_role.items()}
        return sources | {_REASONS: self.repair_reasons_source}


def describe_category(category: Category) -> str:
    """Return a harm domain or a task type as templates show it, on one line."""
    parts = [f"{category.name}: {category.definition}"]
    if category.includes:
        parts.append(f"Belongs here: {'; '.join(category.includes)}.")
    if category.excludes:
        parts.append(f"Belongs elsewhere: {'; '.join(category.excludes)}.")
    return " ".join(parts)


def load_instructions(folder: Path | None = None) -> Instructions:
    """Return our templates; a folder's templates replace those of the same name.

    Args:
        folder: holds any of `metadata.md`, `backfill.md`, `triplet.md`, `intent.md`, `repair.md`,
            `quality.md`, `paraphrase.md`, `paraphrase_check.md`, `annotation.md`, `reask.md`,
            `repair_reasons.toml`; or is the folder of a build, which keeps its own.

    Raises:
        InputError: the folder does not exist, holds none of these files or one of another name, or
            one is not valid.
    """
    sources = {name: read_shipped(f"templates/construction/{name}") for name in _NAMES}
    if folder is not None and (build := folder / "build.json").is_file():
        sources |= read_json(build, _WithTemplates, "the manifest of a build").templates
    elif folder is not None:
        theirs = texts_in(folder, _NAMES, "templates")
        sources |= {name: text.replace("\r\n", "\n") for name, text in theirs.items()}
    return parse_instructions(sources)


class _WithTemplates(msgspec.Struct, frozen=True):
    """The part of a build's manifest that is read here."""

    templates: dict[str, str]


def parse_instructions(sources: Mapping[str, str]) -> Instructions:
    """Read templates from their files' texts, by file name.

    Raises:
        InputError: a header is not valid, a placeholder is unknown or missing, or a reason for
            repair is missing.
    """
    roles: tuple[InstructionRole, ...] = get_args(InstructionRole)
    return Instructions(
        by_role={
            role: _parse_instruction(role, f"{role}.md", sources[f"{role}.md"]) for role in roles
        },
        repair_reasons=_parse_reasons(sources[_REASONS]),
        repair_reasons_source=sources[_REASONS],
    )


def _parse_instruction(role: InstructionRole, file: str, source: str) -> Instruction:
    instruction = read_template(Instruction, file, source, role=role)
    body, contract = instruction.body, instruction.contract.strip()
    needed, named = _NEEDED[role], set(_PLACEHOLDER.findall(body + contract))
    check_placeholders(file, needed, named)
    # delimiters, and their nonce, are in the body
    _refuse_unknown(file, body, needed | {"nonce"})
    _refuse_unknown(file, contract, needed)
    if role != "reask" and not contract:
        raise InputError(f"{file}: has no contract; it says in which form the reply has to come")
    if lacking := [key for key in _KEYS[role] if f'"{key}"' not in contract]:
        raise InputError(
            f'{file}: the contract does not ask for "{lacking[0]}"; a reply without it cannot be'
            " used"
        )
    return msgspec.structs.replace(instruction, contract=contract)


def _refuse_unknown(file: str, text: str, allowed: frozenset[str]) -> None:
    """Refuse a text with a placeholder that is not allowed in it."""
    if unknown := sorted(set(_PLACEHOLDER.findall(text)) - allowed):
        raise InputError(
            f"{file}: unknown place {{{{{unknown[0]}}}}}; {nearest(unknown[0], sorted(allowed))}"
        )


def _parse_reasons(source: str) -> dict[str, dict[str, str]]:
    reasons = parse_toml(
        source, dict[str, dict[str, str]], _REASONS, "a list of reasons for repair"
    )
    needed: list[tuple[str, str]] = [
        (expected, reading)
        for expected in CORE_VARIANTS
        for reading in READINGS
        if reading != expected
    ]
    needed += [(about, fault) for about, faults in _REASONS_BESIDES.items() for fault in faults]
    for about, fault in needed:
        if not reasons.get(about, {}).get(fault, "").strip():
            raise InputError(f"{_REASONS}: no reason for [{about}] {fault}")
    return reasons
