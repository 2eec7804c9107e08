"""What takes a `device` works there: on a simulated one everywhere, on CUDA where there is one.

The simulation refuses what a GPU refuses (tensors of two devices in one operation, numpy arrays of what lies
there, generators of the CPU), so a training that would fail on its first step on a GPU fails here.
"""

import contextlib
import json
import re

import numpy as np
import pytest
import torch
from made_device import simulated_gpu
from made_trainings import TRAININGS, distilled, drawn, n_encoders, trainings_of_the_package
from torch.optim.optimizer import register_optimizer_step_post_hook

from brace_nb.assignment import assign
from brace_nb.codes import CodeEncoder, binarize, nearest, nearest_by_product, pack, untrained_heads
from brace_nb.companion import AddedMemory, clock_of, find_experiments, load_profile, measured_on
from brace_nb.core import train
from brace_nb.evaluation import cka_matrix
from brace_nb.grounding import (
    chunk_by_memory,
    detection_costs,
)
from brace_nb.ndim import cube_loss


@pytest.mark.parametrize("training", TRAININGS)
def test_a_training_on_a_simulated_gpu_is_that_on_the_cpu(training):
    here = np.array(training("cpu"), float)
    with simulated_gpu():
        there = np.array(training("cuda"), float)
    rtol = 1e-3 if training is distilled else 1e-4  # Muon makes its steps orthogonal in bfloat16
    assert np.isfinite(here).all() and np.allclose(here, there, rtol=rtol, atol=1e-5)


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


@pytest.mark.parametrize("measure", ["jaccard", "hamming", "cosine"])
@pytest.mark.parametrize("device", ["simulated", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_codes_on_a_device_are_searched_there(device, measure):
    rng = np.random.default_rng(0)
    q, c = (torch.from_numpy(rng.random((n, 20)) < 0.2) for n in (7, 300))  # many ties
    c[:2] = False
    expected = nearest(q, c, 9, measure)
    for pack_it in (torch.clone, pack):
        found = nearest_by_product(pack_it(q), pack_it(c), 9, measure, 20)
        assert torch.equal(found[0], expected[0]) and torch.allclose(found[1], expected[1])
    with simulated_gpu() if device == "simulated" else contextlib.nullcontext():
        rows, similar = nearest(q.to("cuda"), c.to("cuda"), 9, measure)
        assert rows.is_cuda and torch.equal(rows.cpu(), expected[0])
        assert torch.allclose(similar.cpu(), expected[1])
        with pytest.raises(ValueError, match="k must be in 1..300"):
            nearest(q.to("cuda"), c.to("cuda"), 301, measure)


def test_untrained_heads_are_the_same_on_every_device():
    x, y = drawn(30, 12).numpy(), drawn(30, 12, seed=1).numpy()
    model = CodeEncoder.preset("post", dim=16, epochs=1, batch_size=15).fit(x, y)
    here = untrained_heads([model])[0].embed_images(x)
    with simulated_gpu():
        model.heads.to("cuda")
        there = untrained_heads([model])[0].embed_images(x)
    assert np.allclose(here, there, atol=1e-6)


@pytest.mark.parametrize("training", [*TRAININGS, n_encoders])
def test_mixed_precision_is_near_and_off_where_nobody_asks(training):
    types = set()

    def look(optimizer, *_):
        types.update(p.dtype for group in optimizer.param_groups for p in group["params"])

    hook = register_optimizer_step_post_hook(look)
    try:
        plain, auto, mixed = (np.array(training("cpu", p), float) for p in ("float32", "auto", "bfloat16"))
    finally:
        hook.remove()
    assert types == {torch.float32} and np.array_equal(auto, plain)
    assert np.isfinite(mixed).all() and not np.array_equal(mixed, plain)
    assert np.allclose(mixed, plain, rtol=0.05, atol=0.02)
    with pytest.raises(ValueError, match="precision must be .*float32.*bfloat16"):
        training("cpu", "float8")


@pytest.mark.gpu
@pytest.mark.parametrize("training", [*TRAININGS, n_encoders])
def test_mixed_precision_on_cuda_is_near_the_cpu(training):
    plain, mixed = training("cpu"), training("cuda", "auto")
    assert np.allclose(np.array(plain, float), np.array(mixed, float), rtol=0.06, atol=0.03)


NO_PRECISION = {
    "its caller's function computes the losses, with `in_precision` where wanted": "train_students",
    "its recipe says it: `TrainingConfig.precision`": "train_encoder train_objective",
    "it counts pairs of bytes": "train_bpe",
    "it builds a model": "text_student",
    "one linear layer, stopped by a held-out loss": "LanguageHead",
    "its losses are the measurement": "prequential_losses",
    "its options are those of `train_noisy_encoders`": "train_noisy_side_by_side",
    "a table of one's own is small: float32": "train_table",
}


def test_every_training_takes_a_precision_or_says_why_not():
    found = dict(trainings_of_the_package())
    without = {name for names in NO_PRECISION.values() for name in names.split()}
    assert {"train_encoders", "train_together", "CodeEncoder", "train_networks", "training_path"} <= set(
        found
    )
    assert {name for name, told in found.items() if "precision" not in told} == without


def test_a_full_gpu_names_the_step_and_says_what_to_lower():
    weight = torch.zeros((), requires_grad=True)

    def loss(step):
        if step == 2:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 8 GiB.")
        return (weight - 1).square()

    seen = []
    with pytest.raises(torch.cuda.OutOfMemoryError, match="batch of step 2 does not fit.*Lower `batch_size`"):
        train(loss, torch.optim.SGD([weight], 0.1), 4, callbacks=[lambda state: seen.append(state.step)])
    assert seen == [0, 1]


def test_pieces_follow_the_memory_of_a_gpu_only(monkeypatch):
    network, x = (
        torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.GELU(), torch.nn.Linear(7, 3)),
        drawn(40, 5),
    )
    bytes_of_row = 4 * (7 + 7)  # both sides of the activation; the input is there anyway
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (4 * 25 * bytes_of_row, 2**36))
    assert chunk_by_memory([network], [x], "cuda") == 25
    assert chunk_by_memory([network], [x], "cpu") is None
    assert chunk_by_memory([torch.nn.BatchNorm1d(5)], [x], "cuda") is None
    assert chunk_by_memory([network], [x[:3]], "cuda") is None
    told = []
    monkeypatch.setattr("brace_nb.grounding.n_encoders.chunk_by_memory", lambda *a: told.append(a) or 2)
    in_pieces = n_encoders("cpu")
    monkeypatch.undo()
    assert len(told) == 1 and np.allclose(in_pieces, n_encoders("cpu"), rtol=1e-5)


