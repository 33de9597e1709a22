"""The lesson on top of the lab's pages: the path and its questions, a run replayed, the misconceptions, the words."""
