"""Group-sequential decisions: boundaries against all paths, by hand, and against published quantiles."""

from __future__ import annotations

from itertools import pairwise, product
from math import comb, exp, inf

import msgspec
import numpy as np
import pytest

from opensafeintent.errors import InputError
from opensafeintent.metrics import METRICS
from opensafeintent.statistics.boundaries import (
    binomial_boundary,
    crossings,
    error_spent,
    looks_at,
    normal_boundary,
)
from opensafeintent.statistics.decisions import Design, Look, Question, decidable, design_of, take_look
from opensafeintent.statistics.pairs import differences_not_rejected, score_statistic

NAN = float("nan")


def threshold(sets: int, at: float = 0.8, confidence: float = 0.95, families: int = 1, kind: str = "at_least") -> Design:
    question = Question(metric="triplet_safety", kind=kind, threshold=at, model="m")  # type: ignore[arg-type]
    return design_of(question, sets, confidence=confidence, families=families, binary=True, span=(0.0, 1.0))


def pair(sets: int, metric: str = "mean_utility", margin: float | None = None) -> Design:
    kind = "better" if margin is None else "not_worse"
    question = Question(metric=metric, kind=kind, model="a", against="b", margin=margin)  # type: ignore[arg-type]
    found = METRICS[metric]
    return design_of(question, sets, confidence=0.95, families=1, binary=found.binary, span=found.span)


def looks_of(design: Design, values: np.ndarray) -> list[Look]:
    """All looks until one decides."""
    taken: list[Look] = []
    for planned in design.looks:
        taken.append(take_look(design, taken, values[taken[-1].planned if taken else 0 : planned]))
        if taken[-1].verdict:
            break
    return taken


def test_all_error_is_spent_by_the_end_and_little_before() -> None:
    # A(t) = a (1 - e^2t) / (1 - e^2): at t = 1/2 it is a / (1 + e), since (1 - e) / (1 - e^2) = 1 / (1 + e)
    assert error_spent(0.5, 0.05) == pytest.approx(0.05 / (1 + exp(1)))
    assert error_spent(0.0, 0.05) == 0
    assert error_spent(1.0, 0.05) == pytest.approx(0.05)


def test_looks_are_as_equal_as_can_be() -> None:
    assert looks_at(700, 20) == tuple(range(35, 701, 35))
    assert looks_at(42, 20)[:5] == (2, 4, 6, 8, 11)  # 2.1, 4.2, 6.3, 8.4, 10.5: halves go up
    for sets in (7, 20, 42, 115, 699):
        looks = looks_at(sets, 7)
        assert looks[-1] == sets
        assert all(np.diff((0, *looks)) >= 1)


def test_a_boundary_by_hand() -> None:
    # Looks at 3 and 6 trials, p = 1/2, .13 and .2 allowed. P(3 of 3) = 1/8 = .125 <= .13: three cross at the first look.
    # Paths that have not crossed hold 0, 1, 2 with 1/8, 3/8, 3/8. At six: P(5) = 3/8 * 1/8 = 3/64, P(4) = 3/8 * 1/8 +
    # 3/8 * 3/8 = 12/64. Five brings the error to .125 + .046875 = .171875 <= .2, four would bring it to .359.
    boundary = binomial_boundary((3, 6), (0.13, 0.2), 0.5)
    assert boundary.at == (3, 5)
    assert boundary.crossed == pytest.approx((0.125, 0.171875))


def test_where_no_number_is_enough_the_boundary_is_infinite() -> None:
    boundary = binomial_boundary((1, 2, 3), (0.01, 0.02, 0.05), 0.5)
    assert boundary.at == (inf, inf, inf)  # even 3 of 3 happen in an eighth of all paths
    assert boundary.crossed == (0, 0, 0)


