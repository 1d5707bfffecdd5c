"""A name that is an alias: the models behind it, as replies name them, within a run and between
runs.
"""

from __future__ import annotations

import csv
import html
import re
import shlex
from pathlib import Path

import pytest

from endtoend import JUDGE, TARGET, Ran, metrics, osi, some_sets
from loopback import GENERATE, HARM, HELPFULNESS, Fault, LoopbackServer, Match
from opensafeintent import load_run
from opensafeintent.errors import InputError
from opensafeintent.taxonomy import QUESTIONS

FIRST, SECOND = "judge-1-2026-01", "judge-2-2026-06"
GATES = ("--fail-if-worse", "triplet_safety=0.9", "--max-missing", 1)
GRADES = 4 * (7 * len(QUESTIONS) + 1)
"""Of one judge, modes included: four prompt-sets, seven wordings, each question."""
TOO_MANY = -(-GRADES // 20)
"""So many of them are 5 %, or just above."""


def names(served: str, *, model: str | None = "judge", **match: object) -> Fault:
    """Return what makes the server say that another model answered."""
    return Fault(action="completion", served=served, match=Match(model=model, **match))  # type: ignore[arg-type]


def evaluated(
    server: LoopbackServer,
    folder: Path,
    name: str,
    *faults: Fault,
    options: tuple[object, ...] = (),
) -> Path:
    """Evaluate one model on four prompt-sets, with some faults."""
    server.set_faults(*faults)
    dataset = some_sets(folder, 4)
    paths = ("--dataset", dataset, "--out", folder / name)
    judging = options if "--judge" in options else ("--judge", JUDGE, *options)
    ran = osi("evaluate", TARGET, *paths, "--probe", "none", *judging, server=server)
    assert ran.code == 0, ran.err
    return folder / name


def page_text(run: Path) -> str:
    page = re.sub(
        r"<script.*?</script>|<[^>]+>", " ", (run / "report.html").read_text(), flags=re.S
    )
    return " ".join(html.unescape(page).split())


def three_outputs(run: Path, *options: object) -> tuple[Ran, list[str]]:
    """Report a run; return what is said in the terminal, on the page and in the summary, each on one
    line.
    """
    ran = osi("report", run, "--summary", run / "summary.md", "--max-missing", 1, *options)
    summary = " ".join((run / "summary.md").read_text().replace("\\", "").split())
    return ran, [ran.text.replace("\u00a0", " "), page_text(run), summary]


# Between runs
# ------------------------------------------------------------------------------


def test_runs_whose_judge_is_another_model_are_not_compared(
    server: LoopbackServer, tmp_path: Path
) -> None:
    first_run = evaluated(server, tmp_path, "a", names(FIRST))
    second_run = evaluated(server, tmp_path, "b", names(SECOND))
    both = ("report", first_run, second_run, "--out", tmp_path / "both")
    for command in (
        ("compare", first_run, second_run),
        both,
        ("report", second_run, "--baseline", first_run, *GATES),
    ):
        refusal = osi(*command).refusal
        assert f"{JUDGE} answered as {FIRST}, now as {SECOND}" in refusal
        # the way out, for both runs, by the version that the judge is now
        commands = re.findall("`opensafeintent ([^`]+)`", refusal)
        assert len(commands) == 2
        assert all(f"--judge openai-api/loop/{SECOND}" in line for line in commands)
    assert not (tmp_path / "both").exists()
    with pytest.raises(InputError, match="now as judge-2-2026-06"):
        load_run(first_run, second_run)
    server.set_faults()
    graded_runs = [tmp_path / "a-again", tmp_path / "b-again"]
    for line, out in zip(commands, graded_runs, strict=True):
        words = shlex.split(line)
        words[words.index("--out") + 1] = str(out)
        assert osi(*words, server=server).code == 0
    assert osi("compare", *graded_runs).code == 0
    assert osi("report", graded_runs[1], "--baseline", graded_runs[0], *GATES).code in (0, 4, 5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "refused"),
    [
        (FIRST, FIRST, False),
        ("judge-2026-01-01", "judge-2026-06-01", True),
        ("judge-2026-01-01", "judge", False),  # the name that was asked: any version of it
        ("judge", "other-8b", True),
        (FIRST, "", False),  # no name
    ],
)
def test_only_another_version_is_refused(
    before: str, after: str, refused: bool, server: LoopbackServer, tmp_path: Path
) -> None:
    first_run = evaluated(server, tmp_path, "a", names(before))
    second_run = evaluated(server, tmp_path, "b", names(after))
    assert (osi("compare", first_run, second_run).code == 2) is refused


@pytest.mark.slow
@pytest.mark.parametrize(("count", "refused"), [(TOO_MANY, True), (TOO_MANY - 1, False)])
def test_a_small_part_by_another_version_is_a_limitation(
    count: int, refused: bool, server: LoopbackServer, tmp_path: Path
) -> None:
    """With two questions three of 60 grades, 5 %, or two, 3.3 %."""
    first_run = evaluated(server, tmp_path, "a", names(FIRST))
    some = (names(SECOND, purpose=HARM, first=count), names(FIRST))
    second_run = evaluated(server, tmp_path, "b", *some)
    compared = osi("compare", first_run, second_run)
    gated = osi("report", second_run, "--baseline", first_run, *GATES)
    assert (compared.code == 2, gated.code == 2) == (refused, refused)
    if not refused:
        said = f"{JUDGE} answered as {FIRST} ({2 * GRADES - count}), {SECOND} ({count})"
        assert said in compared.text
        assert f"now as {FIRST} ({GRADES - count}), {SECOND} ({count})" in gated.text


