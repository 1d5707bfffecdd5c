"""What the paper's authors published: datasets and rubrics, fetched once into a cache, and verified
each time.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

from opensafeintent.errors import InputError
from opensafeintent.files import os_errors, sha256_hex, written_beside
from opensafeintent.hostile import one_line, without_user_info
from opensafeintent.taxonomy import QUESTIONS

_SOURCE = "https://raw.githubusercontent.com/Uppaal/OpenSafeIntent"
_CACHE, _MIRROR = "OPENSAFEINTENT_CACHE", "OPENSAFEINTENT_MIRROR"
_PAPER = "f446cccaf78f4992c3fd3b6450c5d508b44dc096"
_LATER = "9706897bc9ffdb328446141b2a4568c98c70843e"
_LONGEST = 64 * 2**20
_SECONDS, _MOST_SECONDS = 60, 600
"""That a mirror may be silent, and that a file may take in all."""


class Published(NamedTuple):
    """A file of the authors' repository."""

    revision: str
    path: str
    sha256: str
    sets: int = 0
    """Prompt-sets in it, if it is a dataset."""

    @property
    def address(self) -> str:
        """Source of the download: the repository, or the mirror in `OPENSAFEINTENT_MIRROR`."""
        base = os.environ.get(_MIRROR, "").strip() or _SOURCE
        return f"{base.rstrip('/')}/{self.revision}/{self.path}"


PUBLISHED: dict[str, Published] = {
    "opensafeintent-115": Published(
        _PAPER,
        "dataset.json",
        "041bc87e89bdfe0ce7174cbd59875d97293e844d2bdd8d3ace748becdbdd508e",
        sets=115,
    ),
    "opensafeintent-700": Published(
        _LATER,
        "dataset.json",
        "ad9ed2e8f190638b03afd81b69a1350f866706db08bb837b84332c54d29fe7ff",
        sets=700,
    ),
}
"""The datasets by name: the paper's 115 prompt-sets, and the 700 of a later release."""

_RUBRICS = {
    "helpfulness.txt": "b9292beeab7512a54e68d16620444c6ad705fd5b529dc31bb3eae61b3b4a62da",
    "harmfulness.txt": "d638a0f13a6aa166923e1b0f669b57c7eea5cb1fa470b6a7687dcdf66fe6bd61",
    "assistance_level_classification.txt": (
        "9b0f79ca1813a5a389af143ca11257ab40eddfb20775c195fedf604a45714e8c"
    ),
    "intent_classification.txt": "9eea106593f3094ec517a3de041a2adcfdc3492069ed6f43c9dbde3accf8999a",
}

PAPER_DATASET_HASH = "07115b06c60f3efa78fd23deee956eac5c1bd8bf7799c9cc35f376fbc2441998"
"""Of the canonical prompt-sets of the 115."""

RUBRIC_HASHES: dict[str, str] = {
    **{
        question.role: _RUBRICS[question.authors_rubric]
        for question in QUESTIONS
        if question.authors_rubric
    },
    "mode": _RUBRICS["assistance_level_classification.txt"],
    "strategy": _RUBRICS["intent_classification.txt"],
}
"""By the role that each of the paper's rubrics has here."""


def published_dataset(name: str) -> Path:
    """Return the file of a published dataset, verified; it is fetched if the cache does not hold
    it.

    Raises:
        InputError: it cannot be fetched or kept, or differs from the published one.
    """
    return _verified(PUBLISHED[name], name, "a copy on disk can be named as --dataset")


def published_rubrics() -> Path:
    """Return the folder of the paper's rubrics, each verified; they are fetched if the cache does
    not hold them.

    Raises:
        InputError: one cannot be fetched or kept, or differs from the published one.
    """
    paths = [
        _verified(
            Published(_PAPER, f"prompts/metrics/{name}", digest),
            f"the paper's rubric {name}",
            "a copy on disk can be named as --rubrics",
        )
        for name, digest in _RUBRICS.items()
    ]
    for stranger in paths[0].parent.glob("*.md"):
        raise InputError(f"{stranger}: is none of the paper's rubrics; remove it")
    return paths[0].parent


def _verified(file: Published, what: str, from_disk: str) -> Path:
    kept = _cache() / file.revision / file.path
    with os_errors(f"{kept}: cannot read"):
        if kept.is_file() and sha256_hex(kept.read_bytes()) == file.sha256:
            return kept
    content = _fetched(file, what, from_disk)
    if (digest := sha256_hex(content)) != file.sha256:
        raise InputError(
            f"{what}: {without_user_info(file.address)} holds another file than was published: its"
            f" SHA-256 is {digest[:12]}…, expected {file.sha256[:12]}…; nothing was kept"
        )
    with os_errors(f"{kept}: cannot write ({_CACHE} names another folder for the cache)"):
        kept.parent.mkdir(parents=True, exist_ok=True)
    with written_beside(kept) as file_kept:
        file_kept.write(content)
    return kept


def _fetched(file: Published, what: str, from_disk: str) -> bytes:
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import urlopen

    shown = without_user_info(file.address)
    if not file.address.startswith(("https://", "http://")) or shown != file.address:
        raise InputError(
            f"{_MIRROR}: {one_line(shown, 200)} is no address; expected one that begins with"
            " https:// or http:// and names no user"
        )
    offline = f"; {from_disk}, or {_MIRROR} names another server"
    try:
        content, until = b"", time.monotonic() + _MOST_SECONDS
        with urlopen(file.address, timeout=_SECONDS) as reply:
            while len(content) <= _LONGEST and (part := reply.read1(_LONGEST)):
                content += part
                if time.monotonic() > until:
                    raise TimeoutError(f"took more than {_MOST_SECONDS} seconds")
            due = reply.headers.get("Content-Length")
    except HTTPError as error:
        raise InputError(
            f"{what}: {shown} answered {error.code} {one_line(str(error.reason), 80)}{offline}"
        ) from error
    except (OSError, HTTPException, ValueError) as error:
        reason = without_user_info(str(getattr(error, "reason", None) or error))
        raise InputError(
            f"{what}: cannot fetch {shown}: {one_line(reason, 200)}{offline}"
        ) from error
    if len(content) > _LONGEST or (due is not None and due.isdigit() and len(content) != int(due)):
        raise InputError(
            f"{what}: {shown} gave {len(content):,} bytes of {due or 'too many'}; run again to"
            " fetch it whole"
        )
    return content


def _cache() -> Path:
    """Return the folder that files are kept in: `OPENSAFEINTENT_CACHE`, or one in the user's own
    cache.
    """
    if named := os.environ.get(_CACHE, "").strip():
        return Path(named)
    try:
        users = os.environ.get("XDG_CACHE_HOME", "").strip() or Path.home() / ".cache"
    except RuntimeError as error:
        # neither HOME nor an entry among the system's users
        raise InputError(f"{_CACHE}: is not set; without a home folder, expected one") from error
    return Path(users, "opensafeintent")
