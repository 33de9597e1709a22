"""The lab's words and numbers in the reader's language.

English sentences in the source are the message ids; a language is a .po file in pages/_words, read
with Babel and compiled in memory once per process. A `Words` is chosen per session and passed along:
nothing here remembers a current language.
"""

from __future__ import annotations

import gettext
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from io import BytesIO
from pathlib import Path

from babel import Locale, dates, numbers
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

from engine.errors import N_, Scalar, Sentence

LANGUAGES = {"en": "English", "zh": "中文"}
_FOLDER = Path(__file__).parent.parent / "_words"
_THIS, _THAT = N_("this machine"), N_("that machine")
_LOCALES = {"en": Locale("en"), "zh": Locale("zh", script="Hans")}


@cache
def _catalogue(language: str) -> gettext.NullTranslations:
    source = _FOLDER / f"{language}.po"
    if not source.is_file():
        return gettext.NullTranslations()
    compiled = BytesIO()
    with source.open("rb") as file:
        write_mo(compiled, read_po(file, locale=language))
    compiled.seek(0)
    return gettext.GNUTranslations(compiled)


@lru_cache(maxsize=8192)
def _decimal(language: str, value: float, pattern: str) -> str:
    """Kept, because a chart says the same numbers again at every rerun and Babel takes its time."""
    return str(numbers.format_decimal(value, pattern, locale=_LOCALES[language]))


@dataclass(frozen=True)
class Words:
    """One language: `t("Run")`, `t("{count} steps", count=3)`, and numbers as that language writes them."""

    language: str = "en"

    def __call__(self, message: str, **params: Scalar) -> str:
        """The message in this language with its parameters filled in."""
        text = _catalogue(self.language).gettext(message) if message else ""
        return text.format(**params) if params else text

    def plural(self, one: str, many: str, count: int, **params: Scalar) -> str:
        """The message for `count` things; `{count}` is filled in as this language writes numbers."""
        text = _catalogue(self.language).ngettext(one, many, count)
        return text.format(count=self.number(count), **params)

    def sentence(self, sentence: Sentence) -> str:
        """A sentence of the engine's. Its text parameters may be messages themselves ("The batch")."""
        params = {key: self(value) if isinstance(value, str) else value for key, value in sentence.params.items()}
        template = _catalogue(self.language).gettext(sentence.template)
        try:
            return template.format(**params)
        except (KeyError, IndexError, ValueError):  # a record from elsewhere may carry a template we cannot fill
            return template

    def of_another(self, text: str) -> str:
        """What a record says of "this machine", where another machine is meant."""
        return text.replace(self(_THIS), self(_THAT))

    def sentences(self, sentences: Iterable[Sentence]) -> str:
        """Several sentences of the engine's as one paragraph."""
        return self.paragraph(self.sentence(sentence) for sentence in sentences)

    def paragraph(self, sentences: Iterable[str]) -> str:
        """Sentences one after the other, empty ones left out; Chinese ones follow each other without a space."""
        return ("" if self.language == "zh" else " ").join(sentence for sentence in sentences if sentence)

    def number(self, value: float, digits: int | None = None) -> str:
        """A number with this language's separators: to `digits` decimals, else to three significant figures."""
        if digits is None:
            digits = 0 if value == 0 or abs(value) >= 100 or float(value).is_integer() else 1 if abs(value) >= 10 else 2
        pattern = "#,##0" + ("." + "0" * digits if digits else "")
        return _decimal(self.language, float(value), pattern)

    def many(self, count: float) -> str:
        """A large count in words, to three significant figures: 135 million, in Chinese 1.35亿."""
        short = numbers.format_compact_decimal(
            float(f"{count:.3g}"), format_type="long", locale=_LOCALES[self.language], fraction_digits=2
        )
        return str(short).replace("亿", " 亿").replace("万", " 万")

    def percent(self, share: float, digits: int | None = None) -> str:
        """A share of one as a percentage: 0.034 -> 3.4 %."""
        return f"{self.number(share * 100, digits)} %"

    def size(self, count_bytes: float) -> str:
        """Bytes in decimal units: 538 MB. 1 GB is 1e9 bytes."""
        for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
            if count_bytes >= scale:
                return f"{self.number(count_bytes / scale)} {unit}"
        return f"{self.number(count_bytes, 0)} B"

    def binary_size(self, count_bytes: float) -> str:
        """Bytes in binary units, as memory and caches are sold: 32 KiB. 1 GiB is 2^30 bytes."""
        for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
            if count_bytes >= 2**power:
                return f"{self.number(count_bytes / 2**power)} {unit}"
        return f"{self.number(count_bytes, 0)} B"

    def duration(self, time_ns: float) -> str:
        """Nanoseconds in the unit that reads best: 31.2 ms."""
        for unit, scale in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
            if time_ns >= scale:
                return f"{self.number(time_ns / scale)} {unit}"
        return f"{self.number(time_ns, 0)} ns"

    def moment(self, iso: str) -> str:
        """A time stamp of a record as a date and time, in UTC as recorded; as it stands if it is none."""
        try:
            when = datetime.fromisoformat(iso).astimezone(UTC)
        except ValueError:
            return iso
        return f"{dates.format_datetime(when, 'medium', locale=_LOCALES[self.language])} UTC"

    def day(self, iso: str) -> str:
        """A time stamp of a record as a date, in UTC as recorded; as it stands if it is none."""
        try:
            when = datetime.fromisoformat(iso).astimezone(UTC)
        except ValueError:
            return iso
        return str(dates.format_date(when, "long", locale=_LOCALES[self.language]))

    def bandwidth(self, bytes_per_s: float) -> str:
        """Bytes a second: 18.2 GB/s."""
        return f"{self.size(bytes_per_s)}/s"

    def flops(self, count: float) -> str:
        """A number of floating-point operations: 51.2 GFLOP."""
        return self.rate(count).removesuffix("/s")

    def rate(self, flops_per_s: float) -> str:
        """Floating-point operations a second: 96.1 GFLOP/s."""
        for unit, scale in (("PFLOP/s", 1e15), ("TFLOP/s", 1e12), ("GFLOP/s", 1e9)):
            if flops_per_s >= scale:
                return f"{self.number(flops_per_s / scale)} {unit}"
        return f"{self.number(flops_per_s / 1e6)} MFLOP/s"
