"""The folder of a build: the manifest, every stage's kept and dropped items, and the results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec

from opensafeintent.calls.client import Client, choose_concurrency
from opensafeintent.calls.costs import Spent, sum_spent
from opensafeintent.calls.ledger import Ledger
from opensafeintent.calls.ledger_folder import (
    BUILD_MANIFEST,
    LedgerFolder,
    refuse_folder_of_other_run,
)
from opensafeintent.calls.records import Sampling
from opensafeintent.construction.asking import ModelRole, StageContext
from opensafeintent.construction.backfill import Proposal
from opensafeintent.construction.instructions import parse_instructions
from opensafeintent.construction.items import (
    PURPOSES,
    STAGES,
    CallRef,
    Draft,
    Rejection,
    Seed,
    Stage,
    StageResult,
    Topic,
)
from opensafeintent.construction.stages import Built, Round, Rounds
from opensafeintent.errors import InputError
from opensafeintent.files import (
    canonical_json,
    inside,
    make_private_folder,
    read_json,
    sha256_hex,
    write_private,
)
from opensafeintent.promptsets.reading import Problem, read_records
from opensafeintent.promptsets.record import Dataset
from opensafeintent.taxonomy import Taxonomy

_SCHEMA = 1
_JSON = msgspec.json.Encoder()
RESULTS = ("dataset.jsonl", "provenance.jsonl")
"""Files of a build that ends in a dataset."""


class BuildManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a build, besides its ledger."""

    schema: int = _SCHEMA
    version: str
    generator: str
    judge: str
    identities: dict[str, str]
    """The models' names in call keys."""
    generator_sampling: Sampling
    judge_sampling: Sampling
    structured_output: bool
    left_out: dict[str, tuple[str, ...]] = {}
    """By model, the fields of a request that it turned out not to take."""
    headers: dict[str, dict[str, str]] = {}
    """By model, the variable of each header that its requests have."""
    code: dict[str, str] = {}
    """By Python function, a hash of its code, as far as that is known."""
    taxonomy: Taxonomy
    seeds: str | None
    """The file or dataset of the seeds."""
    limit: int | None
    per_cell: int | None
    stages: tuple[int, int]
    labels: tuple[str, ...] = ()
    """Files of labels for stage 7."""
    ledger: str
    templates: dict[str, str]
    """Every template's text, by file name."""
    complete: bool = False
    """Whether the last run was completed: the files beside this one then belong together."""
    dataset_hash: str | None = None

    def add_left_out(self, fields: Mapping[str, Iterable[str]]) -> BuildManifest:
        """Return the manifest with the fields that models turned out not to take."""
        left_out = {model: tuple(sorted(names)) for model, names in fields.items()}
        return msgspec.structs.replace(self, left_out=left_out)

    def context(
        self,
        client: Client,
        *,
        at_once: int = choose_concurrency(None),
        recorded_stages: Sequence[Stage] = (),
    ) -> StageContext:
        """Return the resources of the build's stages.

        Args:
            client: makes the calls.
            at_once: items in progress at the same time.
            recorded_stages: those that take their calls from the ledger alone.
        """
        return StageContext(
            client=client,
            generator=ModelRole(
                role="generator", model=self.generator, sampling=self.generator_sampling
            ),
            judge=ModelRole(role="judge", model=self.judge, sampling=self.judge_sampling),
            instructions=parse_instructions(self.templates),
            taxonomy=self.taxonomy,
            structured=self.structured_output,
            at_once=at_once,
            recorded=Client(client.ledger, self.identities),
            recorded_only=frozenset(
                purpose for stage in recorded_stages for purpose in PURPOSES[stage]
            ),
        )


def sum_spent_on_build(manifest: BuildManifest, built: Built, ledger: Ledger) -> Spent:
    """Add up the calls of a build: every attempt in a ledger of its own, else the calls that its
    items use.
    """
    shared = Path(manifest.ledger).is_absolute()
    items = (item for result in built.stages for item in (*result.kept, *result.rejected))
    calls: Iterator[CallRef] = (call for item in items for call in getattr(item, "calls", ()))
    return sum_spent(ledger, [bytes.fromhex(call.key) for call in calls] if shared else None)


class _RoundsBegun(msgspec.Struct, frozen=True, kw_only=True):
    """The file of rounds."""

    schema: int = _SCHEMA
    asked_with: str
    """A hash of the other parts of stage 3's calls: if they change, other prompts are counted."""
    rounds: tuple[Round, ...]


