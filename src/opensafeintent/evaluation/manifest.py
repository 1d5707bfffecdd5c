"""The manifest of a run (`run.json`), its folder and its tasks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal, cast, get_args

import msgspec

from opensafeintent import __version__
from opensafeintent.calls.ledger_folder import RUN_MANIFEST, LedgerFolder
from opensafeintent.calls.model_names import check_model_name
from opensafeintent.calls.prices import PriceList
from opensafeintent.errors import InputError, did_you_mean, find_repeated, nearest, pluralize
from opensafeintent.evaluation.gold_cases import JudgeCheck
from opensafeintent.evaluation.pipeline import Earlier, JudgePlan, ModelWork, Planned, Task
from opensafeintent.evaluation.plan import Plan
from opensafeintent.files import inside, make_private_folder, read_json, sha256_hex, write_private
from opensafeintent.promptsets.loading import load_dataset, sample_sets
from opensafeintent.promptsets.record import Dataset, PromptSet
from opensafeintent.responses import ResponseKey
from opensafeintent.taxonomy import (
    DIRECT_TWINS,
    DUAL_USE,
    FOLLOW_UPS,
    GRADE_OF,
    METRIC_GRADES,
    FollowUp,
    Graded,
    Taxonomy,
    is_dual_use,
    is_follow_up,
)
from opensafeintent.templates.template import Role, SecondTurnTexts, Templates, parse_template


def list_tasks(
    model: str,
    prompt_sets: Sequence[PromptSet],
    epochs: int,
    second_turn: SecondTurnTexts | None = None,
    *,
    only_asked_about: bool = False,
) -> list[Task]:
    """Return a target's prompts, epoch by epoch and set by set, the longest chain of calls of a set
    first. The follow-ups of an epoch come after its other prompts, which hold the first replies.

    Args:
        model: the target.
        prompt_sets: of the prompts.
        epochs: responses to each prompt.
        second_turn: its texts; None if there are no follow-ups.
        only_asked_about: whether prompts are left out that their set has no questions about.
    """
    first = [
        (prompt_set, variant)
        for prompt_set in prompt_sets
        for variant in sorted(
            list_prompts(prompt_set, only_asked_about=only_asked_about),
            key=lambda variant: not is_dual_use(variant),
        )
    ]
    follow_ups = [
        (prompt_set, variant)
        for prompt_set in (prompt_sets if second_turn else ())
        if not prompt_set.is_pair
        for variant in FOLLOW_UPS
    ]
    return [
        make_task(ResponseKey(model, prompt_set.id, variant, epoch), prompt_set, second_turn)
        for epoch in range(1, epochs + 1)
        for prompt_set, variant in (*first, *follow_ups)
    ]


def list_prompts(prompt_set: PromptSet, *, only_asked_about: bool) -> list[str]:
    """Return the variants of a set that are sent; `only_asked_about` as of `list_tasks`."""
    variants = prompt_set.wordings()
    return [name for name in variants if not only_asked_about or prompt_set.questions_about(name)]


def make_task(key: ResponseKey, prompt_set: PromptSet, second_turn: SecondTurnTexts | None) -> Task:
    """Return the task of a response.

    Args:
        key: of the response.
        prompt_set: of its prompt.
        second_turn: the texts of a second turn; only a follow-up needs them.
    """
    if not is_follow_up(key.variant):
        return Task(
            model=key.model,
            set_id=key.set_id,
            variant=key.variant,
            epoch=key.epoch,
            prompt=prompt_set.wordings()[key.variant],
            questions=prompt_set.questions_about(key.variant),
        )
    assert second_turn is not None  # a run with follow-ups has their texts
    twin = DIRECT_TWINS[cast(FollowUp, key.variant)]
    return Task(
        **key._asdict(),
        prompt=second_turn.insist if twin == DUAL_USE else prompt_set.prompts.of(twin),
        earlier=Earlier(prompt=prompt_set.prompts.of(DUAL_USE), texts=second_turn),
    )


_SCHEMA = 1
MOST_MODELS = 500
"""Models of a run. A report compares every two of them: 500 make 125,000 comparisons of each
metric.
"""
MOST_JUDGES = 100
"""Judges of a run. A report computes how well every two of them agree."""


class DatasetEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The dataset that a run belongs to."""

    name: str
    hash: str
    sets: int
    taxonomy: Taxonomy
    questions: str = ""
    """Hash of the prompt-sets' own questions; empty if judges are not asked them."""


class StoredTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A template as it was when it was used."""

    role: Role
    id: str
    version: int
    file: str
    source: str


class ModelEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One target of a run."""

    identity: str
    imported: bool = False
    """Its responses come from files, not from calls."""
    label: str = ""
    """Its name in results, if it has another there."""


