"""Terms that need no page of their own to be explained: written here once, for the lesson and for the page *Words*."""

from __future__ import annotations

from dataclasses import dataclass

from engine.errors import N_


@dataclass(frozen=True)
class Term:
    """A term as written, its explanation, the address of the page where it is at work, and other ways it is written."""

    name: str
    text: str
    page: str = ""
    also: tuple[str, ...] = ()


OWN: dict[str, Term] = {
    "token": Term(
        N_("token"), N_("A piece of text the model reads or writes at once: a word, part of one, or a sign."), "steps"
    ),
    "gemm": Term(
        N_("GEMM and GEMV"),
        N_("A matrix times many rows (GEMM), or times a single one (GEMV): the same weights read, more or less done."),
        "shapes",
    ),
    "greedy": Term(
        N_("greedy"), N_("Always taking the likeliest next token, so that the same prompt gives the same text."), ""
    ),
    "speculative": Term(
        N_("speculative decoding"),
        N_(
            "A cheap draft guesses several tokens; one pass of the model checks them all and keeps those it "
            "agrees with."
        ),
        "levers",
    ),
    "quantisation": Term(
        N_("quantisation"), N_("Holding each weight in fewer bits, so that a step has fewer bytes to read."), "roofline"
    ),
    "mixture": Term(
        N_("mixture of experts"),
        N_("A model whose layers hold many feed-forward blocks, of which each token uses only a few."),
        "map",
    ),
    "gqa": Term(
        N_("grouped queries (GQA)"),
        N_("Several query heads share one head of keys and values, so the cache is smaller."),
        "memory",
    ),
    "goodput": Term(
        N_("goodput"), N_("Requests a second that meet both limits, on the first token and on each further one."), "map"
    ),
    "row": Term(
        N_("row"),
        N_(
            "What a matrix is multiplied with once: the numbers of one token. Prefill sends a row for each token of "
            "the prompt, decode a single one for each sequence."
        ),
        "shapes",
        (N_("rows"),),
    ),
    "pass": Term(
        N_("pass"),
        N_("Once through all layers of the model, with however many rows. Each pass reads all the weights once."),
        "steps",
        (N_("step"), N_("decode step")),
    ),
    "phase": Term(
        N_("phase"),
        N_("One of the two parts of a request: prefill reads the prompt, decode writes the answer."),
        "steps",
    ),
    "context": Term(
        N_("context"),
        N_(
            "The tokens that a step looks back at: the prompt and all that has been written since. The KV cache has an "
            "entry for each."
        ),
        "memory",
        (N_("positions attended"), N_("context up to")),
    ),
    "prompt": Term(N_("prompt"), N_("The text that the model is given to go on from."), "", (N_("prompt length"),)),
    "sequence": Term(
        N_("sequence"), N_("One text that is being read and written. A batch has several at the same time."), "batch"
    ),
    "hybrid": Term(
        N_("hybrid"),
        N_(
            "A model of two kinds of layers: some keep a KV cache, which grows with the context, the others a "
            "recurrent state, which does not."
        ),
        "memory",
    ),
    "matrix": Term(
        N_("matrix"),
        N_("A table of weights. A layer multiplies the rows that come in with several of them, one after the other."),
        "shapes",
        (N_("input"), N_("output")),
    ),
    "attention": Term(
        N_("attention"),
        N_(
            "The part of a layer in which a token looks back at earlier ones: at each one's key, to see whether it "
            "matters, and at its value."
        ),
        "memory",
    ),
    "parameter": Term(
        N_("parameter"),
        N_("A number that the model has learned. A parameter that rows are multiplied with is a weight."),
        "",
    ),
    "checkpoint": Term(
        N_("checkpoint"),
        N_("A trained model as files: its weights, its vocabulary and a description of its shape."),
        "",
    ),
    "byte_piece": Term(
        N_("byte piece"),
        N_(
            "A token that is only part of a character, shown as ‹E5 B0›. A Chinese character is three bytes; a "
            "vocabulary without a token for it reads it in two or three pieces."
        ),
    ),
    "random_weights": Term(
        N_("random weights"),
        N_("A model of true shape with made-up numbers in it: its times are real, its text means nothing."),
        "",
        (N_("real weights"),),
    ),
    "run_on_show": Term(
        N_("the run on show"),
        N_(
            "The run that a page takes its measured numbers from: the one in the address; until you have pressed Run, "
            "a recorded one that comes with the lab."
        ),
    ),
    "disturbed": Term(
        N_("disturbed"),
        N_(
            "Said of a run during which something else used the machine: a small fixed piece of work took another time "
            "before it than after it, or other programs had a share of the processor. Its times are partly theirs, so "
            "it proves nothing; run it again with nothing else open."
        ),
        "",
        (N_("Control probe"),),
    ),
    "control_readings": Term(
        N_("control readings"),
        N_(
            "How fast a model's weights are read where they lie, and how fast a fixed product is made: once beside the "
            "measuring of that model, and again before each of its runs. The expected line is scaled by what has "
            "changed in between, as far as that is more than chance."
        ),
        "",
        (N_("Control readings"),),
    ),
    "spread": Term(
        N_("spread"),
        N_(
            "How far repetitions of one measurement lie apart: half the width of their middle half, as a share of the "
            "median. A few percent is usual; beyond 50 % the figure is unsteady and says little."
        ),
        "machine",
        (N_("samples"),),
    ),
    "bound": Term(
        N_("bound by"),
        N_(
            "What a step waits for longest: its bytes (memory), its arithmetic (compute), or the starting of its "
            "operations (launches)."
        ),
        "roofline",
        (N_("compute"), N_("memory"), N_("launches")),
    ),
    "ceilings": Term(
        N_("ceilings"),
        N_(
            "What this machine was measured to reach at most, apart from any run: reading, multiplying, and starting "
            "an operation."
        ),
        "machine",
    ),
    "kernel": Term(
        N_("kernel"),
        N_(
            "The small program that does one operation on the processor. Two kernels for the same operation may differ "
            "much in speed, and one for a few rows is often slower than one for many."
        ),
        "shapes",
    ),
    "working_set": Term(
        N_("working set"),
        N_("The bytes that are read over and over. If they fit in a cache, they come faster than from memory."),
        "machine",
    ),
    "draft": Term(
        N_("draft"), N_("Tokens guessed cheaply, for the model to check in a single pass."), "levers", (N_("drafts"),)
    ),
    "gigabyte": Term(
        N_("GB and GiB"),
        N_("1 GB is 1,000,000,000 bytes, 1 GiB is 1,073,741,824: seven percent more. Every number says which."),
    ),
}
