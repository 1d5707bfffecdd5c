"""Importing the package and asking for help are quick, and load nothing heavy."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys

import pytest

import opensafeintent
from endtoend import environment

HEAVY = {
    *("numpy", "pandas", "pyarrow", "scipy", "xarray"),  # arrays
    *("matplotlib", "rich", "jinja2"),  # what is shown
    *("aiohttp", "asyncio", "huggingface_hub", "httpx", "inspect_ai", "requests", "ssl", "uvloop"),
    *("sqlite3", "msgspec", "tqdm", "rapidfuzz", "ray", "sklearn"),
}
COMMANDS = (
    *(
        "",
        "demo",
        "evaluate",
        "import",
        "grade",
        "report",
        "models",
        "sample-size",
        "build",
        "judge-check",
    ),
    *("agreement", "dataset", "dataset info", "dataset check", "dataset dedup"),
    *("annotate", "annotate export"),
)
UNSET = ("", "dataset", "annotate", "annotate export")
"""Groups, which have no settings."""
_TRIES = 7

pytestmark = pytest.mark.usefixtures("unmeasured")


def started(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(
        command, env=environment(), capture_output=True, text=True, check=True, timeout=60
    )


def python(code: str, *arguments: str) -> str:
    return started(code, *arguments).stdout


def loaded_by(code: str, *arguments: str) -> set[str]:
    """Return the top-level modules that are loaded once `code` has run."""
    report = (
        "\nimport json, sys; print(json.dumps(sorted({name.partition('.')[0] for name in"
        " sys.modules})))"
    )
    return set(json.loads(python(code + report, *arguments).splitlines()[-1]))


_HELP = """
import sys
from opensafeintent.cli import main
try:
    main()
except SystemExit as ended:
    assert ended.code == 0
"""


def test_import_loads_nothing_heavy() -> None:
    assert not loaded_by("import opensafeintent") & (HEAVY | {"click"})


@pytest.mark.parametrize("command", COMMANDS)
def test_help_loads_nothing_heavy(command: str) -> None:
    records = set() if command in UNSET else {"msgspec"}
    assert loaded_by(_HELP, *command.split(), "--help") & HEAVY == records


def test_a_report_loads_nothing_of_other_commands() -> None:
    code = (
        "import sys, opensafeintent.commands.reporting; print(*(name for name in sys.modules if"
        " name.startswith(('ray', 'opensafeintent.ray', 'inspect_ai'))))"
    )
    assert python(code).split() == []


_TAKEN = (
    "\nimport resource, sys; print(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]),"
    " file=sys.stderr)"
)


def seconds(code: str, *arguments: str) -> float:
    """Return the CPU seconds that it takes to start Python and run `code`: others on the machine do
    not count.
    """
    pytest.importorskip("resource")
    return float(started(code + _TAKEN, *arguments).stderr)


@pytest.mark.parametrize(
    ("code", "arguments", "limit"),
    [
        ("import opensafeintent", (), 0.15),
        (_HELP, ("--help",), 0.3),
        (_HELP, ("evaluate", "--help"), 0.3),
    ],
    ids=["import", "osi", "osi evaluate"],
)
def test_import_and_help_take_little_time(
    code: str, arguments: tuple[str, ...], limit: float
) -> None:
    assert any(seconds(code, *arguments) <= limit for _ in range(_TRIES))


_NAMES = """
import sys, opensafeintent
for name in opensafeintent.__all__:
    exec(f"from opensafeintent import {name}")
print(*(name for name in opensafeintent.__all__ if type(globals()[name]) is type(sys)))
"""


@pytest.mark.slow
def test_every_public_name_can_be_imported_and_is_no_module() -> None:
    assert python(_NAMES).split() == []
    assert dir(opensafeintent) == sorted(opensafeintent.__all__)
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = opensafeintent.no_such_name


def test_type_checkers_read_the_names_that_are_there() -> None:
    tree = ast.parse(inspect.getsource(opensafeintent)).body
    (block,) = (node for node in tree if isinstance(node, ast.If))
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    read = {(node.module, name.name, name.asname) for node in imports for name in node.names}
    assert read == {(module, name, name) for name, module in opensafeintent._MODULES.items()}
