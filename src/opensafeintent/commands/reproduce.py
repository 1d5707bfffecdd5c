"""Commands as a shell takes them: those that made a run and a page, as they were typed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from json import JSONDecodeError
from pathlib import Path
from typing import Any

import msgspec

from opensafeintent.calls.headers import Headers
from opensafeintent.commands.settings import EvaluateSettings, GradeSettings, ReportSettings
from opensafeintent.commands.settings.base import Arg, Settings, list_settings
from opensafeintent.evaluation.manifest import Manifest
from opensafeintent.files import any_json
from opensafeintent.hostile import is_unseen
from opensafeintent.report.page import Reproduction

NOT_STATED_FOR_REPORT = {
    "summary": "is a further file",
    "junit": "is a further file",
}
"""Settings of `report` that its printed command leaves out, each with the reason."""


def reconstruct_command(settings: ReportSettings, manifests: Iterable[Manifest]) -> Reproduction:
    """Return the commands that made the runs of a report, and its page.

    Args:
        settings: of the report.
        manifests: of the runs.
    """
    folder = settings.out or settings.runs[0]
    return Reproduction(
        evaluations=list_commands(manifests),
        report=_report_command(settings, folder),
        apart=folder.resolve() not in [run.resolve() for run in settings.runs],
    )


def list_commands(manifests: Iterable[Manifest]) -> list[str]:
    """Return the commands that made runs."""
    records: dict[str, type[Settings]] = {"evaluate": EvaluateSettings, "grade": GradeSettings}
    return [
        command_line(command.name, records[command.name], command.settings)
        for manifest in manifests
        for command in manifest.commands
    ]


def headers_stated(headers: Headers, models: Iterable[str]) -> list[str]:
    """Return the headers of some models as `--header` takes them."""
    return [
        f"{model}:{name}={variable}"
        for model in models
        for name, variable in headers.get(model, {}).items()
    ]


def _report_command(settings: ReportSettings, folder: Path) -> str:
    """Return the command that makes the page of a report again, for the page's folder."""
    values = {
        setting.name: _from_folder(getattr(settings, setting.name), folder)
        for setting in list_settings(ReportSettings)
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
    for setting in list_settings(record):
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
    return f"$'{''.join(map(_escape, text))}'"


def _escape(char: str) -> str:
    if char in _NAMED_ESCAPES:
        return _NAMED_ESCAPES[char]
    if is_unseen(char):
        return f"\\U{ord(char):08x}"
    return char
