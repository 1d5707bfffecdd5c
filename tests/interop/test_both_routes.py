"""Claude by our own client and through Inspect AI: one ledger serves both."""

from __future__ import annotations

import os
from pathlib import Path
from unittest import mock

import pytest

from calls.support import rows
from endtoend import osi
from interop.support import needs_anthropic, quiet
from loopback.messages import message, serving

NAME = "anthropic/claude-served"
pytestmark = [
    needs_anthropic,
    quiet,
    pytest.mark.filterwarnings("ignore::DeprecationWarning:anthropic"),
]
SETTINGS = ("--judge", NAME, "--limit", 2, "--probe", "none", "--temperature", 0.5)
ARGUMENTS = ("-M", "top_p=0.9", "--system", "Be brief.", "--max-tokens", 500)


@pytest.mark.slow
@pytest.mark.parametrize("first", ["inspect", "native"])
def test_a_run_begun_by_one_and_ended_by_the_other_asks_nothing_twice(
    tmp_path: Path, first: str
) -> None:
    through_inspect = mock.patch(
        "opensafeintent.calls.model_names._needs_inspect",
        lambda name: name.startswith("anthropic/"),
    )
    reply = (200, message("2", thinking="hm"))
    asked = []
    with serving(lambda body: reply) as server:
        variables = {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": "sk-ant-01234567"}
        for route, limit in ((first, ("--budget-calls", 20)), ("other", ())):
            inspect = (route == "inspect") != (route == "other" and first == "native")
            with through_inspect if inspect else mock.patch.dict(os.environ):
                options = (*SETTINGS, *ARGUMENTS, *limit, "--out", tmp_path / "run")
                ran = osi("evaluate", NAME, *options, HOME=os.environ["HOME"], **variables)
            assert ran.code in (0, 1) if route == "other" else ran.code == 3, ran.err
            asked.append(len(server.requests))
        libraries = ["x-stainless-lang" in headers.lower() for headers in server.headers]
    begun, ended = asked
    assert 20 <= begun < ended
    assert set(libraries[:begun]) == {first == "inspect"}
    assert set(libraries[begun:]) == {first != "inspect"}
    kept = rows(tmp_path / "run" / "ledger.sqlite", "key, status")
    assert len({key for key, _ in kept}) == len(kept) == ended
