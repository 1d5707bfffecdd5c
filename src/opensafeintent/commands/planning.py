"""Applies the settings of a command to the plan of a run, and updates the run's manifest."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from opensafeintent.any_model import model_identity
from opensafeintent.calls.python_models import FunctionModel
from opensafeintent.calls.records import Sampling
from opensafeintent.commands.settings import EvaluateSettings, GradeSettings, Judging
from opensafeintent.commands.settings.base import Arg, Opt, list_settings
from opensafeintent.commands.settings.by_command import state_sampling
from opensafeintent.commands.settings.calling import JUDGE_TOKENS
from opensafeintent.errors import InputError, pluralize
from opensafeintent.evaluation.manifest import (
    Manifest,
    ModelEntry,
    RunFolder,
    StoredCommand,
    StoredTemplate,
    hash_templates,
    store_templates,
)
from opensafeintent.evaluation.pipeline import Guard
from opensafeintent.evaluation.plan import Plan, PlanRefused, SwapPlan, extend_plan
from opensafeintent.files import near
from opensafeintent.promptsets import Dataset
from opensafeintent.taxonomy import load_taxonomy
from opensafeintent.templates import (
    Role,
    Templates,
    hash_our_template,
    load_templates,
    read_hidden_request,
)
from opensafeintent.templates.guards import load_form
from opensafeintent.templates.template import second_turn


def state_plan(
    settings: EvaluateSettings, plan: Plan, sets: int, templates: Templates | None
) -> Plan:
    """Return a plan with all that a command of `evaluate` states.

    Args:
        settings: of the command.
        plan: of the run, or the default plan of a new run.
        sets: prompt-sets of the dataset.
        templates: that the command names; None to keep those of the plan.

    Raises:
        InputError: see `apply_judging_settings`; or second turns are audited, and there are none.
    """
    plan = apply_judging_settings(settings, plan, templates)
    limit = plan.limit if settings.limit is None else settings.limit
    follow_up_texts = plan.follow_ups or (second_turn() if settings.follow_ups else None)
    if plan.turn and follow_up_texts is None:
        raise InputError("--audit turn: is for --follow-ups, which is not given")
    return msgspec.structs.replace(
        plan,
        limit=limit if limit is None or limit < sets else None,
        epochs=settings.epochs or plan.epochs,
        target_sampling=state_sampling(settings, plan.target_sampling),
        as_paper=settings.as_paper or plan.as_paper,
        system=plan.system if settings.system is None else settings.system,
        probe=settings.probe or plan.probe,
        follow_ups=follow_up_texts,
    )


def apply_judging_settings(settings: Judging, plan: Plan, templates: Templates | None) -> Plan:
    """Return a plan with the judges, templates and audits that a command states.

    Args:
        settings: of the command.
        plan: of the run, or the default plan of a new run.
        templates: that the command names; None to keep those of the plan.

    Raises:
        InputError: there is no judge, or an argument is for another one.
    """
    judges = settings.judges or plan.judges
    mode_judge = settings.mode_judge or plan.mode_judge or next(iter(judges), "")
    panel = dict.fromkeys((*judges, mode_judge))
    settings.check_judges([*filter(None, panel)])
    plan_samplings, judge_by = plan.judge_samplings, settings.judge_by or plan.judge_by
    # the template for questions is ours if no other is named
    hashes = hash_templates(templates, checklist=True) if templates else plan.templates
    swap = plan.swap
    if sets := settings.audit.get("swap"):
        swap = SwapPlan(sets=sets, hidden=swap.hidden if swap else read_hidden_request())
    return msgspec.structs.replace(
        plan,
        judges=tuple(dict.fromkeys(judges)),
        mode_judge=mode_judge,
        modes=settings.modes or plan.modes,
        judge_samplings={
            **plan_samplings,
            **{
                judge: settings.choose_judge_sampling(judge, plan_samplings.get(judge))
                for judge in panel
            },
        },
        judge_by=judge_by,
        templates=set_checklist(hashes, asked=judge_by != "rubric"),
        parse=templates.parse if templates else plan.parse,
        retest=settings.audit.get("retest", plan.retest),
        turn=settings.audit.get("turn", plan.turn),
        swap=swap,
        guard=_read_guard(settings) or plan.guard,
    )


def set_checklist(hashes: Mapping[Role, str], *, asked: bool) -> Mapping[Role, str]:
    """Return hashes of templates with that of the checklist if `asked`, else without it: the
    template for the prompt-sets' own questions.
    """
    own = {role: digest for role, digest in hashes.items() if asked or role != "checklist"}
    return {"checklist": hash_our_template("checklist"), **own} if asked else own


def check_judge_by(settings: Judging, plan: Plan, dataset: Dataset) -> None:
    """Refuse questions that a dataset does not have, and settings about grades if questions alone
    are asked.

    Raises:
        InputError: see above.
    """
    if plan.by_questions and not dataset.questions_hash:
        raise InputError(
            f"--judge-by {plan.judge_by}: {dataset.shown} has no questions of its own; expected a"
            " dataset with them, or --judge-by rubric"
        )
    if plan.by_rubric:
        return
    about_grades = ("mode_judge", "modes", "probe", "guard", "audit", "follow_ups", "as_paper")
    for name in about_grades:
        if getattr(settings, name, None):
            raise InputError(
                f"--{name.replace('_', '-')}: is about grades by rubric, and --judge-by questions"
                " asks for none; expected --judge-by both"
            )


def replace_questions(
    folder: RunFolder, run: Manifest, stored: Dataset, named: Dataset, plan: Plan
) -> Dataset:
    """Return the prompt-sets of a run with the questions of the dataset that a command names,
    unless judges have been asked other questions.

    Raises:
        InputError: the run has other questions than the file.
    """
    if not plan.by_questions or named.questions_hash == stored.questions_hash:
        return stored
    if run.plan.by_questions and run.plan.judges:
        raise make_mixing_refusal(
            folder,
            run,
            f"questions: the run has others ({stored.questions_hash[:8]}) than {named.shown}"
            f" ({named.questions_hash[:8] or 'none'})",
        )
    own = (
        msgspec.structs.replace(item, questions=named.by_id[item.id].questions)
        for item in stored.prompt_sets
    )
    return Dataset(stored.name, tuple(own), stored.taxonomy, stored.unread)


def describe_missing_dual_use(
    settings: EvaluateSettings, plan: Plan, dataset: Dataset
) -> list[str]:
    """Return a line for what a plan leaves out because prompt-sets have no dual-use prompt.

    Raises:
        InputError: the command asks for what no prompt-set has a prompt for.
    """
    if dataset.has_pairs_alone:
        without = f"no prompt-set of {dataset.shown} has a dual-use prompt"
        if plan.follow_ups:
            raise InputError(f"--follow-ups: a second turn follows one, and {without}")
        if settings.mode_judge and plan.modes == "dual_use":
            raise InputError(
                f"--mode-judge: {without}; --modes core has the others' replies judged"
            )
        return []
    if dataset.pairs and plan.follow_ups:
        sets = len(dataset)
        return [
            f"second turns follow the dual-use prompts of {sets - dataset.pairs:,} of {sets:,}"
            " prompt-sets; the others have none"
        ]
    return []


def _read_guard(settings: Judging) -> Guard | None:
    """Return the guard model of a command; None if it names none.

    Raises:
        InputError: there is no such model, or its form is not known.
    """
    if settings.guard is None:
        return None
    form = settings.choose_guard_form(settings.guard)
    return Guard(
        model=settings.guard,
        identity=model_identity(settings.guard, settings.functions),
        form=form,
        source=load_form(form).source,
        sampling=Sampling(
            max_tokens=settings.judge_args.get("max_tokens", JUDGE_TOKENS), temperature=0.0
        ),
    )


def refuse_other_dataset(
    settings: EvaluateSettings, folder: RunFolder, old: Manifest, dataset: Dataset | None
) -> None:
    """Refuse a dataset, or a taxonomy, that is not the run's.

    Raises:
        InputError: see above.
    """
    here = old.dataset
    named = settings.taxonomy
    if dataset is None and named is not None and load_taxonomy(named) != here.taxonomy:
        raise make_mixing_refusal(folder, old, f"--taxonomy {named}: differs from the run's")
    if dataset is not None and dataset.hash != here.hash:
        raise make_mixing_refusal(
            folder,
            old,
            f"dataset: the run has {here.name} ({pluralize(here.sets, 'set')}, {here.hash[:8]}),"
            f" this is {dataset.name} ({pluralize(len(dataset), 'set')}, {dataset.hash[:8]})",
        )


def make_mixing_refusal(folder: RunFolder, old: Manifest, differences: str) -> InputError:
    """Return the error for a command whose plan differs from the run's other than by growth."""
    ledger = near(folder.ledger_path(old).absolute())
    return InputError(
        f"{folder.path}: holds a run that cannot be mixed with this one: {differences}; leave these"
        " out, or state the whole plan for a new --out; with"
        f" --ledger {ledger} stored replies to equal requests count there again"
    )


