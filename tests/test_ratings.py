"""Ratings by item, rater and scale."""

from __future__ import annotations

import numpy as np

from opensafeintent.ratings import Ratings

RATINGS = Ratings(
    [
        {"ben": {"harm_severity": 3.0, "unsafe": 1.0}, "ana": {"harm_severity": 0.0}},
        {"cyd": {"helpfulness": 4.0}},
        {},
    ],
    weights=[1.0, 2.0, 3.0],
)


def test_a_scale_has_the_raters_who_used_it() -> None:
    assert RATINGS.raters == ("ana", "ben", "cyd")
    assert RATINGS.list_raters("harm_severity") == ["ana", "ben"]
    assert RATINGS.select_scale("unsafe").tolist()[0] == [1.0]
    assert RATINGS.select_scale("mode").shape == (3, 0)
    assert RATINGS.scales == {"harm_severity", "helpfulness", "unsafe"}


def test_an_item_without_a_rating_has_no_number() -> None:
    np.testing.assert_equal(RATINGS.mean("harm_severity"), [1.5, np.nan, np.nan])
    np.testing.assert_equal(RATINGS.median("harm_severity"), [3.0, np.nan, np.nan])
    np.testing.assert_equal(RATINGS.select_rater("cyd", "helpfulness"), [np.nan, 4.0, np.nan])


def test_items_keep_their_weights() -> None:
    chosen = RATINGS.select([2, 0])
    assert (chosen.raters, chosen.weights.tolist()) == (("ana", "ben"), [3.0, 1.0])
