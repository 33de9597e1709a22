"""A small finished run and the ceilings it was compared with, for pages that show what was measured."""

from __future__ import annotations

from engine.ceilings import Ceilings
from engine.record import Run

MB = 1_000_000


def made_up_ceilings() -> Ceilings:
    """18 GB/s from memory, 100 GFLOP/s in fp32 and bf16."""
    device = {"kind": "cpu", "name": "Test CPU", "threads": 2, "torch_version": "2.8", "memory_bytes": 16_000_000_000}
    return Ceilings.model_validate({
        "id": "made-up", "measured_at": "2026-01-02T03:04:05+00:00", "device": device,
        "bandwidth": [{"working_set_bytes": MB, "bytes_per_s": 100e9, "spread": 0.02},
                      {"working_set_bytes": 100 * MB, "bytes_per_s": 18e9, "spread": 0.05}],
        "peak_flops_per_s": {"fp32": 100e9, "bf16": 100e9}, "launch_ns": 1000.0,
    })  # fmt: skip


def finished_run(run_id: str) -> Run:
    """A prefill of four tokens in 40 ms, then decode steps of 24, 25 and 30 ms."""
    steps = [_step(index, ms) for index, ms in enumerate((40, 25, 24, 30))]
    return Run.model_validate({
        "schema": 1, "id": run_id, "state": "done", "created_at": "2026-01-02T03:04:05+00:00", "package_version": "0",
        "model": None, "device": made_up_ceilings().device, "ceilings": None, "probe": None,
        "request": {"model": "smollm2-135m", "prompt": "a b c d"},
        "prompt": {"text": "a b c d", "token_ids": [1, 2, 3, 4]},
        "output": {"text": "e f g h", "token_ids": [5, 6, 7, 8]}, "steps": steps, "summary": None,
    })  # fmt: skip


def _step(index: int, ms: int) -> dict[str, object]:
    moved = {"weights": 269 * MB, "kv_read": MB * index, "kv_write": MB, "logits": 0}
    return {
        "index": index, "phase": "decode" if index else "prefill", "tokens": 1 if index else 4, "context": 4 + index,
        "token_ids": [5 + index], "time_ns": ms * MB, "host_ns": ms * MB, "sample_ns": 0, "detokenize_ns": 0,
        "flops": 270 * MB * (1 if index else 4), "bytes": {**moved, "total": sum(moved.values())},
        "resident_bytes": {"weights": 269 * MB, "kv_allocated": MB, "kv_filled": MB},
        "predicted_ns": {"datasheet": None, "measured_roof": 15e6, "expected": 20e6},
    }  # fmt: skip
