"""The GitHub action: its shell steps, run in order by a shell against the loopback server."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from endtoend import (
    JUDGE,
    REPO,
    TARGET,
    WORDINGS,
    asked_of,
    calls,
    environment,
    fails,
    says,
    some_sets,
    texts_of,
    wait_until,
)
from loaded_python import shell_line
from loopback import GENERATE, HARM, HELPFULNESS, Fault, LoopbackServer, Match

yaml = pytest.importorskip("yaml")
pytestmark = pytest.mark.slow

PAGE = (REPO / "docs" / "release-gate.md").read_text("utf-8")
DOCUMENTED = {
    yaml.safe_load(text)["name"]: text for text in re.findall(r"(?s)```yaml\n(.*?)```", PAGE)
}
ACTION = yaml.safe_load((REPO / "action.yml").read_text())
STEPS: dict[str, dict[str, Any]] = {
    step["name"]: step for step in ACTION["runs"]["steps"] if "name" in step
}
GATE = "--fail-under mean_safety=0.01"
PYTHON = f'exec {shlex.quote(sys.executable)} "$@"'


@pytest.fixture(autouse=True)
def started_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps fork a Python that has loaded the program."""
    monkeypatch.setattr(Job, "python", shell_line())


@pytest.fixture
def started_apart(started_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps start Python as on a runner."""
    monkeypatch.setattr(Job, "python", PYTHON)


class Workflow:
    """What GitHub keeps of the runs of a workflow: caches by key, and artifacts of runs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.artifacts = folder / "artifacts"
        self.artifacts.mkdir(parents=True)
        self.caches: list[str] = []
        """Keys, the newest first."""
        self.runs: list[str] = []
        """Successful runs as `gh run list` shows them, the newest first."""

    def save(self, key: str, paths: Sequence[Path]) -> None:
        assert key not in self.caches  # a cache is never replaced
        there = [path for path in paths if path.exists()]
        if not there:
            return
        self.caches.insert(0, key)
        for path in there:
            copy(path, self.folder / key / path.name)

    def restore(self, keys: Sequence[str], paths: Sequence[Path]) -> None:
        """Bring back the newest cache of the first key that begins one."""
        found = next((one for key in keys for one in self.caches if one.startswith(key)), "")
        for path in paths if found else ():
            if (kept := self.folder / found / path.name).exists():
                copy(kept, path)

    def passed(self, run: str, days_ago: float) -> None:
        created = datetime.now(UTC) - timedelta(days=days_ago)
        self.runs.insert(0, f"{created:%Y-%m-%dT%H:%M:%SZ} {run}")


def copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copy(source, target)


class Job:
    """A job whose workspace is a folder, as a runner of GitHub has it."""

    python = PYTHON

    def __init__(
        self,
        folder: Path,
        server: LoopbackServer,
        workflow: Workflow | None = None,
        run: str = "1",
        attempt: int = 1,
        **inputs: str,
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.folder, self.server = folder, server
        self.workflow = workflow or Workflow(folder / "github")
        self.run_id, self.attempt = run, attempt
        self.outcomes: dict[str, str] = {}
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
            f"""#!/bin/sh
            echo "$@" >> {shlex.quote(str(self.gh))}
            cd {shlex.quote(str(self.workflow.artifacts))}
            case "$*" in
              "run list"*) cat ../runs ;;
              "api repos/me/mine/actions/artifacts?name="*)
                for run in *; do  # of one that a test made itself, the name does not matter
                  name=$(cat "$run/name" 2>/dev/null)
                  case "$2" in *"?name=$name"*) echo "$run" ;; esac
                done ;;
              "run download"*) mkdir -p "$7" && cp -r "$3/." "$7" ;;
            esac
            """
        )
        python = f"#!/bin/sh\n{self.python}\n"
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
        """Fill in the expressions of a value."""
        return re.sub(r"\$\{\{ (.+?) \}\}", lambda match: str(self.expression(match[1])), text)

    def expression(self, text: str) -> Any:
        """Return the value of an expression, as far as the steps use them."""
        values = {f"inputs.{name}": value for name, value in self.inputs.items()} | {
            "runner.temp": str(self.folder / "temp"),
            "github.event.repository.default_branch": "main",
            "github.ref_name": "main",
            "github.workflow": "gate",
            "github.repository": "me/mine",
            "github.sha": "5ada",
            "github.run_id": self.run_id,
            "github.run_attempt": str(self.attempt),
            "github.event_name": "schedule",
            "github.event.pull_request.number": "12",
            "github.token": "t",
            "github.action_path": str(self.source),
        }

        def value_at(name: str) -> str:
            _, step, part = name.split(".", 2) if name.startswith("steps.") else ("", "", "")
            if part == "outcome":
                return self.outcomes.get(step, "skipped")
            if part:
                return self.outputs.get(f"{step}.{part.removeprefix('outputs.')}", "")
            return values[name]

        names = r"'[^']*'|(?:inputs|github|runner|steps)(?:\.[\w-]+)+"
        python = re.sub(
            names, lambda found: found[0] if "'" in found[0] else f"at({found[0]!r})", text
        )
        known = {
            "at": value_at,
            "always": lambda: True,
            "contains": lambda text, part: part in text,
        }
        return eval(python.replace("&&", " and ").replace("||", " or "), known)

    @property
    def verdict(self) -> str:
        """The action's output."""
        return self.value(ACTION["outputs"]["verdict"]["value"])

    def begin(self, name: str, **variables: str) -> subprocess.Popen[str]:
        step = STEPS[name]
        assert step["shell"] == "bash"
        output = self.folder / "output"
        output.write_text("")
        step_variables = {key: self.value(str(value)) for key, value in step["env"].items()}
        clean = environment(self.server, **step_variables, **variables)
        (self.workflow.folder / "runs").write_text(
            "".join(f"{one}\n" for one in self.workflow.runs)
        )
        clean["PATH"] = f"{self.folder / 'bin'}{os.pathsep}{clean['PATH']}"
        clean |= {
            "GITHUB_OUTPUT": str(output),
            "RUNNER_TEMP": str(self.folder / "temp"),
            "GITHUB_RUN_ID": self.run_id,
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
        self.log, _ = process.communicate(timeout=120)
        print(self.log)
        self.read_outputs(name, process.returncode)
        return process.returncode

    def read_outputs(self, name: str, code: int) -> None:
        written = (self.folder / "output").read_text()
        outputs = dict(re.findall(r"(?m)^(\w+)=(.*)$", written)) | {
            match[1]: match[3] for match in re.finditer(r"(?ms)^(\w+)<<(\w+)\n(.*?)^\2$", written)
        }
        step = STEPS[name].get("id", name)
        self.outputs |= outputs | {f"{step}.{key}": value for key, value in outputs.items()}
        self.outcomes[step] = "failure" if code else "success"

    def work(self) -> str:
        """Go through the steps as a runner does, but for the installation; return the verdict."""
        for name, step in list(STEPS.items())[1:]:
            wanted = str(step.get("if", "success()"))
            failed = "failure" in self.outcomes.values()
            if (failed and "always()" not in wanted) or not self.expression(
                wanted.replace("success()", "always()")
            ):
                continue
            if "run" in step:
                self.run(name)
                continue
            given = {key: self.value(str(value)) for key, value in step["with"].items()}
            paths = [Path(line) for line in given["path"].split()]
            if step["uses"].startswith("actions/cache/restore"):
                keys = [given["key"], *given["restore-keys"].split()]
                self.workflow.restore(keys, paths)
            elif step["uses"].startswith("actions/cache/save"):
                self.workflow.save(given["key"], paths)
            elif name == "Upload the baseline":
                for path in paths:
                    copy(path, self.workflow.artifacts / self.run_id / path.name)
                (self.workflow.artifacts / self.run_id / "name").write_text(given["name"])
        return self.verdict


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


def test_a_k_above_the_epochs_ends_the_job_before_the_first_call(tmp_path: Path) -> None:
    with LoopbackServer() as server:
        gates, options = "--fail-under safe_at_least_k=0.5\n--k 3\n", "--epochs 2"
        job = Job(tmp_path, server, gates=gates, options=options)
        assert (job.run("Evaluate"), job.outputs["verdict"]) == (2, "error")
        assert server.stats()["total"] == 0


@pytest.mark.parametrize(
    "margin", ["--fail-if-worse mean_safety=0.5", "--fail-if-worse=mean_safety=0.5"]
)
def test_a_margin_without_a_baseline_is_refused_before_the_first_call(
    tmp_path: Path, margin: str
) -> None:
    with LoopbackServer() as server:
        job = Job(tmp_path, server, gates=f"--confidence 0.9\n{margin}")
        assert (job.run("Evaluate"), job.verdict) == (2, "error")
        assert server.stats()["total"] == 0


def test_a_margin_is_no_gate_of_the_first_run_of_a_branch(tmp_path: Path) -> None:
    with LoopbackServer() as server:
        job = Job(tmp_path, server, gates="--fail-if-worse mean_safety=0.5", baseline="true")
        assert job.run("Evaluate") == 0
        assert job.run("Fetch the baseline") == 0
        assert (job.run("Gate"), job.outputs["verdict"]) == (0, "pass")
        assert "Release gate not tested: no earlier run" in job.outputs["summary"]


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


@pytest.mark.usefixtures("started_apart")
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


@pytest.mark.usefixtures("started_apart")
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


@pytest.mark.parametrize(
    "line", ["sk-secret-of-mine", "MY KEY=sk-secret-of-mine", "=sk-secret-of-mine"]
)
def test_a_line_that_is_no_variable_is_refused_and_not_shown(tmp_path: Path, line: str) -> None:
    with LoopbackServer() as server:
        job = Job(tmp_path, server, keys=f"LOOP_EXTRA_API_KEY=hidden\n  {line}\n")
        assert (job.run("Evaluate"), job.verdict) == (2, "error")
        assert server.stats()["total"] == 0
    assert "keys, line 2: expected NAME=VALUE" in job.log
    assert "secret-of-mine" not in job.log.replace("a secret", "")


def test_every_variable_that_one_lists_reaches_the_calls(tmp_path: Path) -> None:
    """Blanks around a line and its parts do not count; a name may be one of the step's own."""
    listed = {
        "SSL_CERT_FILE": "/etc/ssl/mine.pem",
        "X_LAB": "a=b==",
        "MODELS": "of mine",
        "code": "7",
    }
    blanks = ["  {}={}", "\t{} = {}  ", "{}={}\r", "    {}= {}"]
    keys = "\n".join(form.format(*pair) for form, pair in zip(blanks, listed.items(), strict=True))
    function = f"import os\n\ndef answer(messages):\n    return repr([os.environ[name] for name in {list(listed)}])\n"
    with LoopbackServer() as server:
        inputs = {"models": "python/mine:answer@1", "python-functions": "true"}
        job = Job(tmp_path, server, keys=f"{keys}\n\n", **inputs)
        (job.tree / "mine.py").write_text(function)
        assert job.run("Evaluate") == 0
        judged = asked_of(server, HARM)
    assert judged and all(repr([*listed.values()]) in texts_of(one)[-1] for one in judged)


@pytest.mark.parametrize("baseline", ["yes", "-1", ""])
def test_a_wrong_baseline_is_refused_before_the_first_call(tmp_path: Path, baseline: str) -> None:
    with LoopbackServer() as server:
        job = Job(tmp_path, server, baseline=baseline)
        assert (job.run("Evaluate"), job.verdict) == (2, "error")
        assert server.stats()["total"] == 0


@pytest.mark.usefixtures("started_apart")
def test_an_interrupted_job_that_is_run_again_pays_for_nothing_twice(tmp_path: Path) -> None:
    with LoopbackServer(latency=0.1) as server:
        job = Job(tmp_path, server, gates=GATE, options="--max-connections 2")
        process = job.begin("Evaluate")
        wait_until(lambda: server.stats()["total"] >= 6)
        os.killpg(process.pid, signal.SIGINT)  # as a runner does when a job is cancelled
        process.communicate(timeout=60)
        job.read_outputs("Evaluate", process.returncode)
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
    assert always == ["Save the ledger", "Upload the report", "Comment"]


def test_the_baseline_is_a_run_of_the_default_branch(tmp_path: Path) -> None:
    with LoopbackServer() as server:
        gates = f"{GATE}\n--fail-if-worse mean_safety=0.5"
        job = Job(tmp_path, server, gates=gates, baseline="true", options="--report")
        assert job.work() == "pass"  # the first time there is none: a comparison is no gate then
        assert "but no earlier run, so --fail-if-worse was not" in job.outputs["summary"]
        job.workflow.passed("1", days_ago=0)
        assert job.run("Fetch the baseline") == 0
        assert (job.run("Gate"), job.outputs["verdict"]) == (0, "pass")
    assert "worse" in job.outputs["summary"]


@pytest.mark.parametrize(
    ("baseline", "days_ago", "chosen"),
    [
        ("true", {"a": 9, "b": 3, "c": 1}, "c"),
        ("7", {"a": 30, "b": 9, "c": 8, "d": 6, "e": 1}, "c"),
        ("7", {"a": 6, "b": 3, "c": 1}, "a"),  # none is so old yet
        ("7", {"other": 8, "b": 3}, "b"),  # kept under another name, or no longer
        ("7", {}, ""),
        ("7", {"other": 8}, ""),
    ],
)
def test_the_baseline_is_as_old_as_asked_for(
    tmp_path: Path, baseline: str, days_ago: dict[str, int], chosen: str
) -> None:
    with LoopbackServer() as server:
        job = Job(tmp_path, server, baseline=baseline)
        for run, days in days_ago.items():
            job.workflow.passed(run, days)
            if run != "other":
                (job.workflow.artifacts / run).mkdir()
        assert job.run("Fetch the baseline") == 0
    downloads = [line.split()[2] for line in job.gh.read_text().splitlines() if "download" in line]
    assert downloads == [chosen] * bool(chosen)
    assert ("nothing is compared" in job.log) == (not chosen)


def test_a_baseline_that_cannot_be_fetched_is_an_error(tmp_path: Path) -> None:
    """It is there, so a run without it would compare nothing and pass."""
    with LoopbackServer() as server:
        job = Job(tmp_path, server, baseline="true")
        job.workflow.passed("a", 1)
        (job.workflow.artifacts / "a").touch()  # no folder, so the download fails
        assert job.run("Fetch the baseline") != 0
    assert job.verdict == "error"


SAFE = (says("4", HELPFULNESS), says("0", HARM))
WORSE = (says("4", HELPFULNESS), says("3", HARM))
SETS = 12
"""With 12 of 12, triplet_safety is above 70 % at 95 % confidence: 0.025 ** (1 / 12) = 0.735."""
PROMPTS = SETS * WORDINGS


def documented_nightly() -> dict[str, str]:
    """Return what the documented workflow gives the action, but for models, keys and dataset."""
    *_, step = yaml.safe_load(DOCUMENTED["nightly"])["jobs"]["gate"]["steps"]
    given = {key: step["with"][key] for key in ("name", "gates", "options", "baseline")}
    return given | {"options": f"{given['options']} --max-connections 2 --max-retries 0"}


def night(
    workflow: Workflow, number: int, *faults: Fault, attempt: int = 1, **inputs: str
) -> tuple[str, Counter[str]]:
    """Let the workflow run on schedule, on one and the same commit; return its verdict and the
    calls that were made.
    """
    with LoopbackServer(faults=faults) as server:
        folder = workflow.folder / f"night-{number}-{attempt}"
        given = documented_nightly() | {"dataset": str(some_sets(workflow.folder, SETS))} | inputs
        job = Job(folder, server, workflow, str(number), attempt, **given)
        verdict = job.work()
        if verdict == "pass":
            workflow.passed(str(number), days_ago=20 - number)
        return verdict, calls(server)


def test_each_night_measures_the_model_anew(tmp_path: Path) -> None:
    workflow = Workflow(tmp_path / "github")
    verdict, first = night(workflow, 1, *SAFE)
    assert (verdict, first[GENERATE]) == ("pass", PROMPTS)
    # the model became worse: nothing of the first night counts
    verdict, second = night(workflow, 2, *WORSE)
    assert (verdict, second[GENERATE]) == ("fail", PROMPTS)
    # the same workflow run once more brings no new reply, and has those of its first attempt
    verdict, again = night(workflow, 2, *WORSE, attempt=2)
    assert (verdict, again[GENERATE]) == ("fail", 0)
    # the provider goes down: no verdict, and what was paid for is kept
    verdict, _ = night(workflow, 3, fails(503, GENERATE, skip=5), *SAFE)
    assert verdict == "stopped"
    assert sorted(path.name for path in workflow.artifacts.iterdir()) == ["1"]
    # the following night goes on from there
    verdict, fourth = night(workflow, 4, *SAFE)
    assert (verdict, fourth[GENERATE]) == ("pass", PROMPTS - 5)
    # ... and the night after that begins anew
    verdict, fifth = night(workflow, 5, *SAFE)
    assert (verdict, fifth[GENERATE]) == ("pass", PROMPTS)


def test_a_night_without_a_reply_of_the_model_is_undecided(tmp_path: Path) -> None:
    """The judge's key ended with the last call of the night before: all replies are from then."""
    workflow = Workflow(tmp_path / "github")
    last_grade = fails(401, HARM, skip=PROMPTS - 1)
    assert night(workflow, 1, last_grade, *SAFE)[0] == "stopped"
    verdict, second = night(workflow, 2, *SAFE)
    assert (verdict, second[GENERATE]) == ("undecided", 0)
    verdict, third = night(workflow, 3, *SAFE)
    assert (verdict, third[GENERATE]) == ("pass", PROMPTS)


def served_as(version: str, purpose: str, content: str) -> Fault:
    """Return what makes the server answer for one purpose as a version of a model."""
    message = {"role": "assistant", "content": content}
    body = {"model": version, "choices": [{"message": message, "finish_reason": "stop"}]}
    return Fault(
        action="body", status=200, body=json.dumps(body).encode(), match=Match(purpose=purpose)
    )


def test_a_judge_whose_version_moved_compares_with_nothing(tmp_path: Path) -> None:
    """The way out is another `name`, whose runs begin a series of their own."""
    workflow = Workflow(tmp_path / "github")
    of_january, of_june = (
        [served_as(version, HELPFULNESS, "4"), served_as(version, HARM, "0")]
        for version in ("judge-1-2026-01", "judge-2-2026-06")
    )
    assert night(workflow, 1, *of_january)[0] == "pass"
    verdict, calls_made = night(workflow, 2, *of_june)
    assert (verdict, calls_made[GENERATE]) == ("error", PROMPTS)
    (summary,) = (workflow.folder / "night-2-1").rglob("summary.md")  # the comment says why
    assert "judge-2-2026-06" in summary.read_text().split("## Release gate: error")[1]
    assert night(workflow, 3, *of_june, name="judge-2")[0] == "pass"
    assert night(workflow, 4, *of_june, name="judge-2")[0] == "pass"


@pytest.mark.parametrize("what", [*DOCUMENTED, "the action's steps"])
def test_a_linter_of_workflows_finds_nothing(tmp_path: Path, what: str) -> None:
    """The steps of a composite action are linted as those of a workflow with the same inputs."""
    of_action = {
        "on": {
            "workflow_call": {
                "inputs": {name: {"type": "string"} for name in ACTION["inputs"]},
            }
        },
        "jobs": {"gate": {"runs-on": "ubuntu-latest", "steps": ACTION["runs"]["steps"]}},
    }
    text = DOCUMENTED.get(what) or yaml.safe_dump(of_action)
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
