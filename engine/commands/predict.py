"""`predict`: the ledger against a device's datasheet, before any run and without a GPU."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from engine.commands._output import print_json


def predict(arguments: argparse.Namespace) -> None:
    """Print what prefill and decode would cost; `--json` for the whole document.

    Beside an id, the model may be a folder with a config.json, or that file itself, and the device a TOML file.
    """
    from engine import catalogue, hardware, spec
    from engine.predict import predict as predict_document

    model, device = arguments.model, arguments.hardware
    own_model = model not in catalogue.ids() and Path(model).exists()
    own_device = device not in hardware.ids() and Path(device).is_file()
    document = predict_document(
        spec.from_folder(model) if own_model else model,
        hardware.read_device_file(device) if own_device else device,
        prompt_tokens=arguments.prompt_tokens,
        context=arguments.context,
        batch=arguments.batch,
        preset=arguments.preset,
        weights=arguments.weights,
        kv=arguments.kv,
        state=arguments.state,
        tp=arguments.tp,
    )
    document["model"] = model
    if arguments.json:
        print_json(document)
    else:
        _print_words(document)


def _print_words(document: dict[str, Any]) -> None:
    prefill, decode, capacity = document["prefill"], document["decode"], document["capacity"]
    print(f"{document['model']} on {document['hardware']}, convention '{document['preset']}'")
    print(f"ridge point      {document['ridge_flop_per_byte']:.1f} FLOP/B")
    print(
        f"prefill          {prefill['tokens']} tokens: {_ms(prefill['time_s'])}, {_gb(prefill['bytes']['total'])}, "
        f"{prefill['intensity']:.2f} FLOP/B, {prefill['bound']}-bound"
    )
    print(
        f"decode           batch {decode['batch']} at context {decode['context']}: {_ms(decode['time_s'])}, "
        f"{decode['tokens_per_s']:,.1f} tokens/s, {_gb(decode['bytes']['total'])}, "
        f"{decode['intensity']:.2f} FLOP/B, {decode['bound']}-bound"
    )
    print(
        f"  of its bytes   weights {_gb(decode['bytes']['weights'])}, KV read {_gb(decode['bytes']['kv_read'])}, "
        f"state {_gb(decode['bytes']['state_read'] + decode['bytes']['state_write'])}"
    )
    print(
        f"memory           {_gb(capacity['memory_bytes'])}; weights {_gb(capacity['resident_weight_bytes'])}, "
        f"a request {_gb(capacity['per_request_bytes'])}, at most {capacity['max_batch']} at once"
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:,.3f} ms"


def _gb(count: float) -> str:
    return f"{count / 1e9:,.3f} GB"
