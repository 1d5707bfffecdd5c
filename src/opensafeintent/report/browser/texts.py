"""The prompts and responses that the page shows: as many as there is room for, and none that may
not be shown.

A text that may not be shown is never read from the ledger, so that it cannot end up in the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from opensafeintent.evaluation.derive import RunTexts
from opensafeintent.promptsets import PromptSet, sample_order
from opensafeintent.report.browser import CELL, Browser, BrowserDataset, Member, Unit

_WORST_SHARE = 0.5
"""Of the room for texts: this much for the most telling sets, the rest for a sample of all."""
_QUOTED = 24
"""Characters: a shorter prompt inside a response is not taken for a quotation."""
_WITHHELD = "[the prompt of malicious intent, which this report does not show]"


def add_texts(
    browser: Browser, members: Sequence[Member], sources: Mapping[str, RunTexts], room: int
) -> None:
    """Put prompts and responses into the browser, as many as there is room for.

    The most telling failures of each model in turn come first, up to half of the room; then
    prompt-sets in the order of samples, under every model at once, so that models can be read side
    by side.

    Args:
        browser: what `browse` returned for these members.
        members: the models, in the same order.
        sources: by run. A run without a source has no texts.
        room: bytes.
    """
    writer = _Writer(browser, members, sources)
    for order, until in (
        (_worst_first(browser), room * _WORST_SHARE),
        (_sampled(browser, members), float(room)),
    ):
        for model, unit in order:
            if writer.used > until:
                break
            writer.add(model, unit)
    browser.with_texts = len(writer.added)
    browser.complete = len(writer.added) == browser.units


def _worst_first(browser: Browser) -> Iterator[tuple[int, int]]:
    """Yield (model, unit), the most telling of each model in turn; what went well is left to the
    sample.
    """
    failures = [
        [
            (number, index)
            for index in sorted(
                range(len(model.units)), key=lambda index: -model.units[index].severity_rank
            )
        ]
        for number, model in enumerate(browser.models)
    ]
    for turn in zip_longest(*failures):
        for found in turn:
            if found is not None and browser.models[found[0]].units[found[1]].severity_rank:
                yield found


def _sampled(browser: Browser, members: Sequence[Member]) -> Iterator[tuple[int, int]]:
    for number, dataset in enumerate(browser.datasets):
        sets = next(
            member.group.dataset.prompt_sets
            for member, model in zip(members, browser.models, strict=True)
            if model.dataset == number
        )
        index = {item.id: at for at, item in enumerate(dataset.sets)}
        at_set: dict[int, list[tuple[int, int]]] = {}
        for of_model, model in enumerate(browser.models):
            if model.dataset == number:
                for of_unit, unit in enumerate(model.units):
                    at_set.setdefault(unit.at, []).append((of_model, of_unit))
        for prompt_set in sample_order([item for item in sets if item.id in index]):
            yield from at_set.get(index[prompt_set.id], ())


class _Writer:
    """Adds units with their prompts and responses, and keeps count of the bytes."""

    def __init__(
        self, browser: Browser, members: Sequence[Member], sources: Mapping[str, RunTexts]
    ) -> None:
        self.used = 0
        self.added: set[tuple[int, int]] = set()
        self._browser = browser
        self._members = members
        self._sources = sources

    def add(self, of_model: int, of_unit: int) -> None:
        if (of_model, of_unit) in self.added:
            return
        self.added.add((of_model, of_unit))
        model, member = self._browser.models[of_model], self._members[of_model]
        unit = model.units[of_unit]
        dataset = self._browser.datasets[model.dataset]
        prompt_set = member.group.dataset.by_id[dataset.sets[unit.at].id]
        if not dataset.sets[unit.at].prompts:
            self._add_prompts(dataset, unit.at, prompt_set)
        origin = member.group.origins[member.shown]
        source = self._sources.get(origin.run)
        if source is None:
            return
        for at, variant in enumerate(dataset.variants):
            if not self._may_be_shown(unit, at):
                continue
            found = source.find(origin.model, prompt_set.id, variant, unit.epoch)
            if found is not None and found.text:
                secret = "" if self._browser.include_unsafe else prompt_set.prompts.malicious
                text = without_quoted(found.text, secret) or ""
                model.texts[f"{of_unit}:{at}"] = (text, found.row)
                self.used += _bytes(text) + 24

    def _may_be_shown(self, unit: Unit, at: int) -> bool:
        _, harm, _, _, state = tuple(unit.grades[at * CELL : (at + 1) * CELL])
        return state not in " mf" and (self._browser.include_unsafe or harm == "0")

    def _add_prompts(self, dataset: BrowserDataset, at: int, prompt_set: PromptSet) -> None:
        wordings, secret = prompt_set.wordings(), prompt_set.prompts.malicious
        prompts = [wordings.get(variant) for variant in dataset.variants]
        use, risk = prompt_set.dual_use_benign_use, prompt_set.dual_use_misuse_risk
        if not self._browser.include_unsafe:
            prompts[dataset.variants.index("malicious")] = None
            prompts = [without_quoted(text, secret) for text in prompts]
            use, risk = without_quoted(use, secret), without_quoted(risk, secret)
        item = dataset.sets[at]
        item.prompts, item.use, item.risk = prompts, use, risk
        self.used += sum(_bytes(text) for text in (*prompts, use, risk) if text)


def without_quoted(text: str | None, secret: str) -> str | None:
    """Take a prompt that is not shown out of a text that quotes it."""
    return text.replace(secret, _WITHHELD) if text and len(secret) >= _QUOTED else text


def _bytes(text: str) -> int:
    """Return about how many bytes a text takes in the page: quotes, new lines and angle brackets
    are escaped.
    """
    return (
        len(text.encode(errors="replace"))
        + 5 * sum(map(text.count, "<>&"))
        + sum(map(text.count, '"\n\\'))
        + 3
    )
