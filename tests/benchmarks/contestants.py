"""Who is compared: this engine, transformers and llama.cpp, each in a process of its own with one model loaded.

All answer one question: how long does this prompt take, and how long each token behind it? Decoding is greedy and never
ends early. What each one's figures include is its own: the engine's, forward pass and sampling; llama.cpp's, what its
`timings` say; transformers', all that `generate` does.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol


@dataclass(frozen=True)
class Answer:
    """Seconds for the prompt, and for each further token (None where only one was asked for)."""

    prefill_s: float
    decode_s: float | None
    text: str


class Contestant(Protocol):
    def answer(self, ids: Sequence[int], tokens: int) -> Answer: ...


class Engine:
    """This engine, with weights in one format."""

    def __init__(self, folder: Path, weights: str, threads: int) -> None:
        import torch

        from engine import checkpoint, device, tokenizer
        from engine.clock import clock_for
        from engine.model import load

        device.use_threads(threads)
        source = checkpoint.resolve(folder, allow_paths=True)
        self._model = load(source, dtype="float32", weights=weights)
        self._tokenizer = tokenizer.load(source)
        self._clock = clock_for(torch.device("cpu"))

    def answer(self, ids: Sequence[int], tokens: int) -> Answer:
        from engine.generate import generate

        steps = list(generate(self._model, list(ids), max_new_tokens=tokens, clock=self._clock))
        seconds = [(step.time_ns + step.sample_ns) / 1e9 for step in steps]
        text = self._tokenizer.decode([step.token_ids[0] for step in steps])
        return Answer(seconds[0], sum(seconds[1:]) / (tokens - 1) if tokens > 1 else None, text)


class Transformers:
    """transformers' `generate` with its defaults, fp32; a streamer notes when each token is there."""

    def __init__(self, folder: Path, weights: str, threads: int) -> None:
        import torch
        import transformers

        torch.set_num_threads(threads)
        self._model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, weights)).eval()
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def answer(self, ids: Sequence[int], tokens: int) -> Answer:
        import torch

        stamps = Stamps()
        started = perf_counter()
        prompt = torch.tensor([list(ids)])
        found = self._model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=tokens,
            min_new_tokens=tokens,
            do_sample=False,
            streamer=stamps,
        )
        first, last = stamps.times[1], stamps.times[-1]  # the prompt itself is put first
        text = self._tokenizer.decode(found[0, len(ids) :])
        return Answer(first - started, (last - first) / (tokens - 1) if tokens > 1 else None, text)


class Stamps:
    """What transformers calls with every token."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def put(self, value: Any) -> None:
        self.times.append(perf_counter())

    def end(self) -> None:
        pass


class LlamaCpp:
    """llama.cpp as the xllamacpp wheel brings it. Its `timings` count the first token as predicted,
    but not its time, which is the prompt's.
    """

    def __init__(self, file: Path, weights: str, threads: int) -> None:
        import xllamacpp

        settings = xllamacpp.CommonParams()
        settings.model.path = str(file)
        settings.n_ctx, settings.n_parallel, settings.n_gpu_layers = 1024, 1, 0
        settings.cpuparams.n_threads = settings.cpuparams_batch.n_threads = threads
        settings.cache_prompt, settings.cache_ram_mib = False, 0
        settings.verbosity = -1
        self._server = xllamacpp.Server(settings)

    def answer(self, ids: Sequence[int], tokens: int) -> Answer:
        asked = {"prompt": list(ids), "n_predict": tokens, "temperature": 0.0, "ignore_eos": True}
        found = self._server.handle_completions({**asked, "cache_prompt": False})
        timings = found["timings"]
        assert timings["prompt_n"] == len(ids)
        assert timings["predicted_n"] == tokens
        decode_s = timings["predicted_ms"] / 1e3 / (tokens - 1) if tokens > 1 else None
        return Answer(timings["prompt_ms"] / 1e3, decode_s, found["choices"][0]["text"])


class Seat:
    """A contestant in its own process, which waits while the others work."""

    def __init__(self, kind: type[Contestant], model: Path, weights: str, threads: int) -> None:
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        os.environ.update(OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads))
        self._process = context.Process(target=_serve, args=(theirs, kind, model, weights, threads), daemon=True)
        self._process.start()
        theirs.close()

    def answer(self, ids: Sequence[int], tokens: int) -> Answer:
        self._pipe.send((list(ids), tokens))
        return self._pipe.recv()

    def close(self) -> None:
        self._pipe.close()
        self._process.join()


def _serve(pipe: Any, kind: type, model: Path, weights: str, threads: int) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())  # progress bars and logs; a failure ends the pipe
    contestant = kind(model, weights, threads)
    try:
        while True:
            pipe.send(contestant.answer(*pipe.recv()))
    except EOFError:
        pass