class BuildFolder(LedgerFolder):
    """The folder of one build."""

    manifest_name = BUILD_MANIFEST
    doing = "building into"

    def load(self) -> BuildManifest | None:
        """Return the manifest of an existing build, if there is one.

        Raises:
            InputError: it is of another version, or was damaged, or the folder is a run's.
        """
        if not self.manifest_path.is_file():
            refuse_folder_of_other_run(self.path)
            return None
        return read_json(
            self.manifest_path, BuildManifest, "the manifest of a build", schema=_SCHEMA
        )

    def rounds(self, manifest: BuildManifest, *, readonly: bool = False) -> Rounds:
        """Return the rounds of stage 3 that earlier runs began; new ones are written unless it is
        `readonly`.

        Raises:
            InputError: the file cannot be read, or was damaged.
        """
        path = self.path / "stages/rounds.json"
        parts = (
            parse_instructions(manifest.templates).by_role["triplet"].hash,
            manifest.structured_output,
            manifest.taxonomy,
        )
        asked_with = sha256_hex(canonical_json(parts))
        begun: tuple[Round, ...] = ()
        if path.is_file():
            what = "the rounds of stage 3 (without it they are counted again)"
            record = read_json(path, _RoundsBegun, what, schema=_SCHEMA)
            begun = record.rounds if record.asked_with == asked_with else ()

        def save(rounds: Sequence[Round]) -> None:
            if not readonly:
                make_private_folder(path.parent)
                write_private(
                    path,
                    msgspec.json.encode(_RoundsBegun(asked_with=asked_with, rounds=tuple(rounds))),
                )

        return Rounds(begun, save)

    def write_stage(self, result: StageResult[Any]) -> None:
        """Write the kept and dropped items of a stage, as JSONL."""
        make_private_folder(self.path / "stages")
        kept, rejected = (
            _JSON.encode_lines(map(_add_id, result.kept)),
            _JSON.encode_lines(result.rejected),
        )
        write_private(self.path / _name_items(result.stage, "kept"), kept)
        write_private(self.path / _name_items(result.stage, "rejected"), rejected)

    def yield_rejected(self) -> Iterator[tuple[Stage, Rejection]]:
        """Yield the items that each stage dropped, in the order of the stages.

        Raises:
            InputError: there is no build here, or a file was damaged.
        """
        if not (self.manifest_path.is_file() and self.load()):
            raise InputError(
                f"{self.path}: no build here (no build.json); expected a folder that build wrote"
            )
        stages: tuple[Stage, ...] = get_args(Stage)
        for stage in stages:
            path = inside(self.path, _name_items(stage, "rejected"))
            try:
                for _, row in read_records(path) if path.is_file() else ():
                    rejection = msgspec.convert(row, Rejection)
                    kind = next(kind for key, kind in _ITEMS.items() if key in rejection.item)
                    item = msgspec.convert(rejection.item, kind)
                    yield stage, msgspec.structs.replace(rejection, item=item)
            except (Problem, msgspec.ValidationError, StopIteration, TypeError) as error:
                raise InputError(f"{path}: is damaged: {error}") from error

    def write_dataset(self, dataset: Dataset, drafts: Iterable[Draft]) -> None:
        """Write the dataset, and the origin of each of its sets."""
        write_private(self.path / "provenance.jsonl", _JSON.encode_lines(map(_add_id, drafts)))
        write_private(
            self.path / "dataset.jsonl",
            _JSON.encode_lines(item.to_json() for item in dataset.prompt_sets),
        )

    def remove_later_stages(self, last: int) -> None:
        """Remove earlier runs' files of stages that this build does not have."""
        for stage in STAGES[last:]:
            (self.path / _name_items(stage, "kept")).unlink(missing_ok=True)
            (self.path / _name_items(stage, "rejected")).unlink(missing_ok=True)


_ITEMS: dict[str, type[Draft | Topic | Seed | Proposal]] = {
    "prompts": Draft,
    "summary": Topic,
    "prompt": Seed,
    "round": Proposal,
}
"""Types of items that a stage may drop, by a field that only each has."""


def _name_items(stage: Stage, kind: Literal["kept", "rejected"]) -> str:
    """Return the path in a build's folder of the items that a stage kept, or dropped."""
    return f"stages/{get_args(Stage).index(stage)}-{stage}.{kind}.jsonl"


def _add_id(item: Any) -> dict[str, Any]:
    return {"id": item.id, **msgspec.to_builtins(item)}
