"""The lab's words in other languages: gettext catalogues. English lives in the source, as message ids."""
