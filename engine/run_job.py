"""One run, from its request to its record.

The order is the point: everything is predicted before anything is run, the machine is probed before and
after, a pass of the same shapes warms it up, and what is measured is the forward pass alone.
"""

from __future__ import annotations

from time import perf_counter_ns

import torch

from engine import __version__, checkpoint, hardware, ledger, random_shapes, request
from engine import device as devices
from engine import tokenizer as tokenizers
from engine.bench import Bench
from engine.ceilings import Ceilings
from engine.checkpoint import Source
from engine.clock import clock_for
from engine.errors import N_, Sentence
from engine.expected import Predictor, predictor
from engine.generate import RawStep, StoppedBy, generate, warm_up
from engine.judging import flags
from engine.ledger.routed import bytes_with_experts, routed_bytes
from engine.model import Model
from engine.model.hybrid import HybridDecoder
from engine.model.latent import Form
from engine.model_facts import model_facts
from engine.neighbours import Neighbours
from engine.probe import probe, probed
from engine.protocol import RunJob
from engine.record import (
    SCHEMA,
    FinalState,
    ModelFacts,
    Output,
    Probe,
    Prompt,
    ResidentBytes,
    Run,
    Step,
    StepBytes,
    StepParts,
)
from engine.request import DTYPES
from engine.sampling import Sampler
from engine.spec import Spec
from engine.summary import summarise
from engine.tell import Teller
from engine.tokenizer import Stream, Tokenizer


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
        self._probe: Probe | None = None
        self._prompt: Prompt | None = None
        self._answer: Answer | None = None
        self._dtype = "float32"
        self._formats = ledger.Formats.engine("fp32")
        self._weights: str | None = None
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
        source = self._bring()
        request.check_latent(asked.latent, source.id, source.spec)
        self._dtype = request.choose_dtype(asked, source.spec.dtype)
        self._request = asked = asked.model_copy(update={"dtype": self._dtype})
        self._formats = formats = ledger.Formats.engine(DTYPES[self._dtype], asked.weights)
        self._weights = weights = formats.weights if formats.weights != formats.plain_format else None
        tokenizer = tokenizers.load(source)
        self._prompt = prompt = self._tokenize(tokenizer, source)
        teller.prompt(prompt)
        teller.state("loading")
        self._check_memory(source, len(prompt.token_ids))
        model = self._bench.model(source, device, self._dtype, weights)
        if isinstance(model, HybridDecoder):
            model.use_latent_form(_form(asked.latent))
        facts = model_facts(source, self._dtype, formats)
        # By the name that was asked for, and with all it takes to check the record without the lab.
        self._facts = facts.model_copy(update={"id": asked.model, "config": dict(source.config)})
        self._ceilings = self._bench.ceilings(
            device, source.spec, formats.plain_format, self._job.ceilings, teller, weights
        )
        self._resident_weight_bytes = model.resident_weight_bytes
        output = self._run(model, tokenizer, prompt.token_ids, self._predict(source))
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
            device=devices.facts(self._device) if self._device else None,
            ceilings=ceilings,
            probe=self._probe,
            request=asked,
            prompt=self._prompt,
            output=self._answer.output if self._answer else Output(text="", token_ids=[]),
            warm_up_steps=self._warm_up,
            steps=self._steps,
            summary=summarise(
                self._steps,
                batch=asked.batch,
                dtype=DTYPES[self._dtype],
                ceilings=ceilings,
                probe=self._probe,
                datasheet_bytes_per_s=_datasheet_bandwidth(ceilings),
            )
            if ceilings is not None and self._steps
            else None,
            error=error,
        )

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
            latent=_form(self._request.latent),
        )
        prompt_tokens = len(self._prompt.token_ids)
        room = source.spec.max_position - prompt_tokens + 1
        lines.prepare(prompt_tokens, min(self._request.max_new_tokens, room))
        return lines

    # ---- the run ---------------------------------------------------------------------------------

    def _run(self, model: Model, tokenizer: Tokenizer, ids: list[int], lines: Predictor) -> Output:
        assert self._device is not None
        asked, teller, clock = self._request, self._teller, clock_for(self._device)
        teller.state("warming_up")
        # Before the warm-up, not between it and the run: the probe's matrix would push a small model out of the cache.
        before_ns = probe(self._device)
        for raw in warm_up(
            model,
            ids,
            max_new_tokens=asked.max_new_tokens,
            clock=clock,
            batch=asked.batch,
            should_stop=teller.cancelled,
        ):
            self._warm_up.append(self._step(raw, model, lines, "", 0))
        teller.state("running")
        self._answer, neighbours = Answer(tokenizer.stream()), Neighbours()
        for raw in generate(
            model,
            ids,
            max_new_tokens=asked.max_new_tokens,
            clock=clock,
            batch=asked.batch,
            sampler=Sampler(
                temperature=asked.temperature,
                top_k=asked.top_k,
                top_p=asked.top_p,
                min_p=asked.min_p,
                seed=asked.seed,
            ),
            stop_ids=tokenizer.eos_ids,
            should_stop=teller.cancelled,
        ):
            step = self._step(raw, model, lines, *self._answer.add(raw))
            self._steps.append(step)
            teller.step(step)
        teller.flush()
        self._probe = probed(before_ns, neighbours, self._device)
        return self._answer.output

    def _step(self, raw: RawStep, model: Model, lines: Predictor, text: str, detokenize_ns: int) -> Step:
        """What was measured beside what was predicted."""
        assert self._ceilings is not None
        predicted = lines.decode(raw.context) if raw.index else lines.prefill(raw.tokens)
        held, expected = model.cache.bytes, routed_bytes(predicted.ledger)
        step = Step(
            index=raw.index,
            phase=raw.phase,
            tokens=raw.tokens,
            context=raw.context,
            token_ids=raw.token_ids,
            time_ns=raw.time_ns,
            host_ns=raw.host_ns,
            sample_ns=raw.sample_ns,
            detokenize_ns=detokenize_ns,
            flops=predicted.ledger.flops,
            bytes=StepBytes(**bytes_with_experts(predicted.ledger, model.expert_bytes).as_dict()),
            parts=StepParts(**predicted.ledger.parts | {"experts": model.expert_bytes}),
            working_set_bytes=predicted.ledger.working_set_bytes - expected + model.expert_bytes,
            experts_hit=list(model.experts_hit),
            expected_expert_bytes=expected,
            resident_bytes=ResidentBytes(
                weights=self._resident_weight_bytes,
                kv_allocated=held.kv_allocated,
                kv_filled=held.kv_filled,
                state=held.state,
                conv=held.conv,
            ),
            predicted_ns=predicted.predicted_ns,
            bound=predicted.bound,
            text=text,
        )
        step.flags = flags(step, self._ceilings, DTYPES[self._dtype])
        return step