# --- which experiments follow `device`, and why others do not

NO_DEVICE = {
    "it draws what other experiments have measured": """
        assignment/loss_curves assignment/loss_ends assignment/precision_identities assignment/precision_maps
        assignment/precision_methods assignment/precision_missed codes/alignment codes/headline
        codes/more_data
        codes/width evaluation/cka_training evaluation/encoder_comparison evaluation/token_score
        foundations/training grounding/detection grounding/first_drop grounding/proof_of_concept_ablations
        grounding/proof_of_concept_losses grounding/samples grounding/six_report
        grounding/third_encoder_report""",
    "it shows the data": "foundations/coverage foundations/data foundations/diagrams foundations/stamps",
    "its methods are compiled kernels of the CPU": """
        assignment/cost_signal assignment/precision assignment/real_costs assignment/resampling""",
    "it compares programs for the CPU": "codes/search_speed ndim/loss_speed",
    "it embeds once, on the CPU": "codes/glosses",
    "it checks formulas": "foundations/in_passing",
    "scikit-learn fits": "evaluation/probes grounding/sweep",
    "it proves or counts with whole numbers and small matrices, mostly in float64": """
        assignment/attribution assignment/cycles_given assignment/formats assignment/guarantees
        assignment/longest_cycle assignment/loop_exponents assignment/loss_gradients assignment/masks
        assignment/metrics assignment/precision_ratio assignment/printed_code assignment/printed_metrics
        assignment/recursion
        codes/counterexample codes/first_descent codes/geometry codes/optimum codes/reference
        evaluation/cka_accuracy foundations/losses grounding/detection_costs ndim/arithmetic ndim/ascent
        ndim/blind_spots ndim/cube ndim/cubes ndim/distance ndim/einsum ndim/equivalence ndim/gradient
        ndim/label_error ndim/labels ndim/logitsversion ndim/printed_rows ndim/printed_runs ndim/regions
        ndim/scale ndim/significance ndim/statistics ndim/true_cosine""",
}
ON_THE_CPU_TOO = {  # follow `device`, and say what of them stays
    "codes/index": "stays on the CPU",
    "codes/search_crossover": "one thread of the CPU with every profile",
    "assignment/speed": "programs for the CPU and stay there",
    "assignment/lisascore_time": "The scores stay there with every `device`",
}
TRAINS = re.compile(
    r"\.fit\(|\btrain_\w+\(|CodeEncoder\(|load_heads\(|load_encoder\(|SentenceEncoder\(|build_encoder\("
)


def sources_of(experiment):
    "Its words and its code without parameters."
    cells = json.loads(experiment.path.read_text(encoding="utf-8"))["cells"]
    told = [("".join(c["source"]), c) for c in cells]
    code = [
        s for s, c in told if c["cell_type"] == "code" and "parameters" not in c["metadata"].get("tags", [])
    ]
    return "\n".join(s for s, c in told if c["cell_type"] == "markdown"), "\n".join(code)