StopVerdict = Literal["yes", "no", "undecided"]


class StopAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a question about a model."""

    verdict: StopVerdict
    """`yes` and `no` are final."""
    sets: int
    """After how many prompt-sets of `promptsets.sample_order`."""
    missing: int
    """Of these, without a value."""
    ci: tuple[float, float]
    """The confidence sequence of the metric, or of how much better the first model is."""


class StopQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """The question that ends a run (`numbers.stop_when`), and its answers."""

    question: str
    confidence: float
    models: tuple[str, ...]
    """The models that it concerns."""
    held: dict[str, int] | None = None
    """By model, the prompt-sets that the ledger held responses to before it was asked; None until
    that is known.
    """
    answers: dict[str, StopAnswer] = {}
    """By model."""
    limits: dict[str, int] = {}
    """By model that needs no more, the prompt-sets that answered the question."""


class StoredCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command that made or changed a plan, as it was typed: without paths and secrets."""

    name: str
    settings: dict[str, Any]
    """By name, those that were stated."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The determinants of a run's results, together with the ledger."""

    schema: int = _SCHEMA
    version: str
    dataset: DatasetEntry
    ledger: str = "ledger.sqlite"
    """Relative to the run's folder, or absolute."""
    plan: Plan = Plan()
    commands: tuple[StoredCommand, ...] = ()
    """Those that made the plan, in turn."""
    models: dict[str, ModelEntry] = {}
    judges: dict[str, str] = {}
    """Identity by name."""
    templates: dict[str, StoredTemplate] = {}
    """By hash."""
    left_out: dict[str, tuple[str, ...]] = {}
    """By target or judge, the fields of a request that it turned out not to take."""
    headers: dict[str, dict[str, str]] = {}
    """By target or judge, the variable of each header that its requests have."""
    code: dict[str, str] = {}
    """By Python function, a hash of its code, as far as that is known."""
    judge_checks: tuple[JudgeCheck, ...] = ()
    """Results of the judges on the gold cases; a run may hold none."""
    stop_when: StopQuestion | None = None
    prices: PriceList | None = None
    """Of the last command that brought a file of prices: costs are the same in each report."""
    panel_before: tuple[str, ...] = ()
    """The judges before others were added; they count until the others have been asked about every
    response. Empty once that is done.
    """

    @classmethod
    def new(cls, dataset: Dataset, **fields: Any) -> Manifest:
        """Return the manifest of a run that begins."""
        entry = DatasetEntry(
            name=dataset.name, hash=dataset.hash, sets=len(dataset), taxonomy=dataset.taxonomy
        )
        return cls(version=__version__, dataset=entry, **fields)

    def keep_counted(self) -> Manifest:
        """Return the manifest with the judges that count: those before an addition that has not
        ended.
        """
        if not self.panel_before:
            return self
        plan = msgspec.structs.replace(self.plan, judges=self.panel_before)
        return msgspec.structs.replace(self, plan=plan)

    def judge_plan(self, model: str) -> JudgePlan:
        """Return how a model's responses are graded."""
        plan = self.plan
        own: dict[str, Any] = {"grades": self.grades, "target_sampling": plan.find_sampling(model)}
        if self.models[model].imported:
            own["probe"] = "none"
        shared = {
            field: getattr(plan, field) for field in JudgePlan.__struct_fields__ if field not in own
        }
        return JudgePlan(**shared, **own)

    @property
    def grades(self) -> tuple[Graded, ...]:
        """The grades that responses have, by the questions of the templates."""
        return tuple(grade for role, grade in GRADE_OF.items() if role in self.plan.templates)

    def work(self, model: str, tasks: Sequence[Task]) -> ModelWork:
        """Return the calls for tasks of a model."""
        plan, templates = self.judge_plan(model), self.judge_templates()
        return ModelWork(model=model, plan=plan, templates=templates, tasks=tasks)

    def plan_tasks(self, model: str, tasks: Sequence[Task]) -> list[Planned]:
        """Return tasks of a model with how their responses are graded."""
        if not tasks or not self.plan.judges:
            return []  # a run that was graded elsewhere has no templates here
        return [*self.work(model, tasks).planned]

    def list_tasks(self, model: str, dataset: Dataset) -> list[Task]:
        """Return a target's prompts, with its follow-ups if it is asked on."""
        sets = self.list_sets(model, dataset)
        plan = self.plan
        return list_tasks(
            model, sets, plan.epochs, plan.follow_ups, only_asked_about=not plan.by_rubric
        )

    def make_task(self, key: ResponseKey, dataset: Dataset) -> Task:
        """Return the task of a response of the run."""
        return make_task(key, dataset.by_id[key.set_id], self.plan.follow_ups)

    def list_stopped_early(self) -> list[str]:
        """Return the models whose prompt-sets are those that answered the run's question."""
        if self.stop_when is None:
            return []
        answers = self.stop_when.answers.values()
        sizes = {answer.sets for answer in answers if answer.verdict != "undecided"}
        sizes -= {self.dataset.sets}
        return [name for name, limit in self.stop_when.limits.items() if limit in sizes]

    def find_limit(self, model: str) -> int | None:
        """Return how many prompt-sets a model was evaluated on; None for all."""
        limits = self.stop_when.limits if self.stop_when else {}
        return limits.get(model, self.plan.limit)

    def add_left_out(self, fields: Mapping[str, Iterable[str]]) -> Manifest:
        """Return the manifest with further fields that models turned out not to take."""
        left_out = {
            model: tuple(sorted({*self.left_out.get(model, ()), *names}))
            for model, names in fields.items()
        }
        return msgspec.structs.replace(self, left_out=self.left_out | left_out)

    def judge_templates(self) -> Templates:
        """Return the templates in force, from the manifest's own copy."""
        stored = (self.templates[digest] for digest in self.plan.templates.values())
        return Templates.from_roles(
            {item.role: parse_template(item.role, item.file, item.source) for item in stored}
        )

    def identities(self) -> dict[str, str]:
        """Return the identity of every target and judge, and of the guard: all it takes to look
        their calls up.
        """
        guard = {self.plan.guard.model: self.plan.guard.identity} if self.plan.guard else {}
        return guard | {name: entry.identity for name, entry in self.models.items()} | self.judges

    def list_sets(self, model: str, dataset: Dataset) -> tuple[PromptSet, ...]:
        """Return the prompt-sets that a model was evaluated on, in the dataset's order."""
        return sample_sets(dataset.prompt_sets, self.find_limit(model))


