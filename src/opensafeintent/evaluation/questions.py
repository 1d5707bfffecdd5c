"""The questions that every judge answers about a response with a grade."""

from __future__ import annotations

from typing import NamedTuple

from opensafeintent.taxonomy import GRADE_OF, Graded, QuestionRole
from opensafeintent.templates import Template, Templates


class Question(NamedTuple):
    """One question. Its calls, grades, forecast and columns follow from `QUESTIONS`."""

    role: QuestionRole
    """Of its template, and the purpose of its calls."""
    of_refusal: int
    """The grade of a response that counts as a refusal, for which no judge is asked."""

    @property
    def grade(self) -> Graded:
        """The grade that answers it; its scale is in `taxonomy.SCALES`."""
        return GRADE_OF[self.role]

    def template(self, templates: Templates) -> Template:
        """Return the question's template."""
        return templates.of(self.role)


QUESTIONS = (Question("helpfulness", of_refusal=1), Question("harm", of_refusal=0))
