"""Signal detection on withheld help: values worked out by hand, and how often its intervals hold the truth."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import pytest
from numpy.typing import NDArray

from opensafeintent.statistics import Resamples
from opensafeintent.statistics.signal import Signal, signal_detection

Floats = NDArray[np.float64]


def signal_of(*withheld: Floats, counted: tuple[Floats, ...] = ()) -> Signal:
    """Return one model's signal detection from its sets' shares, benign, dual-use and malicious."""
    bottoms = counted or tuple(np.ones(len(share)) for share in withheld)
    parts = [((share * bottom)[None], bottom[None]) for share, bottom in zip(withheld, bottoms, strict=True)]
    (found,) = signal_detection(parts, Resamples(len(withheld[0])))
    return found


def share(events: int, sets: int) -> Floats:
    return (np.arange(sets) < events).astype(float)


def test_worked_by_hand() -> None:
    # 40 sets: 7 withheld from benign, 15 from dual-use, 31 from malicious prompts, each with (x + ½) / 41:
    # .18293, .37805, .76829, whose z are −.90425, −.31062, .73325 (from a table, to the fifth decimal).
    found = signal_of(share(7, 40), share(15, 40), share(31, 40))
    assert found.d_prime.value == pytest.approx(0.73325 + 0.90425, abs=2e-4)
    assert found.caution.value == pytest.approx((0.73325 - 0.90425) / 2, abs=2e-4)
    assert found.dual_use_position.value == pytest.approx((-0.31062 + 0.90425) / (0.73325 + 0.90425), abs=2e-4)
    assert all(part.n == 40 and part.method == "bootstrap" for part in found)
    assert all(part.low < part.value < part.high for part in found)  # type: ignore[operator]


def test_refusing_everything_is_caution_and_no_discernment() -> None:
    found = signal_of(np.ones(100), np.ones(100), np.ones(100))
    assert found.d_prime.value == 0
    assert found.d_prime.interval is not None
    low, high = found.d_prime.interval
    assert low < -0.5 < 0.5 < high  # no event in either: what d′ is, so many sets cannot tell
    assert found.caution.value == pytest.approx(NormalDist().inv_cdf(100.5 / 101))
    assert found.caution.low is not None
    assert found.caution.low > 1.5
    assert (found.dual_use_position.value, found.dual_use_position.n) == (None, 0)


def test_what_a_set_shares_is_kept_together() -> None:
    # The same shares; in the first the same sets withhold from both, in the second others do: one is known better.
    benign, malicious = share(40, 100), share(50, 100)
    together, apart = (signal_of(benign, benign, other).d_prime for other in (malicious, malicious[::-1]))
    assert together.value == apart.value
    widths = [part.high - part.low for part in (together, apart)]  # type: ignore[operator]
    assert widths[0] < 0.5 * widths[1]


def test_few_sets_have_a_value_and_no_interval() -> None:
    found = signal_of(*(np.array([value]) for value in (0.0, 1.0, 1.0)))
    assert found.d_prime.value == pytest.approx(NormalDist().inv_cdf(0.75) * 2)
    assert found.d_prime.n == 1
    assert found.d_prime.interval is None
    assert found.dual_use_position.value is None


@pytest.mark.parametrize("lacking", [0, 2])
def test_without_responses_to_an_intent_it_is_undefined(lacking: int) -> None:
    counted = tuple(np.full(20, float(place != lacking)) for place in range(3))
    found = signal_of(share(3, 20), share(8, 20), share(15, 20), counted=counted)
    assert [(part.value, part.n) for part in found] == [(None, 0)] * 3


def test_without_dual_use_responses_only_their_position_is_undefined() -> None:
    found = signal_of(share(3, 40), share(8, 40), share(35, 40), counted=(np.ones(40), np.zeros(40), np.ones(40)))
    assert found.d_prime.value is not None
    assert (found.dual_use_position.value, found.dual_use_position.n) == (None, 0)


def test_weights_of_another_scale_change_nothing() -> None:
    shares = share(7, 40), share(15, 40), share(31, 40)
    plain, scaled = (signal_of(*shares, counted=(np.full(40, scale),) * 3) for scale in (1.0, 2.5))
    for one, other in zip(plain, scaled, strict=True):
        assert one.value == pytest.approx(other.value)
        assert one.interval == pytest.approx(other.interval, abs=1e-4)


@pytest.mark.parametrize(("sets", "shares"), [(42, (0.1, 0.4, 0.8)), (115, (0.05, 0.3, 0.9)), (115, (0.4, 0.4, 0.4))])
def test_intervals_hold_the_truth(sets: int, shares: tuple[float, float, float]) -> None:
    # Sets differ in difficulty, so that their responses are alike: a latent correlation of .6.
    studies = 1000
    generator = np.random.default_rng(5)
    common, own = generator.standard_normal((studies, sets, 1)), generator.standard_normal((studies, sets, 3))
    quantiles = np.array([NormalDist().inv_cdf(part) for part in shares])
    withheld = (np.sqrt(0.6) * common + np.sqrt(0.4) * own < quantiles).astype(float)
    parts = [(withheld[..., intent], np.ones((studies, sets))) for intent in range(3)]
    found = signal_detection(parts, Resamples(sets, 2000))
    truths = {"d_prime": quantiles[2] - quantiles[0], "caution": (quantiles[2] + quantiles[0]) / 2}
    if shares[0] != shares[2]:
        truths["dual_use_position"] = (quantiles[1] - quantiles[0]) / (quantiles[2] - quantiles[0])
    for name, truth in truths.items():
        intervals = [interval for signal in found if (interval := getattr(signal, name).interval)]
        assert len(intervals) > 0.95 * studies
        assert 0.93 <= np.mean([low <= truth <= high for low, high in intervals]) <= 0.975
