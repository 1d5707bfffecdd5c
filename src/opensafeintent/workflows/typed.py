"""What all settings have in common: a text serves as a path, one model as a list of one, a function
as a model.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from opensafeintent.calls.functions import FunctionModel
from opensafeintent.errors import InputError


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a command, each of the type that it says once it is made.

    A text serves where a path is due, one text or path where a list of them is, and a
    `FunctionModel` where a model's name is.

    Raises:
        InputError: a value is of another type; the text names the setting and what would be valid.
    """

    def __post_init__(self) -> None:
        for name, kind in _fields(type(self)):
            where = f"{type(self).__name__}.{name}"
            value = _listed(_named(getattr(self, name), where), kind)
            try:
                value = msgspec.convert(value, kind, dec_hook=_path)
            except (msgspec.ValidationError, TypeError) as error:
                raise InputError(f"{where}: {error}") from error
            msgspec.structs.force_setattr(self, name, value)


@lru_cache(maxsize=32)
def _fields(settings: type[Settings]) -> list[tuple[str, Any]]:
    return [(field.name, field.type) for field in msgspec.structs.fields(settings)]


def _named(value: Any, where: str) -> Any:
    """Return a value with the functions in it by their names."""
    if isinstance(value, FunctionModel):
        return value.named()
    if isinstance(value, list | tuple):
        named = tuple(_named(item, where) for item in value)
        _refuse_two_of_one_name(value, where)
        return named
    if callable(value):
        name = getattr(value, "__name__", "f")
        raise InputError(
            f'{where}: a bare function; expected FunctionModel({name}, name="{name}", version="1")'
        )
    return value


def _refuse_two_of_one_name(values: list[Any] | tuple[Any, ...], where: str) -> None:
    functions = [value for value in values if isinstance(value, FunctionModel)]
    for one in functions:
        if any(other.identity == one.identity and other.ask is not one.ask for other in functions):
            raise InputError(
                f"{where}: two functions are called {one.identity}; give one of them another name"
                " or version"
            )


def _listed(value: Any, kind: Any) -> Any:
    """Return one text or path as a list of one where a list is due."""
    lists = get_origin(kind) is tuple or any(get_origin(part) is tuple for part in get_args(kind))
    return (value,) if lists and isinstance(value, str | os.PathLike) else value


def _path(kind: type[Any], value: Any) -> Any:
    if kind is Path and isinstance(value, str | os.PathLike):
        return Path(value)
    if kind is Path:
        raise TypeError(f"Expected a path or its text, got `{type(value).__name__}`")
    raise NotImplementedError(f"no setting is a {kind}")
