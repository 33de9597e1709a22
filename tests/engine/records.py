"""Small records for the tests of what keeps, checks and counts them: a made-up machine and its run."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pydantic import BaseModel

from engine.ceilings import BandwidthPoint, Ceilings, DeviceFacts
from engine.errors import Sentence
from engine.record import (
    ModelFacts,
    Output,
    PredictedNs,
    Probe,
    Prompt,
    ResidentBytes,
    Run,
    RunRequest,
    Step,
    StepBytes,
    new_run_id,
)
from engine.summary import summarise

MB = 1_000_000


def facts(**changes: object) -> DeviceFacts:
    """A two-core machine."""
    return DeviceFacts.model_validate(
        {"kind": "cpu", "name": "Test CPU", "threads": 2, "torch_version": "2.8", **changes}
    )


def ceilings(**changes: object) -> Ceilings:
    """18 GB/s from memory, 100 GB/s from a 1 MB cache, 100 GFLOP/s."""
    return Ceilings.model_validate(
        {
            "id": "ceilings-1",
            "measured_at": "2026-01-02T03:04:05+00:00",
            "device": facts(),
            "bandwidth": [
                BandwidthPoint(working_set_bytes=1 * MB, bytes_per_s=100e9, spread=0.02),
                BandwidthPoint(working_set_bytes=100 * MB, bytes_per_s=18e9, spread=0.05),
            ],
            "peak_flops_per_s": {"fp32": 100e9},
            "peak_spread": 0.01,
            "launch_ns": 1000.0,
            "probe_ns": 7_000_000,
            **changes,
        }
    )


def step(index: int, time_ns: int, **changes: object) -> Step:
    """A step of a model that reads 360 MB: a roof of 20 ms on the machine above."""
    weights = int(changes.pop("weights", 356 * MB))  # type: ignore[call-overload]
    kv_read = int(changes.pop("kv_read", 3 * MB))  # type: ignore[call-overload]
    moved = {"weights": weights, "kv_read": kv_read, "kv_write": MB // 2, "logits": MB // 2}
    values = {
        "index": index,
        "phase": "decode" if index else "prefill",
        "tokens": 1 if index else 4,
        "context": 4 + index,
        "token_ids": [100 + index],
        "time_ns": time_ns,
        "host_ns": time_ns,
        "sample_ns": 100_000,
        "detokenize_ns": 20_000,
        "flops": 200 * MB,
        "bytes": StepBytes(**moved, total=sum(moved.values())),
        "working_set_bytes": sum(moved.values()),
        "resident_bytes": ResidentBytes(weights=weights, kv_allocated=10 * MB, kv_filled=(1 + index) * MB),
        "predicted_ns": PredictedNs(datasheet=None, measured_roof=20e6, expected=24e6),
        "text": f" w{index}",
    }
    return Step.model_validate({**values, **changes})


def run(run_id: str | None = None, *, decode_ns: tuple[int, ...] = (25_000_000, 24_000_000, 30_000_000)) -> Run:
    """A finished run on the machine above."""
    steps = [step(0, 40_000_000), *(step(index, time_ns) for index, time_ns in enumerate(decode_ns, start=1))]
    return Run(
        schema=1,
        id=run_id or new_run_id(),
        state="done",
        created_at="2026-01-02T03:04:06+00:00",
        package_version="0.1.0",
        model=ModelFacts(
            id="tiny", weights="random", weights_hash="ab" * 32, dtype="float32", weight_format="fp32", kv_format="fp32"
        ),
        device=facts(),
        ceilings=ceilings(),
        probe=Probe(before_ns=7_000_000, after_ns=7_100_000, load=0.5, moved=7_100_000 / 7_000_000 - 1),
        request=RunRequest(model="tiny", prompt="小明把苹果给了 💡\u0000", max_new_tokens=4),
        prompt=Prompt(text="小明把苹果给了 💡\u0000", token_ids=[1, 2, 3, 4]),
        output=Output(text=" w0 w1 w2 w3"[: 3 * len(steps)], token_ids=[each.token_ids[0] for each in steps]),
        steps=steps,
        summary=summarise(steps, batch=1, multiplication="fp32", ceilings=ceilings()),
    )


def said(error: Exception) -> str:
    """The sentence of a LabError; it has to be one."""
    sentence = getattr(error, "sentence", None)
    assert isinstance(sentence, Sentence)
    return str(sentence)


def forged(record: BaseModel, path: Sequence[object], value: object) -> bytes:
    """A record's file with one field set to something else; `path` are the keys and places that lead to it."""
    document = json.loads(record.model_dump_json(by_alias=True))
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return json.dumps(document).encode()
