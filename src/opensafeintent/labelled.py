"""Arrays whose dimensions have names, so that metrics read like their equations.

They have the part of xarray's interface that grades need, with the same names. Reductions leave NaN
out by default, and an undefined value is NaN. With pandas behind it, xarray itself takes a third
of a second to load, longer than all metrics of a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Labels = Mapping[str, Sequence[Any]]
"""Labels along each dimension."""


def _make_operator(combine: Callable[..., Any]) -> Callable[[Labelled, object], Labelled]:
    """Return the method of an operator, which combines the values of two arrays."""

    def operate(first: Labelled, second: object) -> Labelled:
        return first._combine(second, combine)

    return operate


class Labelled:
    """One array; operators and `where` match dimensions by their names.

    Args:
        values: the numbers.
        dims: a name for each of their dimensions.
        labels: of every dimension in which values are selected by name; arrays that are combined
            have the same ones.
    """

    __array_ufunc__ = None  # `1 - array` is ours to compute
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, values: NDArray[Any], dims: Sequence[str], labels: Labels) -> None:
        self.values = values
        self.dims = tuple(dims)
        self.labels = labels

    # Picking

    def sel(self, **wanted: Any) -> Labelled:
        """Return a copy of the values at a label, without that dimension, or at several labels in
        their order.
        """
        values, dims, labels = self.values, self.dims, dict(self.labels)
        for dim, names in wanted.items():
            axis = dims.index(dim)
            index = {name: number for number, name in enumerate(labels[dim])}
            if isinstance(names, str | int):
                values = values.take(index[names], axis)
                dims = dims[:axis] + dims[axis + 1 :]
                del labels[dim]
            else:
                values = values.take([index[name] for name in names], axis)
                labels[dim] = list(names)
        return Labelled(values, dims, labels)

    def transpose(self, *dims: str) -> Labelled:
        """Return it with its dimensions in this order."""
        return Labelled(
            self.values.transpose([self.dims.index(dim) for dim in dims]), dims, self.labels
        )

    # Elements

    def notnull(self) -> Labelled:
        """Return whether each value is defined."""
        return self._replace_values(np.logical_not(np.isnan(self.values)))

    def isin(self, wanted: Sequence[float]) -> Labelled:
        """Tell which are among some numbers."""
        return self._replace_values(np.isin(self.values, wanted))

    def astype(self, kind: Any) -> Labelled:
        """Return numbers of another kind."""
        return self._replace_values(self.values.astype(kind))

    def fillna(self, value: float) -> Labelled:
        """Return it with a number in place of undefined values."""
        return self.where(self.notnull(), value)

    def where(self, condition: Labelled, other: float = np.nan) -> Labelled:
        """Return it with another number in place of values for which a condition fails."""
        (values, holds), dims = _match_dims(self, condition)
        return Labelled(np.where(holds, values, other), dims, {**condition.labels, **self.labels})

    def _replace_values(self, values: NDArray[Any]) -> Labelled:
        return Labelled(values, self.dims, self.labels)

    # Reductions

    def sum(self, dims: str | Iterable[str] | None = None) -> Labelled:
        """Return the sum along dimensions, all by default, without undefined values."""
        values = self.fillna(0.0).values if self.values.dtype.kind == "f" else self.values
        return self._replace_values(values)._reduce(np.sum, dims)

    def mean(self, dims: str, *, skipna: bool) -> Labelled:
        """Return the mean along a dimension."""
        return self._reduce(np.nanmean if skipna else np.mean, dims)

    def prod(self, dims: str, *, skipna: bool) -> Labelled:
        """Return the product along a dimension."""
        return self._reduce(np.nanprod if skipna else np.prod, dims)

    def min(self, dims: str, *, skipna: bool = True) -> Labelled:
        """Return the least along a dimension."""
        return self._reduce(np.fmin.reduce if skipna else np.min, dims)

    def max(self, dims: str, *, skipna: bool = True) -> Labelled:
        """Return the greatest along a dimension."""
        return self._reduce(np.fmax.reduce if skipna else np.max, dims)

    def all(self, dims: str | Iterable[str]) -> Labelled:
        """Tell whether it holds throughout."""
        return self._reduce(np.all, dims)

    def any(self, dims: str | Iterable[str]) -> Labelled:
        """Tell whether it holds anywhere."""
        return self._reduce(np.any, dims)

    def _reduce(self, reduce: Callable[..., Any], dims: str | Iterable[str] | None) -> Labelled:
        if dims is None:
            dims = self.dims
        reduced = (dims,) if isinstance(dims, str) else tuple(dims)
        axes = tuple(self.dims.index(dim) for dim in reduced)
        return Labelled(
            np.asarray(reduce(self.values, axis=axes if len(axes) > 1 else axes[0])),
            tuple(dim for dim in self.dims if dim not in reduced),
            self.labels,
        )

    # Operators

    def _combine(self, other: object, combine: Callable[..., Any]) -> Labelled:
        with np.errstate(all="ignore"):
            if not isinstance(other, Labelled):
                return self._replace_values(combine(self.values, other))
            (first, second), dims = _match_dims(self, other)
            return Labelled(combine(first, second), dims, {**other.labels, **self.labels})

    __add__ = _make_operator(np.add)
    __sub__ = _make_operator(np.subtract)
    __rsub__ = _make_operator(lambda mine, theirs: np.subtract(theirs, mine))
    __mul__ = _make_operator(np.multiply)
    __truediv__ = _make_operator(np.true_divide)
    __and__ = _make_operator(np.bitwise_and)
    __or__ = _make_operator(np.bitwise_or)
    __eq__ = _make_operator(np.equal)  # type: ignore[assignment]
    __lt__ = _make_operator(np.less)
    __le__ = _make_operator(np.less_equal)
    __gt__ = _make_operator(np.greater)
    __ge__ = _make_operator(np.greater_equal)

    def __invert__(self) -> Labelled:
        return self._replace_values(np.logical_not(self.values))

    def __bool__(self) -> bool:
        return bool(self.values)

    def __int__(self) -> int:
        return int(self.values)


def _match_dims(
    first: Labelled, second: Labelled
) -> tuple[tuple[NDArray[Any], NDArray[Any]], tuple[str, ...]]:
    """Return the values of two arrays with the same dimensions in the same order, those of the
    first in front.
    """
    if first.dims == second.dims:
        return (first.values, second.values), first.dims
    dims = first.dims + tuple(dim for dim in second.dims if dim not in first.dims)

    def spread(array: Labelled) -> NDArray[Any]:
        values = array.transpose(*(dim for dim in dims if dim in array.dims)).values
        return np.expand_dims(values, [dims.index(dim) for dim in dims if dim not in array.dims])

    return (spread(first), spread(second)), dims


class LabelledSet:
    """Several arrays over the same labels, each of them by its name: `grades.helpfulness`,
    `grades["helpfulness"]`.

    Args:
        arrays: (dimensions, values) by name.
        labels: along each dimension; a dimension's name gives its labels.
    """

    def __init__(
        self, arrays: Mapping[str, tuple[Sequence[str], NDArray[Any]]], labels: Labels
    ) -> None:
        self.labels = labels
        self._arrays = {
            name: Labelled(values, dims, labels) for name, (dims, values) in arrays.items()
        }

    def __getitem__(self, name: str) -> Labelled:
        if name in self._arrays:
            return self._arrays[name]
        return Labelled(np.array(self.labels[name]), (name,), self.labels)

    def __getattr__(self, name: str) -> Labelled:
        if name.startswith("_") or (name not in self._arrays and name not in self.labels):
            raise AttributeError(name)
        return self[name]

    def __iter__(self) -> Any:
        return iter(self._arrays)

    @property
    def sizes(self) -> dict[str, int]:
        """How many labels each dimension has."""
        return {dim: len(labels) for dim, labels in self.labels.items()}

    def sel(self, **wanted: Any) -> LabelledSet:
        """Return a copy of the values at some labels; see `Labelled.sel`."""
        parts = {
            name: array.sel(**{dim: wanted[dim] for dim in array.dims if dim in wanted})
            for name, array in self._arrays.items()
        }
        labels = {dim: wanted.get(dim, names) for dim, names in self.labels.items()}
        return LabelledSet(
            {name: (part.dims, part.values) for name, part in parts.items()},
            {dim: names for dim, names in labels.items() if not isinstance(names, str | int)},
        )
