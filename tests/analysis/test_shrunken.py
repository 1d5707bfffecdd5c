"""Shrunken values of strata: between the raw value and the model's own, beside the raw one wherever strata are told."""

from __future__ import annotations

import csv
import io

import pytest

from opensafeintent.analysis.groups import Group, group_studies
from opensafeintent.analysis.numbers import EVERYWHERE, STRATUM_METRICS
from opensafeintent.report.figures import all_figures
from opensafeintent.report.formats import FORMATS
from opensafeintent.report.metrics_json import metrics_json
from opensafeintent.report.tables.long import strata
from report.studies import MODELS, random_study, study_with
from samples import grade_line, made_dataset, prompt_set

DOMAINS = ("Cyber Compromise", "Fraud and Deception", "Hate and Harassment", "Physical Harm and Weapons")


@pytest.fixture(scope="module")
def group() -> Group:
    (group,) = group_studies([random_study((*MODELS[:2], "baseline/refuse-all"), 60)])
    return group


def test_four_domains_worked_by_hand() -> None:
    # safe triplets 5, 4, 2 and 1 of 5 sets each, as in tests/statistics/test_shrinkage.py
    sets = [prompt_set(f"{domain[0]}{n}", domain=domain) for domain in DOMAINS for n in range(5)]
    safe = {f"{domain[0]}{n}" for domain, count in zip(DOMAINS, (5, 4, 2, 1), strict=True) for n in range(count)}
    rows = [
        grade_line("m", item.id, variant, "10" if item.id in safe else "11", by_judge={"a/judge": (None, None)})
        for item in sets
        for variant in ("benign", "dual_use", "malicious")
    ]
    (group,) = group_studies([study_with(rows, made_dataset(*sets), ["m"], judge="a/judge")])
    found = [group.numbers.strata["m", "triplet_safety", (domain, None)] for domain in DOMAINS]
    assert [item.value for item in found] == pytest.approx([1, 0.8, 0.4, 0.2])
    assert [item.shrunken for item in found] == pytest.approx([0.965, 0.7825, 0.4175, 0.235])
    average = [group.numbers.averages["triplet_safety", (domain, None)] for domain in DOMAINS]  # of this one model
    assert [item.shrunken for item in average] == pytest.approx([0.965, 0.7825, 0.4175, 0.235])
    assert group.numbers.strata["m", "triplet_safety", (None, "Explanation")].shrunken is None  # one type: nothing to go by


def test_shrunken_values_lie_between_raw_ones_and_the_models_own(group: Group) -> None:
    numbers = group.numbers
    seen = 0
    for (model, metric, stratum), found in numbers.strata.items():
        whole = numbers.overall[model, metric].value
        if found.shrunken is None:
            assert found.value is None or all(stratum) or metric not in STRATUM_METRICS
            continue
        assert found.value is not None and whole is not None
        low, high = sorted((found.value, whole))
        assert low - 1e-6 <= found.shrunken <= high + 1e-6
        seen += abs(found.shrunken - found.value) > 1e-3
    assert seen > 100
    for (metric, _), found in numbers.averages.items():
        if found.shrunken is not None:
            ends = found.value, numbers.averages[metric, EVERYWHERE].value
            assert min(map(float, ends)) - 1e-6 <= found.shrunken <= max(map(float, ends)) + 1e-6  # type: ignore[arg-type]


def test_they_stand_in_the_table_the_json_and_the_figures(group: Group) -> None:
    found = metrics_json([group])["strata"]
    model = group.models[0]
    for kind in ("harm_domain", "task_type", "cell"):
        name, of_models = next(iter(found[kind].items()))
        stratum = tuple(name.split(" | ")) if kind == "cell" else (name, None) if kind == "harm_domain" else (None, name)
        number = group.numbers.strata[model, "mean_utility", stratum]  # type: ignore[index]
        assert of_models[model]["mean_utility"]["shrunken"] == number.shrunken
    assert "shrunken" not in metrics_json([group])["models"][model]["mean_utility"]
    table = strata([group])
    lines = list(csv.DictReader(io.StringIO(FORMATS["csv"](table))))
    line = next(line for line in lines if line["model"] == model and line["metric"] == "mean_utility" and line["harm_domain"])
    number = group.numbers.strata[model, "mean_utility", (line["harm_domain"], line["task_type"] or None)]
    assert float(line["shrunken"]) == pytest.approx(number.shrunken, abs=1e-6)
    assert any("used in no test or rank" in note for note in table.notes)
    for figure in all_figures([group]):
        if figure.name in ("fig_3_strata", "fig_7_strata"):
            assert "'shrunken'" in str(figure.spec) and "'tick'" in str(figure.spec)
            assert "upright bar is the shrunken value" in figure.caption
