"""What takes a `device` works there: on a simulated one everywhere, on CUDA where there is one.

The simulation refuses what a GPU refuses (tensors of two devices in one operation, numpy arrays of what lies
there, generators of the CPU), so a training that would fail on its first step on a GPU fails here.
"""

import contextlib
import importlib
import inspect
import json
import re
from dataclasses import is_dataclass

import numpy as np
import pytest
import torch
from made_device import simulated_gpu
from made_tower import text_tower
from torch.optim.optimizer import register_optimizer_step_post_hook

from brace_nb.assignment import AssignmentNetwork, assign, train_networks, train_six_layers
from brace_nb.codes import CodeEncoder, binarize, nearest, nearest_by_product, pack, untrained_heads
from brace_nb.companion import AddedMemory, clock_of, find_experiments, load_profile, measured_on, root
from brace_nb.core import train
from brace_nb.evaluation import cka_matrix
from brace_nb.foundations import EncoderConfig, TrainingConfig, build_encoder, clip_loss, load_emoji
from brace_nb.grounding import (
    AlignedTuples,
    FeatureEncoder,
    MaskDecoder,
    TextStudents,
    WholeModel,
    chunk_by_memory,
    detection_costs,
    dice_loss,
    distil_encoder,
    guess_language,
    render_object_scenes,
    teach_language,
    train_bags,
    train_decoder,
    train_detector,
    train_encoders,
    train_noisy_encoders,
    train_noisy_side_by_side,
    train_third_encoder,
    train_together,
    train_whole_model,
    training_path,
)
from brace_nb.ndim import cube_loss


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def bags(device, precision="float32"):
    rng = np.random.default_rng(0)
    texts = [torch.from_numpy(rng.integers(1, 30, (40, 3))) for _ in range(2)]
    run = train_bags(
        drawn(40, 8), texts, 40, np.arange(30), np.arange(30, 40), 2, device=device, precision=precision
    )
    return [*run["loss"], run["val_loss"]]


def noisy(device, precision="float32"):
    how = dict(steps=4, report=2, device=device, precision=precision)
    return [h["loss"] for h in train_noisy_encoders(3, "sum_norm", **how)]


def noisy_together(device, precision="float32"):
    runs = [dict(measure="sum_norm"), dict(measure="pairwise", kind="axis")]
    how = dict(steps=4, report=2, device=device, precision=precision)
    found = train_noisy_side_by_side(runs, [0, 1], 3, **how)
    return [h["loss"] for run in found for history in run for h in history]


def together(device, precision="float32"):
    def run(**more):
        tuples = AlignedTuples(
            {k: drawn(24, 5, seed=i) for i, k in enumerate("abc")}, labels=np.arange(24) % 3
        )
        encoders = {k: FeatureEncoder(5, 4, 1, 8, i) for i, k in enumerate("abc")}
        plain = dict(measure="sum_norm", steps=2, batch_size=4, embed_dim=4, held=tuples, log_every=1)
        return dict(tuples=tuples, encoders=encoders) | plain | more

    runs = [run(), run(loss="axis"), run(weights="density", look_every=1), run(measure="pairwise")]
    return [row["loss"] for trained in train_together(runs, device, precision) for row in trained.history]


def detector(device, precision="float32"):
    pictures = np.zeros((4, 32, 32, 4), np.uint8)
    pictures[..., 3], pictures[..., 0] = 255, np.linspace(50, 250, 4)[:, None, None]
    scenes = render_object_scenes(pictures, 8, seed=0)
    watched = dict(steps=2, watch=scenes, keep=1)
    kinds = dict(exact=watched, lead=dict(steps=1), gumbel=dict(steps=1))
    how = dict(batch_size=4, layers=1, device=device, precision=precision)
    runs = [train_detector(scenes, 4, matcher=m, **kind, **how) for m, kind in kinds.items()]
    return np.concatenate([run.losses["total"] for run in runs])


def networks(device, precision="float32"):
    made = [AssignmentNetwork("exchangeable", (5, 6), seed=s) for s in (0, 1)]
    how = dict(steps=4, batch_size=8, every=1, device=device, precision=precision)
    found = train_networks(made, seeds=[0, 1], **how)
    return [[row["loss"] for row in run.history] for run in found]


def six_layers(device, precision="float32"):
    runs = [dict(kind="v3"), dict(kind="ce")]
    how = dict(steps=4, n=4, every=1, device=device, precision=precision)
    return train_six_layers(runs, [0, 1], **how).loss


