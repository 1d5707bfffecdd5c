"""A loopback server that takes batches, in OpenAI's dialect and its variants and in Anthropic's, with
the faults that providers have. It answers plain calls as well, with the same texts.
"""

from __future__ import annotations

import contextlib
import http.server
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from hashlib import blake2b
from typing import Any
from urllib.parse import unquote

import msgspec

from endtoend import running
from loopback.damage import DAMAGE, DEEP, GONE, HALF, Sent
from loopback.server import Fault, _error_body, _Request


class BatchFaults(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How the server behaves. Looks are requests about one batch; shares are of lines, by their id."""

    looks: int = 1
    """Before a batch has ended."""
    lost_creates: tuple[int, ...] = ()
    """Numbers, from 1, of the creating requests whose reply is lost."""
    dropped_creates: tuple[int, ...] = ()
    """Numbers of those that create nothing, and get no reply either."""
    lists_before: int = 0
    """Lists that do not show a new batch yet."""
    without_files: int = 0
    """Looks at a batch that has ended and shows no file yet."""
    refused: float = 0.0
    """Lines that a filter refuses with 400, in the error file."""
    separators: bool = False
    """Whether responses hold U+2028 as it is."""
    queue: int | None = None
    """Lines beyond which a batch fails after its creation."""
    expires: float = 0.0
    """Lines that expire when they come for the first time."""
    all_expire: bool = False
    """Whether the first batch expires without any result or file."""
    twice: float = 0.0
    strange: bool = False
    """Whether results hold a line of an unknown call, and one that is no JSON."""
    odd_states: int = 0
    """Looks with a state that no table has."""
    unreadable_list: bool = False
    unknown_model: str = ""
    """A model that plain calls do not find."""
    refuses: str = ""
    """A field that the models do not take."""
    response: str = ""
    """What models under test answer; the usual text if empty."""
    chatty: str = ""
    """A model that answers every question in prose."""
    caches: bool = False
    """Whether usage counts cached input, as with `server.Settings.caches`."""
    damage: dict[str, str] = {}
    """By the file (`out`, `err` or `all`), what its first downloads are; see `loopback.damage`."""
    damaged: int = 1
    """Downloads of a file that are damaged."""
    damaged_batches: int = 10**9
    """So many batches are damaged, or have no file of answers; later ones are as they should be."""
    without_output: bool = False
    """Whether the file of answers never comes, although all lines count as completed."""
    silent: bool = False
    """Whether lines that expired are in no file."""
    errors_first: bool = False
    """Whether a line with an error goes before each line."""
    form_of_lines: str = ""
    """`text`: bodies are texts of JSON; `itself`: the reply is in the place of what holds it."""
    vanishes: int = 0
    """Looks at a batch that get 404."""
    deep: dict[str, int] = {}
    """By `get`, `list` or `create`: so many first replies are nested beyond what can be read."""
    clock: float = 0.0
    """Seconds that the server's clock is ahead."""
    ids: str = ""
    """`long`: of 338 characters, as LiteLLM makes them; `gs`: with slashes."""
    invalid: bool = False
    """Whether the check of the first file finds errors."""
    limited: int = 0
    """So many first creating requests are beyond a gateway's own limit."""
    ids_alone: bool = False
    """Whether nothing is kept of a line but its id, and all answers are alike: for a million lines."""


class _Batch:
    def __init__(
        self, number: int, account: str, file: str, lines: list[dict[str, Any]], form: str
    ) -> None:
        self.number = number
        self.id = _named(f"batch_{number}", form)
        self.account, self.file, self.lines = account, file, lines
        self.created = time.time()
        self.metadata: dict[str, str] = {}
        self.model = ""
        self.looks = self.lists = 0
        self.failed = self.expired = self.cancelled = self.invalid = False
        self.expiring: set[str] = set()

    @property
    def ids(self) -> set[str]:
        return {line["custom_id"] for line in self.lines}


class BatchHttpServer(http.server.ThreadingHTTPServer):
    """The server; `form` is that of `openai`, `together`, `mistral` or `anthropic`."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, form: str = "openai", **faults: Any) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.form = form
        self.faults = BatchFaults(**faults)
        self.base_url = f"http://127.0.0.1:{self.server_port}/v1"
        self.lock = threading.RLock()
        self.files: dict[str, tuple[str, bytes]] = {}
        self.batches: dict[str, _Batch] = {}
        self.creates = self.plain_calls = 0
        self.downloads = Counter[str]()
        """Of each file."""
        self.asked_twice: list[str] = []
        """Ids of calls that were made again while a batch had answered them, or might."""
        self._bodies: dict[bytes, str] = {}
        self._beginnings: set[str] = set()
        self._expired_once: set[str] = set()

    def handle_error(self, *_: object) -> None:
        """Keep quiet about clients that are killed."""

    # Plain calls

    def complete(self, body: bytes) -> tuple[bytes, int]:
        """Return the reply to a plain call, and its status."""
        if self.faults.refuses in json.loads(body):
            return _error_body(400, code="unsupported_value", param=self.faults.refuses), 400
        if json.loads(body)["model"] == self.faults.unknown_model:
            return _error_body(404), 404
        with self.lock:
            self.plain_calls += 1
            custom_id = self._bodies.get(_digest(json.loads(body)))
            if custom_id is not None and self._may_answer(custom_id):
                self.asked_twice.append(custom_id)
        return self._reply(body), 200

    def _reply(self, body: bytes) -> bytes:
        digest = blake2b(body, digest_size=16).digest()
        request = _Request(body, digest, messages=self.form == "anthropic")
        request.beginnings = self._beginnings if self.faults.caches else None
        if self.faults.response and request.purpose == "generate":
            return request.replaced_completion(
                Fault(action="completion", content=self.faults.response)
            )
        if request.model == self.faults.chatty:
            return request.replaced_completion(Fault(action="completion", content="As you like."))
        reply = request.completion()
        if self.faults.separators and request.purpose == "generate":
            reply = reply.replace(b"Note ", "Note\u2028 ".encode(), 1)
        return reply

    # Batches

    def upload(self, account: str, content: bytes) -> dict[str, Any]:
        with self.lock:
            name = _named(f"file_{len(self.files) + 1}", self.faults.ids)
            self.files[name] = (account, content)
            return {"id": name, "object": "file", "bytes": len(content)}

    def create(self, account: str, body: dict[str, Any]) -> dict[str, Any] | None:
        """Make a batch; None if the reply is lost."""
        with self.lock:
            self.creates += 1
            number = self.creates
            if number in self.faults.dropped_creates:
                return None
            if self.form == "anthropic":
                file, lines = "", body["requests"]
            else:
                file = body.get("input_file_id") or body["input_files"][0]
                content = self.files[file][1]
                if self.faults.ids_alone:
                    del self.files[file]
                    ids = re.findall(rb'^{"custom_id":"([0-9a-f]{64})"', content, re.MULTILINE)
                    lines = [{"custom_id": name.decode()} for name in ids]
                else:
                    lines = list(map(json.loads, content.split(b"\n")[:-1]))
            batch = _Batch(number, account, file, lines, self.faults.ids)
            batch.created += self.faults.clock
            batch.invalid = self.faults.invalid and not self.batches
            batch.metadata = body.get("metadata") or {}
            batch.model = str(body.get("model", ""))
            if not self.faults.ids_alone:
                self._check(batch)
            self.batches[batch.id] = batch
            if number in self.faults.lost_creates:
                return None
            shown = self.shown(batch)
            return {"job": shown, "warning": None} if self.form == "together" else shown

    def _check(self, batch: _Batch) -> None:
        """Note calls that are made again, and refuse lines of another form."""
        ids = [line["custom_id"] for line in batch.lines]
        assert len(set(ids)) == len(ids)
        models = {self._body(line, batch)["model"] for line in batch.lines}
        assert len(models) == 1, models
        for line in batch.lines:
            custom_id = line["custom_id"]
            assert re.fullmatch("[0-9a-f]{64}", custom_id)
            if self._may_answer(custom_id):
                self.asked_twice.append(custom_id)
            self._bodies[_digest(self._body(line, batch))] = custom_id
        batch.expired = self.faults.all_expire and len(self.batches) == 0
        batch.expiring = {
            custom_id
            for custom_id in ids
            if custom_id not in self._expired_once
            and (batch.expired or _drawn("expires", custom_id) < self.faults.expires)
        }
        self._expired_once |= batch.expiring
        batch.failed = self.faults.queue is not None and len(ids) > self.faults.queue

    def _may_answer(self, custom_id: str) -> bool:
        return any(
            custom_id in batch.ids
            and not (batch.failed or batch.invalid)
            and not self._is_lost(batch, custom_id)
            and not (custom_id in batch.expiring and self._has_ended(batch))
            and not (batch.cancelled and not self._answers(batch, custom_id))
            for batch in self.batches.values()
        )

    def _is_lost(self, batch: _Batch, custom_id: str) -> bool:
        """Tell whether an answer will not come any more, and the program can know it."""
        faults, kind = self.faults, self._kind_of(custom_id, batch)
        if batch.number > faults.damaged_batches:
            return False
        if faults.without_output and kind == "out":
            return batch.looks >= faults.looks + faults.odd_states + 3
        damage = faults.damage.get(kind, "")
        if not damage or faults.damaged < 10**6:
            return False
        if self.downloads[f"{kind}-{batch.id}"] < (1 if damage in GONE else 3):
            return False
        lines = list(self.whole(batch, kind))
        half = b"".join(lines[: len(lines) // 2])
        return damage not in HALF or custom_id.encode() not in half

    def _kind_of(self, custom_id: str, batch: _Batch) -> str:
        """Return the file that has the line of a call."""
        if self.form == "anthropic":
            return "all"
        refused = _drawn("refused", custom_id) < self.faults.refused
        return "err" if refused or custom_id in batch.expiring else "out"

    def _body(self, line: dict[str, Any], batch: _Batch) -> dict[str, Any]:
        body: dict[str, Any] = line.get("params") or line["body"]
        return body if "model" in body else {"model": batch.model, **body}

    def _has_ended(self, batch: _Batch) -> bool:
        return batch.looks > self.faults.looks + self.faults.odd_states or batch.cancelled

    def look(self, batch: _Batch) -> dict[str, Any]:
        with self.lock:
            batch.looks += 1
            return self.shown(batch)

    def shown(self, batch: _Batch) -> dict[str, Any]:
        """Return a batch as the provider describes it."""
        faults, ended = self.faults, self._has_ended(batch)
        visible = batch.looks > faults.looks + faults.odd_states + faults.without_files
        files = ended and (visible or batch.cancelled)
        done = len(batch.ids - batch.expiring) if ended else 0
        if self.form == "anthropic":
            count = {"processing": 0 if ended else len(batch.lines), "succeeded": done}
            state = (
                "ended" if ended else "odd" if batch.looks <= faults.odd_states else "in_progress"
            )
            count["expired"] = len(batch.expiring) if ended else 0
            return {
                "id": batch.id,
                "type": "message_batch",
                "processing_status": state,
                "request_counts": count | {"errored": 0, "canceled": 0},
                "created_at": time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(batch.created)),
                "results_url": "http://elsewhere.invalid/results" if ended else None,
            }
        outcome = (
            "failed"
            if batch.failed or batch.invalid
            else "expired"
            if batch.expired or batch.expiring
            else "completed"
        )
        outcome = "cancelled" if batch.cancelled else outcome
        state = (
            outcome if ended else "paused" if batch.looks <= faults.odd_states else "in_progress"
        )
        has_results = files and not batch.failed and not batch.expired and not batch.invalid
        hidden = faults.without_output and batch.number <= faults.damaged_batches
        has_errors = faults.refused or (batch.expiring and not faults.silent)
        has_errors = has_results and (has_errors or "err" in faults.damage)
        output = f"out-{batch.id}" if has_results and not hidden else None
        errors = f"err-{batch.id}" if has_errors else None
        shown: dict[str, Any] = {
            "id": batch.id,
            "status": _states(self.form).get(state, state),
            "created_at": int(batch.created),
            "metadata": batch.metadata,
        }
        if batch.failed and ended:
            error = {"code": "token_limit_exceeded", "message": "Enqueued token limit reached."}
            shown["errors"] = {"object": "list", "data": [error]}
        if batch.invalid and ended:
            shown["errors"] = {"object": "list", "data": INVALID}
        if self.form == "mistral":
            counts = {"total_requests": len(batch.lines), "succeeded_requests": done}
            names = {"input_files": [batch.file], "output_file": output, "error_file": errors}
            return shown | counts | {"failed_requests": 0} | names
        names = {"input_file_id": batch.file, "output_file_id": output, "error_file_id": errors}
        counts = {"total": len(batch.lines), "completed": done, "failed": 0}
        return shown | names | {"request_counts": counts}

    def list(self, account: str) -> Any:
        with self.lock:
            if self.faults.unreadable_list:
                return {"oops": True}
            rows = []
            for batch in reversed(self.batches.values()):
                batch.lists += 1
                # no request about a batch comes before the list has shown it to have ended
                batch.looks += self.form == "anthropic"
                if batch.account == account and batch.lists > self.faults.lists_before:
                    rows.append(self.shown(batch))
            if self.form == "together":
                return rows
            return {"object": "list", "data": rows, "has_more": False, "total": len(rows)}

    def sent(self, batch: _Batch, kind: str) -> Sent | None:
        """Return what is sent in place of a file, if it is damaged; count its download."""
        with self.lock:
            name = f"{kind}-{batch.id}"
            self.downloads[name] += 1
            damage = self.faults.damage.get(kind)
            late = self.downloads[name] > self.faults.damaged
            if damage is None or late or batch.number > self.faults.damaged_batches:
                return None
        return DAMAGE[damage](list(self.whole(batch, kind)))

    def whole(self, batch: _Batch, kind: str) -> Iterator[bytes]:
        """Yield the lines of a file of results: `out`, `err`, or `all`."""
        faults = self.faults
        lines = sorted(batch.lines, key=lambda line: _drawn("order", line["custom_id"]))
        for line in lines:
            custom_id = line["custom_id"]
            refused = _drawn("refused", custom_id) < faults.refused
            expired = custom_id in batch.expiring
            if batch.cancelled and not self._answers(batch, custom_id):
                continue
            if kind != "all" and (kind == "err") != (refused or expired):
                continue
            if expired and faults.silent:
                continue
            content = self._line(line, batch, refused=refused, expired=expired)
            if faults.errors_first:
                yield self._line(line, batch, refused=True, expired=False)
            yield content
            if _drawn("twice", custom_id) < faults.twice:
                yield content
        if faults.strange and kind != "err":
            yield b'{"custom_id": "%s", "response": {"body": {}}}' % (b"0" * 64)
            yield b'{"custom_id": "half of a li'

    def _answers(self, batch: _Batch, custom_id: str) -> bool:
        return _drawn("cancelled", custom_id) < 0.5

    def _line(self, line: dict[str, Any], batch: _Batch, *, refused: bool, expired: bool) -> bytes:
        custom_id = line["custom_id"].encode()
        if self.form == "anthropic":
            if expired:
                return b'{"custom_id":"%s","result":{"type":"expired"}}' % custom_id
            if refused:
                inner = b'{"type":"error","error":{"type":"invalid_request_error","message":"too long"}}'
                result = b'{"type":"errored","error":%s}' % inner
            else:
                reply = self._reply(_json(self._body(line, batch)))
                result = {"": b'{"type":"succeeded","message":%s}' % reply, "itself": reply}.get(
                    self.faults.form_of_lines,
                    b'{"type":"succeeded","message":%s}' % _json(reply.decode()),
                )
            return b'{"custom_id":"%s","result":%s}' % (custom_id, result)
        response, error = b"null", b"null"
        if expired:
            error = (
                b'{"code":"batch_expired","message":"This request could not be executed in time."}'
            )
        elif not self.faults.ids_alone and self.faults.refuses in self._body(line, batch):
            field = self.faults.refuses
            body = _error_body(400, code="unsupported_value", param=field)
            response = b'{"status_code":400,"request_id":"r","body":%s}' % body
        elif refused:
            body = _error_body(400, code="content_filter")
            response = b'{"status_code":400,"request_id":"r","body":%s}' % body
        else:
            alike = self.faults.ids_alone
            body = _ALIKE if alike else self._reply(_json(self._body(line, batch)))
            form = self.faults.form_of_lines
            body = _json(body.decode()) if form == "text" else body
            response = b'{"status_code":200,"request_id":"r","body":%s}' % body
            response = body if form == "itself" else response
        whole = b'{"id":"x","custom_id":"%s","response":%s,"error":%s}'
        return whole % (custom_id, response, error)

    def cancel(self, batch: _Batch) -> dict[str, Any]:
        with self.lock:
            batch.cancelled = True
            return self.shown(batch)


LIMIT = "The gateway's batch limit of 5 requests is exceeded: 20 requested."
INVALID: list[Any] = [
    {"code": "invalid_body", "line": 3, "message": "The body has no messages.", "param": None},
    {"code": "duplicate_id", "line": None, "message": None},
    "the file is not as it should be",
    {"code": "invalid_body", "line": 7, "message": "The body has no messages."},
]

_ALIKE = (
    b'{"choices":[{"message":{"content":"2"},"finish_reason":"stop"}],"model":"judge","usage":'
    b'{"prompt_tokens":2000,"completion_tokens":1}}'
)


def _states(form: str) -> dict[str, str]:
    if form == "together":
        names = ("in_progress", "completed", "expired", "failed", "cancelled")
        return {name: name.upper() for name in names}
    if form == "mistral":
        return {
            "in_progress": "RUNNING",
            "completed": "SUCCESS",
            "expired": "TIMEOUT_EXCEEDED",
            "failed": "FAILED",
            "cancelled": "CANCELLED",
        }
    return {}


def _drawn(what: str, custom_id: str) -> float:
    """Return a number from 0 to 1 that depends on the id alone."""
    digest = blake2b(f"{what} {custom_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) / 2**64


def _named(name: str, form: str) -> str:
    """Return an id of a form; see `BatchFaults.ids`."""
    match form:
        case "gs":
            return f"gs://bucket/{name}?x=1#y"
        case "long":
            return f"{name}_{'Ab3+/' * 70}"[:336] + "=="
    return name


def _json(body: dict[str, Any] | str) -> bytes:
    return msgspec.json.encode(body)


def _digest(body: dict[str, Any]) -> bytes:
    return blake2b(msgspec.json.encode(body, order="sorted"), digest_size=16).digest()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a body waits 40 ms behind its headers
    server: BatchHttpServer

    @property
    def account(self) -> str:
        return str(self.headers["Authorization"] or self.headers["x-api-key"])

    def do_POST(self) -> None:
        server, path = self.server, self.path
        content = self.rfile.read(int(self.headers["Content-Length"] or 0)) or self._chunks()
        if path in ("/v1/chat/completions", "/v1/messages"):
            self._send(*server.complete(content))
        elif path in ("/v1/files", "/v1/files/upload"):
            boundary = self.headers.get_boundary().encode()  # type: ignore[union-attr]
            part = next(part for part in content.split(b"--" + boundary) if b'name="file"' in part)
            file = part.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")
            self._send(_json(server.upload(self.account, file)))
        elif path.endswith("/cancel"):
            self._send(_json(server.cancel(server.batches[unquote(path.split("/")[-2])])))
        elif path in _ROUTES:
            if server.faults.limited > 0:
                server.faults.limited -= 1
                self._send(_json({"error": {"message": LIMIT, "code": "429"}}), 429)
                return
            reply = server.create(self.account, json.loads(content))
            if reply is None:
                self.close_connection = True
                return
            self._send_nested("create", reply)
        else:
            self._send(_error_body(404, "no such route"), 404)

    def _chunks(self) -> bytes:
        """Read a body of chunks."""
        content = b""
        if "chunked" in str(self.headers["Transfer-Encoding"]):
            while size := int(self.rfile.readline(), 16):
                content += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        return content

    def do_GET(self) -> None:
        server, path = self.server, self.path.partition("?")[0]
        if path in _ROUTES:
            self._send_nested("list", server.list(self.account))
            return
        if match := re.fullmatch(r"/v1/files/(out|err)-([^/]*)/content", path):
            self._send_results(server.batches[unquote(match[2])], match[1])
            return
        name = unquote(path.removesuffix("/results").rpartition("/")[2])
        batch = server.batches.get(name)
        if batch is None or batch.account != self.account:
            self._send(_error_body(404, "No such batch"), 404)
        elif path.endswith("/results"):
            self._send_results(batch, "all")
        elif server.faults.vanishes > 0:
            server.faults.vanishes -= 1
            self._send(_error_body(404, "No such batch"), 404)
        else:
            self._send_nested("get", server.look(batch))

    def _send_nested(self, what: str, reply: Any) -> None:
        """Send a reply, or one that is nested too deeply."""
        deep = self.server.faults.deep
        content = _json(reply)
        if deep.get(what, 0) > 0:
            deep[what] -= 1
            content = b'{"deep": %s, "reply": %s}' % (DEEP, content)
        self._send(content)

    def _send_results(self, batch: _Batch, kind: str) -> None:
        sent = self.server.sent(batch, kind)
        if sent is None:
            self._send_lines(self.server.whole(batch, kind))
            return
        self.send_response(sent.status)
        if sent.encoding:
            self.send_header("Content-Encoding", sent.encoding)
        if sent.length is not None:
            self.send_header("Content-Length", str(sent.length))
        if sent.length != len(sent.content):
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        with contextlib.suppress(ConnectionError):
            self.wfile.write(sent.content)

    def _send_lines(self, lines: Iterator[bytes]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in lines:
            self.wfile.write(b"%x\r\n%s\n\r\n" % (len(line) + 1, line))
        self.wfile.write(b"0\r\n\r\n")

    def _send(self, content: bytes, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


_ROUTES = ("/v1/batches", "/v1/batch/jobs", "/v1/messages/batches")


@contextlib.contextmanager
def batch_server(form: str = "openai", **faults: Any) -> Iterator[BatchHttpServer]:
    """Serve until the block ends."""
    with BatchHttpServer(form, **faults) as server, running(server):
        yield server
