"""A command in a process of its own, with the most memory that it took."""

from __future__ import annotations

import subprocess
import sys
from typing import NamedTuple

import pytest

_RUN = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))  # one that is out of hand ends before the machine does
from opensafeintent.cli import main
code = 70
try:
    main()
except SystemExit as stop:
    code = stop.code
finally:
    if os.path.exists("/proc/self/status"):  # ru_maxrss would begin with what the parent had
        peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform == "darwin" else 1)
    print("peak", peak)
sys.exit(code)
"""


class Ran(NamedTuple):
    """How a command ended."""

    code: int
    error_text: str
    """What it wrote to the standard error."""
    peak: int
    """Bytes of memory at most."""


def run(*arguments: object) -> Ran:
    pytest.importorskip("resource")
    command = [sys.executable, "-c", _RUN, *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    return Ran(ran.returncode, ran.stderr, 1024 * int(ran.stdout.rpartition("peak ")[2]))
