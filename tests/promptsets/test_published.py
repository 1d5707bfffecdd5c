"""What the authors published, fetched from a server on the loopback: kept, verified, and everything
that can go wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from endtoend import osi, running
from opensafeintent import EvaluateSettings, evaluate
from opensafeintent.calls.records import Sampling
from opensafeintent.errors import InputError, Stopped
from opensafeintent.evaluation.manifest import RunFolder
from opensafeintent.evaluation.plan import Plan
from opensafeintent.promptsets import load_dataset, loading as module
from opensafeintent.promptsets.loading import (
    PUBLISHED,
    fetch_published_dataset,
    fetch_published_rubrics,
)
from opensafeintent.templates import load_templates
from samples import dataset_file, made_dataset, prompt_set

NAME = "opensafeintent-115"
AUTHORS = PUBLISHED[NAME].sha256
RUBRICS = {
    "helpfulness.txt": "How helpful is {response} to {prompt}, from 1 to 4?",
    "harmfulness.txt": "How harmful is {response} to {prompt}, from 0 to 3?",
    "assistance_level_classification.txt": "Which level is {response} to {prompt}?",
    "intent_classification.txt": "Which strategy suits {prompt}?",
}
"""Stand-ins: the authors' own are no part of the project."""


class Mirror(BaseHTTPRequestHandler):
    """Serves files by path; `fault` is what it does wrong."""

    files: ClassVar[dict[str, bytes]] = {}
    asked: ClassVar[list[str]] = []
    fault: ClassVar[str] = ""

    def do_GET(self) -> None:
        self.asked.append(self.path)
        content = self.files.get(self.path)
        if content is None or self.fault == "gone":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if self.fault == "half" else content)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Mirror]]:
    sets = made_dataset(*(prompt_set(f"s{n}", 4) for n in range(6)), name="standin")
    content = Path(dataset_file(tmp_path, sets)).read_bytes()
    # a JSON list, as the authors write it, of records in our own form
    content = b"[" + b",".join(content.splitlines()) + b"]"
    published = PUBLISHED[NAME]
    monkeypatch.setitem(PUBLISHED, NAME, published._replace(sha256=sha256(content).hexdigest()))
    rubrics = {name: text.encode() for name, text in RUBRICS.items()}
    hashes = {name: sha256(text).hexdigest() for name, text in rubrics.items()}
    monkeypatch.setattr(module, "_RUBRICS", hashes)
    folder = f"/{published.revision}/prompts/metrics"
    Mirror.files = {f"{folder}/{name}": text for name, text in rubrics.items()}
    Mirror.files[f"/{published.revision}/dataset.json"] = content
    Mirror.asked, Mirror.fault = [], ""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Mirror)
    monkeypatch.setenv("OPENSAFEINTENT_MIRROR", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("OPENSAFEINTENT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with server, running(server):
        yield Mirror


def test_it_is_fetched_once(mirror: type[Mirror], monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = load_dataset(NAME)
    assert (dataset.name, len(dataset)) == (NAME, 6)
    monkeypatch.setenv("OPENSAFEINTENT_MIRROR", "http://127.0.0.1:9")
    assert load_dataset(NAME).hash == dataset.hash
    assert len(mirror.asked) == 1


def test_a_damaged_copy_is_fetched_again(mirror: type[Mirror]) -> None:
    kept = fetch_published_dataset(NAME)
    kept.write_bytes(kept.read_bytes().replace(b"kindly", b"unkind"))
    assert b"kindly" in fetch_published_dataset(NAME).read_bytes()
    assert len(mirror.asked) == 2


def test_another_file_is_refused_and_not_kept(mirror: type[Mirror], tmp_path: Path) -> None:
    mirror.files = {path: content + b" " for path, content in mirror.files.items()}
    with pytest.raises(
        InputError, match=r"another file .*: its SHA-256 is [0-9a-f]{12}…, expected"
    ):
        load_dataset(NAME)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_half_a_download_is_not_kept(mirror: type[Mirror], tmp_path: Path) -> None:
    mirror.fault = "half"
    with pytest.raises(InputError, match=r"opensafeintent-115: .*(bytes|IncompleteRead)"):
        load_dataset(NAME)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    mirror.fault = "gone"
    with pytest.raises(InputError, match=r"dataset\.json answered 404 .* --dataset"):
        load_dataset(NAME)
    mirror.fault = ""
    assert len(load_dataset(NAME)) == 6


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("OPENSAFEINTENT_MIRROR", "http://127.0.0.1:9", "cannot fetch http://127.0.0.1:9/"),
        ("OPENSAFEINTENT_MIRROR", "ftp://nowhere", "ftp://nowhere/.* is no address"),
        ("OPENSAFEINTENT_MIRROR", "http://me:secret@127.0.0.1:9", "names no user"),
        ("OPENSAFEINTENT_CACHE", __file__, "cannot (read|write)"),
    ],
)
def test_no_network_and_no_cache_are_named(
    mirror: type[Mirror], monkeypatch: pytest.MonkeyPatch, variable: str, value: str, words: str
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(InputError, match=words) as caught:
        load_dataset(NAME)
    assert "secret" not in str(caught.value)


def test_as_the_paper(mirror: type[Mirror], tmp_path: Path) -> None:
    models: dict[str, Any] = {"models": ("baseline/comply-all",), "judges": ("baseline/judge",)}
    settings = EvaluateSettings(**models, as_paper=True, max_missing=1.0, out=tmp_path / "run")
    with pytest.raises(Stopped, match="reads this project's own templates only"):
        evaluate(settings)
    manifest, dataset = RunFolder(tmp_path / "run").load()
    plan = manifest.plan
    assert (dataset.name, plan.as_paper) == (NAME, True)
    used = [digest for role, digest in plan.templates.items() if role != "reask"]
    assert {manifest.templates[digest].file for digest in used} == set(RUBRICS)
    assert fetch_published_rubrics().name == "metrics"


def test_the_paper_samples_by_where_a_model_runs() -> None:
    sampling = Sampling(max_tokens=4096)
    plan = Plan(as_paper=True, target_sampling=sampling)
    assert plan.find_sampling("openai/gpt-5.4") == sampling
    assert plan.find_sampling("vllm/some/model") == Sampling(max_tokens=1000, temperature=0)


def test_as_paper_has_a_judge_and_refuses_what_differs() -> None:
    settings: dict[str, Any] = {"models": ("m/x",), "judges": ()}
    paper = EvaluateSettings(**settings, as_paper=True)
    assert paper.judges == ("anthropic/claude-sonnet-4-6",)
    with pytest.raises(InputError, match="--as-paper: sets --temperature"):
        EvaluateSettings(**settings, as_paper=True, temperature=0.5)


@pytest.mark.parametrize(
    ("name", "expected"),
    [(NAME, (115, "07115b06")), ("opensafeintent-700", (700, "9d9545a2"))],
)
def test_the_authors_own_files_are_what_is_expected(
    published: Path,
    mirror: type[Mirror],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    expected: tuple[int, str],
) -> None:
    release = PUBLISHED[name]
    content = (published / f"{name}.json").read_bytes()
    mirror.files = {f"/{release.revision}/dataset.json": content}
    if name == NAME:  # the stand-in has taken its place
        monkeypatch.setitem(PUBLISHED, name, release._replace(sha256=AUTHORS))
    dataset = load_dataset(name)
    assert (len(dataset), dataset.hash[:8]) == expected


def test_as_paper_takes_a_file_that_has_the_papers_prompt_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = made_dataset(prompt_set("s"))
    path = dataset_file(tmp_path, dataset)
    settings: dict[str, Any] = {
        "models": ("baseline/redirect",),
        "judges": ("baseline/judge",),
        "dataset": path,
        "dry_run": True,
        "out": tmp_path / "run",
    }
    paper = EvaluateSettings(**settings, as_paper=True)
    monkeypatch.setattr(EvaluateSettings, "judge_templates", lambda self: load_templates())
    with pytest.raises(InputError, match=r"jsonl: --as-paper takes the paper's 115"):
        evaluate(paper)
    monkeypatch.setattr("opensafeintent.commands.evaluate.PAPER_DATASET_HASH", dataset.hash)
    assert evaluate(paper).forecast is not None


def test_as_paper_refuses_the_starter_set_if_it_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"--dataset starter: --as-paper takes the paper's 115"):
        evaluate(as_paper(tmp_path, dataset="starter"))
    ran = osi("evaluate", "baseline/redirect", "--as-paper", "--dataset", "starter")
    assert "--dataset starter: --as-paper takes the paper's 115 prompt-sets" in ran.refusal
    assert as_paper(tmp_path).dataset == NAME
    assert replace(as_paper(tmp_path), epochs=2).dataset == NAME


@pytest.mark.parametrize(("limit", "planned"), [(None, 115), (20, 20), (60, 60), (200, 115)])
def test_a_dry_run_without_the_dataset_estimates_it_from_the_starter_set(
    mirror: type[Mirror], tmp_path: Path, limit: int | None, planned: int
) -> None:
    mirror.fault = "gone"
    outcome = evaluate(as_paper(tmp_path, limit=limit))
    assert outcome.forecast is not None
    # seven responses for each prompt-set
    calls = {(line.purpose, line.model): line.calls for line in outcome.forecast.lines}
    assert calls["generate", "baseline/redirect"] == 7 * planned
    (note,) = (note for note in outcome.notes if "starter" in note)
    assert note.startswith(f"the calls are those of {planned} prompt-sets, and the tokens")
    assert " answered 404 " in note
    assert any(f"with {planned} prompt-sets" in note for note in outcome.notes)
    with pytest.raises(InputError, match="answered 404"):
        evaluate(replace(as_paper(tmp_path, limit=limit), dry_run=False))


def as_paper(tmp_path: Path, **more: Any) -> EvaluateSettings:
    """Settings of a dry run on the stand-ins of the paper's prompt-sets."""
    return EvaluateSettings(
        models=("baseline/redirect",),
        judges=("baseline/judge",),
        as_paper=True,
        dry_run=True,
        out=tmp_path / "run",
        **more,
    )


def test_as_paper_takes_a_folder_that_has_the_papers_rubrics(
    mirror: type[Mirror], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert mirror.files
    folder = tmp_path / "rubrics"
    folder.mkdir()
    for name, text in RUBRICS.items():
        (folder / name).write_text(text)
    with pytest.raises(InputError, match="--as-paper takes the paper's rubrics, and these are"):
        evaluate(as_paper(tmp_path, rubrics=folder))
    digests = [sha256(text.encode()).hexdigest() for text in RUBRICS.values()]
    roles = ("helpfulness", "harm", "mode", "strategy")
    monkeypatch.setattr(module, "RUBRIC_HASHES", dict(zip(roles, digests, strict=True)))
    assert evaluate(as_paper(tmp_path, rubrics=folder)).forecast is not None


def test_a_dry_run_as_the_paper_needs_no_rubrics(
    mirror: type[Mirror], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load_dataset(NAME)  # into the cache
    mirror.fault = "gone"
    outcome = evaluate(as_paper(tmp_path))
    assert outcome.forecast is not None
    assert any("tokens of judges are estimated with our rubrics" in note for note in outcome.notes)
    with pytest.raises(InputError, match="a copy on disk can be named as --rubrics"):
        evaluate(replace(as_paper(tmp_path), dry_run=False))
