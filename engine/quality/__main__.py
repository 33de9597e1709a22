"""Measure what a format costs in quality: python -m engine.quality --model ID [--weights F [F ...]] [--kv F [F ...]]

Weights are varied with a KV cache in fp32, and the cache with weights in fp32.
"""

from __future__ import annotations

import argparse
import json
import sys

from engine import device, settings
from engine.errors import LabError
from engine.quality.measure import measure


def main() -> int:
    """Print a list of `Quality` as JSON."""
    parser = argparse.ArgumentParser(prog="python -m engine.quality", description=__doc__)
    parser.add_argument("--model", default="smollm2-135m", metavar="ID")
    parser.add_argument("--weights", nargs="*", default=["bf16", "int8", "int4"], metavar="F")
    parser.add_argument("--kv", nargs="*", default=["bf16", "int8"], metavar="F")
    parser.add_argument("--device", metavar="D")
    arguments = parser.parse_args()
    try:
        device.use_threads(settings.threads())
        found = measure(
            arguments.model,
            [*((weights, "fp32") for weights in arguments.weights), *(("fp32", kv) for kv in arguments.kv)],
            device=arguments.device,
            told=lambda weights, kv: print(f"reading with weights in {weights}, cache in {kv}", file=sys.stderr),
        )
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(json.dumps([quality.model_dump() for quality in found], indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
