"""Types of the values on the command line."""

from __future__ import annotations

import re
import stat
from datetime import datetime
from json import JSONDecodeError
from pathlib import Path
from types import NoneType
from typing import Annotated, Literal, get_args, get_origin

import click

from opensafeintent.errors import InputError, did_you_mean
from opensafeintent.hostile import one_line


class _Path(click.ParamType):  # type: ignore[type-arg]  # older click takes no argument there
    """A path that can be one of a file or a folder, there already or not."""

    name = "path"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        """Refuse invalid values, for any command."""
        _check_path(str(value), param, ctx)
        return Path(str(value))


class _Name(click.ParamType):  # type: ignore[type-arg]
    """A name, or a path in its place."""

    name = "text"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        """Refuse a path that cannot be one of a file or a folder."""
        text = str(value)
        if not text.startswith("hf:"):
            _check_path(text, param, ctx)
        return text


class _Range(click.ParamType):  # type: ignore[type-arg]
    """Two numbers, `1-4`; one number is both."""

    name = "range"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        """Read them."""
        match = re.fullmatch(r"(\d)(?:-(\d))?", str(value).strip())
        if match is None:
            option = param.opts[0] if param else "range"
            raise InputError(f"{option} {value}: expected FIRST-LAST, such as 1-4")
        return int(match[1]), int(match[2] or match[1])


def _check_path(path: str, param: click.Parameter | None, ctx: click.Context | None) -> None:
    """Refuse an empty path, one that cannot be inspected, and one that is neither file nor folder:
    reading a pipe may never end.

    Raises:
        InputError: see above.
    """
    if not path:
        hint = param.get_error_hint(ctx) if param else "a path"
        raise InputError(f"{hint}: is empty; expected a path or a name")
    shown = one_line(path, 1000)
    try:
        mode = Path(path).stat().st_mode
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        # no rights, a loop of links, a name too long; a NUL character
        raise InputError(f"{shown}: {getattr(error, 'strerror', None) or error}") from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise InputError(f"{shown}: is a pipe or a device; expected a file or a folder")


def key_values(
    _context: click.Context, option: click.Parameter, pairs: tuple[str, ...]
) -> dict[str, object]:
    """Read `KEY=VALUE`, or `MODEL:KEY=VALUE`; a value that is not JSON is a text."""
    from opensafeintent.files import any_json

    name = option.opts[0]
    fields: dict[str, object] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise InputError(f"{name} {pair}: expected KEY=VALUE")
        if (field := key.rpartition(":")[2]) in ("", "model", "messages", "stream", "n"):
            what = f"{field} is set by the program" if field else "expected KEY=VALUE"
            raise InputError(f"{name} {pair}: {what}")
        if key in fields:
            raise InputError(f"{name} {key}: is given twice; expected one value")
        try:
            fields[key] = any_json(text)
        except JSONDecodeError:  # a text that needs no quotes
            fields[key] = text
        except ValueError as error:
            raise InputError(
                f"{name} {pair}: not a value that a request can hold: {error}"
            ) from error
    return fields


class _Choice(click.Choice):  # type: ignore[type-arg]
    """A choice; a wrong one is answered with the nearest."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> object:
        """Return the choice that a text names."""
        if value not in self.choices:
            expected = f"expected {', '.join(self.choices)}"
            question = did_you_mean(str(value), self.choices)
            self.fail(f"{value!r}: {'; '.join(filter(None, (expected, question)))}", param, ctx)
        return value


PATH = _Path()
NAME = _Name()
_TYPES = {
    Path: PATH,
    str: click.STRING,
    datetime: click.STRING,
    int: click.INT,
    float: click.FLOAT,
    bool: click.BOOL,
}


def type_of(kind: object, *, is_file: bool) -> click.ParamType[object]:
    """Return the reader of one value of a setting: of its list, or the type that is not None."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind == tuple[int, int]:
        return _Range()
    if origin is Literal:
        return _Choice(parts)
    if origin in (tuple, Annotated):
        return type_of(parts[0], is_file=is_file)
    if parts:  # a union
        inner = [part for part in parts if part is not NoneType and get_origin(part) is not dict]
        return type_of(inner[0], is_file=is_file)
    return NAME if is_file else _TYPES[kind]  # type: ignore[index]