class RunFolder(LedgerFolder):
    """The folder of one run: its manifest, prompt-sets, ledger and results."""

    manifest_name = RUN_MANIFEST
    doing = "evaluating into"

    @property
    def _sets_path(self) -> Path:
        return inside(self.path, "prompt_sets.jsonl")

    def exists(self) -> bool:
        """Whether there is a run in the folder."""
        return self.manifest_path.is_file()

    def check(self) -> None:
        """See that there is a run in the folder.

        Raises:
            InputError: there is none.
        """
        if not self.exists():
            runs = [str(path.parent) for path in self.path.parent.glob(f"*/{self.manifest_name}")]
            guess = did_you_mean(str(self.path), runs)
            raise InputError(
                f"{self.path}: no run here (no run.json); expected a folder that evaluate or import"
                f" wrote{guess and '; ' + guess}"
            )

    def manifest(self) -> Manifest:
        """Read the manifest.

        Raises:
            InputError: there is no run here, or it is of another version or too large.
        """
        self.check()
        manifest = read_json(self.manifest_path, Manifest, "the manifest of a run", schema=_SCHEMA)
        self.check_size(manifest)
        return manifest

    def check_size(self, manifest: Manifest) -> None:
        """Refuse a manifest with more, or longer, names than a report can show.

        Raises:
            InputError: see above.
        """
        check_number(self.manifest_path, manifest.models, "model", MOST_MODELS)
        check_number(self.manifest_path, manifest.judges, "judge", MOST_JUDGES)
        labels = (entry.label for entry in manifest.models.values())
        for name in (*manifest.models, *manifest.judges, *labels):
            check_model_name(name, f"{self.manifest_path}: model")

    def load(self) -> tuple[Manifest, Dataset]:
        """Read the manifest and the prompt-sets.

        Raises:
            InputError: there is no run here, or it is of another version, or it was damaged.
        """
        manifest = self.manifest()
        if unknown := _find_unknown(manifest):
            raise InputError(
                f"{self.manifest_path}: names {unknown}, which is not in it; it was changed or is"
                " damaged"
            )
        sets = load_dataset(
            str(self._sets_path), manifest.dataset.taxonomy, max_rows=None
        )  # it keeps earlier imports
        dataset = Dataset(manifest.dataset.name, sets.prompt_sets, manifest.dataset.taxonomy)
        if dataset.hash != manifest.dataset.hash:
            raise InputError(
                f"{self._sets_path}: was changed after the run; its hash is not the one in run.json"
            )
        if manifest.dataset.questions not in ("", dataset.questions_hash):
            raise InputError(
                f"{self._sets_path}: was changed after the run; the hash of its questions is not"
                " the one in run.json"
            )
        return manifest, dataset

    def templates(self) -> Templates:
        """Return the judge templates of the run.

        Raises:
            InputError: there is no run here, it was damaged, or no judge graded it.
        """
        manifest = self.manifest()
        if unknown := _find_unknown(manifest):
            raise InputError(f"{self.manifest_path}: names {unknown}, which is not in it")
        if not manifest.plan.judges:
            raise InputError(f"{self.path}: no judge graded this run, so it has no templates")
        return manifest.judge_templates()

    def write_prompt_sets(self, dataset: Dataset) -> None:
        """Make the folder and keep the prompt-sets in it."""
        make_private_folder(self.path)
        records = (prompt_set.to_json() for prompt_set in dataset.prompt_sets)
        write_private(self._sets_path, msgspec.json.Encoder().encode_lines(records))


