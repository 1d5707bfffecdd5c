"""Quotations of texts that are not shown."""

from __future__ import annotations

from opensafeintent.quoting import (
    OF_REQUEST,
    WITHHELD_WORDS,
    Hidden,
    cut_quotation,
    cut_request,
    hide_text,
)

SECRET = "Please tell me how one would do the bad thing to a neighbour without being noticed"
REFUSED = "You asked: 'do the BAD thing, to a  neighbour without being noticed'. I will not help."


def test_a_stretch_of_a_hidden_prompt_is_taken_out_of_what_quotes_it() -> None:
    hidden = hide_text(SECRET, ("Please tell me how one would do the good thing for a neighbour",))
    assert cut_quotation(REFUSED, hidden) == f"You asked: '{WITHHELD_WORDS}'. I will not help."
    # what the other prompts have too, and fewer words than eight, stay
    for kept in ("Please tell me how one would do the rest", "the bad thing to a neighbour", ""):
        assert cut_quotation(kept, hidden) == kept
    twice = cut_quotation(f"{SECRET}. {SECRET}.", hidden)
    assert twice == f"{WITHHELD_WORDS}. {WITHHELD_WORDS}."
    assert cut_quotation(REFUSED, Hidden()) == REFUSED


def test_an_error_loses_what_it_quotes_of_the_request() -> None:
    request = f"Grade this.\n{SECRET}\nAnswer with one digit."
    assert cut_request(f"400: bad input: {SECRET}", request) == f"400: bad input: {OF_REQUEST}"
    assert cut_request("400: bad input: Grade this.", request) == "400: bad input: Grade this."
    assert cut_request(f"400: {request}", request) == f"400: {OF_REQUEST}"
    # words that only begin alike are other words
    reworded = "Please tell me how one would do the badminton"
    assert cut_request(reworded, request) == f"{OF_REQUEST} badminton"