def grow_run(
    folder: RunFolder,
    run: Manifest,
    wanted: Plan,
    settings: EvaluateSettings | GradeSettings,
    *,
    templates: Templates | None,
    models: Mapping[str, ModelEntry] = {},
) -> Manifest:
    """Return the manifest of a run with the plan and the models that a command adds to it.

    Args:
        folder: of the run, if it exists.
        run: the manifest that is stored, or that of a new run.
        wanted: the plan of the run with what the command states.
        settings: of the command.
        templates: that the command names; None to keep the run's.
        models: that the command names.

    Raises:
        InputError: the run cannot grow into it; the text has the differences and the way out.
    """
    try:
        plan = extend_plan(run.plan, wanted) if folder.exists() else wanted
    except PlanRefused as refused:
        raise make_mixing_refusal(folder, run, str(refused)) from None
    judges = {
        judge: run.judges[judge]
        if judge in run.judges and judge not in settings.named
        else model_identity(judge, settings.functions)
        for judge in plan.panel
    }
    added = {*plan.judges} - {*run.plan.judges}
    panel_before = run.panel_before or (run.plan.judges if added else ())
    changed = plan != run.plan or not models.keys() <= run.models.keys()
    command = StoredCommand(
        name="evaluate" if isinstance(settings, EvaluateSettings) else "grade",
        settings=list_stated_settings(settings),
    )
    return msgspec.structs.replace(
        run,
        plan=plan,
        commands=(*run.commands, command) if changed else run.commands,
        models=run.models | dict(models),
        judges=run.judges | judges,
        templates=run.templates | _store_templates(plan, templates),
        panel_before=panel_before,
    )


def _store_templates(plan: Plan, templates: Templates | None) -> dict[str, StoredTemplate]:
    """Return the templates of a plan among those that a command names, and ours."""
    named = store_templates(templates) if templates else {}
    stored = store_templates(load_templates()) | named if plan.by_questions else named
    return {digest: item for digest, item in stored.items() if digest in plan.templates.values()}


def list_stated_settings(settings: Judging) -> dict[str, Any]:
    """Return the settings of a command that results may depend on and that were stated, as JSON by
    name; of a file, its name alone.
    """
    stated: dict[str, Any] = {}
    for setting in list_settings(type(settings)):
        value = getattr(settings, setting.name)
        if (setting.of_run or isinstance(setting.shown, Arg)) and value != setting.default:
            if isinstance(setting.shown, Opt) and setting.shown.is_file and Path(value).exists():
                value = Path(value).name
            stated[setting.name] = msgspec.to_builtins(value, enc_hook=_encode_value)
    if settings.under_test:
        stated["models"] = list(settings.under_test)  # those of a suite too
    return stated


def _encode_value(value: Any) -> Any:
    if isinstance(value, Path):
        return value.name
    assert isinstance(value, FunctionModel)
    return value.identity
