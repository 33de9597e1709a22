"""Text to token ids and back, and what each token shows. Knows vocabularies; knows nothing of torch.

The vocabulary is a checkpoint's tokenizer.json, run by the `tokenizers` library. Decoding goes through bytes,
so that what streams out token by token is, put together, exactly what `decode` gives for the whole.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from engine import chat, fetched, random_shapes
from engine import tokenizer_files as files
from engine.byte_level import CHARACTERS, unspell
from engine.errors import LabError
from engine.source import Source

_META_SPACE = "▁"


class Tokenizer:
    """One vocabulary with what the lab asks of it.

    Args:
        inner: the library's tokenizer.
        eos_ids: tokens that end a text.
        template: the chat template, where the checkpoint has one.
        rows: rows of the model's embedding: a token beyond them cannot be looked up. None where no model is meant.
    """

    def __init__(
        self,
        inner: tokenizers.Tokenizer,
        *,
        eos_ids: Iterable[int] = (),
        template: chat.ChatTemplate | None = None,
        rows: int | None = None,
    ) -> None:
        # A saved tokenizer may cut or fill every text to one length; the lab wants the text as it is.
        inner.no_truncation()
        inner.no_padding()
        self._inner = inner
        self._added = inner.get_added_tokens_decoder()
        self._special = frozenset(token_id for token_id, token in self._added.items() if token.special)
        self._kinds = _decoder_kinds(inner)
        self._rows = rows
        self._template = template
        self.eos_ids = frozenset(eos_ids)

    @property
    def vocab_size(self) -> int:
        """Tokens in the vocabulary, added ones included."""
        return self._inner.get_vocab_size()

    @property
    def special_ids(self) -> frozenset[int]:
        """Tokens that mark structure and show nothing: begin, end, padding and the like."""
        return self._special

    @property
    def has_chat(self) -> bool:
        """Whether there is a chat template."""
        return self._template is not None

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids of a text, with the begin token where the vocabulary puts one.

        Args:
            text: any text; special tokens written out in it are read as such.
            add_special_tokens: False for a rendered chat, which brings its own.

        Raises:
            LabError: the text holds half a character, or a token the model has no embedding for.
        """
        try:
            ids: list[int] = self._inner.encode(text, add_special_tokens=add_special_tokens).ids
        except (UnicodeEncodeError, TypeError):
            raise LabError(
                "The text holds half of a character (a lone surrogate); remove it or paste the text again."
            ) from None
        if self._rows is not None and ids and max(ids) >= self._rows:
            raise LabError(
                "The tokenizer gives token {token}, and the model knows {rows}: the two do not belong together.",
                token=max(ids),
                rows=self._rows,
            )
        return ids

    def encode_prompt(self, prompt: str, *, chat: bool) -> tuple[str | None, list[int]]:
        """A prompt as the model reads it: the rendered chat (None without), and its token ids."""
        if not chat:
            return None, self.encode(prompt)
        rendered = self.chat(prompt)
        return rendered, self.encode(rendered, add_special_tokens=False)

    def chat(self, prompt: str) -> str:
        """The prompt inside the model's chat template.

        Raises:
            LabError: no template, or one that cannot be rendered.
        """
        if self._template is None:
            raise LabError("This model has no chat template; run without chat to send the prompt as it is.")
        return self._template.render(prompt)

    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool = True) -> str:
        """The text of token ids; bytes that are no character become U+FFFD."""
        stream = self.stream(skip_special_tokens=skip_special_tokens)
        return "".join([*(stream.push(token_id) for token_id in ids), stream.flush()])

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """What each token shows: its text, bytes of unfinished characters as ‹E5 B0›, unnamed ids as ‹#300›."""
        return [self._piece(token_id) for token_id in ids]

    def stream(self, *, skip_special_tokens: bool = True) -> Stream:
        """A decoder that takes one token at a time and never shows a part of a character."""
        return Stream(self, skip_special_tokens=skip_special_tokens, strip_space="strip" in self._kinds)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes a token adds to a text; none for an id outside the vocabulary."""
        if token_id in self._added:
            return str(self._added[token_id].content).encode("utf-8", "replace")
        token = self._inner.id_to_token(token_id) if token_id >= 0 else None
        if token is None:
            return b""
        if "byte_level" in self._kinds:
            return unspell(token)
        if "byte_fallback" in self._kinds and len(token) == 6 and token.startswith("<0x") and token.endswith(">"):
            return bytes.fromhex(token[3:5])
        return token.replace(_META_SPACE, " ").encode("utf-8", "replace")

    def _piece(self, token_id: int) -> str:
        raw = self.token_bytes(token_id)
        return _show_bytes(raw) if raw else f"‹#{token_id}›"


class Stream:
    """Token ids in, text out; the bytes of a character are held until it is whole."""

    def __init__(self, tokenizer: Tokenizer, *, skip_special_tokens: bool, strip_space: bool) -> None:
        self._tokenizer = tokenizer
        self._hidden = tokenizer.special_ids if skip_special_tokens else frozenset()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._strip_space = strip_space

    def push(self, token_id: int) -> str:
        """The text that this token completes; empty while a character is unfinished."""
        if token_id in self._hidden:
            return ""
        return self._strip(self._decoder.decode(self._tokenizer.token_bytes(token_id)))

    def flush(self) -> str:
        """What is left when no token follows: U+FFFD for an unfinished character, else nothing."""
        return self._strip(self._decoder.decode(b"", final=True))

    def _strip(self, text: str) -> str:
        """SentencePiece vocabularies begin a text with a space that was never in it."""
        if text and self._strip_space:
            self._strip_space = False
            return text.removeprefix(" ")
        return text


def load(source: Source | Path | str) -> Tokenizer:
    """The tokenizer of a model, kept for the next call as long as its files do not change.

    Random weights have none of their own: those of Qwen3.5's kind get the vocabulary that the lab has, if it is here,
    and all others read and write bytes.

    Raises:
        LabError: no tokenizer.json, or one that cannot be read.
    """
    if isinstance(source, Source) and source.folder is None:
        if random_shapes.speaks_qwen(source.spec) and fetched.state(fetched.QWEN_VOCABULARY) == "ready":
            folder = fetched.QWEN_VOCABULARY.path()
            return _load_qwen(folder, files.stamps(folder), source.spec.vocab_size)
        return byte_tokenizer(source.spec.vocab_size, source.spec.bos_id, tuple(source.spec.eos_ids))
    rows = source.spec.vocab_size if isinstance(source, Source) else None
    folder = source.folder if isinstance(source, Source) and source.folder is not None else Path(str(source))
    return _load(folder, rows, files.stamps(folder))


@lru_cache(maxsize=4)
def _load(folder: Path, rows: int | None, stamps: tuple[object, ...]) -> Tokenizer:
    inner = files.read(folder / "tokenizer.json")
    settings = files.read_json(folder / "tokenizer_config.json")
    template = chat.from_folder(folder, settings)
    return Tokenizer(inner, eos_ids=files.eos_ids(folder, inner), template=template, rows=rows)


def qwen() -> Tokenizer:
    """The vocabulary that Qwen3.5 to Qwen3.8 share, brought together with the demo model.

    Raises:
        LabError: it has not been fetched yet.
    """
    if fetched.state(fetched.QWEN_VOCABULARY) != "ready":
        raise LabError(
            "The vocabulary of Qwen3.8 is not here yet; it comes with `python -m engine fetch smollm2-135m`."
        )
    folder = fetched.QWEN_VOCABULARY.path()
    return _load_qwen(folder, files.stamps(folder), None)


@lru_cache(maxsize=4)
def _load_qwen(folder: Path, stamps: tuple[object, ...], rows: int | None) -> Tokenizer:
    inner = files.read(folder / "tokenizer.json")
    return Tokenizer(inner, eos_ids=files.ids_of(inner, "<|im_end|>", "<|endoftext|>"), rows=rows)


@lru_cache(maxsize=8)
def byte_tokenizer(rows: int, begin_id: int | None, eos_ids: tuple[int, ...]) -> Tokenizer:
    """A vocabulary of the 256 bytes, for random weights that never learned one: token id = byte.

    Args:
        rows: rows of the model's embedding; ids from 256 on have no text.
        begin_id, eos_ids: the model's begin and end tokens, shown as <begin> and <end> where they lie beyond the bytes.
    """
    vocab = {character: byte for byte, character in CHARACTERS.items()}
    marks = {token_id: f"<end {place}>" if place else "<end>" for place, token_id in enumerate(eos_ids)}
    if begin_id is not None:
        marks.setdefault(begin_id, "<begin>")
    marks = {token_id: mark for token_id, mark in marks.items() if 256 <= token_id < rows}
    vocab |= {mark: token_id for token_id, mark in marks.items()}
    inner = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in marks.values()])
    return Tokenizer(inner, eos_ids=(token_id for token_id in eos_ids if token_id in marks), rows=rows)


# --- bytes ------------------------------------------------------------------------------------------


def _decoder_kinds(inner: tokenizers.Tokenizer) -> frozenset[str]:
    """How entries of the vocabulary spell bytes, from the decoder's own description of itself."""
    state = json.loads(inner.decoder.__getstate__()) if inner.decoder is not None else {}
    parts = state.get("decoders", [state])
    types = {part.get("type") for part in parts}
    kinds = set()
    if "ByteLevel" in types:
        kinds.add("byte_level")
    if "ByteFallback" in types:
        kinds.add("byte_fallback")
    if "Metaspace" in types or any(part.get("type") == "Strip" and part.get("start") for part in parts):
        kinds.add("strip")
    return frozenset(kinds)


def _show_bytes(raw: bytes) -> str:
    """Whole characters as text, what is left of others as hexadecimal between ‹ and ›."""
    shown, position = [], 0
    while position < len(raw):
        try:
            shown.append(raw[position:].decode())
            break
        except UnicodeDecodeError as error:
            start, end = position + error.start, position + error.end
            shown.append(raw[position:start].decode())
            # Neighbouring strays of one token stand in one pair of brackets.
            while end < len(raw) and raw[end] & 0xC0 == 0x80:
                end += 1
            shown.append(f"‹{raw[start:end].hex(' ').upper()}›")
            position = end
    return "".join(shown)
