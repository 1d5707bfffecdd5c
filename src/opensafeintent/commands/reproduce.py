"""The commands that make a run and its report again, from the settings that it stores.

A command is built from the declaration of its settings. What `placed` does not find in the run, the
run keeps as it was stated (`further_options`), unless its declaration says that the result does not
depend on it.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from json import JSONDecodeError
from pathlib import Path
from typing import Any

import msgspec

from opensafeintent.calls.headers import Headers
from opensafeintent.calls.providers import PREFIX
from opensafeintent.calls.records import Sampling
from opensafeintent.commands.settings import EvaluateSettings, GradeSettings, ReportSettings
from opensafeintent.commands.settings.base import Arg, Settings, settings_of
from opensafeintent.errors import counted
from opensafeintent.evaluation.manifest import Manifest, ModelEntry, hashes_of
from opensafeintent.evaluation.regrade import samples_by_model
from opensafeintent.files import MOST_ROWS, any_json
from opensafeintent.hostile import is_unseen, one_line
from opensafeintent.report.page import Reproduction
from opensafeintent.taxonomy import default_taxonomy
from opensafeintent.templates import load_templates

NEW = "NEW"
"""The folder that the printed command writes into."""

NOT_STATED_FOR_REPORT = {
    "summary": "is a further file",
    "junit": "is a further file",
}
"""Settings of `report` that its printed command leaves out, each with the reason."""


def reproduction(
    settings: ReportSettings, manifests: Mapping[str, Manifest], places: Mapping[str, str]
) -> Reproduction:
    """Return the commands that make the runs and the page of a report again.

    Args:
        settings: of the report.
        manifests: of the runs, by name.
        places: by the run's name, its path from the page's folder, in which the commands are run.
            A run without a place has no command.
    """
    commands: list[str] = []
    notes: list[str] = []
    for name, manifest in manifests.items():
        if name in places:
            commands += evaluation_commands(manifest, places[name])
            notes += _not_reproduced(manifest)
    folder = settings.out or settings.runs[0]
    return Reproduction(
        evaluations=commands,
        report=_report_command(settings, folder),
        apart=folder.resolve() not in [run.resolve() for run in settings.runs],
        notes=[*dict.fromkeys(notes)],
    )


def evaluation_commands(manifest: Manifest, run: str, out: str = NEW) -> list[str]:
    """Return the commands that evaluate the models of a run again: one for all models that were
    evaluated in the same way. Imported responses have none.

    Args:
        manifest: of the run.
        run: the path of its folder, as the command is to name it.
        out: the folder that the commands write into.
    """
    return [
        command_line("evaluate", EvaluateSettings, stated(manifest, models, run, out))
        for models in _evaluated_alike(manifest)
    ]


def _evaluated_alike(manifest: Manifest) -> Iterator[list[str]]:
    """Yield the models of a run that one command evaluates, in the order of the run."""
    groups: dict[bytes, list[str]] = {}
    for model, entry in manifest.models.items():
        if not entry.imported:
            alike = msgspec.structs.replace(
                entry, identity="", label="", judge_retest=0, follow_up_audit=0
            )
            groups.setdefault(msgspec.json.encode(alike, order="sorted"), []).append(model)
    for models in groups.values():
        samples = {model: _samples(manifest.models[model]) for model in models}
        if all(
            samples_by_model(models, sum(of_models)) == dict(zip(models, of_models, strict=True))
            for of_models in zip(*samples.values(), strict=True)
        ):
            yield models
        else:
            for counts in dict.fromkeys(samples.values()):
                yield [model for model in models if samples[model] == counts]


def _samples(entry: ModelEntry) -> tuple[int, int]:
    """Return how many of a model's responses are graded once more, and with a first turn shown."""
    return entry.judge_retest, entry.follow_up_audit


def further_options(
    settings: EvaluateSettings, manifest: Manifest, models: Sequence[str]
) -> dict[str, Any]:
    """Return the options that were stated, that the result may depend on, and that the manifest has
    no other place for, as JSON by name.
    """
    elsewhere = placed(manifest, models, "", "")
    return {
        setting.name: msgspec.to_builtins(value)
        for setting in settings_of(type(settings))
        if setting.of_run
        and setting.name not in elsewhere
        and (value := getattr(settings, setting.name)) != setting.default
    }


