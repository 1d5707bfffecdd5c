"""A real HTTP server on 127.0.0.1 that speaks the chat-completions protocol, for tests and
benchmarks.
"""

from loopback.server import GENERATE as GENERATE
from loopback.server import HARM as HARM
from loopback.server import HELPFULNESS as HELPFULNESS
from loopback.server import MODE as MODE
from loopback.server import PROBE as PROBE
from loopback.server import Fault as Fault
from loopback.server import LoopbackProcess as LoopbackProcess
from loopback.server import LoopbackServer as LoopbackServer
from loopback.server import Match as Match
from loopback.server import RequestRecord as RequestRecord
from loopback.server import answer_text as answer_text
from loopback.server import purpose_of as purpose_of
