"""The manifest of a run (`run.json`), its folder, its tasks, and how a request differs from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast, get_args

import msgspec

from opensafeintent import __version__
from opensafeintent.calls.headers import Headers
from opensafeintent.calls.ledger_folder import RUN_MANIFEST, LedgerFolder
from opensafeintent.calls.models import check_model_name, is_local
from opensafeintent.calls.prices import PriceList
from opensafeintent.calls.records import Sampling
from opensafeintent.errors import InputError, counted, did_you_mean, nearest
from opensafeintent.evaluation.gold_cases import JudgeCheck
from opensafeintent.evaluation.pipeline import Earlier, Grading, Guard, JudgePlan, Planned, Task
from opensafeintent.files import inside, make_private_folder, read_json, sha256_hex, write_private
from opensafeintent.promptsets import Dataset, sampled
from opensafeintent.promptsets.loading import load_dataset
from opensafeintent.promptsets.record import PromptSet
from opensafeintent.responses import ResponseKey
from opensafeintent.taxonomy import (
    DIRECT_TWINS,
    DUAL_USE,
    FOLLOW_UPS,
    GRADE_OF,
    METRIC_GRADES,
    MOST_EPOCHS,
    FollowUp,
    Graded,
    Preset,
    Taxonomy,
    is_dual_use,
    is_follow_up,
)
from opensafeintent.templates import Role, Templates, parse_template, request_hidden
from opensafeintent.templates.template import SecondTurnTexts, second_turn


def tasks_of(
    model: str,
    prompt_sets: Iterable[PromptSet],
    epochs: int,
    second_turn: SecondTurnTexts | None = None,
) -> list[Task]:
    """Return a target's prompts, epoch by epoch and set by set, the longest chain of calls of a set
    first. The follow-ups of an epoch come after its other prompts, which hold the first replies.

    Args:
        model: the target.
        prompt_sets: of the prompts.
        epochs: responses to each prompt.
        second_turn: its texts; None if there are no follow-ups.
    """
    sets = list(prompt_sets)
    tasks: list[Task] = []
    for epoch in range(1, epochs + 1):
        tasks += (
            Task(model=model, set_id=prompt_set.id, variant=variant, epoch=epoch, prompt=prompt)
            for prompt_set in sets
            for variant, prompt in sorted(
                prompt_set.wordings().items(), key=lambda item: not is_dual_use(item[0])
            )
        )
        tasks += (
            task_of(ResponseKey(model, prompt_set.id, variant, epoch), prompt_set, second_turn)
            for prompt_set in (sets if second_turn else ())
            for variant in FOLLOW_UPS
        )
    return tasks


def task_of(key: ResponseKey, prompt_set: PromptSet, second_turn: SecondTurnTexts | None) -> Task:
    """Return the task of a response.

    Args:
        key: of the response.
        prompt_set: of its prompt.
        second_turn: the texts of a second turn; only a follow-up needs them.
    """
    if not is_follow_up(key.variant):
        return Task(**key._asdict(), prompt=prompt_set.wordings()[key.variant])
    assert second_turn is not None  # a run with follow-ups has their texts
    twin = DIRECT_TWINS[cast(FollowUp, key.variant)]
    return Task(
        **key._asdict(),
        prompt=second_turn.insist if twin == DUAL_USE else prompt_set.prompts.of(twin),
        earlier=Earlier(prompt=prompt_set.prompts.dual_use, texts=second_turn),
    )


_SCHEMA = 1
MOST_MODELS = 500
"""Models of a run. A report compares every two of them: 500 make 125,000 comparisons of each
metric.
"""
MOST_JUDGES = 100
"""Judges of a run. A report computes how well every two of them agree."""
_SHORT = 1000
"""Tokens of a response that a preset keeps short."""


class DatasetEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The dataset that a run belongs to."""

    name: str
    hash: str
    sets: int
    taxonomy: Taxonomy


class StoredTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A template as it was when it was used."""

    role: Role
    id: str
    version: int
    file: str
    source: str


class ModelEntry(Grading, frozen=True, kw_only=True):
    """One target of a run: how far it was evaluated, and how it was graded."""

    identity: str
    epochs: Annotated[int, msgspec.Meta(ge=1, le=MOST_EPOCHS)] = 1
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Prompt-sets, the first ones of `promptsets.sample_order`; None is all of them."""
    templates: dict[Role, str] = msgspec.field(default_factory=dict)
    """Hash of the template in force, by role."""
    imported: bool = False
    """Its responses come from files, not from calls."""
    label: str = ""
    """Its name in results, if it has another there."""
    judge_retest: Annotated[int, msgspec.Meta(ge=0)] = 0
    """How many of its responses each judge grades once more (`evaluation.regrade`)."""
    follow_ups: bool = False
    """Whether it is asked on after its replies to the dual-use prompts."""
    follow_up_audit: Annotated[int, msgspec.Meta(ge=0)] = 0
    """How many of its direct replies each judge grades again with the first turn shown."""
    options: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    """Options of `evaluate` without a field of their own, as they were stated last."""

    def grown_by(self, new: ModelEntry) -> ModelEntry:
        """Return the entry that covers this evaluation and a new one: more judges, epochs and sets;
        the newer templates.
        """
        limit = None if self.limit is None or new.limit is None else max(self.limit, new.limit)
        return msgspec.structs.replace(
            new,
            epochs=max(self.epochs, new.epochs),
            limit=limit,
            judges=(*self.judges, *(judge for judge in new.judges if judge not in self.judges)),
            modes="core" if "core" in (self.modes, new.modes) else "dual_use",
            probe=max(self.probe, new.probe, key=("none", "unsafe", "all").index),
            judge_retest=max(self.judge_retest, new.judge_retest),
            follow_ups=self.follow_ups or new.follow_ups,
            follow_up_audit=max(self.follow_up_audit, new.follow_up_audit),
            label=new.label or self.label,
        )


class SwapPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How much of every model is graded under other requests than its own: `evaluation.regrade`."""

    sets: Annotated[int, msgspec.Meta(ge=1)]
    """This number of first prompt-sets of `promptsets.sample_order` that a model was asked."""
    hidden: str
    """Text in place of the request if none is shown."""


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
    """The question that ends a run (`extensions.stop_when`), and its answers."""

    question: str
    confidence: float
    models: dict[str, str]
    """The models that it concerns, with a hash of how each is asked and graded."""
    held: dict[str, int] | None = None
    """By model, the prompt-sets that the run held responses to before it was asked; None until that
    is known.
    """
    answers: dict[str, StopAnswer] = {}
    """By model."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The determinants of a run's results, together with the ledger."""

    schema: int = _SCHEMA
    version: str
    dataset: DatasetEntry
    ledger: str = "ledger.sqlite"
    """Relative to the run's folder, or absolute."""
    target_sampling: Sampling | None = None
    """None until a target is called: imported responses were sampled elsewhere."""
    system: str | None = None
    judge_sampling: Sampling | None = None
    judge_samplings: dict[str, Sampling] = {}
    """Of the judges that have arguments of their own, by name."""
    left_out: dict[str, tuple[str, ...]] = {}
    """By target or judge, the fields of a request that it turned out not to take."""
    headers: dict[str, dict[str, str]] = {}
    """By target or judge, the variable of each header that its requests have."""
    code: dict[str, str] = {}
    """By Python function, a hash of its code, as far as that is known."""
    preset: Preset | None = None
    models: dict[str, ModelEntry] = {}
    judges: dict[str, str] = {}
    """Identity by name."""
    templates: dict[str, StoredTemplate] = {}
    """By hash."""
    judge_checks: tuple[JudgeCheck, ...] = ()
    """Results of the judges on the gold cases; a run may hold none."""
    request_swap: SwapPlan | None = None
    """The audit of its judges, which belongs to the run: models and judges that join it take part.
    """
    second_turn: SecondTurnTexts | None = None
    """The texts of follow-ups; None if no model is asked on."""
    stop_when: StopQuestion | None = None
    guard: Guard | msgspec.UnsetType = msgspec.UNSET
    """The guard model, which belongs to the run: it is asked about the responses of models that
    join.
    """
    prices: PriceList | msgspec.UnsetType = msgspec.UNSET
    """Of the last command that brought a file of prices: costs are the same in each report."""
    panels_before: dict[str, tuple[str, ...]] = {}
    """By model, the judges before others were added; empty once these have graded everything."""

    @classmethod
    def new(cls, dataset: Dataset, **fields: Any) -> Manifest:
        """Return the manifest of a run that begins."""
        entry = DatasetEntry(
            name=dataset.name, hash=dataset.hash, sets=len(dataset), taxonomy=dataset.taxonomy
        )
        return cls(version=__version__, dataset=entry, **fields)

    def before_addition(self) -> Manifest:
        """Return the manifest with the judges of each model before an addition that was
        interrupted.
        """
        restored = {
            model: msgspec.structs.replace(self.models[model], judges=judges)
            for model, judges in self.panels_before.items()
            if model in self.models
        }
        return msgspec.structs.replace(self, models=self.models | restored)

    def plan(self, model: str) -> JudgePlan:
        """Return how a model's responses are graded."""
        return JudgePlan(
            **{field: getattr(self.models[model], field) for field in Grading.__struct_fields__},
            grades=self.grades_of(model),
            judge_sampling=self.judge_sampling or Sampling(),
            judge_samplings=self.judge_samplings,
            target_sampling=self.sampling_of(model),
            system=self.system,
            guard=self.guard or None,
        )

    def grades_of(self, model: str) -> tuple[Graded, ...]:
        """Return the grades that a model's responses have, by the questions of its templates."""
        roles = self.models[model].templates
        return tuple(grade for role, grade in GRADE_OF.items() if role in roles)

    def planned(self, model: str, tasks: Sequence[Task]) -> list[Planned]:
        """Return tasks of a model with how their responses are graded."""
        if not tasks or not self.models[model].judges:
            return []  # a model that was graded elsewhere has no templates here
        plan, templates = self.plan(model), self.templates_of(model)
        return [Planned(task, plan, templates) for task in tasks]

    def swapping(self, sets: int | None) -> Manifest:
        """Return the manifest with this number of prompt-sets audited, or the present number if it
        is larger; None adds nothing.
        """
        if sets is None:
            return self
        old = self.request_swap or SwapPlan(sets=sets, hidden=request_hidden())
        plan = msgspec.structs.replace(old, sets=max(sets, old.sets))
        return msgspec.structs.replace(self, request_swap=plan)

    def with_second_turn(self) -> Manifest:
        """Return the manifest with the texts of follow-ups, if one of its models is asked on."""
        if self.second_turn or not any(entry.follow_ups for entry in self.models.values()):
            return self
        return msgspec.structs.replace(self, second_turn=second_turn())

    def tasks_of(self, model: str, prompt_sets: Iterable[PromptSet], epochs: int) -> list[Task]:
        """Return a target's prompts, with its follow-ups if it is asked on (`tasks.tasks_of`)."""
        texts = self.second_turn if self.models[model].follow_ups else None
        return tasks_of(model, prompt_sets, epochs, texts)

    def task_of(self, key: ResponseKey, dataset: Dataset) -> Task:
        """Return the task of a response of the run."""
        return task_of(key, dataset.by_id[key.set_id], self.second_turn)

    def stopped_early(self) -> list[str]:
        """Return the models whose prompt-sets are those that answered the run's question."""
        answers = self.stop_when.answers.values() if self.stop_when else ()
        sizes_at_stop = {answer.sets for answer in answers if answer.verdict != "undecided"} - {
            self.dataset.sets
        }
        return [name for name, entry in self.models.items() if entry.limit in sizes_at_stop]

    def sampling_of(self, model: str) -> Sampling:
        """Return how a model is sampled under the preset, as far as that is known."""
        sampling = self.target_sampling or Sampling()
        if self.preset is None:
            return sampling
        local = is_local(model)
        temperature = 0.0 if local and sampling.temperature is None else sampling.temperature
        max_tokens = _SHORT if local or self.preset == "paper-code" else sampling.max_tokens
        return msgspec.structs.replace(sampling, max_tokens=max_tokens, temperature=temperature)

    def sampling_of_judge(self, judge: str) -> Sampling | None:
        """Return how a judge is sampled; None if the run was not graded by judges."""
        return self.judge_samplings.get(judge, self.judge_sampling)

    def with_left_out(self, fields: Mapping[str, Iterable[str]]) -> Manifest:
        """Return the manifest with further fields that models turned out not to take."""
        left_out = {
            model: tuple(sorted({*self.left_out.get(model, ()), *names}))
            for model, names in fields.items()
        }
        return msgspec.structs.replace(self, left_out=self.left_out | left_out)

    def templates_of(self, model: str) -> Templates:
        """Return the templates in force for a model, from the manifest's own copy."""
        stored = (self.templates[digest] for digest in self.models[model].templates.values())
        return Templates.from_roles(
            {item.role: parse_template(item.role, item.file, item.source) for item in stored}
        )

    def identities(self) -> dict[str, str]:
        """Return the identity of every target and judge, and of the guard: all it takes to look
        their calls up.
        """
        guard = {self.guard.model: self.guard.identity} if self.guard else {}
        return guard | {name: entry.identity for name, entry in self.models.items()} | self.judges

    def sets_of(self, model: str, dataset: Dataset) -> tuple[PromptSet, ...]:
        """Return the prompt-sets that a model was evaluated on, in the dataset's order."""
        return sampled(dataset.prompt_sets, self.models[model].limit)


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
        if unknown := _unknown(manifest):
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
        return manifest, dataset

    def templates(self, models: Sequence[str] = ()) -> Templates:
        """Return the judge templates of the run: those of its models among `models`, or of all of
        its models if none of them is there.

        Raises:
            InputError: there is no run here, it was damaged, no judge of it graded these models, or
                they were graded by different templates.
        """
        manifest = self.manifest()
        if unknown := _unknown(manifest):
            raise InputError(f"{self.manifest_path}: names {unknown}, which is not in it")
        graded = [name for name, entry in manifest.models.items() if entry.judges]
        chosen = [name for name in graded if name in models] or graded
        if not chosen:
            raise InputError(f"{self.path}: no judge graded this run, so it has no templates")
        first, *others = (manifest.models[name].templates for name in chosen)
        if any(templates != first for templates in others):
            raise InputError(f"{self.path}: its models were graded by different templates")
        return manifest.templates_of(chosen[0])

    def begin(self, dataset: Dataset) -> None:
        """Make the folder and keep the prompt-sets in it."""
        make_private_folder(self.path)
        lines = [
            msgspec.json.encode(prompt_set.to_json()) + b"\n" for prompt_set in dataset.prompt_sets
        ]
        write_private(self._sets_path, b"".join(lines))


