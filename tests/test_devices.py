"""What takes a `device` works there: on a simulated one everywhere, on CUDA where there is one.

The simulation refuses what a GPU refuses (tensors of two devices in one operation, numpy arrays of what lies
there, generators of the CPU), so a training that would fail on its first step on a GPU fails here.
"""

import contextlib

import numpy as np
import pytest
import torch
from made_device import simulated_gpu
from made_tower import text_tower

from brace_nb.assignment import AssignmentNetwork, assign, train_networks, train_six_layers
from brace_nb.codes import CodeEncoder, binarize
from brace_nb.companion import AddedMemory, clock_of, measured_on
from brace_nb.evaluation import cka_matrix
from brace_nb.foundations import EncoderConfig, TrainingConfig, build_encoder, clip_loss, load_emoji
from brace_nb.grounding import (
    AlignedTuples,
    FeatureEncoder,
    WholeModel,
    detection_costs,
    distil_encoder,
    guess_language,
    render_object_scenes,
    teach_language,
    train_bags,
    train_detector,
    train_noisy_encoders,
    train_noisy_side_by_side,
    train_third_encoder,
    train_together,
    train_whole_model,
)
from brace_nb.ndim import cube_loss


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def bags(device):
    rng = np.random.default_rng(0)
    texts = [torch.from_numpy(rng.integers(1, 30, (40, 3))) for _ in range(2)]
    run = train_bags(drawn(40, 8), texts, 40, np.arange(30), np.arange(30, 40), steps=4, device=device)
    return [*run["loss"], run["val_loss"]]


def noisy(device):
    return [h["loss"] for h in train_noisy_encoders(3, "sum_norm", steps=4, report=2, device=device)]


def noisy_together(device):
    runs = [dict(measure="sum_norm"), dict(measure="pairwise", kind="axis")]
    found = train_noisy_side_by_side(runs, [0, 1], 3, steps=4, report=2, device=device)
    return [h["loss"] for run in found for history in run for h in history]


def together(device):
    def run(**more):
        tuples = AlignedTuples(
            {k: drawn(24, 5, seed=i) for i, k in enumerate("abc")}, labels=np.arange(24) % 3
        )
        encoders = {k: FeatureEncoder(5, 4, 1, 8, i) for i, k in enumerate("abc")}
        plain = dict(measure="sum_norm", steps=4, batch_size=4, embed_dim=4, held=tuples, log_every=1)
        return dict(tuples=tuples, encoders=encoders) | plain | more

    runs = [run(), run(loss="axis"), run(weights="density", look_every=2), run(measure="pairwise")]
    return [row["loss"] for trained in train_together(runs, device) for row in trained.history]


def detector(device):
    pictures = np.zeros((4, 32, 32, 4), np.uint8)
    pictures[..., 3], pictures[..., 0] = 255, np.linspace(50, 250, 4)[:, None, None]
    scenes = render_object_scenes(pictures, 8, seed=0)
    how = dict(steps=2, batch_size=4, watch=scenes, keep=1, device=device)
    runs = [train_detector(scenes, 4, matcher=m, **how) for m in ("exact", "lead", "gumbel")]
    return [run.losses["total"] for run in runs]


def networks(device):
    made = [AssignmentNetwork("exchangeable", (5, 6), seed=s) for s in (0, 1)]
    found = train_networks(made, steps=4, batch_size=8, every=1, seeds=[0, 1], device=device)
    return [[row["loss"] for row in run.history] for run in found]


def six_layers(device):
    runs = [dict(kind="v3"), dict(kind="ce")]
    return train_six_layers(runs, [0, 1], steps=4, n=4, every=1, device=device).loss


def heads(device):
    x, y = drawn(60, 12).numpy(), drawn(60, 12, seed=1).numpy()
    model = CodeEncoder(dim=16, epochs=2, batch_size=20, device=device).fit(x, y)
    return [row["train"] for row in model.history]


def students(device):
    tuples = load_emoji()
    ids, unseen = (
        tuples.ids("train", flags=False)[:40],
        tuples.names("es", tuples.ids("test", flags=False)[:10]),
    )
    english, picture = (torch.nn.functional.normalize(drawn(40, 6, seed=s), dim=-1) for s in (0, 1))
    how = dict(sizes=[16, 40], seeds=[0], batch_size=8, width=8, steps=3, device=device)
    return teach_language(tuples, "es", ids, english, picture, unseen, "both", **how)[1].cpu().tolist()


def guessing_students(device):
    tuples = load_emoji()
    ids, unseen = (
        tuples.ids("train", flags=False)[:40],
        tuples.names("es", tuples.ids("test", flags=False)[:10]),
    )
    english = torch.nn.functional.normalize(drawn(40, 6), dim=-1)
    how = dict(sizes=[16, 40], seeds=[0], batch_size=8, width=8, steps=3, device=device)
    return guess_language(tuples, "es", ids, english, unseen, **how)[1].cpu().tolist()


def unit(*shape, seed=0):
    return torch.nn.functional.normalize(drawn(*shape, seed=seed), dim=-1)


