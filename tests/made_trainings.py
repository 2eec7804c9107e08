"Trainings of the package, each tiny and seeded; and the list of its functions that train."

import importlib
import inspect
import re
from dataclasses import is_dataclass
from functools import cache

import numpy as np
import torch
from made_tower import text_tower

from brace_nb.assignment import AssignmentNetwork, train_networks, train_six_layers
from brace_nb.codes import CodeEncoder
from brace_nb.companion import root
from brace_nb.foundations import EncoderConfig, TrainingConfig, build_encoder, clip_loss, load_emoji
from brace_nb.grounding import (
    AlignedTuples,
    FeatureEncoder,
    MaskDecoder,
    TextStudents,
    WholeModel,
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


emoji = cache(load_emoji)  # read once by all of them


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def bags(device, precision="float32"):
    rng = np.random.default_rng(0)
    texts = [torch.from_numpy(rng.integers(1, 30, (40, 3))) for _ in range(2)]
    run = train_bags(
        drawn(40, 8), texts, 40, np.arange(30), np.arange(30, 40), 2, device=device, precision=precision
    )
    return [*run["loss"], run["val_loss"]]


def noisy(device, precision="float32", measure="sum_norm", **options):
    how = dict(steps=4, report=2, device=device, precision=precision) | options
    return [h["loss"] for h in train_noisy_encoders(3, measure, **how)]


def noisy_together(device, precision="float32", **options):
    how = dict(steps=4, report=2, device=device, precision=precision) | options
    runs = dict(measure="sum_norm"), dict(kind="axis")
    found = train_noisy_side_by_side(list(runs), [0, 1], 3, **how)
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


def detector(device, precision="float32", side=64, batch_size=4, **kinds):
    pictures = np.zeros((4, 32, 32, 4), np.uint8)
    pictures[..., 3], pictures[..., 0] = 255, np.linspace(50, 250, 4)[:, None, None]
    scenes = render_object_scenes(pictures, 8, seed=0, side=side)
    watched = dict(steps=2, watch=scenes, keep=1)
    kinds = kinds or dict(exact=watched, lead=dict(steps=1), gumbel=dict(steps=1))
    how = dict(batch_size=batch_size, layers=1, device=device, precision=precision)
    runs = [train_detector(scenes, 4, matcher=m, **kind, **how) for m, kind in kinds.items()]
    return np.concatenate([run.losses["total"] for run in runs])


def networks(device, precision="float32", kind="exchangeable", **options):
    made = [AssignmentNetwork(kind, (5, 6), seed=s) for s in (0, 1)]
    how = dict(steps=4, batch_size=8, every=1, device=device, precision=precision) | options
    found = train_networks(made, seeds=[0, 1], **how)
    return [[row["loss"] for row in run.history] for run in found]


def six_layers(device, precision="float32", runs=(dict(kind="v3"), dict(kind="ce")), **options):
    how = dict(steps=4, n=4, every=1, device=device, precision=precision) | options
    return train_six_layers(list(runs), [0, 1], **how).loss


def heads(device, precision="float32", preset="post", **changes):
    rows = 300 if preset in ("pq", "additive") else 60  # a byte has 256 centers
    x, y = drawn(rows, 12).numpy(), drawn(rows, 12, seed=1).numpy()
    how = dict(dim=16, epochs=2, batch_size=20, device=device, precision=precision) | changes
    model = CodeEncoder.preset(preset, **how).fit(x, y)
    return [row["train"] for row in model.history]


def students(device, precision="float32", teaching="both"):
    tuples = emoji()
    ids, unseen = (
        tuples.ids("train", flags=False)[:40],
        tuples.names("es", tuples.ids("test", flags=False)[:10]),
    )
    english, picture = (torch.nn.functional.normalize(drawn(40, 6, seed=s), dim=-1) for s in (0, 1))
    how = dict(sizes=[16, 40], seeds=[0], batch_size=8, width=8, steps=3, device=device, precision=precision)
    return teach_language(tuples, "es", ids, english, picture, unseen, teaching, **how)[1].cpu().tolist()


def guessing_students(device, precision="float32"):
    tuples = emoji()
    ids, unseen = (
        tuples.ids("train", flags=False)[:40],
        tuples.names("es", tuples.ids("test", flags=False)[:10]),
    )
    english = torch.nn.functional.normalize(drawn(40, 6), dim=-1)
    how = dict(sizes=[16, 40], seeds=[0], batch_size=8, width=8, steps=3, device=device, precision=precision)
    return guess_language(tuples, "es", ids, english, unseen, **how)[1].cpu().tolist()


def unit(*shape, seed=0):
    return torch.nn.functional.normalize(drawn(*shape, seed=seed), dim=-1)


def whole_model(device, precision="float32", **how):
    tower, tokenizer, ids = text_tower()
    model = WholeModel(tower.to(device), 300, tokenizer.end, layers=1, heads=2, **how).to(device)
    frozen = [unit(6, 16).to(device)]

    def loss(features):
        return clip_loss(features[0], features[1], 5.0)

    how = dict(steps=2, batch_size=3, precision=precision)
    return [h["loss"] for h in train_whole_model(model, ids.to(device), frozen, loss, **how)]


def distilled(device, precision="float32"):
    _, tokenizer, ids = text_tower()
    # Muon multiplies matrices in bfloat16, which takes an emulator minutes; filters are none
    shape = dict(embed_dim=16, image_model="test_resnet", image_size=16, text_width=32, text_heads=2)
    config = EncoderConfig(**shape, vocab_size=300, context_length=16)
    student = build_encoder(config, tokenizer)
    student.model.to(device)
    pictures, seen, read = (v.to(device) for v in (drawn(6, 3, 16, 16), unit(6, 16), unit(6, 16, seed=1)))
    return distil_encoder(student, pictures, seen, ids.to(device), read, 3, 4, precision=precision)


def third_encoder(device, precision="float32"):
    tower, _, ids = text_tower()
    frozen, rows = [unit(6, 16, seed=s).to(device) for s in (0, 1)], torch.tensor([0, 2, 3, 5])

    def loss(features):
        return 1 - (features[0] * features[-1]).sum(-1).mean()

    recipe = TrainingConfig(steps=3, batch_size=4, warmup=2, precision="float32")
    told = tower.to(device), lambda step: (rows, ids[rows]), frozen, loss, recipe
    return [h["loss"] for h in train_third_encoder(*told, precision=precision)[0]]


def decoder(device, precision="float32", kind="transformer"):
    x, masks = drawn(40, 6).to(device), (drawn(40, 4, 4, seed=1) > 0).float().to(device)
    how = dict(steps=3, batch_size=8, precision=precision)
    model = MaskDecoder(kind, 6, grid=4, width=16).to(device)
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


def n_encoders(device, precision="float32", names="ab", **options):
    views = {k: drawn(24, 5, seed=i).to(device) for i, k in enumerate(names)}
    encoders = {k: FeatureEncoder(5, 4, 1, 8, i).to(device) for i, k in enumerate(names)}
    how = dict(encoders=encoders, steps=3, batch_size=6, embed_dim=4, precision=precision) | options
    return [row["loss"] for row in train_encoders(AlignedTuples(views), **how).history]


TRAININGS = [bags, noisy, noisy_together, together, detector, networks, six_layers, heads, guessing_students]
TRAININGS += [students, whole_model, distilled, third_encoder, decoder, path]

LENGTHS = {"steps", "epochs", "intervals", "updates", "config", "training"}


def trainings_of_the_package():
    "Public functions and classes that train: by their name, or by an argument in a module that uses `train`."
    for part in ("foundations", "codes", "assignment", "evaluation", "grounding"):
        for path in sorted((root() / "brace_nb" / part).glob("[a-z]*.py")):
            module, text = importlib.import_module(f"brace_nb.{part}.{path.stem}"), path.read_text()
            uses = re.search(r"^from \S*\bcore\S* import (\([^)]*|.*)\btrain\b", text, re.M)
            for name in module.__all__:
                made = getattr(module, name)
                result = is_dataclass(made) or isinstance(made, type) and issubclass(made, tuple)
                if not callable(made) or made.__module__ != module.__name__ or result:
                    continue
                told = set(inspect.signature(made).parameters)
                if name.startswith(("train_", "teach_", "guess_lang")) or uses and told & LENGTHS:
                    yield name, told
