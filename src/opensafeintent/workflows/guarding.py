"""The guard model that a command names."""

from __future__ import annotations

from opensafeintent.evaluation.guard import Guard
from opensafeintent.interop import model_identity
from opensafeintent.templates.guards import load_form
from opensafeintent.workflows.settings import Judging


def guard_of(settings: Judging) -> Guard | None:
    """Return the guard model of a command; None if it names none.

    Raises:
        InputError: there is no such model, or its form is not known.
    """
    if settings.guard is None:
        return None
    form = settings.form_of_guard(settings.guard)
    return Guard(
        model=settings.guard,
        identity=model_identity(settings.guard, settings.functions),
        form=form,
        source=load_form(form).source,
        sampling=settings.guard_sampling,
    )
