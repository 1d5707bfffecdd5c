"""What all settings have in common: each is of its type, within its limits, and says how the
command line shows it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, NamedTuple, get_args, get_origin

import msgspec

from opensafeintent.errors import InputError


class Opt(msgspec.Struct, frozen=True):
    """An option of the command line."""

    help: str
    metavar: str | None = None
    name: str = ""
    """With its dashes; made of the setting's own name by default."""
    is_file: bool = False
    """Whether the text may be a path."""


class Arg(msgspec.Struct, frozen=True):
    """An argument of the command line: it has a place and no name."""

    metavar: str | None = None
    is_file: bool = False
    """Whether the text may be a path."""


class Setting(NamedTuple):
    """One setting, as records declare it: `Annotated[type, limits, Opt(…)]`."""

    name: str
    kind: Any
    """Its type, with its limits."""
    default: object
    """`msgspec.NODEFAULT` where there is none."""
    shown: Opt | Arg | None
    """None where the command line does not have it."""
    group: str
    """The heading in the help of a command."""
    record: str

    def __str__(self) -> str:
        """Name the setting as an error does: by its option, if it has one."""
        if isinstance(self.shown, Opt):
            return self.shown.name or f"--{self.name.replace('_', '-')}"
        return f"{self.record}.{self.name}"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a command, each of the type and within the limits that it says once it is made.

    A text serves where a path is due, one text or path where a list of them is, and a
    `FunctionModel` where a model's name is.

    Raises:
        InputError: a value is of another type, beyond its limits, or no Unicode text; the text
            names the setting and what would be valid.
    """

    group: ClassVar[str] = "Options"

    def __post_init__(self) -> None:
        for setting in settings_of(type(self)):
            value = _listed(_named(getattr(self, setting.name), setting), setting.kind)
            try:
                value = msgspec.convert(value, setting.kind, dec_hook=_path)
            except (msgspec.ValidationError, TypeError) as error:
                number = f" {value}" if isinstance(value, int | float) else ""
                reason = str(error).replace("`", "").replace("Expected", "expected")
                raise InputError(f"{setting}{number}: {reason}") from error
            _check_unicode(value, setting)
            msgspec.structs.force_setattr(self, setting.name, value)


@lru_cache(maxsize=32)
def settings_of(record: type[Settings]) -> tuple[Setting, ...]:
    """Return the settings of a record, those of its bases first."""
    return tuple(
        Setting(
            name=field.name,
            kind=field.type,
            default=field.default
            if field.default_factory is msgspec.NODEFAULT
            else field.default_factory(),
            shown=_shown(field.type),
            group=_declaring(record, field.name).group,
            record=record.__name__,
        )
        for field in msgspec.structs.fields(record)
    )


def _shown(kind: Any) -> Opt | Arg | None:
    extras = get_args(kind)[1:] if get_origin(kind) is Annotated else ()
    return next((one for one in extras if isinstance(one, Opt | Arg)), None)


def _declaring(record: type[Settings], name: str) -> type[Settings]:
    """Return the first of a record's bases that has a setting."""
    bases = [base for base in record.__mro__ if issubclass(base, Settings)]
    return next(base for base in reversed(bases) if name in base.__struct_fields__)


def _named(value: Any, setting: Setting) -> Any:
    """Return a value with the functions in it by their names."""
    from opensafeintent.calls.functions import FunctionModel

    if isinstance(value, FunctionModel):
        return value.named()
    if isinstance(value, list | tuple):
        functions = [item for item in value if isinstance(item, FunctionModel)]
        by_name = {function.identity: function.ask for function in functions}
        for function in functions:
            if by_name[function.identity] is not function.ask:
                raise InputError(
                    f"{setting}: two functions are called {function.identity}; give one of them"
                    " another name or version"
                )
        return tuple(_named(item, setting) for item in value)
    if callable(value):
        name = getattr(value, "__name__", "f")
        raise InputError(
            f"{setting}: a bare function; expected"
            f' FunctionModel({name}, name="{name}", version="1")'
        )
    return value


def _listed(value: Any, kind: Any) -> Any:
    """Return one text or path as a list of one where a list is due."""
    return (value,) if isinstance(value, str | os.PathLike) and is_list(kind) else value


def is_list(kind: Any) -> bool:
    """Whether a setting takes a list of values, perhaps among other things."""
    return get_origin(kind) is tuple or any(map(is_list, get_args(kind)))


def _check_unicode(value: object, setting: Setting) -> None:
    """Refuse a text, or texts in a mapping, with bytes of another encoding in it."""
    if isinstance(value, str | Mapping):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise InputError(f"{setting}: is not valid Unicode text") from error


def _path(kind: type[Any], value: Any) -> Any:
    if kind is Path and isinstance(value, str | os.PathLike):
        return Path(value)
    if kind is Path:
        raise TypeError(f"Expected a path or its text, got `{type(value).__name__}`")
    raise NotImplementedError(f"no setting is a {kind}")
