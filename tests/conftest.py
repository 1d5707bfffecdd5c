"""Settings that all tests share."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("opensafeintent", derandomize=True, deadline=None)
settings.load_profile("opensafeintent")
