"""Metrics beyond the paper that are sums over prompt-sets too (docs/metrics.md)."""

from __future__ import annotations

from opensafeintent.metrics.records import Metric

__all__ = ["BEYOND_METRICS"]

BEYOND_METRICS: tuple[Metric, ...] = ()