def stated(manifest: Manifest, models: Sequence[str], run: str, out: str) -> dict[str, Any]:
    """Return the settings that evaluate some models of a run again, by name: see `placed`."""
    options = manifest.models[models[0]].options or {}
    return options | placed(manifest, models, run, out)


def placed(manifest: Manifest, models: Sequence[str], run: str, out: str) -> dict[str, Any]:
    """Return the settings that have a place of their own in a manifest, by name.

    Args:
        manifest: of the run.
        models: that were evaluated in the same way.
        run: the path of the run's folder.
        out: the folder of the new run.
    """
    entry = manifest.models[models[0]]
    dataset = manifest.dataset
    sampling = manifest.target_sampling or Sampling()
    retests, audits = map(
        sum, zip(*(_samples(manifest.models[model]) for model in models), strict=True)
    )
    labels = {model: manifest.models[model].label for model in models}
    guard = [manifest.guard.model] if manifest.guard else []
    asked = dict.fromkeys((*models, *entry.judges, entry.mode_judge, *guard))
    return {
        "models": models,
        "dataset": f"{run}/prompt_sets.jsonl",
        "taxonomy": run if dataset.taxonomy != default_taxonomy() else None,
        "max_rows": max(dataset.sets, MOST_ROWS),
        "limit": entry.limit,
        "out": out,
        "epochs": entry.epochs,
        "temperature": sampling.temperature,
        "max_tokens": sampling.max_tokens,
        "system": manifest.system,
        "reasoning_effort": sampling.reasoning_effort,
        "extra": sampling.extra,
        "preset": manifest.preset,
        "label": [f"{model}={label}" for model, label in labels.items() if label],
        "probe": entry.probe,
        "judge_retest": retests or None,
        "follow_ups": entry.follow_ups,
        "follow_up_audit": audits or None,
        "check_judge": _judges_passed(manifest, entry),
        "request_swap": manifest.request_swap and manifest.request_swap.sets,
        "guard": manifest.guard.model if manifest.guard else None,
        "guard_form": manifest.guard.form if manifest.guard else None,
        **_judging(manifest, entry, run),
        "header": headers_stated(manifest.headers, asked),
    }


def grading_command(
    given: Manifest,
    like: Manifest,
    models: tuple[str, str],
    places: tuple[str, str],
    out: str = NEW,
) -> str:
    """Return the command that grades the responses of a run as those of another one, in a new run.

    Args:
        given: of the run with the responses.
        like: of the other run.
        models: a model of each.
        places: the paths of their folders, as the command is to name them.
        out: the folder of the new run.
    """
    first, second = given.models[models[0]], like.models[models[1]]
    judging = _judging(like, second, places[1])
    judging["judge_reasons"] = False
    judging["rubrics"] = None if first.templates == second.templates else places[1]
    return command_line("grade", GradeSettings, {"run": places[0], "out": out, **judging})


def _judging(manifest: Manifest, entry: ModelEntry, run: str) -> dict[str, Any]:
    """Return the settings of the judges of a model."""
    common = manifest.judge_sampling or Sampling()
    panel = dict.fromkeys((*entry.judges, entry.mode_judge))
    of_one = {
        f"{judge}:{name}": value
        for judge in panel
        if judge in manifest.judge_samplings
        for name, value in manifest.judge_samplings[judge].extra.items()
    }
    reasons = entry.templates == hashes_of(load_templates(reasons=True))
    ours = reasons or entry.templates == hashes_of(load_templates())
    return {
        "judges": entry.judges,
        "mode_judge": None if entry.mode_judge == entry.judges[0] else entry.mode_judge,
        "modes": entry.modes,
        "judge_args": common.extra | of_one,
        "judge_reasoning_effort": common.reasoning_effort,
        "judge_max_tokens": common.max_tokens,
        "rubrics": None if ours else run,
        "judge_reasons": reasons,
        "grade_parse": entry.parse,
        "header": headers_stated(manifest.headers, panel),
    }


