"""A Hugging Face hub with one dataset, served on the loopback: the three routes that a snapshot
download asks for; and how a process asks it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self
from urllib.parse import unquote, urlsplit

from endtoend import Ran, begin, finish

REPO = "someone/some-sets"
COMMITS = {"main": "a" * 40, "v1": "b" * 40}
"""The commit that each revision stands for."""


class FakeHub(ThreadingHTTPServer):
    """Serves `files` (by commit, then path) as the dataset `REPO`; `url` is what HF_ENDPOINT takes.

    With `drops`, every connection is closed without a word; with `gated`, the dataset is there and
    its files are not given.
    """

    def __init__(
        self, files: Mapping[str, Mapping[str, bytes]], *, drops: bool = False, gated: bool = False
    ) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files, self.drops, self.gated = files, drops, gated
        self.fetched: list[str] = []
        """Paths of the files whose content was asked for."""
        self.sent = 0
        """Bytes of files that were sent."""
        self.url = f"http://127.0.0.1:{self.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: FakeHub

    def do_GET(self) -> None:
        hub, path = self.server, unquote(urlsplit(self.path).path)
        revision = path.rsplit("/", 1)[1]
        if hub.drops:
            self.close_connection = True
        elif path == f"/api/datasets/{REPO}":
            self._revision("main")
        elif path.startswith(f"/api/datasets/{REPO}/revision/"):
            self._revision(revision)
        elif path.startswith(f"/api/datasets/{REPO}/tree/"):
            listed = hub.files[COMMITS.get(revision, revision)]
            about = (
                (name, {"size": len(data), "oid": _oid(data)}) for name, data in listed.items()
            )
            self._send_json([{"type": "file", "path": name} | details for name, details in about])
        elif not path.startswith(f"/datasets/{REPO}/resolve/"):
            # as huggingface.co answers an anonymous request for what is not there
            self._refuse(401, "RepoNotFound", "Repository not found")
        elif hub.gated:
            self._refuse(401, "GatedRepo", f"Access to dataset {REPO} is restricted.")
        else:
            self._file(*path.removeprefix(f"/datasets/{REPO}/resolve/").split("/", 1))

    do_HEAD = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Say nothing: stderr is the tests' own."""

    def _file(self, revision: str, name: str) -> None:
        commit = COMMITS.get(revision, revision)
        self.server.fetched.append(name)
        data = self.server.files[commit][name]
        asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        part = data[int(asked[1]) : int(asked[2]) + 1] if asked else data
        if self.command == "GET":
            self.server.sent += len(part)
        about = {"ETag": f'"{_oid(data)}"', "X-Repo-Commit": commit}
        self._send(206 if asked else 200, part, about)

    def _revision(self, revision: str) -> None:
        if (commit := COMMITS.get(revision)) is None:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
            return
        siblings = [{"rfilename": name} for name in self.server.files[commit]]
        self._send_json({"id": REPO, "sha": commit, "siblings": siblings})

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._send(status, b"", {"X-Error-Code": code, "X-Error-Message": message})

    def _send_json(self, value: object) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)


def _oid(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()


def variables_of(hub: str, folder: Path) -> dict[str, str]:
    """Return the variables by which a process asks a hub, and keeps what it got in a folder."""
    home = {"HF_ENDPOINT": hub, "HF_HOME": str(folder / "hf")}
    return home | {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


def hub_command(hub: str, folder: Path, *arguments: str, **variables: str) -> Ran:
    """Run a command in a process of its own: huggingface_hub reads HF_ENDPOINT when it is
    imported.
    """
    return finish(begin(*arguments, **variables_of(hub, folder) | variables), timeout=120)


def hub_process(
    hub: str, folder: Path, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own."""
    inherited = {
        name: os.environ[name]
        for name in ("PATH", "PYTHONPATH", "SYSTEMROOT")
        if name in os.environ
    }
    environment = inherited | variables_of(hub, folder) | variables
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
