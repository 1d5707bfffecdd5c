"""From settings to commands: a setting that says how it is shown is an option, or an argument."""

from __future__ import annotations

import re
import shlex
import stat
from collections.abc import Callable, Mapping
from functools import partial, wraps
from json import JSONDecodeError
from pathlib import Path
from types import NoneType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Concatenate,
    Literal,
    TypeVar,
    cast,
    get_args,
    get_origin,
)

import click

from opensafeintent.errors import InputError, did_you_mean
from opensafeintent.hostile import one_line, terminal_safe

if TYPE_CHECKING:
    from opensafeintent.workflows.settings import Arg, Opt, Setting, Settings

S = TypeVar("S", bound="Settings")
Body = Callable[Concatenate[S, ...], int | None]


# Types of values
# ------------------------------------------------------------------------------


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


def _key_values(
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
            said = [f"expected {', '.join(self.choices)}", did_you_mean(str(value), self.choices)]
            self.fail(f"{value!r}: {'; '.join(filter(None, said))}", param, ctx)
        return value


PATH = _Path()
NAME = _Name()
_TYPES = {Path: PATH, str: click.STRING, int: click.INT, float: click.FLOAT, bool: click.BOOL}


def _type_of(kind: object, *, is_file: bool) -> click.ParamType[object]:
    """Return the reader of one value of a setting: of its list, or the type that is not None."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind == tuple[int, int]:
        return _Range()
    if origin is Literal:
        return _Choice(parts)
    if origin in (tuple, Annotated):
        return _type_of(parts[0], is_file=is_file)
    if parts:  # a union
        inner = [part for part in parts if part is not NoneType and get_origin(part) is not dict]
        return _type_of(inner[0], is_file=is_file)
    return NAME if is_file else _TYPES[kind]  # type: ignore[index]


# Options of the command line
# ------------------------------------------------------------------------------


class _Option(click.Option):
    """An option with the heading that it has in a command's help."""

    group: str


def _parameter(setting: Setting, shown: Opt | Arg) -> click.Parameter:
    import msgspec

    from opensafeintent.workflows.settings import Arg, is_list

    required = setting.default is msgspec.NODEFAULT
    default = None if required else setting.default
    a_range = isinstance(default, tuple) and bool(default)
    many = is_list(setting.kind) and not a_range
    value = _type_of(setting.kind, is_file=shown.is_file)
    if isinstance(shown, Arg):
        nargs = -1 if many else 1
        return click.Argument(
            [setting.name], type=value, nargs=nargs, required=required, metavar=shown.metavar
        )
    flag = isinstance(default, bool)
    fields = isinstance(default, Mapping)
    if isinstance(default, tuple) and a_range:
        default = "-".join(map(str, default))
    # click takes a default of None for a value, and then the option is never missing
    made = _Option if required or many or fields else partial(_Option, default=default)
    option = made(
        [f"{setting}/--no-{str(setting)[2:]}" if default is True else str(setting), setting.name],
        help=shown.help,
        type=None if flag else value,
        is_flag=flag or None,
        multiple=many or fields,
        required=required,
        show_default=not flag and default not in (None, "", ()) and not fields,
        metavar=shown.metavar,
        callback=_key_values if fields else None,
    )
    option.group = setting.group
    return option


# Commands
# ------------------------------------------------------------------------------


def _record(name: str) -> type[Settings]:
    from opensafeintent.workflows import settings

    return cast("type[Settings]", getattr(settings, name))


class _Command(click.Command):
    """A command whose options are the settings of a record, which is loaded when they are asked
    for: the help of the program loads none.
    """

    settings: str
    """The record's name."""
    examples: tuple[str, ...] = ()
    """Commands that its help shows first."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return its own parameters, then its settings."""
        from opensafeintent.workflows.settings import settings_of

        known = {param.name for param in self.params}
        self.params += [
            _parameter(one, one.shown)
            for one in settings_of(_record(self.settings))
            if one.shown is not None and one.name not in known
        ]
        return super().get_params(ctx)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write its description, then its examples."""
        super().format_help_text(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings."""
        named = {title: list(names) for title, names in _record(self.settings).groups.items()}
        sections: dict[str, dict[str | None, tuple[str, str]]] = {title: {} for title in named}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if isinstance(param, click.Option) and record is not None:
                sections.setdefault(getattr(param, "group", "Options"), {})[param.name] = record
        for title, records in sections.items():
            order = [name for name in named.get(title, ()) if name in records] or records
            if records:
                with formatter.section(title):
                    formatter.write_dl([records[name] for name in order])


def command(
    group: click.Group,
    name: str,
    settings: str,
    short_help: str | None = None,
    examples: tuple[str, ...] = (),
) -> Callable[[Body[S]], click.Command]:
    """Return a decorator that makes a function a command of a group.

    The function is called with the settings, checked, and by name with its further options. It
    returns the exit code; None is 0.
    """

    def decorate(function: Body[S]) -> click.Command:
        @click.command(name, cls=_Command, short_help=short_help)
        @wraps(function)
        def run(**options: object) -> int | None:
            record = _record(settings)
            typed = {
                name: options.pop(name) for name in record.__struct_fields__ if name in options
            }
            return function(cast(Callable[..., S], record)(**typed), **options)

        run.settings, run.examples = settings, examples
        group.add_command(run)
        return run

    return decorate


# The next command
# ------------------------------------------------------------------------------


def say_next(what: str, *named: object) -> None:
    """Print the next command with paths and names, or a phrase."""
    from opensafeintent.files import near

    words = shlex.join(str(near(each) if isinstance(each, Path) else each) for each in named)
    click.echo(terminal_safe(f"Next: {what} {words}".rstrip()))
