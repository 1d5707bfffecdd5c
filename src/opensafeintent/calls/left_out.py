"""The fields of a request that a model does not take.

Any 400 or 422 that names a field which we sent is followed by one request without it. If that is
answered, the field is left out of all others, which the manifest of a run keeps.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from itertools import chain, islice
from typing import Any, TypeGuard, cast

import msgspec

from opensafeintent.calls.protocols import ERROR_SETTINGS
from opensafeintent.calls.provider_errors import ProviderError
from opensafeintent.calls.records import Attempt, Failure, Replied

_NOT_TAKEN = (400, 422)
_LIMIT_FIELDS = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
"""The two names of the token limit."""
_SYNONYMS = {
    "response_format": re.compile(
        r"(response|output)_(format|schema|config)(?!\W+effort)|json_schema|structured.outputs?",
        re.IGNORECASE,
    ),
    "reasoning_effort": re.compile(r"\b(effort|thinking)\b", re.IGNORECASE),
    "reasoning_tokens": re.compile(r"\b(budget_tokens|thinking)\b", re.IGNORECASE),
}
"""Other words for a setting, whatever the protocol. Servers without structured output say so in
many ways. Gateways and Inspect AI pass on the errors of servers whose settings of reasoning have
other names than those that we sent. The names that a protocol gives to settings are not here: its
`optional` returns them.
"""
_REASONING = ("reasoning_effort", "reasoning_tokens")
"""Settings whose other names and words an error about a limit may have too."""
_ABOUT_LIMIT = re.compile(
    r"max|limit|budget|tokens?\b|length|exceed|too (long|large|small|short)|at (least|most)"
    r"|(great|larg|small|high|low)er|less",
    re.IGNORECASE,
)
_UNSUPPORTED = re.compile(
    r"(un|not )support|does(n't| not) (support|take|match)|deprecat|not permitted|not allowed"
    r"|unknown|unrecogni[sz]ed|unexpected|instead|extra_forbidden|incompatible",
    re.IGNORECASE,
)
"""Words beside a token limit that is not taken. An error about the length of a prompt names it
too.
"""


UNSUPPORTED_FIELD = "unsupported_field"
"""Kind of an attempt that was made again at once without a field."""


Request = Callable[[Collection[str]], Awaitable[tuple[Attempt, str | None]]]
"""Makes a request without some fields; returns the result, and a further field that it names as not
taken.
"""


class LeftOut:
    """The fields that one model does not take.

    Args:
        fields: fields that an earlier run found out about.
    """

    def __init__(self, fields: Collection[str] = ()) -> None:
        self.fields = set(fields)
        self.trials = 0
        """Calls that are made without a field on trial."""
        self._news = asyncio.Event()

    async def wait_for_trials(self) -> None:
        """Wait until no field is on trial, so that few requests fail for it."""
        while self.trials:
            await self._news.wait()

    async def ask_without(self, field: str, failure: Attempt, request: Request) -> Attempt:
        """Make a request again without a field that it named as not taken, and without each further
        one, until none is named.

        Only an answer shows that a field is not taken: an error may quote the prompt, or name a
        field for another reason.

        Args:
            field: the first one.
            failure: what the request came to with it.
            request: makes it without some fields.
        """
        tried: set[str] = set()
        refused: list[Failure] = []
        result, named = failure, cast(str | None, field)
        self.trials += 1
        try:
            while named is not None and named not in tried:
                assert isinstance(result, Failure)
                refused.append(msgspec.structs.replace(result, kind=UNSUPPORTED_FIELD))
                tried.add(named)
                result, named = await request(self.fields | tried)
            if isinstance(result, Replied) or result.replied:
                self.fields |= tried
        finally:
            self.trials -= 1
            self._news.set()
            self._news = asyncio.Event()
        return msgspec.structs.replace(result, refused=tuple(refused))


def choose_limit_field(usual: str, left_out: Collection[str]) -> str:
    """Return the name of the token limit in a request: the other one if the model did not take the
    usual one.
    """
    return _LIMIT_FIELDS[usual] if usual in left_out else usual


def really_left_out(fields: Collection[str]) -> list[str]:
    """Return the settings that a model was asked without. A token limit under its other name is
    none of them.
    """
    return sorted(
        field for field in fields if field not in _LIMIT_FIELDS or _LIMIT_FIELDS[field] in fields
    )


def find_named_field(
    status: int, error: ProviderError, sent: Mapping[str, str | tuple[str, ...]]
) -> str | None:
    """Return the setting of a request that an error names as not taken, by its fields or in its
    text; None if it names none.

    Args:
        status: the HTTP status.
        error: the error.
        sent: the settings that the request can be without: usual name to names in the request, as
            `WireProtocol.optional` returns them. The error may have any.
    """
    if status not in _NOT_TAKEN:
        return None
    unsupported = _UNSUPPORTED.search(error.text) is not None
    about_limit = not unsupported and _ABOUT_LIMIT.search(error.text) is not None
    other_words = {field for field in sent if not (about_limit and field in _REASONING)}
    patterns = {
        field: _names_pattern({field, *_as_tuple(names)} if field in other_words else {field})
        for field, names in sent.items()
    }
    for place in _places(error):
        found = [
            (match.start(), field)
            for field, pattern in patterns.items()
            if (match := pattern.search(_plain(place)))
        ]
        if found:
            return min(found)[1]
    text = _plain(error.text)
    # the same one of several at each time: of temperature and top_p, the one that a user added
    for field in sorted(sent, reverse=True):
        if field in _LIMIT_FIELDS and not unsupported:
            continue
        if patterns[field].search(text):
            return field
        synonyms = _SYNONYMS.get(field)
        if synonyms and field in other_words and synonyms.search(error.text):
            return field
    return None


def _as_tuple(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _names_pattern(names: Collection[str]) -> re.Pattern[str]:
    """Return a pattern that finds names in a plain text, `config.heat` in any spelling of that
    path.
    """
    paths = ("[^a-z0-9]+".join(map(re.escape, _plain(name).split("."))) for name in sorted(names))
    return re.compile(rf"(?<![a-z0-9])({'|'.join(paths)})(?![a-z0-9])")


_MOST_WITHIN = 50
"""So many objects of the lists within a detail are looked through: Google's field violations."""


def _is_object(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def _places(error: ProviderError) -> Iterator[str]:
    """Yield the texts in which an error names a field."""
    for fields in error.fields:
        for name in ERROR_SETTINGS:
            if isinstance(place := fields.get(name), str):
                yield place[:200]
        for listed in (fields.get("detail"), fields.get("message"), fields.get("details")):
            for item in listed if isinstance(listed, list) else ():
                if not isinstance(item, dict):
                    continue
                location = item.get("loc")
                if isinstance(location, list | tuple) and "messages" not in location:
                    yield " ".join(map(str, location[:8]))
                lists = (value for value in item.values() if isinstance(value, list))
                within = filter(_is_object, chain.from_iterable(lists))
                for holder in (item, *islice(within, _MOST_WITHIN)):
                    if isinstance(place := holder.get("field"), str):
                        yield place[:200]
