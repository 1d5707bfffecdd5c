"""Putting data and scripts into one file so that neither can do what it should not."""

from __future__ import annotations

import base64
import hashlib
from functools import lru_cache
from importlib import resources
from typing import Any

import msgspec

__all__ = ["asset", "csp_hash", "json_for_html", "security_policy", "vega_script"]

_ESCAPES = (
    (b"&", b"\\u0026"),
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)
"""None of these bytes stands in JSON outside a string."""


def json_for_html(value: Any) -> bytes:
    """Return JSON that can stand in a `<script type="application/json">`: no text in it can end the element."""
    raw = msgspec.json.encode(value)
    for char, escape in _ESCAPES:
        raw = raw.replace(char, escape)
    return raw


def asset(name: str) -> str:
    """Return one of the page's own files."""
    return resources.files("opensafeintent.report").joinpath(f"assets/{name}").read_text("utf-8")


@lru_cache(maxsize=1)
def vega_script() -> str:
    """Return Vega, Vega-Lite and vega-embed as one script, from the copy that vl-convert ships."""
    import vl_convert

    script: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def csp_hash(content: str) -> str:
    """Return the source expression that allows one inline script or style, and no other."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def security_policy(*, scripts: tuple[str, ...], styles: tuple[str, ...]) -> str:
    """Return the content security policy: nothing is loaded, nothing is sent, and only our own scripts and styles run."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join(map(csp_hash, scripts))}",
            f"style-src {' '.join(map(csp_hash, styles))}",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
