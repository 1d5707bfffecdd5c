"""The verdict of a report for a pull request and for a CI service: Markdown, and JUnit's XML.

Models' names are hostile input: in Markdown they are escaped, in XML as well, and what XML cannot
hold is shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from opensafeintent import __version__
from opensafeintent.analysis.gates import Gates, Held
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
    root = ElementTree.Element("testsuites", _counts("opensafeintent", gates.held))
    for number in range(len(groups)):
        of_group = [held for held in gates.held if held.group == number]
        if not of_group:
            continue
        suite = ElementTree.SubElement(
            root, "testsuite", _counts(_plain(group_line(groups, number)), of_group)
        )
        properties = ElementTree.SubElement(suite, "properties")
        about = {
            "opensafeintent": __version__,
            "dataset": groups[number].dataset.hash,
            "because": gates.because or "",
        }
        for name, value in about.items():
            ElementTree.SubElement(properties, "property", {"name": name, "value": _plain(value)})
        for held in of_group:
            _test(suite, held)
    ElementTree.indent(root)
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n'
        + ElementTree.tostring(root, encoding="unicode")
        + "\n"
    )


def _counts(name: str, held: Sequence[Held]) -> dict[str, str]:
    failures = sum(item.verdict != "pass" for item in held)
    counts = {"tests": len(held), "failures": failures, "errors": 0, "skipped": 0}
    return {"name": name} | {key: str(count) for key, count in counts.items()} | {"time": "0"}


def _test(suite: ElementTree.Element, held: Held) -> None:
    name = f"{held.gate.option} {held.gate.text}"
    test = ElementTree.SubElement(
        suite, "testcase", {"classname": _plain(held.model), "name": _plain(name), "time": "0"}
    )
    lines = [_plain(f"{check.condition.metric} {check.reason}") for check in held.checks]
    if held.verdict == "pass":
        ElementTree.SubElement(test, "system-out").text = "\n".join(lines)
        return
    kind = "failed" if held.verdict == "fail" else "undecided"
    told = [
        line
        for line, check in zip(lines, held.checks, strict=True)
        if check.verdict == held.verdict
    ]
    failure = ElementTree.SubElement(
        test, "failure", {"type": kind, "message": f"{verdict_word(held)}: {told[0]}"}
    )
    failure.text = "\n".join(lines)


def _plain(text: str) -> str:
    """Return a text on one line, without characters that XML cannot hold or that turn a line
    around.
    """
    return one_line(text, 2000)
