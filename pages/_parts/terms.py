"""The lab's terms, each explained in one or two sentences: shown on hover wherever the term stands."""

from __future__ import annotations

from engine.errors import N_

PREFILL = N_(
    "Prefill: the model reads the whole prompt in one pass. The weights are read once for all of its "
    "tokens, and the pass also yields the first new token."
)
DECODE = N_("Decode: one pass for each further token. All weights are read again, for a single row of work.")
TTFT = N_("Time to first token: how long until the first new token is there, which is the prefill.")
TPOT = N_(
    "Time per output token: how long one decode step takes. p50 is the median; one step in twenty is "
    "slower than p95, one in a hundred slower than p99."
)
TOKENS_PER_S = N_("New tokens a second while decoding, all sequences of the batch together.")
TOKENS_PER_S_MEAN = N_(
    "The mean while decoding, all sequences of the batch together: new tokens over the time of all decode steps, "
    "choosing and writing out each token included. TPOT p50 is the median step alone, so one over it is a little more."
)
MBU = N_(
    "Memory bandwidth utilisation: the bytes a decode step has to move, over its time, as a share of "
    "the fastest reading measured on this machine."
)
MFU = N_(
    "Model FLOPs utilisation: the FLOPs the prefill has to do, over its time, as a share of the "
    "fastest matrix multiplication measured on this machine."
)
EXPECTED_ERROR = N_(
    "How far the measured decode steps lie from the expected line, in the median. The line was drawn "
    "before the run, from measurements made apart from it."
)
KV_CACHE = N_(
    "KV cache: what attention remembers of each earlier token, so that it need not be computed again. "
    "It grows with every token and is read at every step."
)
ARITHMETIC_INTENSITY = N_("Arithmetic intensity: FLOPs done for each byte moved.")
RIDGE = N_(
    "Ridge point: the arithmetic intensity at which computing takes as long as reading. Left of it "
    "memory is the limit, right of it arithmetic."
)
EXPECTED = N_(
    "What this machine should need: each operation at the rate measured for its shape, plus the cost of launching it."
)
ROOF = N_(
    "What this machine cannot beat: all bytes at its measured bandwidth, or all FLOPs at its measured "
    "rate, whichever takes longer."
)
ROOF_OF_TIME = N_(
    "The roof on an axis of time: what is a roof on speed is a floor under time. All bytes at this machine's measured "
    "bandwidth, or all FLOPs at its measured rate, whichever takes longer."
)
FLOOR = N_("The same limit from the manufacturer's data sheet.")
WEIGHTS = N_("The model's parameters. Every step reads all of them.")
STATE = N_("Recurrent state: the fixed-size memory of layers that keep no KV cache, read and written at every step.")
CONV = N_("The last few columns that the convolution before a recurrent layer keeps.")
LOGITS = N_("The scores of every possible next token, written once a step.")
LAUNCH = N_("Launch cost: what starting one operation costs, however small it is.")
BATCH = N_(
    "Sequences written at the same time. They share each reading of the weights; every one has its own KV cache."
)
CHAT = N_("Wraps the prompt in the model's chat template, so that it is answered and not continued.")
TEMPERATURE = N_("0 always takes the likeliest token. Higher values choose more freely.")
TOP_K = N_("Choose only among the k likeliest tokens. 0 means no limit.")
TOP_P = N_("Choose only among the likeliest tokens that together reach this probability. 1 means no limit.")
MIN_P = N_("Drop tokens less likely than this share of the likeliest one's probability. 0 means no limit.")
SEED = N_("The same seed, prompt and settings choose the same tokens again.")
DTYPE = N_(
    "What weights, cache and arithmetic are held in. bf16 halves the bytes to read; not every "
    "processor computes in it fast."
)
WEIGHT_FORMAT = N_(
    "What the matrices are held in while fp32 is computed in: fewer bytes to read, and weights that are a little off. "
    "int8 has a scale per row, int4 one per 128, 32 or 64 weights. For dense models on a CPU."
)
KV_FORMAT = N_(
    "What keys and values are held in while fp32 is computed in: fewer bytes for each position, to hold and to read. "
    "int8 has a scale for each key and each value of a head. For dense models on a CPU."
)
PERPLEXITY = N_(
    "Among how many equally likely tokens the model is undecided on average; lower is better. A format that loses "
    "little stays close to fp32."
)
LENGTH = N_("How many tokens to write at most. The model may stop earlier by itself.")
HEAD = N_("The head: the last matrix, which turns what the layers computed into a score for every possible next token.")
CONVENTION = N_(
    "What counts as a FLOP or a byte. The lesson's convention gives its printed numbers; this "
    "engine's counts all it really does."
)
WEIGHTS_ALONE = N_(
    "The decode step if only the weights had to be read: its intensity is the batch, because all "
    "sequences share one reading."
)
ATTENTION_ALONE = N_(
    "Attention over the cache, alone: every key and value read is used by one group of query heads, "
    "whatever the batch. More sequences do not move this point."
)
ROOFLINE = N_(
    "The roof: no step is faster. On the slope bytes are the limit and more work per byte helps; on "
    "the flat part arithmetic is, and it does not."
)
MEASURED = N_("A run of this model: bytes and FLOPs by count, time by the clock of the machine it ran on.")
FLOPS = N_("Floating-point operations the step has to do: two for each weight and each row, and those of attention.")
BYTES = N_(
    "Bytes the step has to read and write: weights once for the whole batch, each sequence's own KV cache and state."
)
PEAK = N_(
    "π, the peak: floating-point operations the device can do in a second, dense, in the format the "
    "weights are multiplied in."
)
BANDWIDTH = N_("β, the bandwidth: bytes the device's memory can deliver in a second.")
STEP_TIME = N_(
    "t, the time of the step. It cannot be less than the larger of the two quotients; real steps take longer."
)
COMPUTE_ALONE = N_("Compute alone: FLOPs over the peak, as if every byte were already there.")
BYTES_ALONE = N_("Bytes alone: bytes over the bandwidth, as if arithmetic were free.")
LARGEST_BATCH = N_("The most sequences of this context that fit in the device's memory beside the whole checkpoint.")
INTENSITY_LIMIT = N_(
    "What the decode step's intensity nears as the batch grows: the weights are shared, each "
    "sequence's own cache and state are not."
)
CROSSOVER = N_("The context at which one kind of bytes becomes more than the other.")
SHARE_OF_ROOF = N_("The floor's time over the measured time: 100 % would be as fast as the data sheet allows.")
REPLACED = N_(
    "What the recurrent layers would store if they kept keys and values like the model's attention layers do."
)
HELD = N_("Held: what one sequence takes of the memory, beside the weights.")
MOVED = N_(
    "Moved: what one decode step reads and writes for one sequence, beside the weights. A state is "
    "read and written whole."
)
CONFIDENCE = N_(
    "All rates are dense. Confidence A: the maker and another source agree; A-: nearly so, or one figure is derived; "
    "B: one good source; C: weak or contradictory."
)
FLAGGED = N_(
    "A ring in red: below the measured roof by more than its spread, or below the data sheet. Nothing is; the clock, "
    "the bytes or the machine's own measurement are off."
)
FLAT_START = N_("The rows up to which the product takes at most a quarter longer than with a single row.")
KNEE = N_(
    "Where the flat start and the slope meet: the flat start's time over what a row costs where rows are many. On a "
    "perfect roof this is the ridge."
)
MEASURED_STEPS = N_("Steps of this engine, timed here: the median of the samples.")
FORETOLD = N_("Worked out from the run's own ceilings before anything was measured, and kept.")
MEASURED_ROWS = N_("The product timed here by this engine's own layer: the median of its samples.")
LATENT_FORM = N_(
    "Absorbed: each step turns its queries into the cache's compressed form and reads the cache as it is. Re-expanded: "
    "each step makes keys and values of every position anew, which moves many more bytes for the same result."
)
CLOCK = N_(
    "A GPU works through a queue. Waited for: the host looks at each token before it queues the next step, as one who "
    "streams text must, and the GPU idles meanwhile. Freely: nothing is looked at before the last step, so a step "
    "takes what the GPU takes; the text comes at the end."
)
LAUNCHES = N_(
    "How a decode step's hundreds of small operations are started. Op by op, the host launches each, which in a small "
    "model takes longer than the work. As a graph they are recorded once and launched together; compiled, "
    "torch.compile fuses some of them first. The expected line counts the launches one by one."
)
EXPERTS = N_(
    "Experts: of many feed-forward parts a router picks a few for each token. Only those a step hits are read; "
    "how many that were is recorded with each step."
)
WINDOW = N_(
    "Sliding window: some layers look back over a fixed number of tokens only, and keep no more than those. Their "
    "cache stops growing."
)
LATENT = N_(
    "Latent attention: one compressed vector a token, shared by all heads, is kept in place of a key and a value for "
    "each head."
)
