"""A Hugging Face hub with one dataset, served on the loopback: the three routes that a snapshot
download asks for.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import unquote, urlsplit

REPO = "someone/some-sets"
COMMITS = {"main": "a" * 40, "v1": "b" * 40}
"""The commit that each revision stands for."""


class FakeHub:
    """Serves `files` (by commit, then path) as the dataset `REPO`; `url` is what HF_ENDPOINT takes.

    With `drops`, every connection is closed without a word; with `gated`, the dataset is there and
    its files are not given.
    """

    def __init__(
        self, files: Mapping[str, Mapping[str, bytes]], *, drops: bool = False, gated: bool = False
    ) -> None:
        self.fetched: list[str] = []
        """Paths of the files whose content was asked for."""
        self._sent = [0]
        self._server = ThreadingHTTPServer(
            ("127.0.0.1", 0), _handler(files, self.fetched, self._sent, drops, gated)
        )
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}
        )
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @property
    def sent(self) -> int:
        """Bytes of files that were sent."""
        return self._sent[0]

    def __enter__(self) -> FakeHub:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _handler(
    files: Mapping[str, Mapping[str, bytes]],
    fetched: list[str],
    sent: list[int],
    drops: bool,
    gated: bool,
) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._respond()

        def do_GET(self) -> None:
            self._respond()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing: stderr is the tests' own."""

        def _respond(self) -> None:
            path = unquote(urlsplit(self.path).path)
            if drops:
                self.close_connection = True
            elif path == f"/api/datasets/{REPO}":
                self._revision("main")
            elif path.startswith(f"/api/datasets/{REPO}/revision/"):
                self._revision(path.rsplit("/", 1)[1])
            elif path.startswith(f"/api/datasets/{REPO}/tree/"):
                revision = path.rsplit("/", 1)[1]
                listed = files[COMMITS.get(revision, revision)]
                tree = [
                    {"type": "file", "path": name, "size": len(data), "oid": _oid(data)}
                    for name, data in listed.items()
                ]
                self._send(200, json.dumps(tree).encode(), {"Content-Type": "application/json"})
            elif gated and path.startswith(f"/datasets/{REPO}/resolve/"):
                about = {
                    "X-Error-Code": "GatedRepo",
                    "X-Error-Message": f"Access to dataset {REPO} is restricted.",
                }
                self._send(401, b"", about)
            elif path.startswith(f"/datasets/{REPO}/resolve/"):
                revision, name = path.removeprefix(f"/datasets/{REPO}/resolve/").split("/", 1)
                commit = COMMITS.get(revision, revision)
                fetched.append(name)
                data = files[commit][name]
                about = {"ETag": f'"{_oid(data)}"', "X-Repo-Commit": commit}
                asked = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
                part = data[int(asked[1]) : int(asked[2]) + 1] if asked else data
                if self.command == "GET":
                    sent[0] += len(part)
                self._send(206 if asked else 200, part, about)
            else:  # as huggingface.co answers an anonymous request for what is not there
                self._send(
                    401,
                    b"",
                    {"X-Error-Code": "RepoNotFound", "X-Error-Message": "Repository not found"},
                )

        def _revision(self, revision: str) -> None:
            commit = COMMITS.get(revision)
            if commit is None:
                self._send(
                    404,
                    b"",
                    {
                        "X-Error-Code": "RevisionNotFound",
                        "X-Error-Message": f"Invalid rev id: {revision}",
                    },
                )
                return
            about = {
                "id": REPO,
                "sha": commit,
                "siblings": [{"rfilename": name} for name in files[commit]],
            }
            self._send(200, json.dumps(about).encode(), {"Content-Type": "application/json"})

        def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

    return Handler


def _oid(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()
