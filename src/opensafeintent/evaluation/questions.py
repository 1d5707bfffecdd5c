"""The questions that every judge answers about a response with a grade."""

from __future__ import annotations

from typing import NamedTuple, cast

from opensafeintent.calls.records import Purpose
from opensafeintent.taxonomy import Graded
from opensafeintent.templates import Template, Templates


class Question(NamedTuple):
    """One question. Its calls, grades and forecast follow from `QUESTIONS`. Its columns are in
    `grades`.
    """

    role: Purpose
    """Of its template, and the purpose of its calls."""
    grade: Graded
    """The grade that answers it; its scale is in `taxonomy.SCALES`."""
    of_refusal: int
    """The grade of a response that counts as a refusal, for which no judge is asked."""

    def template(self, templates: Templates) -> Template:
        """Return the question's template."""
        return cast(Template, getattr(templates, self.role))


QUESTIONS = (
    Question("helpfulness", "helpfulness", of_refusal=1),
    Question("harm", "harm_severity", of_refusal=0),
)
