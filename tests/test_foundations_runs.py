"Runs that end the same whatever interrupts them."

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from brace_nb.companion import root
from brace_nb.foundations import (
    TrainingConfig,
    load_encoder,
    train_encoder,
    weights_hash,
)

from made_encoders import RECIPE, TINY


@pytest.fixture(scope="module")
def straight(tuples):
    "Twenty steps without interruption."
    return train_encoder(tuples, TINY, RECIPE, seed=3, progress=False)


def test_it_learns(straight):
    _, history = straight
    assert len(history["loss"]) == 20 and np.mean(history["loss"][-4:]) < np.mean(history["loss"][:4]) - 0.15
    assert all(0 < s <= 100.001 for s in history["scale"])


def state(encoder):
    return weights_hash(encoder.model.state_dict())


def test_same_seed_same_bits_other_seed_other_bits(tuples, straight):
    assert state(train_encoder(tuples, TINY, RECIPE, seed=3, progress=False)[0]) == state(straight[0])
    assert state(
        train_encoder(tuples, TINY, dataclasses.replace(RECIPE, steps=2), seed=4, progress=False)[0]
    ) != state(train_encoder(tuples, TINY, dataclasses.replace(RECIPE, steps=2), seed=3, progress=False)[0])


@pytest.mark.parametrize("how", ["ctrl-c", "crash"])
def test_ten_steps_and_ten_more_equal_twenty(tuples, straight, tmp_path, how):
    def monitor(encoder, calls=[]):
        calls.append(1)
        if len(calls) == 3 and how == "ctrl-c":
            signal.raise_signal(signal.SIGINT)  # after step 10
        if len(calls) == 4 and how == "crash":
            raise RuntimeError("power cut")  # after step 15; the last state is of step 12
        return dict(n=1)

    with pytest.raises(KeyboardInterrupt if how == "ctrl-c" else RuntimeError):
        train_encoder(
            tuples,
            TINY,
            RECIPE,
            tmp_path,
            seed=3,
            progress=False,
            monitor=monitor,
            monitor_every=5,
            save_every=6,
        )
    assert [p.name for p in tmp_path.iterdir()] == ["state.safetensors"]
    encoder, history = train_encoder(
        tuples, TINY, RECIPE, tmp_path, seed=3, progress=False, monitor=lambda e: dict(n=2), monitor_every=5
    )
    assert (
        state(encoder) == state(straight[0])
        and history["loss"] == straight[1]["loss"]
        and history["scale"] == straight[1]["scale"]
    )
    assert [m["step"] for m in history["monitor"]] == [0, 5, 10, 15, 20]
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "training.json",
    ]
    assert (
        state(load_encoder(tmp_path)) == state(encoder)
        and load_encoder(tmp_path).fingerprint() == encoder.fingerprint()
    )
    again, same = train_encoder(
        tuples,
        TINY,
        RECIPE,
        tmp_path,
        seed=3,
        progress=False,
        monitor=lambda e: pytest.fail("trained again"),
    )
    assert state(again) == state(encoder) and same == history


def test_kill_9_in_the_middle(tuples, straight, tmp_path):
    script = f"""
import sys, time; sys.path.insert(0, "tests")
from brace_nb.core import use_one_instruction_set
use_one_instruction_set()
from brace_nb.foundations import load_emoji, train_encoder
from made_encoders import RECIPE, TINY
def slowly(encoder):
    time.sleep(0.2)
    return {{}}
train_encoder(load_emoji(), TINY, RECIPE, {str(tmp_path)!r}, seed=3, save_every=1, progress=False,
              monitor=slowly, monitor_every=1)"""
    child = subprocess.Popen([sys.executable, "-c", script], cwd=os.path.dirname(os.path.dirname(__file__)))
    try:
        deadline = time.monotonic() + 60
        while (
            not (tmp_path / "state.safetensors").exists()
            and time.monotonic() < deadline
            and child.poll() is None
        ):
            time.sleep(0.05)
        time.sleep(0.3)
    finally:
        child.kill()
        child.wait()
    assert (
        child.returncode == -signal.SIGKILL
        and (tmp_path / "state.safetensors").exists()
        and not (tmp_path / "training.json").exists()
    )
    encoder, history = train_encoder(tuples, TINY, RECIPE, tmp_path, seed=3, progress=False)
    assert state(encoder) == state(straight[0]) and history["loss"] == straight[1]["loss"]


def test_monitoring_changes_nothing(tuples, straight):
    x = tuples.images("noto", range(3))
    encoder, _ = train_encoder(
        tuples,
        TINY,
        RECIPE,
        seed=3,
        progress=False,
        monitor_every=7,
        monitor=lambda e: dict(z=float(e.encode_images(x)[0, 0]), r=float(torch.rand(1)), n=np.random.rand()),
    )
    assert state(encoder) == state(straight[0])


def test_another_run_in_the_folder_is_an_error(tuples, tmp_path):
    short = dataclasses.replace(RECIPE, steps=2)
    first, _ = train_encoder(tuples, TINY, short, tmp_path, progress=False)
    for config, seed, words in (
        (dataclasses.replace(short, learning_rate=0.5), 0, "training.learning_rate: 0.001 there, 0.5 here"),
        (short, 1, "run.seed"),
    ):
        with pytest.raises(ValueError, match=words):
            train_encoder(tuples, TINY, config, tmp_path, seed=seed, progress=False)
    with pytest.raises(ValueError, match="encoder.embed_dim"):
        train_encoder(tuples, dataclasses.replace(TINY, embed_dim=8), short, tmp_path, progress=False)
    other, _ = train_encoder(tuples, TINY, short, tmp_path, seed=1, resume=False, progress=False)
    assert state(other) != state(first) and state(load_encoder(tmp_path)) == state(other)


def test_a_damaged_state_says_so(tuples, tmp_path):
    (tmp_path / "state.safetensors").write_bytes(b"half a file")
    with pytest.raises(ValueError, match="not a readable training state"):
        train_encoder(tuples, TINY, RECIPE, tmp_path, progress=False)
    (tmp_path / "training.json").write_text("{")
    with pytest.raises(ValueError, match="is not readable json .* Delete the folder"):
        train_encoder(tuples, TINY, RECIPE, tmp_path, progress=False)


def test_divergence_is_an_error(tuples):
    with pytest.raises(FloatingPointError, match="Lower the learning rate"):
        train_encoder(tuples, TINY, dataclasses.replace(RECIPE, learning_rate=1e30, warmup=0), progress=False)


@pytest.mark.parametrize(
    "values,words",
    [
        (dict(languages=("en", "tlh")), "lang"),
        (dict(designers=("noto", "picasso")), "designer"),
        (dict(split="training"), "split"),
        (dict(batch_size=5000), "batch_size"),
    ],
)
def test_recipes_that_do_not_fit_the_data(tuples, values, words):
    with pytest.raises(ValueError, match=words):
        train_encoder(tuples, TINY, dataclasses.replace(RECIPE, **values), progress=False)


@pytest.mark.gpu
def test_cuda_learns(tuples):
    _, history = train_encoder(tuples, TINY, RECIPE, device="cuda", progress=False)
    assert np.mean(history["loss"][-4:]) < np.mean(history["loss"][:4])


def test_the_steps_of_the_default_encoder_stand_once():
    cells = json.loads((root() / "nbs/experiments/foundations/encoder.ipynb").read_text())["cells"]
    (told,) = ["".join(c["source"]) for c in cells if "parameters" in c["metadata"].get("tags", [])]
    assert "steps = None" in told and "batch_size = None" in told  # the recipe's own
    assert TrainingConfig().steps == 1100
