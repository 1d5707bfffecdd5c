"""The verdict of a report for a pull request, in Markdown, and for a CI service, in JUnit's XML.

Models' names are hostile input: in Markdown they are escaped, in XML as well, and characters that
XML cannot hold are shown as code points.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from math import inf
from pathlib import Path
from typing import Literal, NamedTuple
from xml.etree import ElementTree

from opensafeintent import __version__
from opensafeintent.errors import pluralize
from opensafeintent.hostile import TEXT, clean_for_display, one_line
from opensafeintent.markdown import markdown_text
from opensafeintent.numbers.cohort import CHECK_WORDS, Cohort, list_checked_judges
from opensafeintent.numbers.gates import Gate, GateResult, Gates
from opensafeintent.report.cohort_columns import cohort_line, describe_missing
from opensafeintent.report.columns import Table
from opensafeintent.report.conditions import add_version, describe_measurement
from opensafeintent.report.facts import Statement
from opensafeintent.report.gate_tables import (
    NO_EARLIER_RUN,
    describe_below_verdict,
    describe_verdict,
    make_gate_tables,
    reason,
    verdict_word,
)
from opensafeintent.report.notices import select_urgent
from opensafeintent.report.table_formats import to_markdown
from opensafeintent.report.tables_metrics import headline_table


def summary(
    cohort: Cohort,
    gates: Gates | None,
    page: Path,
    corrected: Table | None = None,
    notices: Sequence[Statement] = (),
    days: tuple[date, date] | None = None,
) -> str:
    """Return the verdict in Markdown: first the verdict itself, then each gate, then the
    conditions. If all gates are passed, a line has each, and the page has their tables.

    Without a gate the headline metrics take the place of the gates, and a description for a paper
    follows.

    Args:
        cohort: of the report.
        gates: their results.
        page: address of the report's page.
        corrected: the table of numbers corrected by human labels, if the report has it.
        notices: what limits the results.
        days: of the first and the last call (UTC), if there was one.
    """
    title = (
        f"## Release gate {markdown_text(describe_verdict(gates))}"
        if gates
        else "## No release gate was asked for"
    )
    below = [markdown_text(line) for line in describe_below_verdict(gates)] if gates else []
    passed = gates.results if gates and gates.verdict == "pass" else ()
    if passed:
        results = ["\n".join(f"- {markdown_text(line)}" for line in _closest(passed))]
    else:
        tables = make_gate_tables(gates) if gates else [headline_table(cohort)]
        results = [to_markdown(table).rstrip() for table in tables]
    behind = [f"- {markdown_text(line)}" for line in _behind(cohort, notices, briefly=bool(passed))]
    parts = [
        title,
        *(f"**{line}**" for line in below),
        *results,
        "**Conditions**",
        "\n".join(behind),
        *(
            []
            if gates
            else ["**For a paper**", markdown_text(describe_measurement(cohort, days, corrected))]
        ),
        f"The page with figures and responses: {markdown_text(one_line(str(page), TEXT))}",
    ]
    return "\n\n".join(parts) + "\n"


def _closest(results: Sequence[GateResult]) -> Iterator[str]:
    """Yield of each gate that is passed how many models pass it, and the one closest to failing."""
    by_gate: dict[Gate, list[GateResult]] = {}
    for result in results:
        by_gate.setdefault(result.gate, []).append(result)
    for gate, of_gate in by_gate.items():
        closest = min(of_gate, key=_room)
        others = (
            f"; {pluralize(len(of_gate) - 1, 'other model')} passed" if len(of_gate) > 1 else ""
        )
        yield f"{clean_for_display(closest.model)}: {gate.name} {reason(closest)}{others}"


def _room(result: GateResult) -> float:
    """Return how far the interval of a number that passes is from the limit."""
    bounds, gate = result.compared, result.gate
    if bounds is None or result.identical:
        return inf
    return bounds.low - gate.limit if gate.kind == "under" else gate.limit - bounds.high


def _behind(cohort: Cohort, notices: Sequence[Statement], *, briefly: bool) -> list[str]:
    """Describe the conditions of the numbers: prompt-sets, judges and their checks, and what limits
    them; of that, only the most important and the number of the others if `briefly`.
    """
    limits = select_urgent(notices)
    named = [
        said for said in limits if not briefly or said.is_banner or said.code.startswith("gate")
    ]
    more = len(limits) - len(named)
    checks = [
        f"{clean_for_display(item.judge)} {CHECK_WORDS[item.state]}"
        for item in list_checked_judges(cohort)
    ]
    return [
        f"{cohort_line(cohort)} SHA-256 {cohort.dataset.hash[:16]}.",
        *([f"Judges: {'; '.join(checks)}."] if checks else []),
        _say_missing(cohort),
        *(said.text for said in named),
        *([f"{pluralize(more, 'limitation')} of these numbers: see the page."] if more else []),
    ]


def _say_missing(cohort: Cohort) -> str:
    """Say what is missing of the model that lacks the largest share of core grades."""
    lacking = {model: part for model, part in cohort.coverage.items() if part.lacking}
    if not lacking:
        return "Missing: none."
    model = max(lacking, key=lambda name: lacking[name].share("core"))
    of = f" of {clean_for_display(model)}, which lacks the most" if len(cohort.models) > 1 else ""
    return f"Missing: {describe_missing(lacking[model])}{of}."


class _Case(NamedTuple):
    """A test as JUnit has it."""

    about: str
    """The model; of a gate that was not tested, all of them."""
    name: str
    state: Literal["system-out", "failure", "skipped", "error"]
    why: str
    type: str = ""
    """Of a failure."""


def junit(cohort: Cohort, gates: Gates) -> str:
    """Return the verdict as JUnit's XML: a test for each gate and model, and for each kind of
    answer of which too many are missing.

    A gate that is undecided is a failure, of the type `undecided`: a test that does not pass must
    not look as if it did. A gate without an earlier run is skipped.
    """
    cases = list(_cases(gates))
    root = ElementTree.Element("testsuites", _counts("opensafeintent", cases))
    counts = _counts(one_line(cohort_line(cohort), TEXT), cases)
    suite = ElementTree.SubElement(root, "testsuite", counts)
    properties = ElementTree.SubElement(suite, "properties")
    judges = "; ".join(add_version(cohort, judge) for judge in cohort.conditions.judges)
    conditions = {
        "opensafeintent": __version__,
        "dataset": cohort.dataset.hash,
        "judges": one_line(judges, TEXT),
    }
    for name, value in conditions.items():
        ElementTree.SubElement(properties, "property", {"name": name, "value": value})
    for case in cases:
        _add_test(suite, case)
    return _as_xml(root)


def refusal_summary(text: str) -> str:
    """Return in Markdown why a report with gates was refused."""
    return f"## Release gate: error\n\n{markdown_text(text)}\n"


def refusal_junit(text: str) -> str:
    """Return the same as JUnit's XML: one test, which is an error."""
    case = _Case("opensafeintent", "report", "error", text)
    root = ElementTree.Element("testsuites", _counts("opensafeintent", [case]))
    _add_test(ElementTree.SubElement(root, "testsuite", _counts("report", [case])), case)
    return _as_xml(root)


