"""Who made a model, as far as its name tells (`data/families.toml`)."""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from importlib import resources

from opensafeintent.calls.baselines import is_baseline

_VENDOR = re.compile(r"^(?:[a-z]+\.)+(?=[a-z])")
"""`anthropic.` or `us.anthropic.`, as some providers put before a model's name."""


def same_maker(model: str, other: str) -> bool:
    """Tell whether two models are one, or of one maker, according to their names. Baselines have no
    maker.
    """
    if is_baseline(model) or is_baseline(other):
        return False
    family = family_of(model)
    return _bare(model) == _bare(other) or (family is not None and family == family_of(other))


@lru_cache(maxsize=1)
def _makers() -> re.Pattern[str]:
    text = resources.files("opensafeintent").joinpath("data/families.toml").read_text("utf-8")
    families: dict[str, list[str]] = tomllib.loads(text)["families"]
    return re.compile(
        "|".join(f"(?P<{name}>{'|'.join(words)})" for name, words in families.items()),
        re.IGNORECASE,
    )


def family_of(model: str) -> str | None:
    """Return who made a model, as far as its name tells; the last part of the name goes before the
    provider's.
    """
    for part in (model.rpartition("/")[2], model):
        if match := _makers().search(part):
            return match.lastgroup
    return None


def _bare(model: str) -> str:
    """Return a model's name without its provider: the same for `openai/gpt-5.4`,
    `openrouter/openai/gpt-5.4` and `GPT-5.4`.
    """
    name = _VENDOR.sub("", model.rpartition("/")[2].strip().lower())
    return re.sub(r"[\s._:-]+", "-", name)