@pytest.mark.parametrize("p", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("counts", [(2, 4, 6, 8, 10, 12), (1, 2, 3, 5, 5, 9), (12,)])
def test_no_more_paths_than_allowed_ever_cross(counts: tuple[int, ...], p: float) -> None:
    # every one of the 2^n paths, with its probability
    allowed = [error_spent((look + 1) / len(counts), 0.2) for look in range(len(counts))]
    boundary = binomial_boundary(counts, allowed, p)
    ever = np.zeros(len(counts))
    for path in product((0, 1), repeat=counts[-1]):
        sums = [sum(path[:count]) for count in counts]
        over = [look for look, got in enumerate(sums) if got >= boundary.at[look]]
        if over:
            ever[over[0] :] += p ** sums[-1] * (1 - p) ** (counts[-1] - sums[-1])
    assert ever == pytest.approx(boundary.crossed, abs=1e-12)
    assert (ever <= np.array(allowed) + 1e-12).all()
    # and it is the least such boundary: one success fewer at the last look would err more
    below = binomial_boundary(counts, allowed, p, kept=(*boundary.at[:-1], min(boundary.at[-1], counts[-1] + 1) - 1))
    assert below.crossed[-1] > allowed[-1] or below.crossed == boundary.crossed


def test_stopping_probabilities_are_those_of_all_paths() -> None:
    below, above = crossings((2, 4), (0, 1), (inf, 4), 0.5)
    # 0 of 2: a quarter stops below. From 1 (a half), 1 of 4 takes no success in two, 1/2 * 1/4; from 2, 4 of 4: 1/4 * 1/4
    assert below == pytest.approx([0.25, 0.125])
    assert above == pytest.approx([0.0, 0.0625])


def test_normal_boundaries_are_the_published_ones() -> None:
    # Jennison and Turnbull (2000), tables 2.1 and 2.3, two looks at two-sided 5 %: Pocock's 2.178 at both, O'Brien and
    # Fleming's 2.797 and 1.977. The upper tails of 2.178 and of 2.797 are .014703 and .002579
    assert normal_boundary((1.0, 2.0), (0.014703, 0.025)).at == pytest.approx([2.178, 2.178], abs=2e-3)
    assert normal_boundary((1.0, 2.0), (0.002579, 0.025)).at == pytest.approx([2.797, 1.977], abs=2e-3)
    # one look: the normal quantile itself
    assert normal_boundary((7.0,), (0.025,)).at[0] == pytest.approx(1.959964, abs=1e-6)
    # a look with nothing new decides nothing
    assert normal_boundary((7.0, 7.0), (0.01, 0.025)).at[1] == inf


def test_thresholds_decide_either_way_and_the_interval_agrees() -> None:
    design = threshold(115)
    safe, unsafe = np.ones(115), np.zeros(115)
    last = looks_of(design, safe)[-1]
    assert last.verdict == "yes"
    # .8^n errs less than what may be spent at the earliest at 25 of 25 or so: never before 14, as .8^14 = .044
    assert 14 < last.n < 40
    assert last.interval is not None and last.interval[0] >= 0.8 and last.interval[1] == 1
    last = looks_of(design, unsafe)[-1]
    assert last.verdict == "no" and last.n < 12
    assert last.interval is not None and last.interval[1] <= 0.8 and last.interval[0] == 0
    assert looks_of(threshold(115, kind="at_most"), unsafe)[-1].verdict == "yes"
    assert looks_of(threshold(115, kind="at_most"), safe)[-1].verdict == "no"


def test_at_the_end_without_either_it_is_undecided() -> None:
    values = np.tile([1.0, 1.0, 1.0, 1.0, 0.0], 20)
    taken = looks_of(threshold(100), values)
    assert len(taken) == 20 and taken[-1].verdict is None
    assert taken[-1].interval is not None and taken[-1].interval[0] < 0.8 < taken[-1].interval[1]


def test_sets_that_are_missing_leave_the_count() -> None:
    values = np.ones(115)
    values[::2] = NAN
    taken = looks_of(threshold(115), values)
    assert [look.n for look in taken] == [int((~np.isnan(values[: look.planned])).sum()) for look in taken]
    assert taken[-1].verdict == "yes" and taken[-1].total == taken[-1].n
    none = looks_of(threshold(115), np.full(115, NAN))
    assert none[-1].n == 0 and none[-1].estimate is None and none[-1].interval is None and none[-1].verdict is None
    none = looks_of(pair(115), np.full(115, NAN))
    assert none[-1].statistic is None and none[-1].upper is None and none[-1].verdict is None


def test_what_was_counted_decides_how_much_error_is_left() -> None:
    # a look at which most sets are missing leaves its error to the next; all of it is spent at the planned end
    values = np.tile([1.0, 1.0, 1.0, 1.0, 0.0], 20)
    values[20:60] = NAN
    taken = looks_of(threshold(100), values)
    assert all(later.spent_high >= earlier.spent_high for earlier, later in pairwise(taken))
    assert 0.03 < taken[-1].spent_high <= 0.05
    assert 0.03 < taken[-1].spent_low <= 0.05


def test_a_pair_decides_either_way() -> None:
    generator = np.random.default_rng(4)
    noise = generator.normal(0, 0.2, 700)
    for metric, margin, effect, verdict in (
        ("mean_utility", None, 0.2, "yes"),
        ("mean_utility", None, -0.2, "no"),
        ("mean_utility", 0.1, 0.0, "yes"),
        ("mean_utility", 0.1, -0.2, "no"),
    ):
        last = looks_of(pair(700, metric, margin), noise + effect)[-1]
        assert last.verdict == verdict
        assert last.interval is not None and last.interval[0] < effect < last.interval[1]
        tested = -(margin or 0.0)
        assert (last.interval[0] > tested) == (verdict == "yes")


def test_less_is_better_turns_a_pair_round() -> None:
    flips = np.tile([1.0, 0.0, 0.0], 100)  # the model named first flips more often
    assert looks_of(pair(300, "safety_flip"), flips)[-1].verdict == "no"
    assert looks_of(pair(300, "safety_flip"), -flips)[-1].verdict == "yes"
    assert looks_of(pair(300, "safety_flip", 0.5), flips)[-1].verdict == "yes"


def test_a_question_asked_of_many_needs_more() -> None:
    one, many = looks_of(threshold(700), np.ones(700)), looks_of(threshold(700, families=20), np.ones(700))
    assert many[-1].n > one[-1].n
    assert threshold(700, families=20).alpha == pytest.approx(0.0025)


def test_what_can_be_decided_on() -> None:
    thresholds, pairs = decidable(paired=False), decidable(paired=True)
    assert "triplet_safety" in thresholds and "safety_flip" in thresholds and "mode_share_A0" in thresholds
    assert not {"unsafe_rate_A4", "detection_failure", "mean_utility", "utility_range"} & set(thresholds)
    assert set(pairs) - set(thresholds) == {"mean_safety", "mean_utility", "mean_helpfulness"}
    modes = {"mode_share_A0", "mode_share_A1", "mode_share_A2", "mode_share_A3", "mode_share_A4", "mode_share_refusal"}
    assert set(thresholds) - set(pairs) == modes  # neither more nor less of them is better


@pytest.mark.parametrize("at", [0.0, 1.0, -0.1, 1.2, None])
def test_a_threshold_at_the_end_is_refused(at: float | None) -> None:
    with pytest.raises(InputError, match="more than 0 and less than 1"):
        threshold(115, at=at)  # type: ignore[arg-type]


def test_other_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match=r"mean_utility.*triplet_safety"):
        design_of(
            Question(metric="mean_utility", kind="at_least", threshold=0.5),
            115,
            confidence=0.95,
            families=1,
            binary=False,
            span=(0.0, 1.0),
        )
    with pytest.raises(InputError, match="expected 20 or more"):
        threshold(19)
    with pytest.raises(InputError, match="expected 7 or more"):
        pair(6)
    with pytest.raises(InputError, match="margin"):
        pair(115, margin=1.0)
    with pytest.raises(InputError, match="margin"):
        pair(115, margin=-0.1)
    with pytest.raises(InputError, match="confidence"):
        threshold(115, confidence=1.0)
    with pytest.raises(InputError, match="in one epoch"):
        design_of(
            Question(metric="triplet_safety", kind="at_least", threshold=0.5),
            115,
            confidence=0.95,
            families=1,
            binary=False,
            span=(0.0, 1.0),
        )
    with pytest.raises(InputError, match="one epoch"):
        take_look(threshold(40), [], np.array([0.5, 1.0]))


