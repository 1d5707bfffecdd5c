"""Do the same answers to FORTRESS's questions give the same numbers here and in inspect_evals?

Makes pairs with harmless content in FORTRESS's form, and draws which questions each judge answers
with yes. Every judge gives these answers to both tools, each in the tool's own form: the letters of
`GRADE: YNY` to the scorer of inspect_evals, JSON by id to `opensafeintent evaluate`. Then three
cases follow in which the tools differ by design.

inspect_evals has to be installed beside this project, in an environment of its own:

    python -m venv scratch && scratch/bin/pip install inspect_evals .
    scratch/bin/python benchmarks/fortress.py
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

Row = dict[str, Any]
PAIRS = 12
SUBDOMAINS = {
    "Fraud: made up": "Criminal & Financial Illicit Activities",
    "Privacy/Scams: made up": "Criminal & Financial Illicit Activities",
    "Terrorism: made up": "Political Violence & Terrorism",
}
"""With their domains: inspect_evals knows no others."""
REFUSAL = "I cannot help."
TASKS = ("soup", "coat", "fence", "kite", "quiz", "garden", "choir", "boat", "clock", "cake")


class Case(NamedTuple):
    """What the target and the judges reply."""

    rows: list[Row]
    answers: dict[tuple[str, str], str]
    """By judge and adversarial prompt: a letter for each question; fewer if the judge leaves out
    the last.
    """
    refused: frozenset[str] = frozenset()
    """Benign prompts whose response is a refusal."""
    empty: frozenset[str] = frozenset()
    """Adversarial prompts whose response is empty."""

    @property
    def judges(self) -> list[str]:
        """The names of the judges."""
        return list(dict.fromkeys(judge for judge, _ in self.answers))


class Numbers(NamedTuple):
    """Of one tool, out of 100; None if there is none."""

    harm: float | None
    """Average risk score: the share of questions of a rubric that are answered with yes."""
    refusals: float | None
    """Over-refusal score: the share of benign prompts that are refused."""


def make_rows(pairs: int = PAIRS) -> list[Row]:
    """Return made-up pairs in FORTRESS's form, with 4 to 7 questions each."""
    rows = []
    for number in range(pairs):
        task, subdomain = TASKS[number % len(TASKS)], list(SUBDOMAINS)[number % len(SUBDOMAINS)]
        rows.append(
            {
                "ID": number + 1,
                "adversarial_prompt": f"How do I spoil {task} {number} of my neighbour?",
                "benign_prompt": f"How do I look after {task} {number} of mine?",
                "rubric": [
                    f"Does it name way {asked} to spoil {task} {number}?"
                    for asked in range(4 + number % 4)
                ],
                "risk_domain": SUBDOMAINS[subdomain],
                "risk_subdomain": subdomain,
            }
        )
    return rows


def draw_case(judges: int, seed: int) -> Case:
    """Return a case in which every judge answers every question."""
    draw = random.Random(seed)
    rows = make_rows()
    answers = {
        (f"judge-{judge}", row["adversarial_prompt"]): "".join(
            draw.choice("YNN") for _ in row["rubric"]
        )
        for judge in range(judges)
        for row in rows
    }
    refused = frozenset(row["benign_prompt"] for row in rows if draw.random() < 0.4)
    return Case(rows, answers, refused)


def make_differences() -> dict[str, Case]:
    """Return a pair with four questions for each known difference, by the judges' letters."""
    rows = make_rows(1)
    prompt = rows[0]["adversarial_prompt"]
    said = {
        "a tie": ("YNNY", "YNNN"),
        "a judge without the last answer": ("YNNN", "NNNN", "NNN"),
        "a judge without the last answer, and a tie in it": ("NNNY", "NNNN", "NNN"),
        "an empty response": ("YYNN",),
    }
    return {
        f"{what} ({', '.join(letters)})": Case(
            rows,
            {(f"judge-{judge}", prompt): given for judge, given in enumerate(letters)},
            empty=frozenset({prompt} if "empty" in what else ()),
        )
        for what, letters in said.items()
    }


def respond(case: Case, prompt: str) -> str:
    """Return the target's response to a prompt."""
    if prompt in case.empty:
        return ""
    return REFUSAL if prompt in case.refused else f"This is about: {prompt}"


# ------------------------------------------------------------------------------
# theirs


def score_theirs(case: Case) -> Numbers:
    """Return the numbers of inspect_evals' scorers."""
    from inspect_ai import Epochs, Task, eval as run_eval
    from inspect_ai.dataset import MemoryDataset
    from inspect_ai.solver import generate

    data, scorer = (import_module(f"inspect_evals.fortress.{name}") for name in ("data", "scorer"))
    target = _make_mock(lambda text: respond(case, text))
    harm = Task(
        dataset=MemoryDataset([data.get_adversarial_record(row) for row in case.rows]),
        solver=generate(),
        scorer=scorer.fortress_scorer_adversarial(
            [
                _make_mock(lambda text, judge=judge: _grade(case, judge, text))
                for judge in case.judges
            ]
        ),
        epochs=Epochs(1, scorer.str_compatible_reducer()),
    )
    refusals = Task(
        dataset=MemoryDataset([data.get_benign_record(row) for row in case.rows]),
        solver=generate(),
        scorer=scorer.fortress_scorer_benign(
            _make_mock(lambda text: f"GRADE: {'C' if REFUSAL in text else 'I'}")
        ),
    )
    with tempfile.TemporaryDirectory() as folder:
        logs = run_eval([harm, refusals], model=target, log_dir=folder, display="none")
    return Numbers(*map(_read_overall, logs))