def whole_model(device):
    tower, tokenizer, ids = text_tower()
    model = WholeModel(tower.to(device), 300, tokenizer.end, layers=1, heads=2).to(device)
    frozen = [unit(6, 16).to(device)]

    def loss(features):
        return clip_loss(features[0], features[1], 5.0)

    return [h["loss"] for h in train_whole_model(model, ids.to(device), frozen, loss, steps=3, batch_size=3)]


def distilled(device):
    _, tokenizer, ids = text_tower()
    shape = dict(embed_dim=16, image_model="test_vit", image_size=32, text_width=32, text_heads=2)
    config = EncoderConfig(**shape, vocab_size=300, context_length=16)
    student = build_encoder(config, tokenizer)
    student.model.to(device)
    pictures, seen, read = (v.to(device) for v in (drawn(6, 3, 32, 32), unit(6, 16), unit(6, 16, seed=1)))
    return distil_encoder(student, pictures, seen, ids.to(device), read, 3, 4, precision="float32")


def third_encoder(device):
    tower, _, ids = text_tower()
    frozen, rows = [unit(6, 16, seed=s).to(device) for s in (0, 1)], torch.tensor([0, 2, 3, 5])

    def loss(features):
        return 1 - (features[0] * features[-1]).sum(-1).mean()

    recipe = TrainingConfig(steps=3, batch_size=4, warmup=2, bfloat16=False)
    history, _ = train_third_encoder(tower.to(device), lambda step: (rows, ids[rows]), frozen, loss, recipe)
    return [h["loss"] for h in history]


TRAININGS = [bags, noisy, noisy_together, together, detector, networks, six_layers, heads, guessing_students]
TRAININGS += [students, whole_model, distilled, third_encoder]


@pytest.mark.parametrize("training", TRAININGS)
def test_a_training_on_a_simulated_gpu_is_that_on_the_cpu(training):
    here = np.array(training("cpu"), float)
    with simulated_gpu():
        there = np.array(training("cuda"), float)
    assert np.isfinite(here).all() and np.allclose(here, there, rtol=1e-4, atol=1e-5)


MEASURES = {
    "assign": lambda x: assign(x, maximize=True, method="greedy_delta").cols,
    "exact": lambda x: assign(x, maximize=True).total,
    "recursion": lambda x: assign(x, maximize=True, method="recursive_top2").cols,
    "codes": lambda x: binarize(x.abs()),
    "cka": lambda x: cka_matrix(list(x), list(x.flip(0))),
    "cube": lambda x: cube_loss(list(x), scale=10.0, measure="mean_norm", streaming=False),
    "streamed cube": lambda x: cube_loss(list(x), scale=10.0, measure="mean_norm", streaming=True),
    "costs": lambda x: detection_costs(x, x[..., :4].sigmoid(), x[0, :2].argmax(-1), x[0, :2, :4].sigmoid()),
}


@pytest.mark.parametrize("device", ["simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("name", MEASURES)
def test_a_measure_on_a_device_is_that_on_the_cpu(name, device):
    x, measure = drawn(3, 7, 9), MEASURES[name]
    with simulated_gpu() if device == "simulated" else contextlib.nullcontext():
        found = measure(x.to("cuda"))
        assert found.is_cuda
        found = found.cpu()
    assert torch.allclose(found.double(), measure(x).double(), atol=1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("training", TRAININGS)
def test_a_training_on_cuda_follows_the_cpu(training):
    assert np.allclose(
        np.array(training("cpu"), float), np.array(training("cuda"), float), rtol=0.02, atol=1e-3
    )


def test_what_a_gpu_refuses_is_refused():
    with simulated_gpu():
        x = torch.ones(3).to("cuda")
        assert x.is_cuda and (x + torch.tensor(1.0)).sum().item() == 6 and not x.cpu().is_cuda
        with pytest.raises(RuntimeError, match="same device"):
            x + torch.ones(3)
        with pytest.raises(TypeError, match=r"Use Tensor.cpu\(\) first"):
            np.asarray(x)
        with pytest.raises(RuntimeError, match="generator"):
            torch.rand(3, device="cuda", generator=torch.Generator())
    assert not torch.cuda.is_available() or torch.zeros(1, device="cuda").is_cuda


def test_clocks_wait_for_a_gpu_and_memory_is_counted_where_it_lies(monkeypatch):
    asked, held = [], iter([100, 350])
    monkeypatch.setattr(torch.cuda, "synchronize", asked.append)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", asked.append)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: next(held))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: next(held))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "a card")
    now = clock_of("cuda:1")
    assert now() <= now() and asked == ["cuda:1"] * 2 and measured_on("cuda:1", 2) == "a card"
    with AddedMemory("cuda:1") as memory:
        pass
    assert (memory.added, memory.peak) == (250, 350)
    assert clock_of("cpu", "own") == "own" and measured_on("cpu") == "1 CPU thread"


@pytest.mark.gpu
def test_the_clock_of_cuda_counts_the_work_and_not_the_asking():
    x, now = torch.randn(4096, 4096, device="cuda"), clock_of("cuda")

    def seconds(times):
        start = now()
        for _ in range(times):
            x @ x
        return now() - start

    seconds(3)
    assert seconds(200) > 5 * seconds(10)
    with AddedMemory("cuda") as memory:
        torch.empty(2**26, device="cuda")
    assert memory.added >= 2**28
