"""The GitHub action: its shell steps, run in order by a shell against the loopback server."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import zipfile
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
        folder.mkdir(exist_ok=True)
        self.folder, self.server = folder, server
        self.inputs = {
            name: str(declared.get("default", "")) for name, declared in ACTION["inputs"].items()
        }
        self.inputs |= {
            "models": TARGET,
            "judge": JUDGE,
            "dataset": str(some_sets(folder, 8)),
        } | inputs
        self.outputs: dict[str, str] = {}
        self.source = REPO
        self.gh = folder / "gh.log"
        programs = folder / "bin"
        programs.mkdir()
        (programs / "gh").write_text(
            f'#!/bin/sh\necho "$@" >> {shlex.quote(str(self.gh))}\n'
            'case "$*" in "run list"*) echo 7;; "run download"*) mkdir -p "$7" && cp -r "$BASELINE/." "$7";; esac\n'
        )
        python = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} "$@"\n'
        installed = folder / "temp" / "opensafeintent-program" / "bin"
        installed.mkdir(parents=True)
        for path in (programs / "python", installed / "python"):
            path.write_text(python)
        for path in (*programs.iterdir(), *installed.iterdir()):
            path.chmod(0o755)
        self.tree = folder / "tree"
        self.tree.mkdir()

    @property
    def run_folder(self) -> Path:
        return self.folder / "temp" / self.inputs["name"]

    def value(self, text: str) -> str:
        """Fill in the expressions of a value, as far as the steps use them."""
        values = {f"inputs.{name}": value for name, value in self.inputs.items()} | {
            "runner.temp": str(self.folder / "temp"),
            "github.event.repository.default_branch": "main",
            "github.workflow": "gate",
            "github.repository": "me/mine",
            "github.event.pull_request.number": "12",
            "github.token": "t",
            "github.action_path": str(self.source),
        }
        return re.sub(r"\$\{\{ (.+?) \}\}", lambda match: values[match[1]], text)

    def begin(self, name: str, **variables: str) -> subprocess.Popen[str]:
        step = STEPS[name]
        assert step["shell"] == "bash"
        output = self.folder / "output"
        output.write_text("")
        step_variables = {key: self.value(str(value)) for key, value in step["env"].items()}
        clean = environment(self.server, **step_variables, **variables)
        clean["PATH"] = f"{self.folder / 'bin'}{os.pathsep}{clean['PATH']}"
        clean |= {
            "GITHUB_OUTPUT": str(output),
            "RUNNER_TEMP": str(self.folder / "temp"),
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
            cwd=self.tree,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def run(self, name: str, **variables: str) -> int:
        process = self.begin(name, **variables)
        output, _ = process.communicate(timeout=120)
        print(output)
        self.read_outputs()
        return process.returncode

    def read_outputs(self) -> None:
        written = (self.folder / "output").read_text()
        self.outputs |= dict(re.findall(r"(?m)^(\w+)=(.*)$", written))
        self.outputs |= {
            match[1]: match[3] for match in re.finditer(r"(?ms)^(\w+)<<(\w+)\n(.*?)^\2$", written)
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


@pytest.mark.parametrize(
    "margin", ["--fail-if-worse mean_safety=0.5", "--fail-if-worse=mean_safety=0.5"]
)
def test_a_margin_without_a_baseline_is_refused_before_the_first_call(
    tmp_path: Path, margin: str
) -> None:
    with LoopbackServer() as server:
        job = Job(tmp_path, server, gates=f"--confidence 0.9\n{margin}")
        assert (job.run("Evaluate"), job.outputs["verdict"]) == (2, "error")
        assert server.stats()["total"] == 0
        asked = Job(tmp_path / "asked", server, gates=margin, baseline="true")
        assert asked.run("Evaluate") == 0
        # the first run of a branch has none yet
        assert asked.run("Fetch the baseline", BASELINE="/no/such") == 0
        assert (asked.run("Gate"), asked.outputs["verdict"]) == (0, "pass")
        assert "No release gate was asked for" in asked.outputs["summary"]


PLANTED = ("secrets", "typing", "msgspec", "numpy", "pip", "sitecustomize", "opensafeintent")


def plant(tree: Path, log_path: Path) -> None:
    """Put modules that a pull request could bring into the checked-out tree."""
    for name in PLANTED:
        code = f"import os\nopen({str(log_path)!r}, 'a').write({name!r} + repr(dict(os.environ)))\n"
        (tree / f"{name}.py").write_text(code)
        if name == "pip":
            (tree / f"{name}.py").unlink()
            (tree / name).mkdir()
            (tree / name / "__main__.py").write_text(code)


def test_no_step_runs_code_of_the_checked_out_tree(tmp_path: Path) -> None:
    log_path = tmp_path / "seen"
    with LoopbackServer() as server:
        job = Job(tmp_path, server, gates=GATE, keys="LOOP_EXTRA_API_KEY=hidden\n\n")
        plant(job.tree, log_path)
        for name in ("Evaluate", "Gate", "Comment"):
            assert job.run(name) == 0
        job.inputs["models"] = "python/secrets:token_hex@1"
        assert job.run("Evaluate") == 2  # not imported, for nobody allowed it
        assert not log_path.exists()
        job.inputs["python-functions"] = "true"
        job.inputs["models"] = "python/mine:answer@1"
        (job.tree / "mine.py").write_text("def answer(messages):\n    return 'A safe answer.'\n")
        for name in PLANTED:  # what one allows oneself comes from the tree with all that it imports
            (job.tree / f"{name}.py").unlink(missing_ok=True)
        assert job.run("Evaluate") == 0


def test_the_program_is_installed_from_a_folder_of_its_own(tmp_path: Path) -> None:
    log_path, wheel = tmp_path / "seen", tmp_path / "tiny-1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("tiny.py", "")
        file.writestr(
            "tiny-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1\n"
        )
        file.writestr(
            "tiny-1.dist-info/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        file.writestr("tiny-1.dist-info/RECORD", "")
    with LoopbackServer() as server:
        job = Job(tmp_path, server)
        shutil.rmtree(tmp_path / "temp" / "opensafeintent-program")
        plant(job.tree, log_path)
        job.source = wheel
        assert job.run("Install") == 0
    assert not log_path.exists()
    assert list((tmp_path / "temp").rglob("site-packages/tiny.py"))


def test_one_step_has_the_keys_and_python_is_started_apart() -> None:
    assert [name for name, step in STEPS.items() if "inputs.keys" in str(step)] == ["Evaluate"]
    for step in STEPS.values():
        for line in str(step.get("run", "")).splitlines():
            started = re.search(r"python\"? (?!-I|-P)", line)
            assert not started or line.lstrip().startswith("#"), line


def test_a_variable_that_is_no_key_of_a_provider_is_refused(tmp_path: Path) -> None:
    with LoopbackServer() as server:
        job = Job(tmp_path, server, keys="PATH=/tmp\n")
        assert job.run("Evaluate") == 2
        assert server.stats()["total"] == 0


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