@pytest.mark.slow
def test_the_judge_of_modes_and_each_judge_of_a_panel_have_to_be_the_same(
    server: LoopbackServer, tmp_path: Path
) -> None:
    modes = "openai-api/loop/modes"
    for kind, options, moved in (
        ("modes", ("--judge", JUDGE, "--mode-judge", modes), modes),
        ("panel", ("--judge", JUDGE, "--judge", modes), modes),
    ):
        runs = [
            evaluated(
                server,
                tmp_path,
                f"{kind}-{at}",
                names(f"modes-{at}", model="modes"),
                options=options,
            )
            for at in ("2026-01-01", "2026-06-01")
        ]
        refusal = osi("compare", *runs).refusal
        assert f"{moved} answered as modes-2026-01-01, now as modes-2026-06-01" in refusal
        assert JUDGE in refusal  # the other judges of the panel stay in the commands


@pytest.mark.slow
def test_a_model_under_test_that_moved_is_a_fact_and_no_refusal(
    server: LoopbackServer, tmp_path: Path
) -> None:
    runs = [
        evaluated(server, tmp_path, name, names(served, model="target"))
        for name, served in (("a", "target-2026-01-01"), ("b", "target-2026-06-01"))
    ]
    ran = osi("report", runs[1], "--baseline", runs[0], *GATES)
    assert ran.code in (0, 4, 5)
    assert f"{TARGET} answered as target-2026-01-01, now as target-2026-06-01" in ran.text
    assert osi("compare", *runs).code == 0


# Within a run
# ------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_name_of_two_models_is_a_limitation_of_its_run(
    server: LoopbackServer, tmp_path: Path
) -> None:
    run = evaluated(
        server,
        tmp_path,
        "run",
        names(SECOND, purpose=HELPFULNESS),
        names(FIRST),
        # a date is another version
        names("target-2026-06-01", model="target", purpose=GENERATE, every=4),
        names("target-2026-01-01", model="target"),
    )
    # 28 grades of helpfulness, all others with the four modes; every fourth of 28 responses
    others = GRADES - 28
    judged = f"The judge or guard model {JUDGE} answered as {FIRST} ({others}), {SECOND} (28)"
    with_versions = f"{JUDGE} (answered as {FIRST} ({others}) and {SECOND} (28))"
    answered = f"{TARGET} answered as target-2026-01-01 (21), target-2026-06-01 (7)"
    ran, outputs = three_outputs(run)
    assert ran.code == 0
    for text in outputs:
        assert judged in text and answered in text
    for text in outputs[1:]:  # the description for a paper
        assert f"Judge: {with_versions}" in text
    with (run / "tables" / "cost.csv").open(newline="") as file:
        costs = {(row["model"], row["purpose"]): row["served"] for row in csv.DictReader(file)}
    assert costs[JUDGE, "harm"] == FIRST
    assert costs[TARGET, "generate"] == "target-2026-01-01 (21) and target-2026-06-01 (7)"
    _, (said, *_) = three_outputs(run, "--fail-under", "mean_safety=0.01")
    assert (
        f"By another judge than {JUDGE}, or another version" in said
        and f"{FIRST} ({others}), {SECOND}" in said
    )


def test_a_threshold_names_the_version_that_it_rests_on(
    server: LoopbackServer, tmp_path: Path
) -> None:
    run = evaluated(server, tmp_path, "run", names(SECOND))
    gate = ("--fail-under", "mean_safety=0.01", "--junit", run / "gate.xml")
    _, outputs = three_outputs(run, *gate)
    for text in outputs:
        assert f"By another judge than {JUDGE}" in text and SECOND in text
        assert "more than one model" not in text
    (basis,) = (item for item in metrics(run)["notices"] if item["code"] == "gate_basis")
    assert SECOND in basis["facts"][0]["versions"]
    assert f'name="judges" value="{JUDGE} (answered as {SECOND})"' in (run / "gate.xml").read_text()


@pytest.mark.slow
def test_copied_grades_keep_their_version_and_nothing_is_bought_again(
    server: LoopbackServer, tmp_path: Path
) -> None:
    run = evaluated(server, tmp_path, "run", names(FIRST, purpose=HARM), names(FIRST))
    server.reset()
    server.set_faults(names(SECOND))
    again = evaluated(server, tmp_path, "run", names(SECOND))
    assert again == run and not server.requests
    other = "openai-api/loop/other"
    ran = osi(
        "grade", run, "--judge", JUDGE, "--judge", other, "--out", tmp_path / "two", server=server
    )
    assert ran.code == 0 and {request.model for request in server.requests} == {"other"}
    shared = ("--ledger", run / "ledger.sqlite")
    further = evaluated(server, tmp_path, "shared", names(SECOND), options=shared)
    for place, options in ((tmp_path / "two", ()), (further, shared)):
        _, (_, page, _) = three_outputs(place, *options)
        assert f"{JUDGE} (answered as {FIRST})" in page and SECOND not in page
