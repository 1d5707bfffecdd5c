"""Resampling weights. What intervals cover is measured by benchmarks/coverage.py."""

from __future__ import annotations

import numpy as np

from opensafeintent.statistics import Resamples


def test_weights_that_were_let_go_are_drawn_the_same_again() -> None:
    resamples = Resamples(300, count=1_000)
    before = resamples.weights.copy()
    resamples.let_go()
    assert np.array_equal(resamples.weights, before)
    assert (before.sum(axis=0) == 300).all()  # each resample draws as many sets as there are, over the edges of blocks too