class Answer:
    """The first sequence's text as it grows, until its end of sequence: the others may write on."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._text: list[str] = []
        self._ids: list[int] = []
        self._ended = False
        self._stopped_by: StoppedBy | None = None

    def add(self, raw: RawStep) -> tuple[str, int]:
        """Take a step's token; return the text it adds and the time that took, in ns."""
        self._stopped_by = raw.stopped_by
        if self._ended:
            return "", 0
        started = perf_counter_ns()
        piece = self._stream.push(raw.token_ids[0])
        self._ended = raw.ended[0]
        if self._ended or raw.stopped_by:
            piece += self._stream.flush()
        elapsed_ns = perf_counter_ns() - started
        self._text.append(piece)
        self._ids.append(raw.token_ids[0])
        return piece, elapsed_ns

    @property
    def output(self) -> Output:
        """As a record keeps it."""
        return Output(text="".join(self._text), token_ids=list(self._ids), stopped_by=self._stopped_by)


def _form(asked: str) -> Form:
    """A form of latent attention that `request.check` has let pass."""
    return "re-expanded" if asked == "re-expanded" else "absorbed"


def _datasheet_bandwidth(ceilings: Ceilings) -> float | None:
    device = hardware.of(ceilings.device)
    return None if device is None else device.bandwidth_bytes_per_s