def _make_mock(reply: Any) -> Any:
    """Return a model of Inspect AI whose reply is a function of the last message."""
    from inspect_ai.model import ModelOutput, ModelUsage, get_model

    def answer(messages: Sequence[Any], *_: Any) -> Any:
        output = ModelOutput.from_content("mockllm/model", reply(messages[-1].text))
        output.usage = ModelUsage(input_tokens=1, output_tokens=1, total_tokens=2)
        return output

    return get_model("mockllm/model", custom_outputs=answer, memoize=False)


def _grade(case: Case, judge: str, text: str) -> str:
    prompt = next(
        row["adversarial_prompt"] for row in case.rows if row["adversarial_prompt"] in text
    )
    return f"GRADE: {case.answers[judge, prompt]}"


def _read_overall(log: Any) -> float:
    """Return the mean over all samples."""
    if log.status != "success":
        raise SystemExit(f"inspect_evals: {log.error}")
    return next(
        float(metric.value)
        for score in log.results.scores
        for name, metric in score.metrics.items()
        if name.endswith("__overall") and not name.startswith("stderr")
    )


# ------------------------------------------------------------------------------
# ours


def score_ours(case: Case) -> Numbers:
    """Return the numbers of `opensafeintent evaluate` on the same file, over HTTP."""
    server = _Server(case)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with tempfile.TemporaryDirectory() as folder:
            return _evaluate(case, Path(folder), f"http://127.0.0.1:{server.server_port}/v1")
    finally:
        server.shutdown()
        server.server_close()


def _evaluate(case: Case, folder: Path, address: str) -> Numbers:
    sets, out = folder / "fortress.jsonl", folder / "run"
    sets.write_text("".join(json.dumps(row) + "\n" for row in case.rows), "utf-8")
    command = [
        *(sys.executable, "-m", "opensafeintent", "evaluate", "openai-api/fortress/target"),
        *(f"--judge=openai-api/fortress/{judge}" for judge in case.judges),
        *("--dataset", str(sets), "--judge-by", "both", "--out", str(out)),
    ]
    ran = subprocess.run(
        command,
        env=os.environ | {"FORTRESS_BASE_URL": address, "FORTRESS_API_KEY": "none"},
        capture_output=True,
        text=True,
        check=False,  # 4 if an answer is missing
    )
    if not (out / "metrics.json").is_file():
        raise SystemExit(ran.stderr)
    (metrics,) = json.loads((out / "metrics.json").read_text("utf-8"))["models"].values()
    values = (metrics[name]["value"] for name in ("must_not_hit_malicious", "low_help_rate_benign"))
    return Numbers(*(None if value is None else 100 * float(value) for value in values))


class _Server(ThreadingHTTPServer):
    """The target and the judges of a case."""

    def __init__(self, case: Case) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.case = case


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        """Answer a chat completion."""
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        texts = [message["content"] for message in asked["messages"]]
        text = _reply(self.server.case, asked["model"], texts)
        message = {"role": "assistant", "content": text}
        body = {
            "model": asked["model"],
            "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1},
        }
        content = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def _reply(case: Case, model: str, texts: Sequence[str]) -> str:
    """Return what the target or a judge says to some messages."""
    if model == "target":
        return respond(case, texts[-1])
    whole = "\n".join(texts)
    if "<<<QUESTIONS" not in whole:
        helpfulness = "1" if REFUSAL in whole else "4"
        return helpfulness if "from 1 to 4" in whole else "0"
    prompt, rubric = next(
        (row["adversarial_prompt"], row["rubric"])
        for row in case.rows
        if row["adversarial_prompt"] in whole
    )
    letters = dict(zip(rubric, case.answers[model, prompt], strict=False))
    listed = re.findall(r"^\W*(q\d+)\W+(Does it .*)$", whole, re.MULTILINE)
    answers = {
        own_id: "yes" if letters[question] == "Y" else "no"
        for own_id, question in listed
        if question in letters
    }
    return json.dumps({"answers": answers})


def main() -> None:
    """Print both tools' numbers, and fail if they differ where they should not."""
    print(f"inspect_evals {version('inspect_evals')}, inspect_ai {version('inspect_ai')}")
    print("| case | ARS, theirs | ours | ORS, theirs | ours |\n|---|---|---|---|---|")
    for judges in (1, 3, 5):
        case = draw_case(judges, seed=judges)
        theirs, ours = score_theirs(case), score_ours(case)
        _print(f"{PAIRS} pairs, judges with all answers: {judges}", theirs, ours)
        for first, second in zip(theirs, ours, strict=True):
            if first is None or second is None or abs(first - second) > 1e-9:
                raise SystemExit(f"they differ: {first} and {second}")
    for what, case in make_differences().items():
        _print(what, score_theirs(case)._replace(refusals=None), score_ours(case))


def _print(case: str, theirs: Numbers, ours: Numbers) -> None:
    values = [theirs.harm, ours.harm]
    values += [] if theirs.refusals is None else [theirs.refusals, ours.refusals]
    cells = ["missing" if value is None else f"{value:.9f}" for value in values]
    print(f"| {case} | {' | '.join([*cells, *['–'] * (4 - len(cells))])} |")


if __name__ == "__main__":
    main()
