"""The places of names beside their points in a plane."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from opensafeintent.report.figures.kit import Datum

SIDE = 440
"""Pixels of a side of the plane."""
_NARROW, _BROAD = frozenset(" !'(),./:;I[]fijlrt|-"), frozenset("mwMW@%…")
_WHISKER = 8.0
"""The penalty for covering a whisker, which is thin, relative to covering a point or a label."""
_DISTANCES = (9, 18, 28, 40)
"""Pixels from a point to its label."""
_AROUND = ((1, 1), (1, -1), (-1, 1), (-1, -1), (1, 0), (-1, 0), (0, 1), (0, -1))

Span = tuple[float, float]
Box = tuple[float, float, float, float]
"""Left, right, low and high, in pixels."""


def place_labels(rows: Sequence[Datum], spans: Sequence[Span], side: int = SIDE) -> None:
    """Give each label the position near its point that covers least, and a line to the point if it
    is not beside it.
    """
    (left, right), (low, high) = spans
    wide, tall = side / (right - left), side / (high - low)
    spots = [((row["x"] - left) * wide, (row["y"] - low) * tall) for row in rows]
    taken = [((x - 6, x + 6, y - 6, y + 6), 1.0) for x, y in spots]
    for row, (x, y) in zip(rows, spots, strict=True):
        taken += [
            (((row["low_x"] - left) * wide, (row["high_x"] - left) * wide, y - 1, y + 1), _WHISKER),
            ((x - 1, x + 1, (row["low_y"] - low) * tall, (row["high_y"] - low) * tall), _WHISKER),
        ]
    for row, (x, y) in zip(rows, spots, strict=True):
        width = sum(  # of the text in pixels, about
            4.0 if char in _NARROW else 10.5 if char in _BROAD or char > "\u2e80" else 7.0
            for char in row["key"]
        )
        options = []
        for distance, (index, (right_of, above)) in product(_DISTANCES, enumerate(_AROUND)):
            start = x + right_of * distance - (width, width / 2, 0)[right_of + 1]
            middle = y + above * distance
            box = (start, start + width, middle - 6, middle + 6)
            beyond = max(0.0, -box[0], box[1] - side, -box[2], box[3] - side)
            covered = sum(weight * _overlap(box, other) for other, weight in taken)
            options.append((covered + 100 * beyond + 2 * distance, distance, index, box))
        _, distance, _, box = min(options)
        taken.append((box, 1.0))
        row["label_x"], row["label_y"] = left + box[0] / wide, low + (box[2] + 6) / tall
        if distance > _DISTANCES[0]:
            row["line_x"] = left + min(max(x, box[0] - 2), box[1] + 2) / wide
            row["line_y"] = low + min(max(y, box[2] + 1), box[3] - 1) / tall


def _overlap(one: Box, other: Box) -> float:
    """Return how many square pixels two boxes share."""
    wide = min(one[1], other[1]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[2], other[2])
    return max(0.0, wide) * max(0.0, high)
