"""Which model a name means: the lab's own, a folder, random values; a name from the web reaches nothing else."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from small_models import edit_config, save_llama

from engine import checkpoint, fetched, hub, random_shapes
from engine.errors import LabError

OWN = ["smollm2-135m", "tiny-3.7m"]
OFFERED = [*hub.ON_THE_WEB, *random_shapes.OFFERED]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty lab home, no models folder, and no index within reach."""
    monkeypatch.setenv("ROOFLINE_LAB_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ROOFLINE_LAB_MODELS", raising=False)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{port}/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    return tmp_path / "home"


@pytest.fixture
def models(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A models folder with one model, one folder that is none, and a secret beside it."""
    folder = tmp_path / "models"
    save_llama(folder / "small")
    (folder / "notes").mkdir()
    save_llama(tmp_path / "secret")
    monkeypatch.setenv("ROOFLINE_LAB_MODELS", str(folder))
    monkeypatch.chdir(folder)  # so that a name that was taken for a path would find something
    return folder


# --- what can be chosen -----------------------------------------------------------------------------


def test_the_labs_own_models_can_always_be_chosen(home: Path) -> None:
    demo, tiny, *offered = checkpoint.available()
    assert (demo.id, demo.weights, demo.fetched, demo.parameters) == ("smollm2-135m", "real", False, 134_515_008)
    assert (tiny.id, tiny.weights, tiny.fetched) == ("tiny-3.7m", "random", True)
    assert round(tiny.parameters / 1e6, 1) == 3.7
    assert [(each.id, each.weights) for each in offered] == [(name, "real") for name in hub.ON_THE_WEB] + [
        (name, "random") for name in random_shapes.OFFERED
    ]
    assert not home.exists(), "looking must not write"


def test_a_fetched_model_is_said_to_be_here(in_demo_home: Path) -> None:
    assert checkpoint.available()[0].fetched
    source = checkpoint.resolve("smollm2-135m", allow_paths=False)
    assert source.folder == in_demo_home / "models" / "smollm2-135m"
    assert source.config["torch_dtype"] == "float32"
    assert not source.is_random
    assert source.spec.tied


def test_readable_subfolders_of_the_models_folder_can_be_chosen(models: Path) -> None:
    assert [choice.id for choice in checkpoint.available()] == [*OWN, "small", *OFFERED]
    assert checkpoint.available()[2].parameters == checkpoint.resolve("small", allow_paths=False).spec.parameters.trunk
    edit_config(models / "small", model_type="mystery")
    assert [choice.id for choice in checkpoint.available()] == [*OWN, *OFFERED]


def test_a_subfolder_cannot_take_the_name_of_the_labs_own(models: Path) -> None:
    shutil.copytree(models / "small", models / "tiny-3.7m")
    assert [choice.id for choice in checkpoint.available()] == [*OWN, "small", *OFFERED]
    assert checkpoint.resolve("tiny-3.7m", allow_paths=False).is_random


# --- what a name means ------------------------------------------------------------------------------


def test_a_folder_by_path(models: Path) -> None:
    source = checkpoint.resolve(models / "small", allow_paths=True)
    assert (source.id, source.folder, source.weights) == ("small", models / "small", "real")
    assert source.spec.eos_ids == (2, 3)


@pytest.mark.parametrize(
    "name",
    [
        "../secret",
        "small/../../secret",
        "./small",
        "small/",
        "notes",
        "",
        ".",
        "..",
        "small\0",
        "random:smollm2-135m",
        "small/config.json",
        "x" * 5_000,
        "{model}",
        "\ud800",
    ],
)
def test_a_name_from_the_web_is_looked_up_and_never_a_path(models: Path, name: str) -> None:
    sentence = r"^There is no model .*; choose smollm2-135m, tiny-3\.7m, small, Qwen/Qwen3-0\.6B, random:.*@layers=2\.$"
    with pytest.raises(LabError, match=sentence):
        checkpoint.resolve(name, allow_paths=False)


def test_an_absolute_path_from_the_web_is_no_model(models: Path) -> None:
    with pytest.raises(LabError, match="There is no model"):
        checkpoint.resolve(str(models / "small"), allow_paths=False)
    with pytest.raises(LabError, match="There is no model"):
        checkpoint.ensure(str(models / "small"), allow_paths=False)


def test_an_unknown_name_on_the_command_line_lists_what_there_is(models: Path) -> None:
    with pytest.raises(LabError, match=r"tiny-3\.7m, small, .*@layers=2, or name a folder with a config\.json"):
        checkpoint.resolve("smollm3", allow_paths=True)


@pytest.mark.parametrize("name", ["small\0", "x" * 5_000, ""])
def test_a_path_no_file_system_takes_is_an_unknown_name(home: Path, name: str) -> None:
    with pytest.raises(LabError, match="There is no model"):
        checkpoint.resolve(name, allow_paths=True)


def test_a_checkpoint_known_for_predictions_says_so(home: Path) -> None:
    with pytest.raises(LabError, match=r"Qwen/Qwen3\.8-27B is known for predictions alone"):
        checkpoint.resolve("Qwen/Qwen3.8-27B", allow_paths=False)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (None, "is not a model folder"),
        ("{", "is not valid JSON"),
        ("[]", "has to hold one JSON object"),
        ("{}", "has no model_type; supported are .*llama"),
        ('{"model_type": "bert"}', "The model type bert is not supported; supported are .*llama"),
    ],
)
def test_a_folder_whose_config_is_of_no_use(home: Path, tmp_path: Path, content: str | None, sentence: str) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    if content is not None:
        (folder / "config.json").write_text(content)
    with pytest.raises(LabError, match=sentence):
        checkpoint.resolve(folder, allow_paths=True)


def test_random_weights_at_the_shape_of_a_catalogue_entry(home: Path) -> None:
    whole = checkpoint.resolve("random:smollm2-135m", allow_paths=True)
    part = checkpoint.resolve("random:smollm2-135m@layers=3", allow_paths=True)
    assert whole.is_random
    assert whole.spec.num_layers == 30
    assert part.id == "random:smollm2-135m@layers=3"
    assert part.spec.num_layers == 3
    assert part.weight_files() == []


@pytest.mark.parametrize("layers", [0, 31, 9999])
def test_layers_that_a_checkpoint_does_not_have(home: Path, layers: int) -> None:
    with pytest.raises(LabError, match="smollm2-135m has 30 layers; ask for 1 to 30 of them"):
        checkpoint.resolve(f"random:smollm2-135m@layers={layers}", allow_paths=True)


def test_random_weights_of_an_unknown_checkpoint(home: Path) -> None:
    with pytest.raises(LabError, match="There is no model nobody/knows"):
        checkpoint.resolve("random:nobody/knows", allow_paths=True)


# --- which bytes ------------------------------------------------------------------------------------


def test_the_hash_is_that_of_the_files_one_after_the_other(home: Path, tmp_path: Path) -> None:
    folder = save_llama(tmp_path / "sharded", shard_size="8KB")
    content = b"".join(path.read_bytes() for path in sorted(folder.glob("*.safetensors")))
    source = checkpoint.resolve(folder, allow_paths=True)
    assert source.weights_hash() == hashlib.sha256(content).hexdigest()
    single = save_llama(tmp_path / "single") / "model.safetensors"
    expected = hashlib.sha256(single.read_bytes()).hexdigest()
    assert checkpoint.resolve(single.parent, allow_paths=True).weights_hash() == expected


def hash_in_another_process(folder: Path) -> str:
    program = "import sys; from engine.checkpoint import resolve; "
    program += "print(resolve(sys.argv[1], allow_paths=True).weights_hash())"
    command = [sys.executable, "-c", program, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    return done.stdout.strip()


def test_a_hash_is_kept_between_processes_until_a_file_changes(home: Path, tmp_path: Path) -> None:
    folder = save_llama(tmp_path / "model")
    first = checkpoint.resolve(folder, allow_paths=True).weights_hash()
    path = folder / "model.safetensors"
    facts = path.stat()
    path.write_bytes(bytes(facts.st_size))
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns))
    assert hash_in_another_process(folder) == first, "computed again though size and time are the same"
    os.utime(path, ns=(facts.st_atime_ns, facts.st_mtime_ns + 1))
    changed = hashlib.sha256(bytes(facts.st_size)).hexdigest()
    assert hash_in_another_process(folder) == changed
    assert checkpoint.resolve(folder, allow_paths=True).weights_hash() == changed


def test_a_hash_needs_no_writable_home(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ROOFLINE_LAB_HOME", str(tmp_path / "file" / "home"))
    assert len(checkpoint.resolve(save_llama(tmp_path / "model"), allow_paths=True).weights_hash()) == 64


@pytest.mark.parametrize("content", ["", "[]", "{", '{"a": {}}'])
def test_garbled_kept_hashes_are_computed_again(home: Path, tmp_path: Path, content: str) -> None:
    home.mkdir()
    (home / "weight_hashes.json").write_text(content)
    folder = save_llama(tmp_path / "model")
    expected = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    assert checkpoint.resolve(folder, allow_paths=True).weights_hash() == expected


def test_random_weights_have_a_hash_by_their_shapes(home: Path) -> None:
    names = ["tiny-3.7m", "random:smollm2-135m@layers=2", "random:smollm2-135m@layers=3"]
    hashes = {checkpoint.resolve(name, allow_paths=True).weights_hash() for name in names}
    assert len(hashes) == 3
    assert checkpoint.resolve("tiny-3.7m", allow_paths=True).weights_hash() in hashes


# --- bringing it ------------------------------------------------------------------------------------


def test_random_models_need_nothing_brought(home: Path) -> None:
    assert checkpoint.ensure("tiny-3.7m").folder is None
    assert not home.exists()


def test_a_model_that_is_not_here_and_cannot_be_brought(home: Path) -> None:
    with pytest.raises(LabError, match="index cannot be reached"):
        checkpoint.ensure("smollm2-135m")


def test_the_demo_model_runs_without_the_vocabulary_beside_it(home: Path, demo_folder: Path) -> None:
    item, vocabulary = fetched.ITEMS["smollm2-135m"]
    item.path().parent.mkdir(parents=True)
    item.path().symlink_to(demo_folder)
    assert fetched.state(vocabulary) == "absent"
    assert checkpoint.ensure("smollm2-135m").folder == item.path()


def test_an_untouched_model_is_found_sound_at_once(in_demo_home: Path) -> None:
    assert checkpoint.ensure("smollm2-135m", lambda sentence, fraction: pytest.fail(str(sentence))).folder is not None
