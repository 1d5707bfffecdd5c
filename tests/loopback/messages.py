"""A loopback server for any protocol whose replies a test makes, and Anthropic's messages, as far
as our client and the provider's own need them.
"""

from __future__ import annotations

import contextlib
import http.server
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

from endtoend import running

Said = tuple[int, dict[str, Any] | bytes] | tuple[int, dict[str, Any] | bytes, Mapping[str, str]]
"""A status, a body, and headers if there are any; bytes are sent as an event stream."""
Reply = Callable[[dict[str, Any]], Said]
"""From a request's body."""

ReplyByPath = Callable[[str, dict[str, Any]], Said]
"""`Reply` of a protocol whose address holds the model: from a request's path and body."""


class MessagesServer(http.server.ThreadingHTTPServer):
    """Answers `POST` at any path (and counts tokens), and keeps what it was asked, headers and
    all.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, reply: ReplyByPath) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.reply = reply
        self.requests: list[dict[str, Any]] = []
        self.headers: list[str] = []
        self.paths: list[str] = []
        self.base_url = f"http://127.0.0.1:{self.server_port}"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else a body waits 40 ms behind its headers
    server: MessagesServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path.endswith("/count_tokens"):  # Inspect AI counts the tokens of what was thought
            self._send(200, b'{"input_tokens": 3}', "application/json")
            return
        self.server.requests.append(body)
        self.server.paths.append(self.path)
        self.server.headers.append(str(self.headers))
        status, reply, *more = self.server.reply(self.path, body)
        headers = more[0] if more else {}
        if isinstance(reply, bytes):
            self._send(status, reply, "text/event-stream", headers)
            return
        for name in [name for name in reply if name == "id" or name.endswith(("_id", "Id"))]:
            # no two replies of a service have the same
            reply = reply | {name: f"msg_{len(self.server.requests)}"}
        if body.get("stream") and status == 200:
            self._send(200, b"".join(in_events(reply)), "text/event-stream", headers)
        else:
            self._send(status, json.dumps(reply).encode(), "application/json", headers)

    def _send(
        self, status: int, content: bytes, kind: str, headers: Mapping[str, str] = {}
    ) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


def in_events(reply: dict[str, Any]) -> Iterator[bytes]:
    """Yield a message as the stream of events that it comes in."""

    def event(kind: str, **fields: Any) -> bytes:
        return f"event: {kind}\ndata: {json.dumps({'type': kind} | fields)}\n\n".encode()

    usage = reply["usage"]
    begun = {"content": [], "stop_reason": None, "usage": usage | {"output_tokens": 0}}
    yield event("message_start", message=reply | begun)
    for index, block in enumerate(reply["content"]):
        field = block["type"]  # `text` or `thinking`
        yield event("content_block_start", index=index, content_block=block | {field: ""})
        delta = {"type": f"{field}_delta", field: block[field]}
        yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
    delta = {"stop_reason": reply["stop_reason"], "stop_sequence": None}
    yield event("message_delta", delta=delta, usage={"output_tokens": usage["output_tokens"]})
    yield event("message_stop")


def message(
    *texts: str,
    thinking: str = "",
    stop: str | None = "end_turn",
    tokens: tuple[int, int] = (10, 5),
    **usage: Any,
) -> dict[str, Any]:
    """Return a message as the provider's API has it; `usage` adds to its counts of tokens."""
    content: list[dict[str, Any]] = [{"type": "text", "text": text} for text in texts]
    if thinking:
        content.insert(0, {"type": "thinking", "thinking": thinking, "signature": "s"})
    about = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-served"}
    counts = {"input_tokens": tokens[0], "output_tokens": tokens[1]} | usage
    ended = {"stop_reason": stop, "stop_sequence": None}
    return about | ended | {"content": content, "usage": counts}


def problem(kind: str, message: str) -> dict[str, Any]:
    """Return an error as the provider's API has it."""
    return {"type": "error", "error": {"type": kind, "message": message}}


def serving(reply: Reply) -> AbstractContextManager[MessagesServer]:
    """Serve until the block ends, whatever the path."""
    return serving_paths(lambda path, body: reply(body))


@contextlib.contextmanager
def serving_paths(reply: ReplyByPath) -> Iterator[MessagesServer]:
    """Serve until the block ends."""
    with MessagesServer(reply) as server, running(server):
        yield server
