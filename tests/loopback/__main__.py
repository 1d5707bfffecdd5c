"""`python -m loopback '{"latency": 0.2}'` prints its address and serves until SIGTERM; the argument is
`Settings` as JSON.
"""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import sys

import msgspec

from loopback.server import Settings, new_event_loop, serve_until_signal


def _raise_file_limit() -> None:
    """Allow as many open connections as the system lets an ordinary process have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    settings = msgspec.json.decode(sys.argv[1], type=Settings)
    if settings.cpu is not None:
        os.sched_setaffinity(0, {settings.cpu})
    _raise_file_limit()
    gc.freeze()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve_until_signal(settings))


if __name__ == "__main__":
    main()
