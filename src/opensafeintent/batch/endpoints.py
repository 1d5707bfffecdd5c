"""The providers with batches, and models that are asked in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from opensafeintent.batch.anthropic_batches import AnthropicBatches
from opensafeintent.batch.dialects import BatchDialect, BatchLimits
from opensafeintent.batch.openai_batches import BatchForm, OpenAIBatches
from opensafeintent.batch.server import BatchServer
from opensafeintent.calls.client import Model
from opensafeintent.calls.http import EndpointModel, HttpSession
from opensafeintent.calls.providers import (
    ENDPOINTS,
    Endpoint,
    is_native,
    split_name,
)
from opensafeintent.calls.records import Call
from opensafeintent.errors import InputError
from opensafeintent.files import sha256_hex

DIALECTS: dict[str, BatchDialect] = {
    "openai": OpenAIBatches(),
    "groq": OpenAIBatches(BatchForm()),
    "together": OpenAIBatches(
        BatchForm(
            purpose="batch-api",
            upload="/files/upload",
            paging="none",
            url=None,
            marked=False,
            limits=BatchLimits(megabytes=100),
        )
    ),
    "mistral": OpenAIBatches(
        BatchForm(route="/batch/jobs", paging="number", url=None, model_in_line=False)
    ),
    "anthropic": AnthropicBatches(),
}
"""The providers that offer batches. A server of the user's own naming (`openai-api/…`) may speak
OpenAI's dialect too, as Azure and gateways do.
"""


def hash_account(endpoint: Endpoint) -> str:
    """Return a hash of the key, by which batches are known to be of one account."""
    return sha256_hex(endpoint.api_key or "")[:16]


class BatchModel(NamedTuple):
    """A model that is asked in batches."""

    name: str
    model: EndpointModel
    dialect: BatchDialect
    server: BatchServer

    @property
    def account(self) -> str:
        """See `hash_account`."""
        return hash_account(self.model.endpoint)

    def line(self, key: bytes, call: Call) -> bytes:
        """Return the line of a call."""
        fields = self.model.build_fields(call, self.model.left_out)
        return self.dialect.line(key.hex(), fields)


def find_dialect(name: str) -> BatchDialect | None:
    """Return the dialect of a model's provider; None if it has no batches."""
    if not is_native(name):
        return None
    provider, _ = split_name(name)
    return DIALECTS["openai"] if provider not in ENDPOINTS else DIALECTS.get(provider)


def check_batches(names: Iterable[str]) -> None:
    """See that every model can be asked in batches.

    Raises:
        InputError: some cannot; the text names them.
    """
    if lacking := [name for name in names if find_dialect(name) is None]:
        raise InputError(
            f"--tier batch: no batches for {', '.join(lacking)}; expected models of"
            f" {', '.join(DIALECTS)} or openai-api, or --tier MODEL:batch for some of the models"
        )


def batch_models(models: Mapping[str, Model], http: HttpSession) -> dict[str, BatchModel]:
    """Return the models that are asked in batches, by name; the others are called directly.

    Args:
        models: as the client has them.
        http: the connections.
    """
    return {
        name: BatchModel(name, model, dialect, BatchServer(model.endpoint, http))
        for name, model in models.items()
        if isinstance(model, EndpointModel) and (dialect := find_dialect(name)) is not None
    }