def check_number(place: object, names: Collection[str], what: str, most: int) -> None:
    """Refuse too many models or judges of a run.

    Raises:
        InputError: there are more than `most`; the text begins with `place`, a file or a run.
    """
    if len(names) > most:
        raise InputError(
            f"{place}: names {counted(len(names), what)}; expected at most {most} in a run"
        )


_ALWAYS: tuple[Role, ...] = tuple(
    role for role in get_args(Role) if GRADE_OF.get(role) in (None, *METRIC_GRADES)
)
"""The templates of every graded run. A run has none for a question that is younger."""


def _unknown(manifest: Manifest) -> str:
    """Name the first judge or template that a manifest refers to and does not hold; empty if there
    is none.
    """
    for digest, template in manifest.templates.items():
        if sha256_hex(template.source) != digest:
            return f"the template {digest[:12]} ({template.file})"
    for model, entry in manifest.models.items():
        if not entry.judges:
            if not entry.imported:
                return f"a judge of {model!r}"
            continue  # graded elsewhere, by templates that are known by their hashes alone
        for judge in (*entry.judges, entry.mode_judge):
            if judge not in manifest.judges:
                return f"the judge {judge!r}"
        for role in (*_ALWAYS, *entry.templates):
            digest = entry.templates.get(role, "")
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


