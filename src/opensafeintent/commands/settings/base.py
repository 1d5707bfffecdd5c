"""What a setting is, and how it is checked; with the settings that several commands share."""

from __future__ import annotations

import inspect
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from textwrap import fill
from typing import Annotated, Any, Literal, NamedTuple, cast, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta

from opensafeintent.errors import InputError, nearest
from opensafeintent.files import MOST_ROWS
from opensafeintent.secrets import secret_variable


class Group(StrEnum):
    """Headings in the help of a command, in their order there."""

    PROMPT_SETS = "Prompt-sets"
    BUILDING = "Models and templates"
    MODELS = "Models and sampling"
    JUDGES = "Judges"
    DATASET = "Dataset and sample"
    BUDGET = "Budget and execution"
    EXTRA = "Extra analyses"
    RAY = "Cluster (Ray)"
    OPTIONS = "Options"
    GATES = "Gates"


EXECUTION = (Group.BUDGET, Group.RAY)
"""Headings of options that say how calls are made, not which."""


class Opt(msgspec.Struct, frozen=True):
    """An option of the command line."""

    help: str
    metavar: str | None = None
    name: str = ""
    """With its dashes; made of the setting's own name by default."""
    is_file: bool = False
    """Whether the text may be a path."""
    group: Group = Group.OPTIONS
    """The heading in the help of a command."""
    place: int = 0
    """Under the heading, lower ones come first; of the same, those of a base record."""
    of_run: bool = True
    """Whether the replies and grades of a run may depend on it. What is under `EXECUTION` never
    counts.
    """

    def put_under(self, group: Group, place: int = 0) -> Opt:
        """Return the same option under another heading."""
        return msgspec.structs.replace(self, group=group, place=place)


class Arg(msgspec.Struct, frozen=True):
    """An argument of the command line: it has a place and no name."""

    help: str
    metavar: str | None = None
    is_file: bool = False
    """Whether the text may be a path."""


class Setting(NamedTuple):
    """One setting, as records declare it: `Annotated[type, limits, Opt(…)]`."""

    name: str
    kind: Any
    """Its type, with its limits."""
    default: object
    """`msgspec.NODEFAULT` if there is none."""
    shown: Opt | Arg | None
    """None if the command line does not have it."""
    record: str

    @property
    def flag(self) -> str:
        """The option's name, with its dashes."""
        declared = self.shown.name if isinstance(self.shown, Opt) else ""
        return declared or f"--{self.name.replace('_', '-')}"

    @property
    def flag_off(self) -> str:
        """The option that switches off a setting that is on by default."""
        return f"--no-{self.flag[2:]}"

    @property
    def of_run(self) -> bool:
        """Whether replies and grades may depend on it: the page's command states it then."""
        shown = self.shown
        return isinstance(shown, Opt) and shown.of_run and shown.group not in EXECUTION

    def name_in_error(self, value: object = None) -> str:
        """Name the setting in an error, with its value if that is given."""
        if isinstance(self.shown, Opt):
            return self.flag if value is None else f"{self.flag} {value}"
        return f"{self.record}.{self.name}{'' if value is None else f' {value}'}"


_WRITTEN = ("out", "summary", "junit")
"""Settings that name what a command writes."""

_TEXTS = ("system", "extra", "judge_args", "label")
"""Settings that results quote as they are."""


def _is_file(path: str | Path) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):  # a text that no file can have as its name
        return False


class _NamesChecked(msgspec.StructMeta):
    """Makes records whose unknown settings are errors that name the nearest, and whose `help` has
    the texts of their options.
    """

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        about = inspect.cleandoc(vars(self).get("__doc__") or "")
        shown = [
            (setting, setting.shown)
            for setting in list_settings(cast("type[Settings]", self))
            if setting.shown
        ]
        # arguments first, then options as `--help` has them
        shown.sort(
            key=lambda item: (
                (list(Group).index(item[1].group), item[1].place)
                if isinstance(item[1], Opt)
                else (-1, 0)
            )
        )
        lines = [
            fill(
                f"{setting.name}: {option.help}{_default_in_words(setting)}",
                96,
                initial_indent="    ",
                subsequent_indent="        ",
                break_on_hyphens=False,
            )
            for setting, option in shown
        ]
        return "\n".join([about, "", "Args:", *lines]) if lines else about

    @property
    def __signature__(self) -> inspect.Signature:
        """The settings with their types alone: the options are in the text below."""
        kinds = get_type_hints(self)
        return inspect.Signature(
            [
                inspect.Parameter(
                    setting.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=(
                        inspect.Parameter.empty
                        if setting.default is msgspec.NODEFAULT
                        else setting.default
                    ),
                    annotation=kinds[setting.name],
                )
                for setting in list_settings(cast("type[Settings]", self))
            ]
        )

    def __call__(self, *values: Any, **settings: Any) -> Any:
        valid = self.__struct_fields__
        for name in settings:
            if name not in valid:
                raise InputError(f"{self.__name__}: no setting {name!r}; {nearest(name, valid)}")
        return super().__call__(*values, **settings)


