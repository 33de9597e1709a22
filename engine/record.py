"""What is asked, what was measured and what it was measured against: RunRequest, Step, Run.

Typed, versioned and serialisable. Field names are the lab's public JSON format: fields may be added,
none may change its name or meaning. Knows nothing of torch, of the store or of a page.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from engine.ceilings import Ceilings, ControlRates, DeviceFacts
from engine.errors import Sentence

SCHEMA: Final = 1
RUN_ID_PATTERN = r"^[A-Za-z0-9_-]{12}$"

Phase = Literal["prefill", "decode"]
Flag = Literal["beats_roof", "beats_datasheet", "disturbed"]
ActiveState = Literal["queued", "fetching", "loading", "calibrating", "warming_up", "running"]
FinalState = Literal["done", "cancelled", "failed"]
FINAL_STATES: tuple[FinalState, ...] = ("done", "cancelled", "failed")

Count = Annotated[int, Field(ge=0)]


def new_run_id() -> str:
    """A run's address: 72 random bits, 12 characters, safe in a URL."""
    while True:
        run_id = secrets.token_urlsafe(9)
        # A leading dash would read as an option on the command line (`runs show -x...`).
        if not run_id.startswith("-"):
            return run_id


def now() -> str:
    """This moment, UTC, ISO 8601 with seconds."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class _Part(BaseModel):
    """Base of everything inside a record: unknown fields of later versions are kept, not refused."""

    model_config = ConfigDict(extra="allow", protected_namespaces=())


class StepBytes(_Part):
    """Bytes one step moves, by kind. `total` is their sum and is checked."""

    weights: Count
    kv_read: Count
    kv_write: Count
    state_read: Count = 0
    state_write: Count = 0
    conv_read: Count = 0
    conv_write: Count = 0
    logits: Count
    total: Count

    @model_validator(mode="after")
    def _sums(self) -> Self:
        parts = self.weights + self.kv_read + self.kv_write + self.logits
        parts += self.state_read + self.state_write + self.conv_read + self.conv_write
        if parts != self.total:
            raise ValueError(f"bytes.total is {self.total}, its parts add up to {parts}")
        return self


class StepParts(_Part):
    """Parts of a step's bytes that are worth a name: of the weights, the routed `experts` that were read; of the KV
    cache, read and written together, what lies in a sliding `window` and what is a compressed `latent`.
    """

    experts: Count = 0
    window: Count = 0
    latent: Count = 0


class ResidentBytes(_Part):
    """Bytes held while a step runs; `kv_filled` is the part of `kv_allocated` that is in use."""

    weights: Count
    kv_allocated: Count
    kv_filled: Count
    state: Count = 0
    conv: Count = 0


class PredictedNs(_Part):
    """The three lines, made before the run. `datasheet` is None where the device is not in hardware_specs."""

    datasheet: float | None
    measured_roof: float
    expected: float


class RunRequest(_Part):
    """What is asked of the worker. Checked again by `engine.request.check`, whoever sent it.

    dtype: None asks for the checkpoint's own; the record of the run says which that was.
    latent: how a decode step reads the cache of latent attention, "absorbed" or "re-expanded".
    clock: "synchronised" waits for the device after each step, "free-running" only for the last one.
    launches: how decode steps are started: "eager" op by op, "graph" all at once, "compiled" so after torch.compile.
    """

    model: str
    prompt: str
    chat: bool = False
    max_new_tokens: int = 64
    batch: int = 1
    device: str | None = None
    dtype: str | None = None
    weights: str | None = None
    kv: str | None = None
    latent: str = "absorbed"
    clock: str = "synchronised"
    launches: str = "eager"
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0


class ModelFacts(_Part):
    """Which weights ran. `weights_hash` is the SHA-256 over the weight files (or the random seed's description).

    revision: the commit on the Hub that they are. stored_format: what their files hold, where that is known.
    notes: what a reader of the figures or the text has to know of them.
    """

    id: str
    weights: Literal["real", "random"]
    weights_hash: str
    dtype: str
    weight_format: str
    kv_format: str
    parameters: Count = 0
    config: dict[str, Any] = {}
    revision: str | None = None
    stored_format: str | None = None
    notes: list[Sentence] = []


class Probe(_Part):
    """A fixed matvec timed before and after the run, and how busy the machine was.

    load: the system's 1-minute average, ours included. other_cores: cores' worth of work others did during the steps.
    reading_scaled_by, multiplying_scaled_by: how many times as long the control readings took before the run as
        when the ceilings were measured, less what chance explains; the expected line is scaled by both
        (`engine.present`).
    control: those readings themselves, before and after the warm-up; what they are compared with is in the ceilings.
    """

    before_ns: Count
    after_ns: Count
    load: float | None
    moved: float = 0.0
    other_cores: float | None = None
    reading_scaled_by: float = Field(default=1.0, gt=0, lt=1e6)
    multiplying_scaled_by: float = Field(default=1.0, gt=0, lt=1e6)
    control: list[ControlRates] = []


class Preparation(_Part):
    """What went before the first step and is in no step's time, in ns; 0 for what had been done before.

    load_ns: weights into memory. compile_ns: kernels, once on a machine, or a step by torch.compile. capture_ns: the
    recording of a step as a graph. The warm-up is apart from all of them, except that it is where a step is recorded.
    """

    load_ns: Count = 0
    compile_ns: Count = 0
    capture_ns: Count = 0


class Prompt(_Part):
    text: str
    token_ids: list[Count]
    pieces: list[str] = []
    rendered: str | None = None


class Output(_Part):
    text: str
    token_ids: list[Count]
    stopped_by: Literal["length", "end_of_sequence", "context_limit", "cancelled"] | None = None


class Step(_Part):
    """One forward pass, measured and predicted.

    tokens: rows processed (of one sequence). context: positions attended, the new ones included.
    time_ns: the forward pass on the device's own clock. host_ns: the same on the host's clock.
    working_set_bytes: the distinct bytes the step touches: what its bandwidth ceiling is read at.
    experts_hit: distinct experts the router chose in each layer that has them. `bytes` holds those that were read,
        `expected_expert_bytes` what was expected of them.
    """

    index: Count
    phase: Phase
    tokens: Count
    context: Count
    token_ids: list[Count]
    time_ns: Count
    host_ns: Count
    sample_ns: Count
    detokenize_ns: Count
    flops: Count
    bytes: StepBytes
    parts: StepParts = StepParts()
    working_set_bytes: Count = 0
    resident_bytes: ResidentBytes
    predicted_ns: PredictedNs
    bound: Literal["memory", "compute", "launches"] = "memory"
    experts_hit: list[Count] = []
    expected_expert_bytes: Count = 0
    text: str = ""
    flags: list[Flag] = []


class Percentiles(_Part):
    p50: float
    p95: float
    p99: float


class Summary(_Part):
    """The run in a few numbers. None where the run has no step that could say (no decode step, say)."""

    verdict: str
    verdict_sentences: list[Sentence] = []
    ttft_ms: float | None
    tpot_ms: Percentiles | None
    tokens_per_s: float | None
    mbu: float | None
    mbu_datasheet: float | None = None
    mfu_prefill: float | None
    median_abs_error: float | None
    flags: list[Flag] = []


class Run(_Part):
    """One finished, cancelled or failed run with everything needed to check it."""

    schema_: Literal[1] = Field(SCHEMA, alias="schema")
    id: str = Field(pattern=RUN_ID_PATTERN)
    state: FinalState
    created_at: str
    package_version: str
    model: ModelFacts | None
    device: DeviceFacts | None
    ceilings: Ceilings | None
    probe: Probe | None
    request: RunRequest
    preparation: Preparation | None = None
    prompt: Prompt | None
    output: Output
    warm_up_steps: list[Step] = []
    steps: list[Step] = []
    summary: Summary | None
    error: Sentence | None = None

    model_config = ConfigDict(extra="allow", populate_by_name=True, protected_namespaces=())

    def to_json(self) -> str:
        """The record as the lab's public JSON document."""
        return self.model_dump_json(by_alias=True)


class Progress(_Part):
    """How far long work has come: a sentence, and a fraction where one is known."""

    sentence: Sentence
    fraction: float | None = None


class RunView(_Part):
    """What a page may know of a run that has not ended (or just has), as `broker.snapshot` gives it.

    notice: something else to know, a record that could not be saved, say.
    """

    id: str
    state: ActiveState | FinalState
    request: RunRequest
    place: int | None = None
    expected_wait_s: float | None = None
    progress: Progress | None = None
    prompt: Prompt | None = None
    steps: list[Step] = []
    steps_so_far: int = 0
    error: Sentence | None = None
    notice: Sentence | None = None

    @property
    def ended(self) -> bool:
        """Whether nothing more will come."""
        return self.state in FINAL_STATES
