"""One run, from its request to its record.

The order is the point: everything is predicted before anything is run, the machine is probed before and
after, a pass of the same shapes warms it up, and what is measured is the forward pass alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from time import perf_counter_ns
from typing import Any

import torch

from engine import __version__, checkpoint, control, hardware, ledger, random_shapes, request
from engine import device as devices
from engine import tokenizer as tokenizers
from engine.answer import Answer
from engine.bench import Bench
from engine.calibrate_model import weight_bytes
from engine.ceilings import Ceilings, DeviceFacts
from engine.clock import Clock, clock_for
from engine.errors import N_, Sentence
from engine.expected import Predictor, predictor
from engine.free_run import free_run
from engine.generate import RawStep, generate, warm_up
from engine.judging import flags
from engine.measured_step import measured_step
from engine.model import Model
from engine.model.decoder import Decoder
from engine.model.graph import DecodeGraph
from engine.model.phases import Reading
from engine.model_facts import model_facts
from engine.neighbours import Neighbours
from engine.present import AS_MEASURED, present
from engine.probe import probe, probed
from engine.protocol import RunJob
from engine.record import (
    SCHEMA,
    ActiveState,
    FinalState,
    ModelFacts,
    Output,
    Preparation,
    Probe,
    Prompt,
    Run,
    Step,
)
from engine.request import CLOCKS, DTYPES
from engine.sampling import Sampler
from engine.set_up import form, set_up
from engine.source import Source
from engine.spec import Spec
from engine.summary import summarise
from engine.tell import Teller
from engine.tokenizer import Tokenizer

WARMING_UP = N_("Warming up: {tokens:,} of the prompt's {total:,} tokens read. This is not counted.")
READING = N_("Reading the prompt: {tokens:,} of {total:,} tokens.")
FREELY = N_("The steps run freely; they are shown when the last of them is done.")


class RunInProgress:
    """A run and what is known of it so far; `close` makes a record of that at any time."""

    def __init__(self, job: RunJob, bench: Bench, teller: Teller) -> None:
        self._job = job
        self._request = job.request
        self._bench = bench
        self._teller = teller
        self._facts: ModelFacts | None = None
        self._device: torch.device | None = None
        self._ceilings: Ceilings | None = None
        self._preparation = Preparation()
        self._probe: Probe | None = None
        self._now = AS_MEASURED
        self._prompt: Prompt | None = None
        self._answer: Answer | None = None
        self._dtype = "float32"
        self._formats = ledger.Formats.engine("fp32")
        self._weights: str | None = None
        self._kv: str | None = None
        self._kernels: dict[str, str] = {}
        self._resident_weight_bytes = 0
        self._warm_up: list[Step] = []
        self._steps: list[Step] = []

    def measure(self) -> Run:
        """Do it all.

        Raises:
            LabError: the request cannot be run; the sentence says why.
            Stopped: the job was cancelled before its first step.
        """
        asked, teller = self._request, self._teller
        request.check(asked)
        self._device = device = devices.choose(asked.device)
        request.check_device(asked, device.type)
        source = self._bring()
        request.check_latent(asked.latent, source.id, source.spec)
        self._dtype = request.choose_dtype(asked, source.spec.dtype)
        self._request = asked = asked.model_copy(update={"dtype": self._dtype})
        request.check_kv(asked.kv, source.id, source.spec, dtype=self._dtype, device=device.type)
        self._formats = formats = ledger.Formats.engine(DTYPES[self._dtype], asked.weights, asked.kv)
        self._weights, self._kv = weights, kv = formats.own_weights, formats.own_kv
        tokenizer = tokenizers.load(source)
        self._prompt = prompt = self._tokenize(tokenizer, source)
        teller.prompt(prompt)
        teller.state("loading")
        self._check_memory(source, len(prompt.token_ids))
        model = self._load(source, device)
        facts = model_facts(source, self._dtype, formats)
        # By the name that was asked for, and with all it takes to check the record without the lab.
        self._facts = facts.model_copy(update={"id": asked.model, "config": dict(source.config)})
        self._ceilings = self._bench.ceilings(
            device, source.spec, formats.plain_format, self._job.ceilings, teller, weights, kv
        )
        self._resident_weight_bytes = model.resident_weight_bytes
        self._kernels = model.kernels
        output = self._run(model, tokenizer, prompt.token_ids, source)
        return self.close("cancelled" if output.stopped_by == "cancelled" else "done")

    def close(self, state: FinalState, error: Sentence | None = None) -> Run:
        """The record of what is known now."""
        self._teller.flush()
        asked, ceilings = self._request, self._ceilings
        return Run(
            schema=SCHEMA,
            id=self._job.id,
            state=state,
            created_at=self._job.created_at,
            package_version=__version__,
            model=self._facts,
            device=self._device_facts(),
            ceilings=ceilings,
            probe=self._probe,
            request=asked,
            preparation=self._preparation,
            prompt=self._prompt,
            output=self._answer.output if self._answer else Output(text="", token_ids=[]),
            warm_up_steps=self._warm_up,
            steps=self._steps,
            summary=summarise(
                self._steps,
                batch=asked.batch,
                multiplication=self._formats.multiplication,
                ceilings=ceilings,
                probe=self._probe,
                datasheet_bytes_per_s=hardware.datasheet_bandwidth(ceilings.device),
            )
            if ceilings is not None and self._steps
            else None,
            error=error,
        )

    def _device_facts(self) -> DeviceFacts | None:
        """The device, and which of its kernels the model's steps ran through."""
        if self._device is None:
            return None
        facts = devices.facts(self._device)
        return facts.model_copy(update={"kernels": facts.kernels | self._kernels})

    # ---- before the run --------------------------------------------------------------------------

    def _bring(self) -> Source:
        progress = self._teller.progress("fetching")
        return checkpoint.ensure(self._request.model, progress, allow_paths=self._job.allow_paths)

    def _tokenize(self, tokenizer: Tokenizer, source: Source) -> Prompt:
        rendered, ids = tokenizer.encode_prompt(self._request.prompt, chat=self._request.chat)
        request.check_fits(len(ids), source.spec.max_position)
        return Prompt(text=self._request.prompt, token_ids=ids, pieces=tokenizer.pieces(ids), rendered=rendered)

    def _check_memory(self, source: Source, prompt_tokens: int) -> None:
        assert self._device is not None
        positions = min(prompt_tokens + self._request.max_new_tokens - 1, source.spec.max_position)
        formats = self._formats

        def needs(spec: Spec) -> int:
            return int(ledger.resident(spec, batch=self._request.batch, max_tokens=positions, formats=formats).total)

        is_loaded = self._bench.has(source, self._device, self._dtype, self._weights)
        free = self._bench.room_bytes(source, self._device, self._dtype, self._weights)
        needed = needs(source.spec)
        random_shapes.check_fits(source.id, source.spec, needs, free)
        request.check_memory(needed, free)
        if not is_loaded:
            sentence = Sentence(
                template=N_("Loading {model}: {needed} GB with its caches, of {free} GB that are free."),
                params={"model": source.id, "needed": f"{needed / 1e9:.2f}", "free": f"{free / 1e9:.2f}"},
            )
            self._teller.progress("loading")(sentence, None)

    def _load(self, source: Source, device: torch.device) -> Model:
        """The model, set to what was asked. Compiling its kernels is no part of loading it."""
        compiled_ns, started = self._teller.compiled_ns, perf_counter_ns()
        is_loaded = self._bench.has(source, device, self._dtype, self._weights)
        model = self._bench.model(source, device, self._dtype, self._weights, self._kv)
        if not is_loaded:
            compiled_ns = self._teller.compiled_ns - compiled_ns
            self._preparation.load_ns = perf_counter_ns() - started - compiled_ns
        set_up(model, self._request, source.id)
        return model

    def _predict(self, source: Source) -> Predictor:
        """The lines of every step to come, worked out now."""
        assert self._ceilings is not None
        assert self._prompt is not None
        lines = predictor(
            source.spec,
            self._ceilings,
            hardware.of(self._ceilings.device),
            self._formats,
            self._request.batch,
            alike=self._request.temperature == 0,  # then all sequences continue the prompt in the same way
            latent=form(self._request.latent),
            now=self._now,
        )
        prompt_tokens = len(self._prompt.token_ids)
        room = source.spec.max_position - prompt_tokens + 1
        lines.prepare(prompt_tokens, min(self._request.max_new_tokens, room))
        return lines

    # ---- the run ---------------------------------------------------------------------------------

    def _run(self, model: Model, tokenizer: Tokenizer, ids: list[int], source: Source) -> Output:
        assert self._device is not None
        asked, teller, clock = self._request, self._teller, clock_for(self._device)
        teller.state("warming_up")
        # Before the warm-up, not between it and the run: the probe's matrix would push a small model out of the cache.
        before_ns, seen = probe(self._device), control.look(model)
        lines = self._predict(source)
        before = _graph(model)
        for raw in warm_up(
            model,
            ids,
            max_new_tokens=asked.max_new_tokens,
            clock=clock,
            batch=asked.batch,
            should_stop=teller.cancelled,
            reading=self._reading("warming_up", WARMING_UP, len(ids)),
        ):
            self._warm_up.append(self._step(raw, model, lines))
        graph = _graph(model)
        self._preparation.compile_ns = teller.compiled_ns
        if graph is not None and graph is not before:
            self._preparation.compile_ns += graph.compile_ns
            self._preparation.capture_ns = graph.capture_ns
        assert self._ceilings is not None
        dtype = self._formats.plain_format
        read = weight_bytes(source.spec, dtype, self._weights)
        seen += control.look(model)  # as late as can be, for a machine may change within seconds
        self._now = present(self._ceilings, dtype, read, seen)
        lines = self._predict(source)
        teller.state("running")
        self._answer, neighbours = Answer(tokenizer.stream()), Neighbours()
        for raw in self._steps_of(model, ids, tokenizer.eos_ids, clock):
            step = self._step(raw, model, lines, *self._answer.add(raw))
            self._steps.append(step)
            teller.step(step)
        teller.flush()
        self._probe = probed(before_ns, neighbours, self._device, self._now)
        return self._answer.output

    def _steps_of(self, model: Model, ids: list[int], stop_ids: Collection[int], clock: Clock) -> Iterator[RawStep]:
        """The steps that count: each as it is made, or all at the end of a run that waits for none."""
        asked, stopped = self._request, self._teller.cancelled
        reading = self._reading("running", READING, len(ids))
        shape: dict[str, Any] = {"max_new_tokens": asked.max_new_tokens, "batch": asked.batch, "stop_ids": stop_ids}
        if asked.clock != CLOCKS[0]:
            self._teller.progress("running")(Sentence(template=FREELY), None)
            return iter(free_run(model, ids, **shape, should_stop=stopped, reading=reading))
        sampler = Sampler(
            temperature=asked.temperature,
            top_k=asked.top_k,
            top_p=asked.top_p,
            min_p=asked.min_p,
            seed=asked.seed,
        )
        return generate(model, ids, **shape, clock=clock, sampler=sampler, should_stop=stopped, reading=reading)

    def _reading(self, state: ActiveState, template: str, total: int) -> Reading:
        """What to call between the chunks of a long prompt. One telling takes less than a thousandth of a chunk."""
        tell = self._teller.progress(state)

        def told(tokens: int) -> None:
            tell(Sentence(template=template, params={"tokens": tokens, "total": total}), tokens / total)

        return told

    def _step(self, raw: RawStep, model: Model, lines: Predictor, text: str = "", detokenize_ns: int = 0) -> Step:
        """What was measured beside what was predicted."""
        assert self._ceilings is not None
        predicted = lines.decode(raw.context) if raw.index else lines.prefill(raw.tokens)
        step = measured_step(raw, predicted, model, self._resident_weight_bytes, text, detokenize_ns)
        step.flags = flags(step, self._ceilings, self._formats.multiplication)
        return step


def _graph(model: Model) -> DecodeGraph | None:
    """The recorded step of a model, if it has one."""
    return model.graph if isinstance(model, Decoder) else None
