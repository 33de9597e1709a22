"""From a list of ranked byte strings (a `.tiktoken` file) to a tokenizer.json with the same results.

tiktoken merges, of all neighbours whose union is in the list, the pair whose union ranks lowest, and
takes a whole word at once where the list has it. The same comes out of a BPE whose merges are *every*
split of a token into two others, in the order of the token's rank, with `ignore_merges`.
"""

from __future__ import annotations

import base64
from pathlib import Path

from engine.byte_level import spell
from engine.errors import LabError

QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How Qwen3.5 and later cut text into words before any merge: single digits, marks kept with their letters."""

QWEN_SPECIAL = (
    *("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>"),
    *("<|box_start|>", "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>"),
    *("<|vision_pad|>", "<|image_pad|>", "<|video_pad|>", "<tool_call>", "</tool_call>", "<|fim_prefix|>"),
    *("<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<tool_response>"),
    *("</tool_response>", "<think>", "</think>", "<|audio_start|>", "<|audio_end|>", "<tts_pad>"),
    *("<tts_text_bos>", "<tts_text_eod>", "<tts_text_bos_single>", "<|audio_pad|>"),
)
"""Qwen3.5's special tokens, in the order of their ids after the last rank."""


def convert(path: Path, folder: Path) -> None:
    """Write tokenizer.json for a Qwen3.5-family rank file into `folder`.

    Raises:
        LabError: the file is not a complete list of ranks.
    """
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    ranks = _read(path)
    names = {token: spell(token) for token in ranks}
    vocab = {names[token]: rank for token, rank in ranks.items()}
    merges = [(names[left], names[right]) for left, right in _splits(ranks)]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=True))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN_SPLIT), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in QWEN_SPECIAL])
    # Not tokenizer.save(), whose errors do not say what the file system refused.
    (folder / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")


def _read(path: Path) -> dict[bytes, int]:
    """Byte string -> rank, in the order of the ranks."""
    pairs = (line.split() for line in path.read_bytes().splitlines() if line)
    ranks = {base64.b64decode(token): int(rank) for token, rank in pairs}
    if sorted(ranks.values()) != list(range(len(ranks))):
        raise LabError("{file} is not a complete list of token ranks.", file=path.name)
    return dict(sorted(ranks.items(), key=lambda item: item[1]))


def _splits(ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    """Every way to make a token of two others: lowest token first, then its lowest-ranked parts."""
    merges: list[tuple[bytes, bytes]] = []
    for token in ranks:
        cuts = ((token[:i], token[i:]) for i in range(1, len(token)))
        halves = [(left, right) for left, right in cuts if left in ranks and right in ranks]
        merges += sorted(halves, key=lambda half: (ranks[half[0]], ranks[half[1]]))
    return merges
