"""Command line: `python -m loopback --port 0 --latency 0.2 ...` prints its address and serves until
SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os

import msgspec

from loopback.server import Settings, faults_from_json, new_event_loop, serve_until_signal


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="loopback", description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument(
        "--latency", type=float, default=0.0, metavar="SECONDS", help="wait before each answer"
    )
    parser.add_argument(
        "--jitter",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="up to this much more, by request",
    )
    parser.add_argument(
        "--faults", default="[]", metavar="JSON", help="list of objects with the fields of Fault"
    )
    parser.add_argument(
        "--rate-limit", type=int, metavar="N", help="requests at once; beyond that 429"
    )
    parser.add_argument("--api-key", metavar="KEY", help="other keys are answered 401")
    parser.add_argument("--models", metavar="A,B", help="other models are answered 404")
    parser.add_argument(
        "--record", action="store_true", help="keep each request, for GET /requests"
    )
    parser.add_argument("--fickle", action="store_true", help="answer differently each time")
    parser.add_argument("--cpu", type=int, metavar="N", help="run on this core only")
    return parser


def _raise_file_limit() -> None:
    """Allow as many open connections as the system lets an ordinary process have."""
    try:
        import resource
    except ImportError:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _announce(base_url: str) -> None:
    print(json.dumps({"base_url": base_url}), flush=True)


def main() -> None:
    """Serve until SIGTERM or SIGINT."""
    parser = _parser()
    args = parser.parse_args()
    try:
        faults = faults_from_json(args.faults)
    except msgspec.DecodeError as error:
        parser.error(f"--faults: {error}")
    settings = Settings(
        latency=args.latency,
        jitter=args.jitter,
        faults=faults,
        rate_limit=args.rate_limit,
        api_key=args.api_key,
        models=tuple(args.models.split(",")) if args.models else None,
        record=args.record,
        fickle=args.fickle,
    )
    if args.cpu is not None:
        if not hasattr(os, "sched_setaffinity"):
            parser.error("--cpu: not possible on this system")
        os.sched_setaffinity(0, {args.cpu})
    _raise_file_limit()
    gc.freeze()
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve_until_signal(settings, args.port, _announce))


if __name__ == "__main__":
    main()