def hashes_of(templates: Templates) -> dict[Role, str]:
    """Return the hash of each template, by role."""
    return {template.role: template.hash for template in templates.all()}


class Connections(NamedTuple):
    """What requests depend on that is no part of a call's key."""

    models: Set[str]
    """Every model that is asked."""
    headers: Headers
    code: Mapping[str, str]
    """By Python function, a hash of its code."""


def differences(manifest: Manifest, dataset: Dataset, sampling: dict[str, Any]) -> list[str]:
    """Return the settings in which a new evaluation differs from a run, and which one run cannot
    mix.

    Args:
        manifest: the run's.
        dataset: the new evaluation's.
        sampling: its `target_sampling`, `judge_sampling`, `system` and `preset`.
    """
    lines = []
    if manifest.dataset.hash != dataset.hash:
        old = manifest.dataset
        lines.append(
            f"dataset: the run has {old.name} ({counted(old.sets, 'set')}, {old.hash[:8]}), "
            f"this is {dataset.name} ({counted(len(dataset), 'set')}, {dataset.hash[:8]})"
        )
    labels: dict[str, str] = {}
    if manifest.target_sampling:
        labels = {"target_sampling": "sampling", "system": "system prompt", "preset": "preset"}
    for field, label in labels.items():
        old_value, new_value = getattr(manifest, field), sampling[field]
        if old_value != new_value:
            lines.append(f"{label}: the run has {_show(old_value)}, this has {_show(new_value)}")
    return lines


def judge_differences(
    manifest: Manifest, common: Sampling, samplings: Mapping[str, Sampling]
) -> list[str]:
    """Return the settings of judges in which a new evaluation differs from a run, a line each.

    Args:
        manifest: the run's.
        common: how judges of the new evaluation are sampled that have no arguments of their own.
        samplings: how each of its judges is sampled.
    """
    old = manifest.judge_sampling
    if old is None:
        return []
    if old != common:
        return [f"judge sampling: the run has {_show(old)}, this has {_show(common)}"]
    return [
        f"arguments of judge {judge}: the run has {_show(earlier)}, this has {_show(new)}"
        for judge, new in samplings.items()
        if judge in manifest.judges and (earlier := manifest.sampling_of_judge(judge)) != new
    ]


class Unlike(NamedTuple):
    """How requests to a model differ from those that were made before."""

    text: str
    way_out: str
    """What to give so that they do not."""


def refusal(unlike: Iterable[Unlike]) -> str:
    """Return the end of an error: the differences, and the ways out."""
    texts, ways = zip(*unlike, strict=True)
    choices = " and ".join(dict.fromkeys(ways))
    return f"{'; '.join(texts)}; give {choices}, or choose a new --out"


def connection_differences(before: Connections, now: Connections) -> dict[str, Unlike]:
    """Return, by model, how its requests differ from those that were made before.

    Args:
        before: of the models that were asked before.
        now: of those that are asked now.
    """
    lines: dict[str, Unlike] = {}
    for model in before.models & now.models:
        old, new = (headers.get(model, {}) for headers in (before.headers, now.headers))
        if old != new:
            lines[model] = Unlike(
                f"headers of {model}: before {_headers_text(old)}, now {_headers_text(new)}",
                "the same --header again" if old else "no --header",
            )
        codes = {one.code[model] for one in (before, now) if model in one.code}
        if len(codes) > 1:
            lines[model] = Unlike(
                f"{model}: its code has changed, and its version has not",
                "another version of the function",
            )
    return dict(sorted(lines.items()))


def _headers_text(headers: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={headers[name]}" for name in sorted(headers)) or "none"


def _show(value: Any) -> str:
    return msgspec.json.encode(value).decode() if value is not None else "none"


def with_labels(manifests: Sequence[Manifest], labels: Sequence[str]) -> list[Manifest]:
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
    shown = Counter(label or name for name, label in names.items())
    if twice := [name for name, count in shown.items() if count > 1]:
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
