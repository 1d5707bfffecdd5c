"""A Python that has loaded the program: commands that tests start as processes of their own are forked
from it, without the second that importing takes. Their figures are not drawn, and their pages have no
script that would draw them.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import random
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TextIO
from unittest import mock

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
    _, code = asked.makefile()
    sys.exit(int(code))
"""


@functools.cache
def _folder() -> Path:
    """Load the program, once for all tests of this process; return where it is asked."""
    folder = tempfile.TemporaryDirectory(prefix="loaded-")
    path = Path(folder.name)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path / "socket"))
        listening.listen()
        command = (sys.executable, __file__, str(listening.fileno()))
        paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        process = subprocess.Popen(
            command, env=os.environ | paths, pass_fds=[listening.fileno()], stdin=subprocess.PIPE
        )
    (path / "client.py").write_text(_CLIENT)

    def end() -> None:
        process.communicate()
        folder.cleanup()

    atexit.register(end)
    return path


def shell_line() -> str:
    """Return a line of a shell script that stands in for a start of Python."""
    client, address = (str(_folder() / name) for name in ("client.py", "socket"))
    return f'exec {shlex.join([sys.executable, "-I", "-S", client, address, sys.executable])} "$@"'


class Forked:
    """A command in a process of its own, with what the tests use of `subprocess.Popen`."""

    def __init__(self, words: Sequence[str], variables: Mapping[str, str]) -> None:
        self.words = words
        self.returncode: int | None = None
        self._asked = socket.socket(socket.AF_UNIX)
        self._asked.connect(str(_folder() / "socket"))
        outputs = [os.pipe(), os.pipe()]
        socket.send_fds(self._asked, [b"!"], [write for _, write in outputs])
        self._asked.sendall(json.dumps([str(Path.cwd()), dict(variables), words]).encode())
        self._asked.shutdown(socket.SHUT_WR)
        for _, write in outputs:
            os.close(write)
        self.stdout, self.stderr = (os.fdopen(read) for read, _ in outputs)
        self.pid = self._number()

    def poll(self) -> int | None:
        """Return how it ended; None if it has not."""
        if self.returncode is None and select.select([self._asked], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end."""
        if self.returncode is None:
            if not select.select([self._asked], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self.words, timeout or 0.0)
            self.returncode = self._number()
            self._asked.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Wait for its end, and return the rest of what it wrote."""
        written: dict[TextIO, str] = {}

        def read(stream: TextIO) -> None:
            written[stream] = stream.read()

        until = None if timeout is None else time.monotonic() + timeout
        for stream in (self.stdout, self.stderr):
            threading.Thread(target=read, args=[stream], daemon=True).start()
        self.wait(timeout)
        while len(written) < 2:
            time.sleep(0.001)
            if until is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired(self.words, timeout or 0.0)
        self.stdout.close()
        self.stderr.close()
        return written[self.stdout], written[self.stderr]

    def _number(self) -> int:
        text = b""
        while not text.endswith(b"\n"):
            text += self._asked.recv(1)
        return int(text)


def _serve(listening: socket.socket) -> None:
    """Fork for whoever asks, until standard input ends."""
    while 0 not in select.select([listening, 0], [], [])[0]:
        asked, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _answer(asked)
        asked.close()


def _answer(asked: socket.socket) -> None:
    """Run a command in another process, and tell its number and how it ended."""
    _, outputs, *_ = socket.recv_fds(asked, 1, 2)
    with asked.makefile("rb") as file:
        folder, variables, words = json.load(file)
    if (child := os.fork()) == 0:
        asked.close()
        _run(folder, variables, words, outputs)
    for output in outputs:
        os.close(output)
    asked.sendall(b"%d\n" % child)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    asked.sendall(b"%d\n" % status)
    os._exit(0)


def _run(folder: str, variables: dict[str, str], words: list[str], outputs: list[int]) -> None:
    """Run a command as a process of its own would, and end this one."""
    from opensafeintent.cli import main

    with Path(os.devnull).open() as nothing:
        os.dup2(nothing.fileno(), 0)
    for stream, output in enumerate(outputs, 1):
        os.dup2(output, stream)
        os.close(output)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = ["opensafeintent", *words]
    random.seed()  # of its own, and not that of every command
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # also where the tests run under nohup
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
    import aiohttp  # noqa: F401
    import genai_prices.data_snapshot  # noqa: F401
    import jinja2  # noqa: F401
    import uvloop  # noqa: F401

    import opensafeintent.cli.commands
    import opensafeintent.commands.evaluate
    import opensafeintent.commands.reporting  # noqa: F401
    from opensafeintent.report import page
    from samples import without_drawing

    gc.freeze()  # no command looks through what all of them share
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # each waits for its own command
    with without_drawing(), mock.patch.object(page, "vega_script", lambda: ""):
        _serve(socket.socket(fileno=int(sys.argv[1])))
