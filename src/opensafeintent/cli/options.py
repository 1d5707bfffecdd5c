"""From settings to commands: a setting that says how it is shown is an option, or an argument."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial, wraps
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, TypeVar, cast

import click

from opensafeintent.cli.values import key_values, type_of
from opensafeintent.errors import InputError
from opensafeintent.hostile import terminal_safe

if TYPE_CHECKING:
    from opensafeintent.workflows.settings.base import Arg, Group, Opt, Setting, Settings

S = TypeVar("S", bound="Settings")
Body = Callable[Concatenate[S, ...], int | None]


class _Option(click.Option):
    """An option with its place in a command's help."""

    group: Group
    place: int


def _parameter(setting: Setting, shown: Opt | Arg) -> click.Parameter:
    import msgspec

    from opensafeintent.workflows.settings.base import Arg, is_list

    required = setting.default is msgspec.NODEFAULT
    default = None if required else setting.default
    is_range = isinstance(default, tuple) and bool(default)
    many = is_list(setting.kind) and not is_range
    value = type_of(setting.kind, is_file=shown.is_file)
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
        from opensafeintent.workflows.settings.base import settings_of

        names = {param.name for param in self.params}
        self.params += [
            _parameter(setting, setting.shown)
            for setting in settings_of(_record(self.settings))
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
        from opensafeintent.workflows.settings.base import Group

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


def say_next(what: str, *named: object) -> None:
    """Print the next command with paths and names, or a phrase."""
    from opensafeintent.files import near

    words = shlex.join(str(near(word) if isinstance(word, Path) else word) for word in named)
    say(f"Next: {what} {words}".rstrip())