def _as_xml(root: ElementTree.Element) -> str:
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _cases(gates: Gates) -> Iterator[_Case]:
    """Yield the tests."""
    for result in gates.results:
        name, why = (
            f"{result.gate.option} {result.gate.text}",
            f"{result.gate.name} {reason(result)}",
        )
        if result.verdict == "pass":
            yield _Case(result.model, name, "system-out", why)
        else:
            kind = "failed" if result.verdict == "fail" else "undecided"
            yield _Case(result.model, name, "failure", f"{verdict_word(result)}: {why}", kind)
    for item in gates.lacking:
        name = f"--max-missing {item.text.partition(':')[0]}"
        yield _Case(item.model, name, "failure", item.text, "incomplete")
    for gate in gates.untested:
        yield _Case("all models", f"{gate.option} {gate.text}", "skipped", NO_EARLIER_RUN)


def _counts(name: str, cases: Sequence[_Case]) -> dict[str, str]:
    states = Counter(case.state for case in cases)
    counts = {
        "tests": len(cases),
        "failures": states["failure"],
        "errors": states["error"],
        "skipped": states["skipped"],
    }
    return {"name": name} | {key: str(count) for key, count in counts.items()} | {"time": "0"}


def _add_test(suite: ElementTree.Element, case: _Case) -> None:
    attributes = {"classname": one_line(case.about, TEXT), "name": case.name, "time": "0"}
    test = ElementTree.SubElement(suite, "testcase", attributes)
    why = one_line(case.why, TEXT)
    if case.state == "system-out":
        ElementTree.SubElement(test, case.state).text = why
    else:
        kind = {"type": case.type} if case.type else {}
        ElementTree.SubElement(test, case.state, {**kind, "message": why})
