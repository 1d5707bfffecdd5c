"""Putting data and scripts into one file so that neither can do what it should not."""

from __future__ import annotations

import subprocess
import sys
from functools import lru_cache
from importlib import resources

from opensafeintent.hostile import csp_hash, json_for_html, security_policy

__all__ = ["asset", "csp_hash", "json_for_html", "security_policy", "vega_script"]

_BUNDLE = """
import sys, vl_convert
sys.stdout.buffer.write(vl_convert.javascript_bundle(sys.argv[1]).encode())
"""


def asset(name: str) -> str:
    """Return one of the page's own files."""
    return resources.files("opensafeintent.report").joinpath(f"assets/{name}").read_text("utf-8")


@lru_cache(maxsize=1)
def vega_script() -> str:
    """Return Vega, Vega-Lite and vega-embed as one script, from the copy that vl-convert ships."""
    script = "window.vegaEmbed = vegaEmbed;"
    if sys.executable:  # a process of its own: the bundler takes 100 MB, and keeps them
        bundled = subprocess.run([sys.executable, "-c", _BUNDLE, script], stdout=subprocess.PIPE, check=True)
        bundle = bundled.stdout.decode()
    else:
        import vl_convert

        bundle = vl_convert.javascript_bundle(script)
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")