def heads(device, precision="float32"):
    x, y = drawn(60, 12).numpy(), drawn(60, 12, seed=1).numpy()
    model = CodeEncoder.preset(
        "post", dim=16, epochs=2, batch_size=20, device=device, precision=precision
    ).fit(x, y)
    return [row["train"] for row in model.history]


def students(device, precision="float32"):
    tuples = load_emoji()
    ids, unseen = (
        tuples.ids("train", flags=False)[:40],
        tuples.names("es", tuples.ids("test", flags=False)[:10]),
    )
    english, picture = (torch.nn.functional.normalize(drawn(40, 6, seed=s), dim=-1) for s in (0, 1))
    how = dict(sizes=[16, 40], seeds=[0], batch_size=8, width=8, steps=3, device=device, precision=precision)
    return teach_language(tuples, "es", ids, english, picture, unseen, "both", **how)[1].cpu().tolist()


def guessing_students(device, precision="float32"):
    tuples = load_emoji()
    ids, unseen = (
        tuples.ids("train", flags=False)[:40],
        tuples.names("es", tuples.ids("test", flags=False)[:10]),
    )
    english = torch.nn.functional.normalize(drawn(40, 6), dim=-1)
    how = dict(sizes=[16, 40], seeds=[0], batch_size=8, width=8, steps=3, device=device, precision=precision)
    return guess_language(tuples, "es", ids, english, unseen, **how)[1].cpu().tolist()


def unit(*shape, seed=0):
    return torch.nn.functional.normalize(drawn(*shape, seed=seed), dim=-1)


def whole_model(device, precision="float32"):
    tower, tokenizer, ids = text_tower()
    model = WholeModel(tower.to(device), 300, tokenizer.end, layers=1, heads=2).to(device)
    frozen = [unit(6, 16).to(device)]

    def loss(features):
        return clip_loss(features[0], features[1], 5.0)

    how = dict(steps=2, batch_size=3, precision=precision)
    return [h["loss"] for h in train_whole_model(model, ids.to(device), frozen, loss, **how)]


def distilled(device, precision="float32"):
    _, tokenizer, ids = text_tower()
    shape = dict(embed_dim=16, image_model="test_vit", image_size=32, text_width=32, text_heads=2)
    config = EncoderConfig(**shape, vocab_size=300, context_length=16)
    student = build_encoder(config, tokenizer)
    student.model.to(device)
    pictures, seen, read = (v.to(device) for v in (drawn(6, 3, 32, 32), unit(6, 16), unit(6, 16, seed=1)))
    return distil_encoder(student, pictures, seen, ids.to(device), read, 3, 4, precision=precision)


def third_encoder(device, precision="float32"):
    tower, _, ids = text_tower()
    frozen, rows = [unit(6, 16, seed=s).to(device) for s in (0, 1)], torch.tensor([0, 2, 3, 5])

    def loss(features):
        return 1 - (features[0] * features[-1]).sum(-1).mean()

    recipe = TrainingConfig(steps=3, batch_size=4, warmup=2, precision="float32")
    told = tower.to(device), lambda step: (rows, ids[rows]), frozen, loss, recipe
    return [h["loss"] for h in train_third_encoder(*told, precision=precision)[0]]


def decoder(device, precision="float32"):
    x, masks = drawn(40, 6).to(device), (drawn(40, 4, 4, seed=1) > 0).float().to(device)
    how = dict(steps=3, batch_size=8, precision=precision)
    model = MaskDecoder("transformer", 6, grid=4, width=16).to(device)
    return train_decoder(model, x, masks, lambda y, g: dice_loss(y.sigmoid(), g), **how)


def path(device, precision="float32"):
    encoders = TextStudents([0, 1], 30, 8, 29, width=8).to(device)
    tokens = torch.from_numpy(np.random.default_rng(0).integers(1, 29, (2, 20, 5)))
    tokens[:, :, -1] = 29
    losses, tokens = [], tokens.to(device)

    def loss(features):
        losses.append(clip_loss(*features, 5.0))
        return losses[-1]

    training_path(encoders, tokens, tokens[:, :4], loss, intervals=2, length=2, precision=precision)
    return [v.item() for v in losses]