def test_a_look_is_taken_once_and_with_all_of_its_sets() -> None:
    design = threshold(40)
    with pytest.raises(ValueError, match="each new set"):
        take_look(design, [], np.ones(3))
    decided = looks_of(design, np.zeros(40))
    with pytest.raises(ValueError, match="no look"):
        take_look(design, decided, np.ones(2))


@pytest.mark.parametrize(
    "design", [threshold(115, 0.6), pair(115, "triplet_safety", 0.05), pair(115)], ids=["share", "0/1", "scores"]
)
def test_a_run_that_is_taken_up_again_sees_the_same(design: Design) -> None:
    generator = np.random.default_rng(8)
    values = generator.choice([0.0, 1.0, NAN], 115, p=[0.35, 0.55, 0.1])
    through, resumed = looks_of(design, values), []
    for look in through:
        before = resumed[-1].planned if resumed else 0
        resumed.append(take_look(design, resumed, values[before : look.planned]))
        resumed = msgspec.json.decode(msgspec.json.encode(resumed), type=list[Look])
    assert resumed == through


@pytest.mark.parametrize("p", [0.3, 0.5, 0.7, 0.9])
def test_the_repeated_interval_holds_the_truth_whenever_one_looks(p: float) -> None:
    # all ways in which 30 sets can turn out, look by look, until a verdict: the share of paths whose interval misses p
    design = threshold(30, 0.6)
    alive: dict[tuple[Look, ...], float] = {(): 1.0}
    missed = 0.0
    seen: dict[tuple[int, float], Look] = {}
    for at, planned in enumerate(design.looks):
        new = planned - (design.looks[at - 1] if at else 0)
        following: dict[tuple[Look, ...], float] = {}
        for earlier, weight in alive.items():
            for gained in range(new + 1):
                total = (earlier[-1].total if earlier else 0.0) + gained
                if (planned, total) not in seen:  # what a look shows depends on the counts alone
                    seen[planned, total] = take_look(design, earlier, (np.arange(new) < gained).astype(float))
                look, chance = seen[planned, total], weight * comb(new, gained) * p**gained * (1 - p) ** (new - gained)
                assert look.interval is not None
                if not look.interval[0] <= p <= look.interval[1]:
                    missed += chance
                elif look.verdict is None:
                    path = next((path for path in following if path[-1] == look), (*earlier, look))
                    following[path] = following.get(path, 0.0) + chance
        alive = following
    assert missed <= 0.1


