"""The command line as other programs call it: exit codes, one JSON document, one line of error."""

import argparse
import csv
import io
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine import cli

RUN_KEYS = {
    "schema", "id", "state", "package_version", "model", "device", "ceilings", "probe", "request", "prompt", "output",
    "warm_up_steps", "steps", "summary",
}  # fmt: skip
STEP_KEYS = {
    "index", "phase", "tokens", "context", "token_ids", "time_ns", "host_ns", "sample_ns", "detokenize_ns", "flops",
    "bytes", "resident_bytes", "predicted_ns", "flags",
}  # fmt: skip
BYTE_KINDS = {
    "weights", "kv_read", "kv_write", "state_read", "state_write", "conv_read", "conv_write", "logits", "total",
}  # fmt: skip
TINY = ("run", "--model", "tiny-3.7m", "--prompt", "Why is writing slow?", "--max-new-tokens", "6")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A lab of its own, so that its store starts empty and the calibration is made once a module."""
    return tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="module")
def engine(home):
    def call(*arguments, env=None, timeout=240):
        return subprocess.run(
            [sys.executable, "-m", "engine", *arguments],
            capture_output=True,
            text=True,
            timeout=timeout,
            env={**os.environ, "ROOFLINE_LAB_HOME": str(home), **(env or {})},
        )

    return call


@pytest.fixture(scope="module")
def tiny_run(engine):
    done = engine(*TINY, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_one_line_of_error(done, says):
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, done.stderr
    assert says in lines[0]


def test_run_prints_exactly_one_record(tiny_run):
    assert tiny_run.keys() >= RUN_KEYS
    assert tiny_run["state"] == "done"
    assert tiny_run["model"]["weights"] == "random"
    steps = tiny_run["steps"]
    assert [step["phase"] for step in steps] == ["prefill"] + ["decode"] * 5, "N tokens: one prefill and N - 1 decodes"
    assert len(tiny_run["output"]["token_ids"]) == 6
    for step in steps:
        assert step.keys() >= STEP_KEYS
        assert step["bytes"].keys() >= BYTE_KINDS
        assert step["time_ns"] > 0


def test_a_decode_step_equals_the_prediction_one_position_earlier(tiny_run, engine):
    """design.md: a step's `context` equals `predict --context (context - 1)`."""
    step = tiny_run["steps"][3]
    done = engine(
        "predict", "--model", "tiny-3.7m", "--hardware", "h100-sxm", "--context", str(step["context"] - 1),
        "--weights", "fp32", "--kv", "fp32", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    predicted = json.loads(done.stdout)["decode"]
    assert predicted["flops"] == step["flops"]
    assert predicted["bytes"] == {kind: step["bytes"][kind] for kind in predicted["bytes"]}


def test_the_run_is_recorded_shown_exported_and_taken_in_elsewhere(tiny_run, engine, tmp_path):
    listed = json.loads(engine("runs", "list", "--json").stdout)
    assert tiny_run["id"] in [row["id"] for row in listed]
    assert tiny_run["summary"]["verdict"] in engine("runs", "show", tiny_run["id"]).stdout
    exported = engine("runs", "export", tiny_run["id"])
    assert json.loads(exported.stdout) == tiny_run
    rows = list(csv.DictReader(io.StringIO(engine("runs", "export", tiny_run["id"], "--format", "csv").stdout)))
    measured = [int(row["time_ns"]) for row in rows if row["pass"] != "warm_up"]
    assert measured == [step["time_ns"] for step in tiny_run["steps"]]

    elsewhere = {"ROOFLINE_LAB_HOME": str(tmp_path / "other")}
    (tmp_path / "run.json").write_text(exported.stdout, encoding="utf-8")
    taken = engine("runs", "import", str(tmp_path / "run.json"), env=elsewhere)
    assert taken.stdout.strip() == tiny_run["id"], taken.stderr
    again = json.loads(engine("runs", "export", tiny_run["id"], env=elsewhere).stdout)
    assert again["steps"] == tiny_run["steps"]


def test_an_experiment_is_taken_in_and_exported_like_a_run(engine, tmp_path):
    made = engine("shapes", "--model", "tiny-3.7m", "--weights", "fp32", "--rows", "1,2", "--json")
    assert made.returncode == 0, made.stderr
    record = json.loads(made.stdout)
    (tmp_path / "shape.json").write_text(made.stdout, encoding="utf-8")
    elsewhere = {"ROOFLINE_LAB_HOME": str(tmp_path / "other")}
    taken = engine("runs", "import", str(tmp_path / "shape.json"), env=elsewhere)
    assert taken.stdout.strip() == record["id"], taken.stderr
    again = json.loads(engine("runs", "export", record["id"], env=elsewhere).stdout)
    assert again["points"] == record["points"]
    assert engine("runs", "export", record["id"], "--format", "csv", env=elsewhere).stdout.count("\n") == 3


def test_a_refusal_leaves_stdout_empty_and_the_help_says_so(engine):
    refused = engine("run", "--model", "no-such-model", "--prompt", "x", "--json")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "refused" in engine("run", "--help").stdout


@pytest.mark.parametrize("name", ["ROOFLINE_LAB_THREADS", "ROOFLINE_LAB_KERNELS"])
def test_settings_that_cannot_be_are_refused_before_anything_is_kept(engine, name):
    before = json.loads(engine("runs", "list", "--json").stdout)
    refused = engine(*TINY, "--json", env={name: "nought"})
    assert_one_line_of_error(refused, f"{name} is nought")
    assert refused.stdout == ""
    assert json.loads(engine("runs", "list", "--json").stdout) == before


def test_every_option_of_every_command_has_a_text():
    def options(command):
        for action in command._actions:
            if isinstance(action, argparse._SubParsersAction):
                for name, inner in action.choices.items():
                    yield from ((f"{name} {each}", text) for each, text in options(inner))
            else:
                yield action.dest, action.help

    assert [name for name, text in options(cli.parser()) if not text] == []


def test_without_json_the_text_streams_and_the_summary_is_on_stderr(engine):
    done = engine(*TINY)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert "TPOT" in done.stderr
    assert "TPOT" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((*TINY[:3], "--prompt", ""), "empty"),
        ((*TINY, "--batch", "0"), "batch"),
        (("run", "--model", "tiny-3.7m", "--prompt", "x", "--max-new-tokens", "-1"), "-1"),
        (("run", "--model", "no-such-model", "--prompt", "x"), "no-such-model"),
        ((*TINY, "--temperature", "nan"), "temperature"),
        ((*TINY, "--device", "cpu", "--graph"), "graph is for CUDA devices"),
        ((*TINY, "--device", "cpu", "--clock", "free-running"), "free-running is for CUDA devices"),
        ((*TINY, "--clock", "sundial"), "sundial"),
        (("predict", "--model", "no-such-model", "--hardware", "h100-sxm"), "no-such-model"),
        (("predict", "--model", "tiny-3.7m", "--hardware", "h1000"), "h1000"),
        (("predict", "--model", "tiny-3.7m", "--hardware", "h100-sxm", "--batch", "0"), "atch"),
        (("fetch", "no-such-model"), "no-such-model"),
        (("runs", "show", "../../etc/passwd"), "No run"),
        (("runs", "import", "no-such-file.json"), "no-such-file.json"),
        (("serve", "--port", "99999"), "99999"),
        (("predict", "--model", "tiny-3.7m", "--hardware", "a\nb\x1b[31m"), r"a\nb\x1b[31m"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_1(engine, arguments, says):
    assert_one_line_of_error(engine(*arguments), says)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("run",),
        ("nonsense",),
        ("run", "--batch", "two"),
        (*TINY, "--graph", "--eager"),
        ("predict", "--preset", "x"),
    ],
)
def test_wrong_usage_is_exit_code_2(engine, arguments):
    done = engine(*arguments)
    assert done.returncode == 2
    assert "usage:" in done.stderr
    assert "Traceback" not in done.stderr


