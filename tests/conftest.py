"""Settings that all tests share."""

from __future__ import annotations

import signal

from hypothesis import settings

settings.register_profile("opensafeintent", derandomize=True, deadline=None)
settings.load_profile("opensafeintent")

# A shell that starts something in the background has it ignore Ctrl-C, and so would every program that a test interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
