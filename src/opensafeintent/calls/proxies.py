"""The proxy that the environment names for an endpoint, its password kept apart from its address."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from typing import NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from opensafeintent.errors import InputError

__all__ = ["Proxy", "proxy_for"]

_LOOPBACK = re.compile(r"localhost|127(\.\d+){3}|::1")


class Proxy(NamedTuple):
    """Where requests go, and how we are known there."""

    address: str
    """Without user and password: it stands in the errors of connections."""
    headers: dict[str, str]
    """What the proxy knows us by."""


def proxy_for(base_url: str) -> Proxy | None:
    """Return the proxy for an endpoint; asked once, not for every request.

    Raises:
        InputError: it cannot be used. What the variable holds is not told: a password may be anywhere in it.
    """
    parts = urlsplit(base_url)
    if parts.hostname is None or _LOOPBACK.fullmatch(parts.hostname) or proxy_bypass(parts.hostname):
        return None
    named = getproxies().get(parts.scheme)
    if not named:
        return None
    lower = f"{parts.scheme}_proxy"
    variable = lower if os.environ.get(lower) else lower.upper()
    url = named.strip() if "://" in named else f"http://{named.strip()}"
    try:
        found = urlsplit(url)
        proxy = Proxy(f"{found.scheme}://{found.netloc.rpartition('@')[2]}", _credentials(found.username, found.password))
        host = (found.hostname or "").encode("idna")
        usable = bool(host) and found.port != 0 and found.path in ("", "/") and not re.search(r"\s", url)
    except ValueError:
        usable = False
    if usable and found.scheme.startswith("socks"):
        raise InputError(
            f"{variable} names a {found.scheme} proxy, which cannot be used; expected one of http:// or https://"
        )
    if not usable or found.scheme not in ("http", "https") or found.query or found.fragment:
        raise InputError(f"{variable} is not the address of a proxy; expected one such as http://proxy.example:3128")
    return proxy


def _credentials(user: str | None, password: str | None) -> dict[str, str]:
    """Return the header for what a URL holds.

    Raises:
        ValueError: a colon within the name, which ends it.
    """
    if user is None:
        return {}
    if ":" in (name := unquote(user)):
        raise ValueError(name)
    known = f"{name}:{unquote(password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(known.encode()).decode()}"}
