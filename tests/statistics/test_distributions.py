"""Against the tables that everybody has, and against scipy where it is at hand."""

from __future__ import annotations

import pytest

from opensafeintent.statistics.comparisons import binomial_tail
from opensafeintent.statistics.exact import t_quantile


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 28, 29, 114, 199, 200, 201, 699, 13_999])
@pytest.mark.parametrize("share", [0.5, 0.6, 0.9, 0.975, 0.9995])
def test_students_t_as_scipy_has_it(share: float, degrees: int) -> None:
    special = pytest.importorskip("scipy.special")
    assert t_quantile(share, degrees) == pytest.approx(
        float(special.stdtrit(degrees, share)), rel=1e-8, abs=1e-12
    )


def test_a_fair_coin() -> None:
    assert binomial_tail(0, 3) == 1 / 8
    assert binomial_tail(1, 3) == 4 / 8
    assert binomial_tail(3, 3) == 1
    assert binomial_tail(0, 0) == 1
