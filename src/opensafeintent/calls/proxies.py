"""The proxy that the environment names for an endpoint."""

from __future__ import annotations

import os
import re
from base64 import b64encode
from typing import NamedTuple
from urllib.parse import unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from opensafeintent.errors import InputError

_LOOPBACK = re.compile(r"localhost|127(\.\d+){3}|::1")


def is_loopback(base_url: str) -> bool:
    """Tell whether an address is one of this machine."""
    return _LOOPBACK.fullmatch(urlsplit(base_url).hostname or "") is not None


class Proxy(NamedTuple):
    """Address of a proxy, and our credentials there."""

    address: str
    """Without user and password: errors of connections contain it."""
    headers: dict[str, str]
    """Our credentials at the proxy."""
    secrets: tuple[str, ...] = ()
    """Parts that must not be quoted: user and password together, and the password."""


def proxy_for(base_url: str) -> Proxy | None:
    """Return the proxy for an endpoint; looked up once, not for every request.

    Raises:
        InputError: it cannot be used. The text does not quote the variable: a password may be
            anywhere in it.
    """
    parts = urlsplit(base_url)
    host = parts.hostname
    if host is None or _LOOPBACK.fullmatch(host) or proxy_bypass(host):
        return None
    named = getproxies().get(parts.scheme)
    if not named:
        return None
    try:
        return _proxy_at(named.strip() if "://" in named else f"http://{named.strip()}")
    except ValueError:
        lower = f"{parts.scheme}_proxy"
        raise InputError(
            f"{lower if os.environ.get(lower) else lower.upper()}: is not the address of an HTTP"
            " proxy; expected one such as http://proxy.example:3128"
        ) from None


def _proxy_at(url: str) -> Proxy:
    """Return a proxy from its URL.

    Raises:
        ValueError: no proxy can be there.
    """
    address = urlsplit(url)
    host = (address.hostname or "").encode("idna")
    further = address.path.strip("/") or address.query or address.fragment
    if address.scheme not in ("http", "https") or not host or address.port == 0 or further:
        raise ValueError("no proxy can be there")
    user = unquote(address.username or "")
    if ":" in user or re.search(r"\s", url):
        raise ValueError("a name that ends within, or white space")
    location = f"{address.scheme}://{address.netloc.rpartition('@')[2]}"
    if address.username is None:
        return Proxy(location, {})
    password = unquote(address.password or "")
    credentials = f"{user}:{password}"
    encoded = b64encode(credentials.encode()).decode()
    headers = {"Proxy-Authorization": f"Basic {encoded}"}
    return Proxy(location, headers, (credentials, password))