def n_encoders(device, precision="float32"):
    views = {k: drawn(24, 5, seed=i).to(device) for i, k in enumerate("ab")}
    encoders = {k: FeatureEncoder(5, 4, 1, 8, i).to(device) for i, k in enumerate("ab")}
    how = dict(encoders=encoders, steps=3, batch_size=6, embed_dim=4, precision=precision)
    return [row["loss"] for row in train_encoders(AlignedTuples(views), **how).history]


TRAININGS = [bags, noisy, noisy_together, together, detector, networks, six_layers, heads, guessing_students]
TRAININGS += [students, whole_model, distilled, third_encoder, decoder, path]


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
    with pytest.raises(ValueError, match="precision must be 'auto', 'float32', 'bfloat16'"):
        training("cpu", "float8")


@pytest.mark.gpu
@pytest.mark.parametrize("training", [*TRAININGS, n_encoders])
def test_mixed_precision_on_cuda_is_near_the_cpu(training):
    plain, mixed = training("cpu"), training("cuda", "auto")
    assert np.allclose(np.array(plain, float), np.array(mixed, float), rtol=0.06, atol=0.03)


NO_PRECISION = {
    "its caller's function computes the losses, with `in_precision` where wanted": "train_students",
    "its recipe says it: `TrainingConfig.bfloat16`": "train_encoder train_objective",
    "it counts pairs of bytes": "train_bpe",
    "it builds a model": "text_student",
    "one linear layer, stopped by a held-out loss": "LanguageHead",
    "its losses are the measurement": "prequential_losses",
}
LENGTHS = {"steps", "epochs", "intervals", "updates", "config", "training"}


def trainings_of_the_package():
    "Public functions and classes that train: by their name, or by an argument in a module that uses `train`."
    for part in ("foundations", "codes", "assignment", "evaluation", "grounding"):
        for path in sorted((root() / "brace_nb" / part).glob("[a-z]*.py")):
            module, text = importlib.import_module(f"brace_nb.{part}.{path.stem}"), path.read_text()
            uses = re.search(r"^from \.\.core.* import .*\btrain\b", text, re.M)
            for name in module.__all__:
                made = getattr(module, name)
                result = is_dataclass(made) or isinstance(made, type) and issubclass(made, tuple)
                if not callable(made) or made.__module__ != module.__name__ or result:
                    continue
                told = set(inspect.signature(made).parameters)
                if name.startswith(("train_", "teach_", "guess_lang")) or uses and told & LENGTHS:
                    yield name, told


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
        assignment/precision_methods assignment/precision_missed codes/alignment codes/more_data
        codes/width evaluation/cka_training evaluation/encoder_comparison evaluation/token_score
        foundations/training grounding/detection grounding/first_drop grounding/proof_of_concept_ablations
        grounding/proof_of_concept_losses grounding/samples grounding/six_report
        grounding/third_encoder_report""",
    "it shows the data": "foundations/coverage foundations/data foundations/diagrams",
    "its methods are compiled kernels of the CPU": """
        assignment/precision assignment/real_costs assignment/resampling""",
    "scikit-learn fits": "evaluation/probes grounding/sweep",
    "it proves or counts with whole numbers and small matrices, mostly in float64": """
        assignment/attribution assignment/cycles_given assignment/formats assignment/guarantees
        assignment/longest_cycle assignment/loop_exponents assignment/masks assignment/metrics
        assignment/precision_ratio assignment/printed_code assignment/printed_metrics assignment/recursion
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
        assert not TRAINS.search(code), f"{name} trains or encodes: give it a parameter `device`"
        if named[name].startswith("it draws"):
            assert experiment.needs, name
        if "kernels" in named[name] or "scikit" in named[name]:
            assert "on the CPU with every profile" in words, name


NO_MIXED = {  # experiments that train and follow `device` in float32 with every profile
    "the recipe of the encoder says it, `TrainingConfig.bfloat16`": """
        foundations/encoder foundations/small_encoders""",
    "`distil_encoder` follows the device by itself": "evaluation/distilled",
    "rounded scores tie, and ties are what it asks about": """
        assignment/loss_training assignment/network_losses assignment/network_shapes
        grounding/detection_formats""",
    "its matrices are too small to gain": """
        assignment/network grounding/token_bags grounding/loss_variants grounding/proof_of_concept
        grounding/proof_of_concept_measures grounding/relations grounding/utilization ndim/james_stein""",
    "it fits a probe, no network": "grounding/runs_features",
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
    "foundations/losses": "gradients of formulas, on a few points",
    "grounding/runs_features": "features that others train on",
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
