"""GPT-2's spelling of bytes: 256 printable characters, one a byte, as byte-level vocabularies are written.

Source: bytes_to_unicode in openai/gpt-2's encoder.py; the `tokenizers` library's ByteLevel is the same table.
"""

from __future__ import annotations

from itertools import chain

_PRINTABLE = tuple(chain(range(ord("!"), ord("~") + 1), range(ord("¡"), ord("¬") + 1), range(ord("®"), ord("ÿ") + 1)))
_HIDDEN = tuple(byte for byte in range(256) if byte not in _PRINTABLE)

CHARACTERS: dict[int, str] = {byte: chr(byte) for byte in _PRINTABLE} | {
    byte: chr(256 + place) for place, byte in enumerate(_HIDDEN)
}
"""Byte -> its character: itself where it prints, else the next free one from U+0100 on."""

BYTES: dict[str, int] = {character: byte for byte, character in CHARACTERS.items()}


def spell(token: bytes) -> str:
    """Bytes as a byte-level vocabulary spells them."""
    return "".join(CHARACTERS[byte] for byte in token)


def unspell(token: str) -> bytes:
    """The bytes a byte-level vocabulary entry stands for; characters outside the table stand for themselves."""
    return b"".join(
        bytes([BYTES[character]]) if character in BYTES else character.encode("utf-8", "replace") for character in token
    )