def test_listings_are_json_documents(engine):
    models = json.loads(engine("models", "--json").stdout)
    assert {"smollm2-135m", "tiny-3.7m"} <= {model["id"] for model in models}
    devices = json.loads(engine("hardware", "--json").stdout)
    assert "h100-sxm" in {device["id"] for device in devices}


def test_calibrate_prints_this_machines_ceilings(engine, tiny_run):
    done = engine("calibrate", "--json")
    assert done.returncode == 0, done.stderr
    ceilings = json.loads(done.stdout)
    assert ceilings["measured_at"] >= tiny_run["ceilings"]["measured_at"]
    assert all(point["bytes_per_s"] > 0 for point in ceilings["bandwidth"])


def test_check_passes_here_and_fails_with_a_reason_where_the_store_cannot_be_written(engine, tmp_path):
    assert engine("check").returncode == 0
    blocked = tmp_path / "not-a-folder"
    blocked.write_text("a file where the store's folder should be")
    done = engine("check", "--json", env={"ROOFLINE_LAB_STORE": f"sqlite:///{blocked}/lab.db"})
    assert done.returncode == 1
    store = next(result for result in json.loads(done.stdout) if result["check"] == "store")
    assert not store["ok"]
    assert store["detail"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("arguments", [("hardware",), ("hardware", "--json"), (*TINY, "--json")])
def test_output_that_finds_no_room_is_one_line(home, arguments):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "engine", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=240,
            env={**os.environ, "ROOFLINE_LAB_HOME": str(home)},
        )
    assert_one_line_of_error(done, "no space is left")


@pytest.mark.skipif(sys.platform == "win32", reason="needs a shell that closes streams")
def test_a_closed_stream_gets_nothing_and_the_other_its_own(home):
    def shell(closed):
        line = " ".join(shlex.quote(word) for word in (sys.executable, "-m", "engine", *TINY, "--json"))
        environment = {**os.environ, "ROOFLINE_LAB_HOME": str(home)}
        return subprocess.run(
            ["sh", "-c", f"{line} {closed}"], capture_output=True, text=True, timeout=240, env=environment
        )

    assert json.loads(shell("2>&-").stdout)["state"] == "done"
    silent = shell(">&-")
    assert silent.returncode == 0
    assert "Traceback" not in silent.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT to send to one process")
def test_ctrl_c_keeps_the_steps_made_so_far(engine, home):
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "engine",
            "run",
            "--model",
            "tiny-3.7m",
            "--prompt",
            "Go on",
            "--max-new-tokens",
            "1500",
            "--batch",
            "16",  # texts of random numbers: all of them will not end early
            "--temperature",
            "2",
        ],
        env={**os.environ, "ROOFLINE_LAB_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that runs the tests in the background has it ignored, and so would have who is started from them.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout.read(1), "the text has begun to stream"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "cancelled after" in errors
    run_id = errors.strip().rsplit(" ", 1)[-1].rstrip(".")
    kept = json.loads(engine("runs", "export", run_id).stdout)
    assert kept["state"] == "cancelled"
    assert 1 <= len(kept["steps"]) < 1500
