"""Recorded responses as a model: `replay/FILE`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from opensafeintent.calls.attempts import Attempt, Failure, Replied
from opensafeintent.calls.limiter import Limiter
from opensafeintent.calls.recorded import read_recorded
from opensafeintent.calls.records import Call
from opensafeintent.calls.replies import NotAnAnswer, read_reply
from opensafeintent.canonical import canonical_json, sha256_hex
from opensafeintent.errors import InputError

__all__ = ["ReplayModel"]


class ReplayModel:
    """Answers with the response that a file holds for a prompt-set, variant and epoch; it cannot be asked anything else."""

    limiter: Limiter | None = None
    notices: Sequence[str] = ()

    def __init__(self, name: str) -> None:
        path = Path(name.removeprefix("replay/"))
        if not path.is_file():
            raise InputError(f"{name}: no such file of responses: {path}")
        self.identity = f"replay/{path.stem}@{sha256_hex(path.read_bytes())[:12]}"
        self._path = path
        self._responses = {
            (recorded.set_id, recorded.variant, recorded.epoch): recorded
            for recorded in read_recorded(path)
            if recorded.response is not None
        }

    async def attempt(self, call: Call) -> Attempt:
        """Return the recorded response, as if the model had just written it."""
        subject = call.subject
        if call.purpose != "generate" or subject is None:
            return Failure(kind="not_recorded", error=f"{self._path} holds responses only")
        recorded = self._responses.get((subject.set_id, subject.variant, subject.epoch))
        if recorded is None:
            return Failure(
                kind="not_recorded",
                error=f"{self._path} holds no response for {subject.set_id}, {subject.variant}, epoch {subject.epoch}",
            )
        choice = {"message": {"content": recorded.response}, "finish_reason": recorded.stop_reason}
        body = canonical_json({"choices": [choice], "model": self.identity})
        try:
            return Replied(read_reply(body), body)
        except NotAnAnswer as wrong:
            line = f"{self._path}: {subject.set_id}, {subject.variant}: {wrong}"
            return Failure(kind=wrong.kind, error=line, replied=True, body=body)