def _default_in_words(setting: Setting) -> str:
    """Return a setting's default, unless its text has it."""
    if setting.default is msgspec.NODEFAULT or setting.default in (None, False, (), "", {}):
        return ""
    return f"  [default: {setting.default}]"


class Settings(msgspec.Struct, frozen=True, kw_only=True, metaclass=_NamesChecked):
    """Settings of a command, each checked for its type and limits when they are made.

    A text is accepted for a path, one text or path for a list of them, and a `FunctionModel` for a
    model's name.

    Raises:
        InputError: there is no setting of that name, or a value is of another type, beyond its
            limits, or no Unicode text; the text names the setting and what would be valid.
    """

    functions: Mapping[str, Any] = {}
    """Each `FunctionModel` of these settings, by the name that replaces it; noted when they are
    made.
    """

    def __post_init__(self) -> None:
        functions = dict(self.functions)
        for setting in list_settings(type(self)):
            value = _names_for_functions(getattr(self, setting.name), setting, functions)
            if isinstance(value, str | os.PathLike) and is_list(setting.kind):
                value = (value,)
            number = value if isinstance(value, int | float) else None
            value = self.convert(setting.name_in_error(number), value, setting.kind)
            if isinstance(value, str | Mapping):
                try:  # bytes of another encoding, in a text or in one of a mapping's
                    json.dumps(value, ensure_ascii=False).encode()
                except UnicodeEncodeError as error:
                    raise InputError(
                        f"{setting.name_in_error()}: is not valid Unicode text"
                    ) from error
            _refuse_repeated(setting, value)
            msgspec.structs.force_setattr(self, setting.name, value)
        msgspec.structs.force_setattr(self, "functions", functions)
        self._check_overwriting()
        self._refuse_secrets()

    @classmethod
    def convert(cls, name: str, value: Any, kind: Any) -> Any:
        """Return a value as one of its kind.

        Raises:
            InputError: it is none; the text begins with the name.
        """
        try:
            return msgspec.convert(value, kind, dec_hook=cls._path)
        except (msgspec.ValidationError, TypeError) as error:
            raise InputError(f"{name}: {_word_reason(str(error), kind)}") from error

    def _refuse_secrets(self) -> None:
        """Refuse the value of a secret variable in a text that is stored, sent or shown."""
        for setting in list_settings(type(self)):
            value = getattr(self, setting.name) if setting.name in _TEXTS else None
            if value and (variable := secret_variable(json.dumps(value, default=str))):
                raise InputError(
                    f"{setting.name_in_error()}: holds the value of {variable}, which is stored"
                    " nowhere; leave it out"
                )

    def _check_overwriting(self) -> None:
        """Refuse a file to write that is also one to read."""
        for name in _WRITTEN:
            path = getattr(self, name, None)
            if path is None or not _is_file(path):
                continue
            if any(path.samefile(source) for source in self._files_to_read()):
                raise InputError(
                    f"--{name} {path}: is a file that this command reads; choose another"
                )

    def _files_to_read(self) -> Iterator[str | Path]:
        """Yield every file that a setting names, but for those that are written."""
        for setting in list_settings(type(self)):
            if setting.name in _WRITTEN:
                continue
            value = getattr(self, setting.name)
            for path in value if isinstance(value, tuple) else (value,):
                if isinstance(path, str | Path) and _is_file(path):
                    yield path

    @classmethod
    def _path(cls, kind: type[Any], value: Any) -> Any:
        assert kind is Path
        if isinstance(value, str | os.PathLike):
            return Path(value)
        if value is None:
            raise TypeError("is not given; Expected a path")
        raise TypeError(f"Expected a path or its text, got `{type(value).__name__}`")


@lru_cache(maxsize=32)
def list_settings(record: type[Settings]) -> tuple[Setting, ...]:
    """Return the settings of a record, those of its bases first; not the functions in them."""
    return tuple(
        Setting(
            name=field.name,
            kind=field.type,
            default=field.default
            if field.default_factory is msgspec.NODEFAULT
            else field.default_factory(),
            shown=next(
                (part for part in get_args(field.type) if isinstance(part, Opt | Arg)), None
            ),
            record=record.__name__,
        )
        for field in msgspec.structs.fields(record)
        if field.name != "functions"
    )


_BOUNDS = {"<=": "up to", ">=": "of at least", "<": "below", ">": "above"}


def _word_reason(reason: str, kind: Any) -> str:
    """Return a reason of msgspec's; a limit in words, "expected a number up to 1", and an unknown
    value with the valid ones of its kind.
    """
    if match := re.fullmatch(r"Invalid enum value (.*?)(?: - at .*)?", reason):
        return f"{match[1]}: expected {', '.join(map(str, _choices(kind)))}"
    if match := re.fullmatch(r"Expected `(int|float)` ([<>]=?) (\S+).*", reason):
        kind, sign, limit = match.groups()
        number = "a number" if kind == "float" else "a whole number"
        return f"expected {number} {_BOUNDS[sign]} {limit.removesuffix('.0')}"
    if "datetime" in reason:
        return "expected a time with its zone, such as 2026-03-02T03:00:00Z"
    return reason.replace("`", "").replace("Expected", "expected").replace(" | null", "")


