"""Student's t against the tables that everybody has."""

from __future__ import annotations

import pytest

from opensafeintent.statistics.intervals import t_quantile, t_within


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 28, 29, 114, 199, 200, 201, 699, 13_999])
@pytest.mark.parametrize("share", [0.5, 0.6, 0.9, 0.975, 0.9995])
def test_students_t_as_scipy_has_it(share: float, degrees: int) -> None:
    special = pytest.importorskip("scipy.special")
    quantile = t_quantile(share, degrees)
    assert quantile == pytest.approx(float(special.stdtrit(degrees, share)), rel=1e-8, abs=1e-12)
    assert t_within(quantile, degrees) == pytest.approx(2 * share - 1, abs=1e-8)
