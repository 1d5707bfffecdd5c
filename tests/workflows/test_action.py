"""The GitHub action: its shell steps, run in order by a shell against the loopback server."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from endtoend import JUDGE, REPO, TARGET, environment, some_sets, wait_until
from loopback import LoopbackServer

yaml = pytest.importorskip("yaml")
pytestmark = pytest.mark.slow

DOCUMENTED = REPO / "docs" / "release-gate.md"
ACTION = yaml.safe_load((REPO / "action.yml").read_text())
STEPS: dict[str, dict[str, Any]] = {
    step["name"]: step for step in ACTION["runs"]["steps"] if "name" in step
}
GATE = "--fail-under mean_safety=0.01"


class Job:
    """A job whose workspace is a folder, as a runner of GitHub has it."""

    def __init__(self, folder: Path, server: LoopbackServer, **inputs: str) -> None:
        self.folder, self.server = folder, server
        self.inputs = {
            name: str(given.get("default", "")) for name, given in ACTION["inputs"].items()
        }
        self.inputs |= {
            "models": TARGET,
            "judge": JUDGE,
            "dataset": str(some_sets(folder, 8)),
        } | inputs
        self.outputs: dict[str, str] = {}
        self.gh = folder / "gh.log"
        programs = folder / "bin"
        programs.mkdir()
        (programs / "gh").write_text(
            f'#!/bin/sh\necho "$@" >> {shlex.quote(str(self.gh))}\n'
            'case "$*" in "run list"*) echo 7;; "run download"*) mkdir -p "$7" && cp -r "$BASELINE/." "$7";; esac\n'
        )
        program = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m opensafeintent "$@"\n'
        (programs / "opensafeintent").write_text(program)
        (programs / "python").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n')
        for path in programs.iterdir():
            path.chmod(0o755)

    @property
    def run_folder(self) -> Path:
        return self.folder / "temp" / self.inputs["name"]

    def value(self, text: str) -> str:
        """Fill in the expressions of a value, as far as the steps use them."""
        known = {f"inputs.{name}": value for name, value in self.inputs.items()} | {
            "runner.temp": str(self.folder / "temp"),
            "github.event.repository.default_branch": "main",
            "github.workflow": "gate",
            "github.repository": "me/mine",
            "github.event.pull_request.number": "12",
            "github.token": "t",
        }
        return re.sub(r"\$\{\{ (.+?) \}\}", lambda found: known[found[1]], text)

    def begin(self, name: str, **more: str) -> subprocess.Popen[str]:
        step = STEPS[name]
        assert step["shell"] == "bash"
        output = self.folder / "output"
        output.write_text("")
        own = {key: self.value(str(value)) for key, value in step["env"].items()}
        clean = environment(self.server, **own, **more)
        clean["PATH"] = f"{self.folder / 'bin'}{os.pathsep}{clean['PATH']}"
        clean |= {
            "GITHUB_OUTPUT": str(output),
            "GITHUB_STEP_SUMMARY": str(self.folder / "shown.md"),
        }
        command = [
            "bash",
            "--noprofile",
            "--norc",
            "-eo",
            "pipefail",
            "-c",
            self.value(step["run"]),
        ]
        return subprocess.Popen(
            command,
            env=clean,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self, name: str, **more: str) -> int:
        process = self.begin(name, **more)
        said, _ = process.communicate(timeout=120)
        print(said)
        self.read_outputs()
        return process.returncode

    def read_outputs(self) -> None:
        written = (self.folder / "output").read_text()
        self.outputs |= dict(re.findall(r"(?m)^(\w+)=(.*)$", written))
        self.outputs |= {
            found[1]: found[3] for found in re.finditer(r"(?ms)^(\w+)<<(\w+)\n(.*?)^\2$", written)
        }


@pytest.mark.parametrize(
    ("gate", "code", "verdict"),
    [(GATE, 0, "pass"), ("--fail-under mean_utility=0.6", 4, "fail")],
)
def test_a_gate_passes_or_fails(tmp_path: Path, gate: str, code: int, verdict: str) -> None:
    with LoopbackServer() as server:
        job = Job(tmp_path, server, gates=f"{gate}\n", options="--max-connections 4")
        assert job.run("Evaluate") == 0
        assert (job.run("Gate"), job.outputs["verdict"]) == (code, verdict)
        assert job.run("Comment") == 0
    assert "Release gate" in job.outputs["summary"]
    assert (tmp_path / "shown.md").read_text() == (job.run_folder / "summary.md").read_text()
    assert (job.run_folder / "gate.xml").read_text().startswith("<?xml")
    assert (job.run_folder / "run" / "report.html").exists()
    assert "pr comment 12" in job.gh.read_text()


def test_a_gate_that_so_few_sets_cannot_pass_ends_the_job_before_the_first_call(
    tmp_path: Path,
) -> None:
    with LoopbackServer() as server:
        job = Job(tmp_path, server, gates=f"{GATE}\n--fail-under triplet_safety=0.95\n")
        assert (job.run("Evaluate"), job.outputs["verdict"]) == (5, "undecided")
        assert server.stats()["total"] == 0


def test_a_margin_alone_needs_no_threshold_before_the_first_call(tmp_path: Path) -> None:
    with LoopbackServer() as server:
        margin = "--confidence 0.9\n--fail-if-worse mean_safety=0.5"
        assert Job(tmp_path, server, gates=margin).run("Evaluate") == 0


def test_an_interrupted_job_that_is_run_again_pays_for_nothing_twice(tmp_path: Path) -> None:
    with LoopbackServer(latency=0.1) as server:
        job = Job(tmp_path, server, gates=GATE, options="--max-connections 2")
        process = job.begin("Evaluate")
        wait_until(lambda: server.stats()["total"] >= 6)
        os.killpg(process.pid, signal.SIGINT)  # as a runner does when a job is cancelled
        process.communicate(timeout=60)
        job.read_outputs()
        assert process.returncode != 0
        paid = server.stats()["total"]
        assert job.run("Evaluate") == 0
        assert job.run("Gate") == 0
        assert server.stats()["total"] > paid
        asked = Counter((request.model, repr(request.messages)) for request in server.requests)
    assert set(asked.values()) == {1}
    always = [
        name for name, step in STEPS.items() if str(step.get("if", "")).startswith("always()")
    ]
    assert always == ["Save the ledger", "Upload the report", "Upload the baseline", "Comment"]
    paths = {STEPS[name]["with"]["path"] for name in ("Restore the ledger", "Save the ledger")}
    assert list(map(job.value, paths)) == [str(job.run_folder / "run")]


def test_the_baseline_is_a_run_of_the_default_branch(tmp_path: Path) -> None:
    with LoopbackServer() as server:
        gates = f"{GATE}\n--fail-if-worse mean_safety=0.5"
        job = Job(tmp_path, server, gates=gates, baseline="true", options="--report")
        assert job.run("Evaluate") == 0
        # the first time there is none: a comparison is no gate then
        assert job.run("Fetch the baseline", BASELINE="/no/such") == 0
        assert (job.run("Gate"), job.outputs["verdict"]) == (0, "pass")
        assert "fail-if-worse" not in job.outputs["summary"]
        kept = tmp_path / "kept"
        kept.mkdir()
        for path in job.value(STEPS["Upload the baseline"]["with"]["path"]).split():
            shutil.copy(path, kept)
        assert job.run("Fetch the baseline", BASELINE=str(kept)) == 0
        assert (job.run("Gate"), job.outputs["verdict"]) == (0, "pass")
    assert "worse" in job.outputs["summary"]


@pytest.mark.parametrize("what", ["the documented workflow", "the action's steps"])
def test_a_linter_of_workflows_finds_nothing(tmp_path: Path, what: str) -> None:
    """The steps of a composite action are linted as those of a workflow with the same inputs."""
    documented = re.findall(r"(?s)```yaml\n(.*?)```", DOCUMENTED.read_text("utf-8"))
    of_action = {
        "on": {
            "workflow_call": {
                "inputs": {name: {"type": "string"} for name in ACTION["inputs"]},
            }
        },
        "jobs": {"gate": {"runs-on": "ubuntu-latest", "steps": ACTION["runs"]["steps"]}},
    }
    text = documented[0] if "documented" in what else yaml.safe_dump(of_action)
    (tmp_path / "action.yml").write_text(yaml.safe_dump(ACTION))
    workflow = tmp_path / ".github" / "workflows" / "gate.yml"
    workflow.parent.mkdir(parents=True)
    (tmp_path / ".git").mkdir()  # the linter looks for a local action from here
    workflow.write_text(text.replace("OWNER/opensafeintent@REVISION", "./"))
    programs = Path(sys.executable).parent
    done = subprocess.run(
        [programs / "actionlint", "-shellcheck", programs / "shellcheck", workflow],
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")
