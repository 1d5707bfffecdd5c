"""A real HTTP server on 127.0.0.1 that speaks the chat-completions protocol, for tests and
benchmarks.
"""

from loopback.server import (
    CHECKLIST as CHECKLIST,
    GENERATE as GENERATE,
    HARM as HARM,
    HELPFULNESS as HELPFULNESS,
    MODE as MODE,
    PROBE as PROBE,
    Fault as Fault,
    LoopbackProcess as LoopbackProcess,
    LoopbackServer as LoopbackServer,
    Match as Match,
    RequestRecord as RequestRecord,
    answer_text as answer_text,
    purpose_of as purpose_of,
)