def check_number(place: object, names: Collection[str], what: str, most: int) -> None:
    """Refuse too many models or judges of a run.

    Raises:
        InputError: there are more than `most`; the text begins with `place`, a file or a run.
    """
    if len(names) > most:
        raise InputError(
            f"{place}: names {pluralize(len(names), what)}; expected at most {most} in a run"
        )


_ALWAYS: tuple[Role, ...] = tuple(
    role
    for role in get_args(Role)
    if GRADE_OF.get(role) in (None, *METRIC_GRADES) and role != "checklist"
)
"""The templates of every graded run. A run has none for a question that is younger."""


def _find_unknown(manifest: Manifest) -> str:
    """Name the first judge or template that a manifest refers to and does not hold; empty if there
    is none.
    """
    for digest, template in manifest.templates.items():
        if sha256_hex(template.source) != digest:
            return f"the template {digest[:12]} ({template.file})"
    plan = manifest.plan
    if not plan.judges:
        called = (name for name, entry in manifest.models.items() if not entry.imported)
        return "".join(f"a judge of {model!r}" for model in islice(called, 1))
    for judge in plan.panel:
        if judge not in manifest.judges or judge not in plan.judge_samplings:
            return f"the judge {judge!r}"
    own: tuple[Role, ...] = ("checklist",) if plan.by_questions else ()
    for role in (*_ALWAYS, *own, *plan.templates):
        digest = plan.templates.get(role, "")
        if digest not in manifest.templates or manifest.templates[digest].role != role:
            return f"a template for {role} ({digest[:12]!r})"
    return ""


def store_templates(templates: Templates) -> dict[str, StoredTemplate]:
    """Return templates as the manifest keeps them, by hash."""
    return {
        template.hash: StoredTemplate(
            role=template.role,
            id=template.id,
            version=template.version,
            file=template.file,
            source=template.source,
        )
        for template in templates.all()
    }


def hash_templates(templates: Templates, *, checklist: bool = False) -> dict[Role, str]:
    """Return the hash of each template, by role.

    Args:
        templates: of a run.
        checklist: whether it asks the prompt-sets' own questions.
    """
    return {
        template.role: template.hash
        for template in templates.all()
        if checklist or template.role != "checklist"
    }


def label_models(manifests: Sequence[Manifest], labels: Sequence[str]) -> list[Manifest]:
    """Return manifests whose models have the names that results show, `MODEL=NAME` each.

    Raises:
        InputError: no run has the model, or two models would have one name.
    """
    names = {name: entry.label for manifest in manifests for name, entry in manifest.models.items()}
    labelled: set[str] = set()
    for text in labels:
        model, _, label = map(str.strip, text.partition("="))
        if model in labelled:
            raise InputError(f"--label {text}: the model has a name already; expected one")
        labelled.add(model)
        if not label:
            raise InputError(f"--label {text}: expected MODEL=NAME")
        if model not in names:
            raise InputError(f"--label {text}: no such model in the run; {nearest(model, names)}")
        if model.startswith("baseline/"):
            raise InputError(f"--label {text}: a baseline keeps its name")
        if label.startswith("baseline/"):  # gates, averages and findings leave those out
            raise InputError(f"--label {text}: a name of a baseline is for baselines")
        names[model] = label
    if twice := find_repeated(label or name for name, label in names.items()):
        raise InputError(f"--label: two models would be called {twice[0]!r}; expected unlike names")
    return [
        msgspec.structs.replace(
            manifest,
            models={
                name: msgspec.structs.replace(entry, label=names[name])
                for name, entry in manifest.models.items()
            },
        )
        for manifest in manifests
    ]
