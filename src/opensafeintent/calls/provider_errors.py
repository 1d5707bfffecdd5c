"""Errors of providers, in any of the shapes that servers and gateways give them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from opensafeintent.calls.streams import NoStream, Stream, read_stream

LONGEST_ERROR = 2**20
"""Bytes; more of an error is neither read nor kept."""
_MOST_READ = 2000
"""Characters of each text of an error that are looked through."""
_LEVELS = 4
"""Of errors within errors: gateways quote the error of the server behind them."""
_MOST_ERRORS = 16


class ProviderError(NamedTuple):
    """An error as a provider or a gateway sent it."""

    fields: tuple[dict[str, Any], ...] = ({},)
    """The fields of the error, then those of each error that it quotes."""
    text: str = ""
    """All of its texts."""

    @property
    def message(self) -> str:
        """The message of the outermost error; "" if it has none."""
        return str(self.fields[0].get("message") or "")

    @property
    def status(self) -> int | None:
        """The HTTP status that the body gives, as some gateways do that answer with 200."""
        codes = (self.fields[0].get(name) for name in ("code", "status", "status_code"))
        return next((code for code in codes if isinstance(code, int) and 400 <= code < 600), None)

    @property
    def codes(self) -> set[str]:
        """Every code and type in it, as `code_name` writes them."""
        return {code_name(code) for fields in self.fields for code in _codes_in(fields)}


def code_name(code: str | int) -> str:
    """Return a code as the tables have it: in lower case, with `_`, without what follows a dot."""
    return str(code)[:100].partition(".")[0].strip().lower().replace("-", "_").replace(" ", "_")


def _codes_in(fields: Mapping[str, Any]) -> Iterator[str | int]:
    details = fields.get("details")
    nested = [
        *(object_in(fields, name) for name in ("innererror", "inner_error", "metadata")),
        *(
            item
            for item in (details if isinstance(details, list) else ())
            if isinstance(item, dict)
        ),
    ]
    for holder in (fields, *nested):
        for name in ("code", "type", "status", "reason", "error_type", "error_code", "status_code"):
            if isinstance(code := holder.get(name), str | int) and not isinstance(code, bool):
                yield code


def read_error(body: bytes) -> ProviderError:
    """Read an error in any of the shapes that servers give it; without fields if it has none."""
    if len(body) > LONGEST_ERROR:
        return ProviderError()
    errors: list[dict[str, Any]] = []
    with suppress(RecursionError, NoStream):
        _collect(_json(body) or _errors_in(read_stream(body)), errors, _LEVELS)
    texts = body[: 4 * _MOST_READ].decode("utf-8", "replace")
    quoted = " ".join(str(fields.get("message"))[:_MOST_READ] for fields in errors)
    return ProviderError(tuple(errors) or ({},), f"{texts} {quoted}")


def _errors_in(stream: Stream) -> list[dict[str, Any]]:
    """Return the events of a stream that hold an error; all of them if none does."""
    return [part for part in stream.parts if part.get("error")] or stream.parts


def error_of(data: Any) -> ProviderError:
    """Return the error that some decoded fields are."""
    return read_error(msgspec.json.encode(data, enc_hook=str))


def _json(raw: bytes | str) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
        return None


def _collect(data: Any, errors: list[dict[str, Any]], levels: int) -> None:
    """Add the errors in a value, the outermost first."""
    if levels == 0 or len(errors) >= _MOST_ERRORS:
        return
    if isinstance(data, list):
        for item in data[:_MOST_ERRORS]:
            _collect(item, errors, levels - 1)
    if not isinstance(data, dict):
        return
    error = data.get("error")
    if isinstance(error, dict):
        beside = {name: data[name] for name in ("code", "type", "status") if name in data}
        fields = {name: value for name, value in beside.items() if name not in error} | error
        # Anthropic's word for the whole reply
        if fields.get("type") == "error":
            del fields["type"]
    else:
        fields = dict(data)
        if error and "message" not in fields:
            fields["message"] = error if isinstance(error, str) else str(error)
    detail = fields.get("detail")
    if isinstance(detail, str) and "message" not in fields:
        fields["message"] = detail
    errors.append(fields)
    for name in ("base_resp", "errors"):
        _collect(fields.get(name), errors, levels - 1)
    raw = object_in(fields, "metadata").get("raw")
    for text in (fields.get("message"), fields.get("cause"), raw):
        if isinstance(text, str) and (quoted := _quoted(text)) is not None:
            _collect(quoted, errors, levels - 1)


def _quoted(text: str) -> Any:
    """Return the JSON that a message quotes; None if it quotes none."""
    start = re.search(r"[\[{]", text)
    if start is None or len(text) > LONGEST_ERROR:
        return None
    end = max(text.rfind("}"), text.rfind("]")) + 1
    return _json(text[start.start() : end])


def object_in(holder: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return the object in a field; an empty one if the field holds something else."""
    value = holder.get(name)
    return value if isinstance(value, dict) else {}
