"""Everything a browser sees: one script a page, shared parts in `_parts`, words in `_words`."""
