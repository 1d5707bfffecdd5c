"""Arrays with named dimensions: what is picked, combined and reduced, and what becomes of NaN."""

from __future__ import annotations

import numpy as np
import pytest

from opensafeintent.labelled import Labelled, LabelledSet

NAN = np.nan
LABELS = {"model": ["m", "n"], "variant": ["benign", "dual_use", "malicious"]}
VALUES = np.array([[1.0, 2.0, NAN], [3.0, NAN, NAN]])
ARRAY = Labelled(VALUES, ("model", "variant"), LABELS)


def test_labels_pick_in_their_own_order() -> None:
    assert ARRAY.sel(variant=["dual_use", "benign"]).values[0].tolist() == [2.0, 1.0]
    one = ARRAY.sel(variant="benign")
    assert (one.dims, one.values.tolist()) == (("model",), [1.0, 3.0])
    assert ARRAY.sel(model="n", variant="benign") == 3.0
    assert ARRAY.sel(variant=["dual_use", "benign"]).sel(variant="benign").values.tolist() == [
        1.0,
        3.0,
    ]
    with pytest.raises(KeyError):
        ARRAY.sel(variant="no such variant")


def test_dimensions_are_matched_by_name_whatever_their_order() -> None:
    by_model = Labelled(np.array([10.0, 20.0]), ("model",), LABELS)
    np.testing.assert_array_equal((ARRAY + by_model).values, VALUES + np.array([[10.0], [20.0]]))
    turned = ARRAY.transpose("variant", "model")
    assert (ARRAY - turned).dims == ("model", "variant")
    np.testing.assert_array_equal((ARRAY - turned).values, np.where(np.isnan(VALUES), NAN, 0.0))
    np.testing.assert_array_equal((1 - ARRAY).values, 1 - VALUES)


@pytest.mark.parametrize(
    ("reduced", "expected"),
    [
        (ARRAY.sum("variant"), [3.0, 3.0]),
        (ARRAY.min("variant"), [1.0, 3.0]),
        (ARRAY.max("variant"), [2.0, 3.0]),
        (ARRAY.mean("variant", skipna=False), [NAN, NAN]),
        (ARRAY.prod("variant", skipna=False), [NAN, NAN]),
        (ARRAY.min("variant", skipna=False), [NAN, NAN]),
        (ARRAY.notnull().sum("variant"), [2, 1]),
        (ARRAY.sel(variant=["malicious"]).min("variant"), [NAN, NAN]),
        (ARRAY.sel(variant=["benign"]).mean("variant", skipna=False), [1.0, 3.0]),
    ],
)
def test_reductions_leave_out_what_is_undefined_unless_they_are_told_not_to(
    reduced: Labelled, expected: list[float]
) -> None:
    assert reduced.dims == ("model",)
    np.testing.assert_array_equal(reduced.values, expected)


def test_where_keeps_what_holds_and_makes_the_rest_undefined() -> None:
    holds = ARRAY > 1
    np.testing.assert_array_equal(ARRAY.where(holds).values, [[NAN, 2.0, NAN], [3.0, NAN, NAN]])
    np.testing.assert_array_equal(
        ARRAY.where(holds, 0.0).values, [[0.0, 2.0, 0.0], [3.0, 0.0, 0.0]]
    )
    np.testing.assert_array_equal(
        holds.where(ARRAY.notnull()).values, [[0.0, 1.0, NAN], [1.0, NAN, NAN]]
    )
    np.testing.assert_array_equal(ARRAY.fillna(7.0).values, [[1.0, 2.0, 7.0], [3.0, 7.0, 7.0]])


def test_an_array_of_several_numbers_is_neither_true_nor_false() -> None:
    with pytest.raises(ValueError, match="ambiguous"):
        assert ARRAY == ARRAY
    assert ARRAY.sel(model="m", variant="benign") == 1.0


def test_a_set_is_picked_from_as_a_whole() -> None:
    both = LabelledSet(
        {
            "grade": (("model", "variant"), VALUES),
            "exists": (("variant",), np.array([True, True, False])),
        },
        LABELS,
    )
    part = both.sel(model="m", variant=["malicious", "benign"])
    assert part.sizes == {"variant": 2}
    assert part.exists.values.tolist() == [False, True]
    np.testing.assert_array_equal(part["grade"].values, [NAN, 1.0])
    assert part.variant.values.tolist() == ["malicious", "benign"]
    part.grade.values[1] = 9.0
    assert VALUES[0, 0] == 1.0  # a copy
    with pytest.raises(AttributeError):
        _ = both.no_such_array
