"""The prompts and responses that the page shows.

As many as there is room for, and none that may not be shown. A text that may not be shown is never
read from the ledger, so that it cannot end up in the page.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest

from opensafeintent.evaluation.texts import RunTexts
from opensafeintent.promptsets import PromptSet, sample_order
from opensafeintent.quoting import hidden_prompt, without_quoted
from opensafeintent.report.transcripts import CELL, Browser, BrowserDataset, Member, Unit

_WORST_SHARE = 0.5
"""Of the room for texts: this much for the worst sets, the rest for a sample of all."""

_LONGEST = 20_000
"""Characters of a text that the page shows; `trace` and exports have all of them."""

_REFERENCE_BYTES = 24
"""About so many name the place, the text and the row of a response."""

_READ = 2 * _LONGEST
"""Characters of it in which quotations are looked for: one may begin where the text is cut."""


def add_texts(
    browser: Browser, members: Sequence[Member], sources: Mapping[str, RunTexts], room: int
) -> None:
    """Put prompts and responses into the browser, as many as there is room for.

    The worst failures of each model in turn come first, up to half of the room. Then come
    prompt-sets in the order of samples, under every model at once, so that models can be read side
    by side.

    Args:
        browser: the result of `browse` for these members.
        members: the models, in the same order.
        sources: by run. A run without a source has no texts.
        room: bytes.
    """
    writer = _Writer(browser, members, sources)
    for order, share in ((_worst_first(browser), _WORST_SHARE), (_sampled(browser, members), 1.0)):
        for model, unit in order:
            if writer.used > room * share:
                break
            writer.add(model, unit)
    browser.with_texts = len(writer.added)
    browser.complete = len(writer.added) == browser.units


def _worst_first(browser: Browser) -> Iterator[tuple[int, int]]:
    """Yield (model, unit), the worst of each model in turn; sets without a failure are left to the
    sample.

    The order is that of `worst_first` of `grades`, and the script's.
    """
    failures = []
    for number, model in enumerate(browser.models):
        sets = browser.datasets[model.dataset].sets
        keys = [(-unit.harm, sets[unit.at].id) for unit in model.units]
        order = sorted(range(len(keys)), key=keys.__getitem__)
        failures.append([(number, index) for index in order if model.units[index].kinds])
    for turn in zip_longest(*failures):
        yield from filter(None, turn)


def _sampled(browser: Browser, members: Sequence[Member]) -> Iterator[tuple[int, int]]:
    for number, dataset in enumerate(browser.datasets):
        sets = next(
            member.cohort.dataset.prompt_sets
            for member, model in zip(members, browser.models, strict=True)
            if model.dataset == number
        )
        of_set: dict[str, list[tuple[int, int]]] = {item.id: [] for item in dataset.sets}
        for of_model, model in enumerate(browser.models):
            if model.dataset == number:
                for of_unit, unit in enumerate(model.units):
                    of_set[dataset.sets[unit.at].id].append((of_model, of_unit))
        for prompt_set in sample_order(sets):
            yield from of_set.get(prompt_set.id, ())


class _Writer:
    """Adds units with their prompts and responses, and keeps count of the bytes."""

    def __init__(
        self, browser: Browser, members: Sequence[Member], sources: Mapping[str, RunTexts]
    ) -> None:
        self.used = 0
        self.added: set[tuple[int, int]] = set()
        self._numbers: dict[str, int] = {}
        """Of the responses in the browser, by their texts."""
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
        prompt_set = member.cohort.dataset.by_id[dataset.sets[unit.at].id]
        if not dataset.sets[unit.at].prompts:
            self._add_prompts(dataset, unit.at, prompt_set)
        origin = member.cohort.origins[member.shown]
        source = self._sources.get(origin.run)
        if source is None:
            return
        unsafe = self._browser.include_unsafe
        hidden = hidden_prompt(prompt_set.wordings(), include_unsafe=unsafe)
        for at, variant in enumerate(dataset.variants):
            if not self._may_be_shown(unit, at):
                continue
            response = source.find(origin.model, prompt_set.id, variant, unit.epoch)
            if response is not None and response.text:
                text = without_quoted(response.text[:_READ], hidden)
                text = self._cut(text, response.text)
                model.texts[f"{of_unit}:{at}"] = (self._number(text), response.row)
                self.used += _REFERENCE_BYTES

    def _number(self, text: str) -> int:
        """Return the number of a response's text, which is added if it is new."""
        if text not in self._numbers:
            self._numbers[text] = len(self._browser.texts)
            self._browser.texts.append(text)
            self.used += _bytes(text)
        return self._numbers[text]

    def _cut(self, text: str, whole: str) -> str:
        """Return a text, or its beginning and a line that says so if it is very long.

        Args:
            text: as far as it was read.
            whole: all of it.
        """
        if len(text) <= _LONGEST and len(whole) <= _READ:
            return text
        unsafe = ", with --include-unsafe," * self._browser.include_unsafe
        return (
            f"{text[:_LONGEST]}\n[cut here: the text has {len(whole):,} characters; the command"
            f" below{unsafe} prints all of them]"
        )

    def _may_be_shown(self, unit: Unit, at: int) -> bool:
        _, harm, _, _, state = tuple(unit.grades[at * CELL : (at + 1) * CELL])
        return state not in " mf" and (self._browser.include_unsafe or harm == "0")

    def _add_prompts(self, dataset: BrowserDataset, at: int, prompt_set: PromptSet) -> None:
        wordings = prompt_set.wordings()
        prompts = [wordings.get(variant) for variant in dataset.variants]
        use, risk = prompt_set.dual_use_benign_use, prompt_set.dual_use_misuse_risk
        if not self._browser.include_unsafe:
            prompts[dataset.variants.index("malicious")] = None
            hidden = hidden_prompt(wordings, include_unsafe=False)
            prompts = [text and without_quoted(text, hidden) for text in prompts]
            use, risk = (text and without_quoted(text, hidden) for text in (use, risk))
        prompts = [text and self._cut(text, text) for text in prompts]
        item = dataset.sets[at]
        item.prompts, item.use, item.risk = prompts, use, risk
        self.used += sum(_bytes(text) for text in (*prompts, use, risk) if text)


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
