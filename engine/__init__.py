"""Roofline Lab's engine: the two phases of a language model, their clock, their ledger and their roof.

Knows nothing of Streamlit or Plotly. Importing this package imports nothing heavy: `load` brings
torch in only when it is called, so that a page or a viewer-only host never pays for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.model import Model

__version__ = "0.1.0"


def load(
    source: str,
    device: str = "cpu",
    dtype: str = "float32",
    max_tokens: int | None = None,
    weights: str | None = None,
    kv: str | None = None,
) -> Model:
    """Load a decoder ready for `prefill` and `decode`.

    Args:
        source: a folder in Hugging Face layout, one of the lab's own model ids, a name on the Hugging Face Hub, or
            `random:<catalogue id>[@layers=N]` for made-up weights at true shapes.
        device: a torch device name: "cpu", "cuda", "mps" or "xpu".
        dtype: what weights, activations and cache are held in: "float32" or "bfloat16".
        max_tokens: positions the caches can hold; None takes the model's own context limit.
        weights: what matrices are held in where it is not `dtype`: "bf16", "int8", "int4", "int4-g32", "int4-g64".
        kv: what keys and values are held in where it is not `dtype`: "bf16" or "int8".

    Raises:
        engine.errors.LabError: one sentence saying what is wrong with the source and what would be right.
    """
    from engine.model import load as _load

    return _load(source, device=device, dtype=dtype, max_tokens=max_tokens, weights=weights, kv=kv)


def __getattr__(name: str) -> Any:
    if name == "Model":
        from engine.model import Model

        return Model
    raise AttributeError(f"module 'engine' has no attribute {name!r}")
