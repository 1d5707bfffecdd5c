"""Makes the options and arguments of commands from the settings that say how they are shown.

No option is declared here; `commands.settings` has them.
"""

from __future__ import annotations

import re
import shlex
import stat
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial, wraps
from json import JSONDecodeError
from operator import itemgetter
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
from opensafeintent.hostile import TEXT, one_line, terminal_safe

if TYPE_CHECKING:
    from opensafeintent.commands.settings.base import Arg, Group, Opt, Setting, Settings


class _Place(click.ParamType):  # type: ignore[type-arg]  # older click takes no argument there
    """A path that can be one of a file or a folder, there already or not; as a text, a name or a
    path in its place.
    """

    def __init__(self, kind: type[Path | str]) -> None:
        self.name = "path" if kind is Path else "text"
        self._kind = kind

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path | str:
        """Refuse a path that cannot be one of a file or a folder."""
        text = str(value)
        if self._kind is Path or not text.startswith("hf:"):
            _check_path(text, param, ctx)
        return self._kind(text)


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
    shown = one_line(path, TEXT)
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


PATH, NAME = _Place(Path), _Place(str)
_TYPES = {
    Path: PATH,
    str: click.STRING,
    datetime: click.STRING,
    int: click.INT,
    float: click.FLOAT,
    bool: click.BOOL,
}


def choose_type(kind: object, *, is_file: bool) -> click.ParamType[object]:
    """Return the reader of one value of a setting: of its list, or the type that is not None."""
    origin, parts = get_origin(kind), get_args(kind)
    if kind == tuple[int, int]:
        return _Range()
    if origin is Literal:
        return _Choice(parts)
    if origin in (tuple, Annotated):
        return choose_type(parts[0], is_file=is_file)
    if parts:  # a union
        inner = [part for part in parts if part is not NoneType and get_origin(part) is not dict]
        return choose_type(inner[0], is_file=is_file)
    return NAME if is_file else _TYPES[kind]  # type: ignore[index]


S = TypeVar("S", bound="Settings")
Body = Callable[Concatenate[S, ...], int | None]


class _Option(click.Option):
    """An option with its place in a command's help."""

    group: Group
    place: int


def _parameter(setting: Setting, shown: Opt | Arg) -> click.Parameter:
    import msgspec

    from opensafeintent.commands.settings.base import Arg, is_list

    required = setting.default is msgspec.NODEFAULT
    default = None if required else setting.default
    is_range = isinstance(default, tuple) and bool(default)
    many = is_list(setting.kind) and not is_range
    value = choose_type(setting.kind, is_file=shown.is_file)
    if isinstance(shown, Arg):
        nargs = -1 if many else 1
        return click.Argument(
            [setting.name], type=value, nargs=nargs, required=required, metavar=shown.metavar
        )
    is_flag = isinstance(default, bool)
    has_fields = isinstance(default, Mapping)
    if isinstance(default, tuple) and is_range:
        default = "-".join(map(str, default))
    # click takes a default of None for a value, and then the option is never missing
    needs_no_default = required or many or has_fields
    make = _Option if needs_no_default else partial(_Option, default=default)
    names = f"{setting.flag}/{setting.flag_off}" if default is True else setting.flag
    option = make(
        [names, setting.name],
        help=shown.help,
        type=None if is_flag else value,
        is_flag=is_flag or None,
        multiple=many or has_fields,
        required=required,
        show_default=not is_flag and default not in (None, "", ()) and not has_fields,
        metavar=shown.metavar,
        callback=key_values if has_fields else None,
    )
    option.group, option.place = shown.group, shown.place
    return option


def _record(name: str) -> type[Settings]:
    from opensafeintent.commands import settings

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
        from opensafeintent.commands.settings.base import list_settings

        names = {param.name for param in self.params}
        self.params += [
            _parameter(setting, setting.shown)
            for setting in list_settings(_record(self.settings))
            if setting.shown is not None and setting.name not in names
        ]
        return super().get_params(ctx)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuse an option with a value that is given twice: click takes the last one, silently."""
        _, _, given = self.make_parser(ctx).parse_args(args=list(args))
        counts = Counter(param for param in given if isinstance(param, click.Option))
        for param, count in counts.items():
            if count > 1 and not (param.multiple or param.count or param.is_flag):
                raise InputError(f"{param.opts[0]}: is given {count} times; expected one value")
        return super().parse_args(ctx, args)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write its description, then its examples."""
        super().format_help_text(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options under their headings."""
        from opensafeintent.commands.settings.base import Group

        rows: dict[str, list[tuple[int, tuple[str, str]]]] = {group: [] for group in Group}
        for param in self.get_params(ctx):
            row = param.get_help_record(ctx)
            if isinstance(param, _Option) and row is not None:
                rows[param.group].append((param.place, row))
            elif isinstance(param, click.Option) and row is not None:
                rows[Group.OPTIONS].append((0, row))
        for title, placed in rows.items():
            if placed:
                with formatter.section(title):
                    formatter.write_dl([row for _, row in sorted(placed, key=itemgetter(0))])


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
            source_of = click.get_current_context().get_parameter_source
            of_record = {
                name: options.pop(name) for name in record.__struct_fields__ if name in options
            }
            # the record tells its default from the same value given by the user
            given = {
                name: value
                for name, value in of_record.items()
                if source_of(name) is not click.core.ParameterSource.DEFAULT
            }
            return function(cast(Callable[..., S], record)(**given), **options)

        run.settings, run.examples = settings, examples
        group.add_command(run)
        return run

    return decorate


def say(text: str) -> None:
    """Print a line; it cannot command the terminal."""
    click.echo(terminal_safe(text))


def ledger_words(settings: object) -> list[object]:
    """Return the options that name the ledgers outside folders of runs, as settings have them."""
    named = getattr(settings, "ledger", None) or ()
    return [
        word
        for path in (named if isinstance(named, tuple) else (named,))
        for word in ("--ledger", path)
    ]


def taxonomy_words(taxonomy: Path | None) -> list[object]:
    """Return the option that names the taxonomy of a dataset, if settings have one."""
    return [] if taxonomy is None else ["--taxonomy", taxonomy]


def say_next(what: str, *named: object) -> None:
    """Print the next command with paths and names, or a phrase."""
    from opensafeintent.files import near

    words = shlex.join(str(near(word) if isinstance(word, Path) else word) for word in named)
    say(f"Next: {what} {words}".rstrip())
