"""A real HTTP server on 127.0.0.1 that speaks the chat-completions protocol, for tests and
benchmarks.
"""

from loopback.server import (
    GENERATE,
    HARM,
    HELPFULNESS,
    MODE,
    PROBE,
    Fault,
    LoopbackProcess,
    LoopbackServer,
    Match,
    RequestRecord,
    Settings,
    answer_text,
    purpose_of,
)

__all__ = [
    "GENERATE",
    "HARM",
    "HELPFULNESS",
    "MODE",
    "PROBE",
    "Fault",
    "LoopbackProcess",
    "LoopbackServer",
    "Match",
    "RequestRecord",
    "Settings",
    "answer_text",
    "purpose_of",
]
