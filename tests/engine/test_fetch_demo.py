"""The demo model as converted, against transformers' own reading of the same GGUF."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from engine import fetched
from engine.spec import from_folder

WEIGHT_BYTES = 4 * 134_515_008

PROGRAM = """
    import sys
    from pathlib import Path
    from engine import gguf_import

    gguf_import.convert(Path(sys.argv[1]), Path(sys.argv[2]), lambda done, total: None)
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    print(sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")))
"""


@pytest.mark.timeout(900)  # transformers reads a GGUF in pure Python: long on a machine busy with other things
def test_every_number_is_the_one_transformers_reads(demo_gguf: Path, demo_folder: Path) -> None:
    reference = AutoModelForCausalLM.from_pretrained(demo_gguf.parent, gguf_file=demo_gguf.name, dtype=torch.float32)
    ours, theirs = load_file(demo_folder / "model.safetensors"), reference.state_dict()
    assert theirs.keys() - ours.keys() == {"lm_head.weight"}  # tied: the embedding is the head
    assert ours.keys() <= theirs.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name
    _compare_configs(json.loads((demo_folder / "config.json").read_text()), reference.config.to_dict())
    assert from_folder(demo_folder).parameters.trunk == WEIGHT_BYTES // 4


def _compare_configs(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    keys = set(ours) & set(theirs) - {"architectures", "rms_norm_eps"}
    assert {key: ours[key] for key in keys} == {key: theirs[key] for key in keys}
    assert {"hidden_size", "num_hidden_layers", "max_position_embeddings", "tie_word_embeddings"} <= keys
    assert ours["rope_theta"] == theirs["rope_parameters"]["rope_theta"]
    assert torch.tensor(ours["rms_norm_eps"]) == torch.tensor(theirs["rms_norm_eps"])  # the same fp32 number


def test_converting_anew_gives_what_was_fetched_in_less_memory_than_the_weights(
    demo_gguf: Path, demo_folder: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), str(demo_gguf), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    assert int(done.stdout) < WEIGHT_BYTES
    names = {path.name for path in tmp_path.iterdir()}
    assert {path.name for path in demo_folder.iterdir()} == names | {fetched.MANIFEST}
    for name in names:
        assert fetched.file_sha256(demo_folder / name) == fetched.file_sha256(tmp_path / name), name
    (tmp_path / "model.safetensors").unlink()
