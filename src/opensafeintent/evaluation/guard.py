"""The guard model of a run: a second opinion on whether a response is unsafe, which is no grade."""

from __future__ import annotations

import msgspec

from opensafeintent.calls.reask import problem_of
from opensafeintent.calls.records import Answered, Call, Failed, Outcome, Refused, Sampling
from opensafeintent.responses import Missing
from opensafeintent.taxonomy import GuardFormName, GuardVerdict
from opensafeintent.templates.guards import GuardForm, parse_form
from opensafeintent.templates.template import Message


class Guard(msgspec.Struct, frozen=True, kw_only=True):
    """A guard model, as the manifest keeps it."""

    model: str
    identity: str
    form: GuardFormName
    source: str
    """The file of the form, as it was when the guard was asked."""
    sampling: Sampling

    @property
    def template(self) -> GuardForm:
        """The form.

        Raises:
            InputError: the manifest is damaged.
        """
        return parse_form(self.form, self.source)

    def call(
        self, prompt: str, response: str, epoch: int, *, before: tuple[Message, ...] = ()
    ) -> Call:
        """Return the call about a response. There is one: a classifier is not asked again for
        another form of its answer.

        Args:
            prompt, response, epoch: of the response.
            before: the messages before the prompt, for a form that sends a conversation.
        """
        form = self.template
        return Call(
            model=self.model,
            messages=form.messages(prompt, response, before),
            sampling=self.sampling,
            purpose="guard",
            epoch=epoch,
            template=form.name,
            template_hash=form.hash,
        )

    def verdict(self, outcome: Outcome) -> GuardVerdict | Missing:
        """Return whether the guard calls the response unsafe, or why that is unknown."""
        match outcome:
            case Failed(kind=kind):
                return Missing("not_made" if kind == "not_made" else f"failed:{kind}")
            case Refused() | Answered(filtered=True):
                return Missing("filtered")
            case Answered(text=text, truncated=truncated) as answer:
                verdict = None if truncated else self.template.read(text)
                return verdict or Missing(problem_of(answer))
