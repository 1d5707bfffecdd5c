"""A Python that has loaded the program, for tests that start many commands from a shell: each is
forked from it, without the second that importing takes, and draws no figures.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_CLIENT = """\
import json, os, socket, sys
words = sys.argv[3:]
if words[:3] not in (["-I", "-m", "opensafeintent"], ["-P", "-m", "opensafeintent"]):
    os.execv(sys.argv[2], [sys.argv[2], *words])
with socket.socket(socket.AF_UNIX) as asked:
    asked.connect(sys.argv[1])
    socket.send_fds(asked, [b"!"], [1, 2])
    asked.sendall(json.dumps([os.getcwd(), dict(os.environ), words[3:]]).encode())
    asked.shutdown(socket.SHUT_WR)
    sys.exit(asked.recv(1)[0])
"""


@contextlib.contextmanager
def loaded_python(folder: Path) -> Iterator[str]:
    """Load the program, and yield a line of a shell script that stands in for Python's start."""
    address, client = folder / "socket", folder / "client.py"
    client.write_text(_CLIENT)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(address))
        listening.listen()
        command = (sys.executable, __file__, str(listening.fileno()))
        paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        process = subprocess.Popen(
            command, env=os.environ | paths, pass_fds=[listening.fileno()], stdin=subprocess.DEVNULL
        )
    words = (sys.executable, "-I", "-S", str(client), str(address), sys.executable)
    try:
        yield f'exec {shlex.join(words)} "$@"'
    finally:
        process.kill()
        process.wait()


def _serve(listening: socket.socket) -> None:
    while True:
        asked, _ = listening.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _, outputs, *_ = socket.recv_fds(asked, 1, 2)
            child = os.fork()
            if child == 0:
                listening.close()
                with asked.makefile("rb") as file:
                    _run(*json.load(file), outputs)
            status = os.waitpid(child, 0)[1]
            asked.sendall(bytes([os.waitstatus_to_exitcode(status) & 255]))
            os._exit(0)
        asked.close()


def _run(folder: str, variables: dict[str, str], words: list[str], outputs: list[int]) -> None:
    """Run a command as a process of its own would, and end this one."""
    from opensafeintent.cli import main

    for stream, output in enumerate(outputs, 1):
        os.dup2(output, stream)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = ["opensafeintent", *words]
    random.seed()  # of its own, and not that of every command
    code: object = 1
    try:
        main()
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    import aiohttp
    import genai_prices.data_snapshot
    import jinja2
    import uvloop  # noqa: F401

    import opensafeintent.cli.commands
    import opensafeintent.commands.evaluate
    import opensafeintent.commands.reporting  # noqa: F401
    from samples import without_drawing

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who forks for a command waits for it alone
    with without_drawing():
        _serve(socket.socket(fileno=int(sys.argv[1])))