def headers_stated(headers: Headers, models: Iterable[str]) -> list[str]:
    """Return the headers of some models as `--header` takes them."""
    return [
        f"{model}:{name}={variable}"
        for model in models
        for name, variable in headers.get(model, {}).items()
    ]


def _judges_passed(manifest: Manifest, entry: ModelEntry) -> bool:
    """Tell whether the run has checks of a model's judges, and each was passed."""
    panel = {*entry.judges, entry.mode_judge}
    checks = [check for check in manifest.judge_checks if check.judge in panel]
    return bool(checks) and all(check.passed for check in checks)


def _not_reproduced(manifest: Manifest) -> list[str]:
    """Return the parts of a run that its commands do not make again, a sentence each."""
    notes = []
    entries = manifest.models.values()
    if imported := sum(entry.imported for entry in entries):
        notes.append(
            f"The responses of {counted(imported, 'model')} were imported, so no command makes them"
            " again."
        )
    if any(name.startswith(PREFIX) and ":" not in name for name in manifest.identities()):
        notes.append("Python functions among the models are given to evaluate in Python.")
    if manifest.stop_when is not None:
        notes.append(
            "The command states the size of the sample at which the question of the run"
            f" ({one_line(manifest.stop_when.question)}) ended it, and not the question."
        )
    return notes


def _report_command(settings: ReportSettings, folder: Path) -> str:
    """Return the command that makes the page of a report again, for the page's folder."""
    values = {
        setting.name: _from_folder(getattr(settings, setting.name), folder)
        for setting in settings_of(ReportSettings)
        if setting.name not in NOT_STATED_FOR_REPORT
    }
    if not settings.checks.is_dir():  # the folder of the default need not be there
        del values["checks"]
    return command_line("report", ReportSettings, values)


def _from_folder(value: Any, folder: Path) -> Any:
    """Return a value with the paths in it as they are from a folder."""
    if isinstance(value, tuple):
        return tuple(_from_folder(item, folder) for item in value)
    if isinstance(value, Path):
        with suppress(ValueError):  # a path on another drive stays absolute
            return Path(os.path.relpath(value, folder.resolve())).as_posix()
    return value


def command_line(command: str, record: type[Settings], values: Mapping[str, Any]) -> str:
    """Return a command as a shell takes it; settings that have their default are left out.

    Args:
        command: its name.
        record: the declaration of its settings.
        values: of the settings, by name.
    """
    arguments: list[str] = []
    options: list[str] = []
    for setting in settings_of(record):
        value = values.get(setting.name)
        if value is None or value == setting.default or setting.shown is None:
            continue
        texts = [value] if isinstance(value, str) or not isinstance(value, Sequence) else [*value]
        if isinstance(setting.default, tuple) and setting.default:  # a range
            texts = ["-".join(map(str, value))]
        if isinstance(value, Mapping):
            texts = [f"{key}={_field_text(field)}" for key, field in value.items()]
        if isinstance(setting.shown, Arg):
            arguments += map(str, texts)
        elif isinstance(value, bool):
            options.append(setting.flag if value else setting.flag_off)
        else:
            options += (word for text in texts for word in (setting.flag, str(text)))
    return " ".join(map(shell_word, ("opensafeintent", command, *arguments, *options)))


def _field_text(value: Any) -> str:
    """Return a field of a request as `-M` reads it: a text that is no JSON needs no quotes."""
    if isinstance(value, str):
        try:
            any_json(value)
        except JSONDecodeError:
            return value
        except ValueError:  # it is quoted, as below
            pass
    return msgspec.json.encode(value).decode()


_NAMED_ESCAPES = {"\n": "\\n", "\t": "\\t", "'": "\\'", "\\": "\\\\"}


def shell_word(text: str) -> str:
    """Return a text as one word of a shell. Invisible characters are escaped, so that a reader sees
    the command that the shell runs.
    """
    if not any(map(is_unseen, text)):
        return shlex.quote(text)
    return f"$'{''.join(map(_escaped, text))}'"


def _escaped(char: str) -> str:
    if char in _NAMED_ESCAPES:
        return _NAMED_ESCAPES[char]
    if is_unseen(char):
        return f"\\U{ord(char):08x}"
    return char
