"""The verdict of a report for a pull request and for a CI service: Markdown, and JUnit's XML.

Models' names are hostile input: in Markdown they are escaped, in XML as well, and what XML cannot
hold is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from opensafeintent import __version__
from opensafeintent.analysis.gates import GateResult, Gates
from opensafeintent.analysis.groups import CHECK_WORDS, Group, checked_judges
from opensafeintent.hostile import one_line
from opensafeintent.report.formats import markdown_text, to_markdown
from opensafeintent.report.gates import gate_tables, headline, verdict_word
from opensafeintent.report.metrics_json import DEMONSTRATION_NOTE
from opensafeintent.report.tables.brief import summary as summary_table
from opensafeintent.report.tables.grouped import group_line

# Markdown
# ------------------------------------------------------------------------------


def summary(groups: Sequence[Group], gates: Gates | None, page: Path) -> str:
    """Return the verdict in Markdown: first what it is, then each gate, then what is behind it.

    Without a gate the headline metrics stand in the place of the gates.

    Args:
        groups: of the report.
        gates: what they found.
        page: where the report's page is.
    """
    title = f"## Release gate {headline(gates)}" if gates else "## No release gate was asked for"
    tables = gate_tables(gates) if gates else [summary_table(group) for group in groups]
    behind = [
        f"- {markdown_text(line)}"
        for number in range(len(groups))
        for line in _behind(groups, number)
    ]
    parts = [
        title,
        *(to_markdown(table).rstrip() for table in tables),
        "**What is behind it**",
        "\n".join(behind),
        f"The page with figures and responses: {markdown_text(one_line(str(page), 1000))}",
    ]
    return "\n\n".join(parts) + "\n"


def _behind(groups: Sequence[Group], number: int) -> list[str]:
    """Say what the numbers of a group were made of: prompt-sets, judges and their checks, and what
    is missing.
    """
    group = groups[number]
    checks = [
        f"{one_line(item.judge, 80)} {CHECK_WORDS[item.state]}" for item in checked_judges(group)
    ]
    missing = [
        f"{one_line(model, 80)} {coverage.missing_core:.1%} of core,"
        f" {coverage.missing_paraphrase:.1%} of paraphrase grades"
        for model, coverage in group.coverage.items()
        if coverage.missing_core or coverage.missing_paraphrase
    ]
    return [
        f"{group_line(groups, number)} Its hash is {group.dataset.hash[:16]}.",
        *([f"Judges: {'; '.join(checks)}."] if checks else []),
        f"Missing grades: {'; '.join(missing) or 'none'}.",
        *([DEMONSTRATION_NOTE] if group.demonstration else []),
    ]


# JUnit
# ------------------------------------------------------------------------------


def junit(groups: Sequence[Group], gates: Gates) -> str:
    """Return the verdict as JUnit's XML: a suite for each group of the report, a test for each gate
    and model.

    A gate that is undecided is a failure, of the type `undecided`: a test that does not pass must
    not look as if it did.
    """
    root = ElementTree.Element("testsuites", _counts("opensafeintent", gates.results))
    for number, group in enumerate(groups):
        results = [result for result in gates.results if result.group == number]
        if not results:
            continue
        counts = _counts(_plain(group_line(groups, number)), results)
        suite = ElementTree.SubElement(root, "testsuite", counts)
        properties = ElementTree.SubElement(suite, "properties")
        about = {"opensafeintent": __version__, "dataset": group.dataset.hash}
        for name, value in about.items():
            ElementTree.SubElement(properties, "property", {"name": name, "value": value})
        for result in results:
            _add_test(suite, result)
    ElementTree.indent(root)
    text = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _counts(name: str, results: Sequence[GateResult]) -> dict[str, str]:
    failures = sum(result.verdict != "pass" for result in results)
    counts = {"tests": len(results), "failures": failures, "errors": 0, "skipped": 0}
    return {"name": name} | {key: str(count) for key, count in counts.items()} | {"time": "0"}


def _add_test(suite: ElementTree.Element, result: GateResult) -> None:
    name = f"{result.gate.option} {result.gate.text}"
    test = ElementTree.SubElement(
        suite, "testcase", {"classname": _plain(result.model), "name": name, "time": "0"}
    )
    reason = _plain(f"{result.gate.metric} {result.reason}")
    if result.verdict == "pass":
        ElementTree.SubElement(test, "system-out").text = reason
        return
    kind = "failed" if result.verdict == "fail" else "undecided"
    message = f"{verdict_word(result)}: {reason}"
    ElementTree.SubElement(test, "failure", {"type": kind, "message": message})


def _plain(text: str) -> str:
    """Return a text on one line, without characters that XML cannot hold or that turn a line
    around.
    """
    return one_line(text, 2000)
