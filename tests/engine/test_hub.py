"""Checkpoints from a stand-in Hub: whole, in shards, broken off and resumed, out of reach, or not as announced."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hub_server import Hub, Repo, reached_from
from huggingface_hub import constants
from small_models import edit_config, save_llama

from engine import checkpoint, hub, weights
from engine.errors import LabError, Sentence
from engine.measure import Stopped
from engine.source import Source

ROOT = Path(__file__).parents[2]
ID = "lab/small"
FILE = "model.safetensors"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    monkeypatch.chdir(tmp_path)
    yield from reached_from(tmp_path, monkeypatch)


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    """A model of one file, with what else a repository holds beside it."""
    folder = save_llama(tmp_path / "whole")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "README.md").write_text("# A model")
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    (folder / "modeling_small.py").write_text("raise SystemExit")
    return folder


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    return save_llama(tmp_path / "sharded", shard_size="8KB")


def same_weights(one: Path | Source, other: Path) -> bool:
    source = one if isinstance(one, Source) else checkpoint.resolve(one, allow_paths=True)
    found, expected = weights.tensors(source), weights.tensors(checkpoint.resolve(other, allow_paths=True))
    return found.keys() == expected.keys() and all((found[name] == expected[name]).all() for name in expected)


def refused(sentence: str, name: str = ID) -> None:
    with pytest.raises(LabError, match=sentence) as caught:
        checkpoint.ensure(name)
    assert "\n" not in str(caught.value)


# --- what arrives -----------------------------------------------------------------------------------


def test_a_model_of_one_file(server: Hub, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1_000)  # told of each, and 10 MB would be all of it
    commit = server.repo(ID).publish(whole)
    told: list[tuple[Sentence, float | None]] = []
    source = checkpoint.ensure(ID, lambda sentence, fraction: told.append((sentence, fraction)))
    assert (source.id, source.revision, source.weights) == (ID, commit, "real")
    assert same_weights(source, whole)
    assert source.folder is not None
    assert {path.name for path in source.folder.iterdir()} == {
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        FILE,
    }
    fractions = [fraction for _, fraction in told]
    assert fractions == sorted(fractions, key=lambda fraction: fraction or 0)
    assert fractions[-1] == 1
    assert len({fraction for fraction in fractions if fraction is not None and 0.1 < fraction < 0.9}) > 10
    assert str(told[-1][0]) == "Downloading lab/small: 0 of 0 MB have arrived."


def test_nothing_that_could_run_is_asked_for(server: Hub, whole: Path) -> None:
    server.repo(ID).publish(whole)
    checkpoint.ensure(ID)
    assert not {"README.md", "pytorch_model.bin", "modeling_small.py"} & {
        path.rsplit("/", 1)[-1] for _, path, _ in server.requests
    }


def test_a_model_in_shards(server: Hub, sharded: Path) -> None:
    server.repo(ID).publish(sharded)
    assert same_weights(checkpoint.ensure(ID), sharded)
    assert len([name for name in server.fetched() if name.endswith(".safetensors")]) >= 3


def test_what_is_in_the_cache_is_not_asked_for_again(server: Hub, whole: Path) -> None:
    server.repo(ID).publish(whole)
    checkpoint.ensure(ID)
    server.requests.clear()
    assert checkpoint.ensure(ID).id == ID
    assert checkpoint.resolve(ID, allow_paths=True).revision == server.repo(ID).names["main"]
    assert server.requests == []


def test_a_fetch_brings_the_newest_version_and_a_run_keeps_the_one_it_has(server: Hub, whole: Path) -> None:
    first = server.repo(ID).publish(whole)
    checkpoint.ensure(ID)
    edit_config(whole, rms_norm_eps=1e-3)
    second = server.repo(ID).publish(whole)
    assert checkpoint.ensure(ID).revision == first
    server.requests.clear()
    assert checkpoint.ensure(ID, thorough=True).revision == second
    assert FILE not in server.fetched(), "weights that did not change are in the cache"
    assert checkpoint.ensure(ID).revision == second


@pytest.mark.parametrize("by_commit", [False, True])
def test_a_revision_can_be_named(server: Hub, whole: Path, by_commit: bool) -> None:
    old = server.repo(ID).publish(whole, "v1")
    edit_config(whole, rms_norm_eps=1e-3)
    server.repo(ID).publish(whole)
    name = f"{ID}@{old if by_commit else 'v1'}"
    source = checkpoint.ensure(name)
    assert (source.id, source.revision) == (name, old)
    assert source.spec.norm.eps == 1e-6
    server.close()
    assert checkpoint.ensure(name).revision == old


# --- broken off -------------------------------------------------------------------------------------


def test_a_broken_connection_is_taken_up_where_it_broke(
    server: Hub, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1_000)  # what arrived of a chunk is not kept; it is 10 MB
    server.repo(ID).publish(whole)
    server.break_off_at[FILE] = 5_000
    assert same_weights(checkpoint.ensure(ID), whole)
    ranges = [asked for method, path, asked in server.requests if method == "GET" and path.endswith(FILE)]
    assert "bytes=5000-" in ranges


def test_a_fetch_called_off_goes_on_with_the_file_it_was_at(server: Hub, sharded: Path) -> None:
    server.repo(ID).publish(sharded)
    shards = sorted(path.name for path in sharded.glob("*.safetensors"))

    def call_off(sentence: Sentence, fraction: float | None) -> None:
        if shards[1] in server.fetched():
            raise Stopped

    with pytest.raises(Stopped):
        checkpoint.ensure(ID, call_off)
    with pytest.raises(LabError, match="neither a folder nor in the Hub's cache"):
        checkpoint.resolve(ID, allow_paths=True)
    server.requests.clear()
    assert same_weights(checkpoint.ensure(ID), sharded)
    assert shards[0] not in server.fetched()
    assert shards[1] in server.fetched()


# --- not as announced -------------------------------------------------------------------------------


def test_a_file_of_another_length(server: Hub, whole: Path) -> None:
    server.repo(ID).publish(whole)
    server.cut[FILE] = 20_000
    refused("A file of lab/small arrived with another length than announced: fetch it again")
    with pytest.raises(LabError, match="in the Hub's cache"):
        checkpoint.resolve(ID, allow_paths=True)
    server.cut.clear()
    assert same_weights(checkpoint.ensure(ID), whole)


def test_a_file_with_another_content(server: Hub, whole: Path) -> None:
    server.repo(ID).publish(whole)
    server.altered.add(FILE)
    refused(r"model\.safetensors of lab/small did not arrive as it was published, and was removed")
    server.altered.clear()
    assert same_weights(checkpoint.ensure(ID), whole)


def test_a_shard_that_was_never_published(server: Hub, sharded: Path) -> None:
    shard = sorted(sharded.glob("*.safetensors"))[1]
    shard.unlink()
    server.repo(ID).publish(sharded)
    refused(rf"lab/small lacks the file {shard.name} on the Hub, which its index names")


def test_a_file_that_is_listed_and_gone(server: Hub, whole: Path) -> None:
    server.repo(ID).publish(whole)
    server.repo(ID).lost.add(FILE)
    refused(r"lists a file of lab/small that it does not have \(model\.safetensors\)")


def test_an_index_that_reaches_out_of_the_repository(server: Hub, sharded: Path) -> None:
    path = sharded / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": {"model.norm.weight": "../../../config.safetensors"}}))
    server.repo(ID).publish(sharded)
    refused("names the file .*; only safetensors files of the same folder are read")
    assert not any("safetensors" in name and "index" not in name for name in server.fetched())


def test_pickled_weights_alone(server: Hub, whole: Path) -> None:
    (whole / FILE).unlink()
    server.repo(ID).publish(whole)
    refused("lab/small has no safetensors files on the Hub, and pickled weights are never opened")


def test_a_repository_without_a_model(server: Hub, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "README.md").write_text("nothing")
    server.repo(ID).publish(tmp_path / "data")
    refused(r"lab/small has no config\.json on the Hub")


def test_a_model_that_cannot_be_read_is_not_downloaded(server: Hub, whole: Path) -> None:
    edit_config(whole, model_type="mystery")
    server.repo(ID).publish(whole)
    refused("The model type mystery is not supported")
    assert FILE not in server.fetched()


def test_code_that_a_checkpoint_brings_is_not_run_and_that_is_said(server: Hub, whole: Path) -> None:
    edit_config(whole, auto_map={"AutoModelForCausalLM": "modeling_small.Small"})
    server.repo(ID).publish(whole)
    source = checkpoint.ensure(ID)
    assert [str(note) for note in source.notes()] == [
        "The checkpoint asks for code of its own (AutoModelForCausalLM); it was not run: "
        "the engine has its own for this family."
    ]
    assert same_weights(source, whole)


# --- who answers ------------------------------------------------------------------------------------


def test_no_network_and_nothing_in_the_cache(server: Hub) -> None:
    server.close()
    refused(r"lab/small is not on this machine and http://127.* cannot be reached: .*HF_ENDPOINT.*name a folder")


def test_no_network_and_all_of_it_in_the_cache(server: Hub, whole: Path) -> None:
    server.repo(ID).publish(whole)
    checkpoint.ensure(ID)
    server.close()
    assert same_weights(checkpoint.ensure(ID), whole)
    assert same_weights(checkpoint.ensure(ID, thorough=True), whole)


def test_no_network_and_a_part_of_it_in_the_cache(server: Hub, sharded: Path) -> None:
    server.repo(ID).publish(sharded)
    source = checkpoint.ensure(ID)
    source.weight_files()[1].unlink()
    server.close()
    refused("is not on this machine and .* cannot be reached")


def test_offline_by_the_readers_own_setting(server: Hub, whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server.repo(ID).publish(whole)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    refused("is not in the Hub's cache on this machine, and HF_HUB_OFFLINE forbids to fetch it")
    assert server.requests == []


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("lab/nothing", "http://127.* has no public model lab/nothing: check the name, or log in"),
        ("lab/small@v9", "lab/small has no revision v9 at http://127"),
    ],
)
def test_a_name_that_nobody_has(server: Hub, whole: Path, name: str, sentence: str) -> None:
    server.repo(ID).publish(whole)
    refused(sentence, name)


def test_a_model_with_terms(server: Hub, whole: Path) -> None:
    server.repo(ID).publish(whole)
    server.repo(ID).gated = True
    refused("lab/small is given only to those who accepted its terms: .*`hf auth login`")


def test_a_hub_that_fails(server: Hub) -> None:
    server.failing = 500
    refused("http://127.* answered 500 when asked for lab/small: try again later, or set HF_ENDPOINT")


def test_an_answer_that_is_not_the_hubs(server: Hub, whole: Path) -> None:
    server.repo(ID).publish(whole)
    server.names_commits = False
    refused("http://127.* does not answer as the Hugging Face Hub does: set HF_ENDPOINT to one that does, or unset it")


def test_a_full_disk(server: Hub, whole: Path, small_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(small_disk / "cache"))
    with (whole / FILE).open("ab") as file:
        file.write(b"\0" * 300_000)
    server.repo(ID).publish(whole)
    refused(r"lab/small needs 0 MB more in .* and 0 MB are free: free some, or set HF_HOME")


# --- names ------------------------------------------------------------------------------------------


def test_a_visitor_of_the_web_app_reaches_the_offered_names_alone(server: Hub, whole: Path) -> None:
    server.repo(ID).publish(whole)
    with pytest.raises(LabError, match=r"There is no model lab/small; choose .*Qwen/Qwen3-0\.6B"):
        checkpoint.ensure(ID, allow_paths=False)
    with pytest.raises(LabError, match="There is no model"):
        checkpoint.require(ID, allow_paths=False)
    assert server.requests == []
    server.repo(hub.ON_THE_WEB[0]).publish(whole)
    checkpoint.require(hub.ON_THE_WEB[0], allow_paths=False)
    assert server.requests == []
    assert not next(choice for choice in checkpoint.available() if choice.id == hub.ON_THE_WEB[0]).fetched
    assert checkpoint.ensure(hub.ON_THE_WEB[0], allow_paths=False).weights == "real"
    assert next(choice for choice in checkpoint.available() if choice.id == hub.ON_THE_WEB[0]).fetched


def test_a_folder_of_that_name_comes_first(server: Hub, whole: Path, tmp_path: Path) -> None:
    save_llama(tmp_path / "lab" / "small", tied=True)
    server.repo(ID).publish(whole)
    assert checkpoint.ensure(ID).spec.tied
    assert server.requests == []


NO_NAMES = ["small", "a/b/c", "../x", "a/..", "/a/b", "a/b@", "a b/c", "a/b.git", "模型/b", "a/\0"]


@pytest.mark.parametrize("name", [*NO_NAMES, "a/b..c", "a/b--c", "a./b", "a/b-", "a/b@x..y"])
def test_names_that_are_none_on_the_hub(name: str) -> None:
    assert hub.parse(name) is None


def test_the_command_line_brings_it(server: Hub, whole: Path, tmp_path: Path) -> None:
    commit = server.repo(ID).publish(whole)
    environment = {**os.environ, "HF_HUB_CACHE": str(tmp_path / "cache"), "HF_HUB_OFFLINE": "0"}
    command = [sys.executable, "-m", "engine", "fetch", ID]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr
    assert same_weights(Path(done.stdout.strip()), whole)
    assert f"revision {commit}" in done.stderr
    server.close()
    command[-1] = "lab/other"
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, timeout=120)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("error: lab/other is not on this machine and http://127")
    assert "Traceback" not in done.stderr


def test_a_repository_is_described_as_the_hub_does(server: Hub, whole: Path) -> None:
    """What the stand-in publishes is what the library reads: otherwise the tests above would test nothing."""
    from huggingface_hub import HfApi

    repo: Repo = server.repo(ID)
    commit = repo.publish(whole)
    info = HfApi(endpoint=server.url).model_info(ID, files_metadata=True)
    assert info.sha == commit
    sizes = {file.rfilename: file.size for file in info.siblings or []}
    assert sizes[FILE] == (whole / FILE).stat().st_size