def _choices(kind: Any) -> tuple[object, ...]:
    """Return the values that a setting may have, or those of its list; none if any may be."""
    parts = get_args(kind)
    if get_origin(kind) is Literal:
        return parts
    return next(filter(None, map(_choices, parts)), ())


def _names_for_functions(value: Any, setting: Setting, functions: dict[str, Any]) -> Any:
    """Return a value with the functions in it by their names, and note these."""
    from opensafeintent.calls.python_models import FunctionModel

    if isinstance(value, FunctionModel):
        if functions.setdefault(value.identity, value).ask != value.ask:
            raise InputError(
                f"{setting.name_in_error()}: two functions are called {value.identity}; give one of"
                " them another name or version"
            )
        return value.identity
    if isinstance(value, list | tuple):
        return tuple(_names_for_functions(item, setting, functions) for item in value)
    if callable(value):
        name = getattr(value, "__name__", "f")
        raise InputError(
            f"{setting.name_in_error()}: a bare function; expected"
            f' FunctionModel({name}, name="{name}", version="1")'
        )
    return value


def _refuse_repeated(setting: Setting, value: Any) -> None:
    """Refuse a list in which a text or a path is twice: it would count once, silently. Files and
    runs that are arguments may be: a shell's pattern names them, and each is read once.

    Raises:
        InputError: see above.
    """
    kinds = str if isinstance(setting.shown, Arg) else (str, Path)
    if not isinstance(value, tuple) or not all(isinstance(item, kinds) for item in value):
        return
    twice, count = next(iter(Counter(value).most_common(1)), (None, 0))
    if count > 1:
        shown = setting.name_in_error(twice) if isinstance(setting.shown, Opt) else str(twice)
        raise InputError(f"{shown}: is given {count} times; expected it once")


def is_list(kind: Any) -> bool:
    """Whether a setting takes a list of values, perhaps among other things."""
    return get_origin(kind) is tuple or any(map(is_list, get_args(kind)))


CHECKS = Path("runs/judge-check")
"""Folder of the results of `judge-check`, from the current one."""
NO_LIMIT = 1e12
MAX_TOKENS = 4096

Count = Annotated[int, Meta(ge=1)]
Seed = Annotated[int, Meta(ge=0)]
Temperature = Annotated[float, Meta(ge=0, le=NO_LIMIT)]
Share = Annotated[float, Meta(ge=0, le=1)]
Confidence = Annotated[float, Meta(gt=0.5, lt=1)]
RunsToRead = Annotated[tuple[Path, ...], Arg("Folders of runs.", "RUN...")]
IncludeUnsafe = Annotated[bool, Opt("Show unsafe responses and malicious prompts.")]

TAXONOMY = Opt(
    "TOML file of harm domains and task types, or a run or build that has them; replaces the"
    " paper's."
)
MAX_ROWS = Opt("Refuse files with more rows (prompt-sets, responses).", metavar="N")
MAX_MISSING_GRADES = Opt(
    "Exit with 1 if a larger share of grades, modes, strategies or another kind of answer is"
    " missing.",
    metavar="X",
)
CHECKED = Opt("Folder with results of judge-check to show.", metavar="DIR")
LABEL = Opt("Name of a model in tables and on the page. Repeatable.", metavar="MODEL=NAME")
PRICES = Opt(
    'JSON prices in dollars per million tokens: {"openai/gpt-5.4": {"input": 2.5, "output":'
    " 10}}.  [default: genai-prices]",
    metavar="FILE",
)
OutsideLedgers = Annotated[
    tuple[Path, ...],
    Opt("Ledger that a run names outside its folder. Repeatable.", name="--ledger", metavar="FILE"),
]
"""A received folder may name any file: the reader states it again."""
TEMPERATURE = Opt("Sampling temperature of the model.  [default: its provider's]", metavar="X")
"""These four are of the models under test, or of the generator of a build; `--judge-arg` is of
judges.
"""
REPLY_TOKENS = Opt("Token limit of its reply.  [default: 4096]", metavar="N")
REASONING_EFFORT = Opt("Reasoning effort of the model, if it has one.", metavar="LEVEL")
EXTRA = Opt(
    "Extra request field of the model, such as top_p=0.9. Repeatable.",
    name="-M",
    metavar="KEY=VALUE",
)
HEADER = Opt(
    "Header of requests, with the value of a variable: to the models under test, or to MODEL."
    " Repeatable.",
    metavar="[MODEL:]NAME=VARIABLE",
    group=Group.BUDGET,
)
RUN_LEDGER = Opt("Ledger shared by several runs.  [default: the run's own]", metavar="FILE")


class Data(Settings, frozen=True, kw_only=True):
    """How a dataset is read."""

    taxonomy: Annotated[Path | None, TAXONOMY] = None
    max_rows: Annotated[Count | None, MAX_ROWS] = MOST_ROWS
    """Of each file and of the dataset; None sets no limit."""