def test_every_experiment_follows_the_device_or_says_why_not():
    found, named = find_experiments("cpu") | find_experiments("paper"), {}
    for why, names in NO_DEVICE.items():
        named |= dict.fromkeys(names.split(), why)
    follow = {n for n, e in found.items() if "device" in e.values}
    assert follow | named.keys() == found.keys() and not follow & named.keys()
    for name, experiment in found.items():
        words, code = sources_of(experiment)
        if name in follow:
            assert re.search(r"\bdevice\b", code), f"{name} has a parameter `device` and never uses it"
            assert ON_THE_CPU_TOO.get(name, "") in words, name
            continue
        fitted = "scikit-learn" in named[name]
        assert fitted or not TRAINS.search(code), f"{name} trains or encodes: give it a parameter `device`"
        if named[name].startswith("it draws"):
            assert experiment.needs, name
        if "kernels" in named[name] or "scikit" in named[name]:
            assert "on the CPU with every profile" in words, name


NO_MIXED = {  # experiments that train and follow `device` in float32 with every profile
    "the recipe of the encoder says it, `TrainingConfig.precision`": """
        foundations/encoder foundations/small_encoders foundations/stamps_encoder""",
    "`distil_encoder` follows the device by itself": "evaluation/distilled",
    "rounded scores tie, and ties are what it asks about": """
        assignment/loss_training assignment/network_losses assignment/network_shapes
        grounding/detection_formats""",
    "its matrices are too small to gain": """
        assignment/network grounding/token_bags grounding/loss_variants grounding/proof_of_concept
        grounding/proof_of_concept_measures grounding/relations ndim/james_stein""",
    "it fits a probe, no network": "grounding/runs_features",
    "its steps are timed, in float32 or in both": "grounding/loading_on_device grounding/steps_on_device",
    "its heads take seconds": "codes/balance codes/unseen codes/where_bits_go",
    "the sources' own data, whose numbers are to be met": "paper/heads paper/languages paper/six paper/sweep",
}
LEARNS = re.compile(
    r"\.fit\(|\btrain(_(?!bpe)\w+)?\(|\b(teach|guess)_language\(|\btraining_path\("
    r"|\bdistil_encoder\(|detector_study\("
)


def test_every_experiment_that_trains_follows_precision_or_says_why_not():
    found = find_experiments("cpu") | find_experiments("paper")
    named = {name for names in NO_MIXED.values() for name in names.split()}
    on_device = {n: e for n, e in found.items() if "device" in e.values}
    learns = {n for n, e in on_device.items() if LEARNS.search(sources_of(e)[1])}
    mixed = {
        n for n, e in on_device.items() if "precision" in e.values and isinstance(e.values["precision"], str)
    }
    assert len(mixed) > 20 and learns - mixed == named
    for name in mixed:
        assert re.search(r"\bprecision\b", sources_of(found[name])[1]), f"{name} never uses its `precision`"
    gpu = find_experiments("gpu")
    assert all(gpu[n].values["precision"] == "auto" for n in mixed)
    assert all(e.values["precision"] == "float32" for n, e in found.items() if n in mixed)


AS_THEY_ARE = {  # experiments that learn and are no larger with the profile gpu
    "assignment/loss_gradients": "gradients of formulas; ten small trainings show what Adam divides out",
    "evaluation/probes": "support vectors of scikit-learn on all the concepts that there are",
    "foundations/losses": "gradients of formulas, on a few points",
    "grounding/runs_features": "features that others train on",
    "codes/balance": "its pairs are all that there are",
    "codes/quality": "its pairs are all that there are",
    "codes/unseen": "its pairs are all that there are",
    "codes/where_bits_go": "its pairs are all that there are",
    "grounding/two_worlds": "the night makes it larger, on the CPU",
    "grounding/proof_of_concept_measures": "its runs are those of grounding/proof_of_concept",
}


def test_every_trained_study_is_larger_with_the_profile_gpu_or_says_why_not():
    larger = load_profile("gpu").experiments.keys()
    learns = {n for n, e in find_experiments("cpu").items() if LEARNS.search(sources_of(e)[1])}
    assert len(learns) > 40 and learns - larger == AS_THEY_ARE.keys()


@pytest.mark.parametrize(
    "name, fewer",
    [
        ("assignment/speed", dict(sizes=[[6, 6], [8, 8]], headline=[[4, 6, 6], [4, 8, 8]], batches=[1, 4])),
        ("codes/search_crossover", dict(sizes=[50, 100], settings=[[256, 10], [256, 64]], queries=2)),
    ],
)
def test_an_experiment_runs_whole_on_a_simulated_gpu(name, fewer, tmp_path, monkeypatch):
    monkeypatch.setenv("BRACE_NB_RUN", str(tmp_path))
    experiment = find_experiments("smoke")[name]
    space = experiment.values | fewer | dict(device="cuda", threads=1)
    with simulated_gpu():
        exec(sources_of(experiment)[1], space)
    records = json.loads((tmp_path / "claims.json").read_text())
    assert records and list((tmp_path / "figures").rglob("*.png"))
    text = json.dumps(records) + space.get("caption", "")
    assert "a card" in text