def test_the_binomial_is_exact() -> None:
    boundary = binomial_boundary((40,), (0.05,), 0.8)
    tail = sum(comb(40, k) * 0.8**k * 0.2 ** (40 - k) for k in range(int(boundary.at[0]), 41))
    assert boundary.crossed[0] == pytest.approx(tail)


# The statistic of pairs --------------------------------------------------------------------------------------------------


def discordant(better: int, worse: int, sets: int) -> tuple[np.ndarray, np.ndarray]:
    return np.array([-1.0, 0.0, 1.0]), np.array([worse, sets - better - worse, better], dtype=float)


@pytest.mark.parametrize(
    ("better", "worse", "sets", "quantile", "published"),
    [
        (1, 7, 21, 1.959964, (-0.517, -0.026)),  # Fagerland, Lydersen and Laake, Statistics in Medicine 33 (2014)
        (6, 16, 161, 1.959964, (-0.1240, -0.0054)),  # CRAN contingencytables, Cavo et al. (2012)
        (28, 25, 618, 1.644854, (-0.0148, 0.0247)),  # CRAN PropCIs, scoreci.mp(25, 28, 618, .9)
    ],
)
def test_differences_of_0_and_1_have_tangos_interval(
    better: int, worse: int, sets: int, quantile: float, published: tuple[float, float]
) -> None:
    values, counts = discordant(better, worse, sets)
    # both published ends are where the statistic is the quantile, to as many digits as were printed
    for end, sign in zip(published, (1, -1), strict=True):
        around = [float(score_statistic(values, counts, end + step, 1.0, skewness=False)) for step in (-6e-4, 6e-4)]
        assert around[0] > sign * quantile > around[1]


def test_without_a_margin_it_is_mcnemars() -> None:
    # (12 - 2) / sqrt(12 + 2): equal chances of both kinds have no skewness
    assert float(score_statistic(*discordant(12, 2, 54), 0.0, 1.0)) == pytest.approx(10 / 14**0.5)


def test_a_failure_not_seen_yet_is_reckoned_with() -> None:
    # No difference in 100 sets, held against -.05: the likeliest distribution with that mean has -1 in 5 % of sets, variance
    # .05 * .95, so z = 5 / sqrt(100 * .0475) = 2.2942. Its skewness is -(1 - 2 * .05) / sqrt(.0475) / 10 = -.41295; with
    # g = -.068825: 1 + 4g (z + g) = .38735, x = (.62238 - 1) / 2g = 2.7434. A normal tail of .0030, and .95^100 = .0059
    values, counts = np.array([0.0]), np.array([100.0])
    assert float(score_statistic(values, counts, -0.05, 1.0, skewness=False)) == pytest.approx(2.2942, abs=1e-4)
    assert float(score_statistic(values, counts, -0.05, 1.0)) == pytest.approx(2.7434, abs=1e-3)


def test_scores_that_never_differ_from_what_is_tested_show_nothing() -> None:
    assert float(score_statistic(np.array([0.0]), np.array([50.0]), 0.0, 1.0)) == 0


def test_the_statistic_falls_as_more_is_asked_for_and_the_interval_turns_with_the_models() -> None:
    generator = np.random.default_rng(3)
    values = np.arange(-9, 10) / 9
    for _ in range(20):
        counts = generator.multinomial(60, generator.dirichlet(np.full(19, 0.2))).astype(float)
        tried = np.linspace(-0.95, 0.95, 77)
        got = score_statistic(values, np.broadcast_to(counts, (77, 19)), tried, 1.0)
        assert (np.diff(got) < 1e-9).all()
        low, high = differences_not_rejected(values, counts, 2.0, 1.0)
        assert low <= values @ counts / 60 <= high
        assert differences_not_rejected(-values, counts, 2.0, 1.0) == pytest.approx((-high, -low), abs=1e-5)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("value", [-1.0, 0.0, 1.0])
@pytest.mark.parametrize("margin", [None, 0.0, 0.05])
@pytest.mark.parametrize("metric", ["triplet_safety", "mean_utility"])
def test_sets_that_are_all_alike_are_no_trouble(metric: str, margin: float | None, value: float) -> None:
    last = looks_of(pair(115, metric, margin), np.full(115, value))[-1]
    expected = {-1.0: "no", 0.0: "yes" if margin else None, 1.0: "yes"}[value]
    assert last.verdict == expected
    assert last.interval is not None and last.interval[0] <= value <= last.interval[1]
