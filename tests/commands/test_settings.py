"""What Python is told about a setting that cannot be used."""

from __future__ import annotations

from typing import Any

import pytest

from opensafeintent import EvaluateSettings, OpenSafeIntentError

NAMED = {"models": ("baseline/redirect",), "judges": ("baseline/judge",)}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"probe": "every"}, "--probe: 'every': expected none, unsafe, all"),
        ({"modes": "cores"}, "--modes: 'cores': expected dual_use, core"),
        ({"prob": "all"}, "EvaluateSettings: no setting 'prob'; did you mean 'probe'?"),
    ],
)
def test_a_wrong_name_or_value_is_answered_with_valid_ones(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(OpenSafeIntentError) as refused:
        EvaluateSettings(**NAMED, **settings)
    assert str(refused.value) == message
