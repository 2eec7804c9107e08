"""Digests of a few steps of every kind of training, as json: `python tests/trainings.py FILE [NAME...]`.

`tests/test_portable.py` compares those of this processor with those of emulated ones. A digest covers
gradients and weights after every step of every optimizer, and what the training returns. Beside them stand
the modules that made an optimizer and the functions that were on their way to a step, so that the test sees
what is missing.

In this program `grid_sample` is the nearest pixel by indexing, natively and emulated alike: the emulator
(qemu 7.2) crashes in the gathers of AVX2 with which torch's own computes.
"""

import json
import sys
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from brace_nb.core import use_one_instruction_set

use_one_instruction_set()

import made_trainings as made  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from digests import FOUND, keep  # noqa: E402
from made_encoders import RECIPE, SMALL, TINY  # noqa: E402
from torch.optim.optimizer import register_optimizer_step_post_hook  # noqa: E402

from brace_nb.assignment import (  # noqa: E402
    ARCHITECTURES,
    LOSS_SOLVERS,
    LOSSES,
    AssignmentNetwork,
    train_network,
)
from brace_nb.codes import CODES, PRESETS, AdditiveQuantizer, fit_code  # noqa: E402
from brace_nb.evaluation import linear_probe, multilabel_probe  # noqa: E402
from brace_nb.foundations import (  # noqa: E402
    OBJECTIVES,
    ObjectiveConfig,
    train_encoder,
    train_objective,
)
from brace_nb.grounding import (  # noqa: E402
    BRIDGES,
    DETECTION_MATCHERS,
    INCOMPLETE,
    MASK_DECODERS,
    READS,
    TEACHINGS,
    LanguageHead,
    prequential_losses,
    train_table,
)
from brace_nb.ndim import KINDS, MEASURES  # noqa: E402

MODULES, FUNCTIONS = set(), set()
SHORT = replace(RECIPE, steps=3, batch_size=4, designers=("noto",))
PAIR = replace(SHORT, languages=("en",), pictures=1, texts=1)
EXTRA = ObjectiveConfig(projector=32, clusters=(4, 8), cluster_every=2)


def nearest_pixels(x, grid, mode, padding_mode, align_corners):
    "In place of `torch.nn.functional.grid_sample`; zeros outside."
    high, wide = x.shape[-2:]
    column, row = (((grid + 1) * torch.tensor([wide, high]) - 1) / 2).round().long().unbind(-1)
    inside = (column >= 0) & (column < wide) & (row >= 0) & (row < high)
    place = (row.clamp(0, high - 1) * wide + column.clamp(0, wide - 1)).flatten(1)
    found = x.flatten(2).gather(2, place[:, None].expand(-1, x.shape[1], -1))
    return found.unflatten(2, grid.shape[1:3]) * inside[:, None]


def ours(frame):
    "The frames of the package, from the innermost."
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("brace_nb."):
            yield frame
        frame = frame.f_back


def note_makers():
    "Write down the module that makes an optimizer."
    begin = torch.optim.Optimizer.__init__

    def noted(self, *args, **options):
        MODULES.add(next(ours(sys._getframe())).f_globals["__name__"])
        begin(self, *args, **options)

    torch.optim.Optimizer.__init__ = noted


def keep_training(name, training):
    "The digest of a training; its seconds of processor are printed."
    seen, began = [], time.process_time()

    def look(optimizer, *_):
        FUNCTIONS.update(frame.f_code.co_qualname.split(".")[0] for frame in ours(sys._getframe()))
        for group in optimizer.param_groups:
            for p in group["params"]:
                seen.extend(v.detach().clone() for v in (p, p.grad) if v is not None)

    hook = register_optimizer_step_post_hook(look)
    try:
        seen.extend(map(np.asarray, training()))
    finally:
        hook.remove()
    keep(f"training {name}", *seen)
    print(f"{time.process_time() - began:.1f} s", name, flush=True)


def encoder():
    shape = replace(TINY, image_model="test_resnet", image_size=16)
    trained, history = train_encoder(made.emoji(), shape, SHORT, seed=3, progress=False)
    return [*trained.model.state_dict().values(), *history["loss"], *history["scale"]]


def objective(name):
    shape = replace(SMALL, embed_dim=16, image_model="test_vit", image_size=16)
    trained, history = train_objective(made.emoji(), name, shape, PAIR, EXTRA)
    return [*trained.model.state_dict().values(), *history.values()]


def drawn(*shape, seed=0):
    return made.drawn(*shape, seed=seed).numpy()


def probes():
    parts = [(drawn(120, 40, seed=s), np.arange(120) % 3) for s in range(3)]
    found = linear_probe(*parts, strengths=(0.1, 1.0))
    some = multilabel_probe(*((x, drawn(120, 2, seed=9) > 0) for x, _ in parts), strengths=(0.1, 1.0))
    return [*found["path"].values(), found["ece"], found["top1"], *some["average_precision"]]


def code(name):
    entry, x = CODES[name], drawn(300, 64)
    x = np.abs(x) if entry.nonnegative else x
    fitted = fit_code(name, x, 2 if entry.counts else None)
    codes = fitted.encode(x)
    return [codes, fitted.decode(codes)]


def sums():
    x = drawn(300, 64)
    fitted = AdditiveQuantizer(2, steps=2).fit(x)
    return [fitted.centers, fitted.encode(x)]


def network():
    trained = train_network(AssignmentNetwork("transformer", (4, 6)), 3, batch_size=8, every=1)
    return [*trained.network.state_dict().values(), *(row["loss"] for row in trained.history)]


def language_head():
    targets = torch.arange(40) % 5
    head = LanguageHead(made.drawn(40, 8), targets, 5, steps=8, batch_size=16)
    return [*head.state_dict().values(), head.loss(made.drawn(40, 8), targets)]


def streams():
    return prequential_losses(made.drawn(96, 8), torch.arange(96) % 5, 5)


def own_table():
    with tempfile.TemporaryDirectory() as folder:
        files = {name: Path(folder) / f"{name}.npy" for name in ("image", "text")}
        for seed, file in enumerate(files.values()):
            np.save(file, drawn(120, 4, seed=seed))
        made = train_table(files, Path(folder) / "out", epochs=2, embed_dim=4, progress=False)
        return [look["score"] for look in made.looks]


def of_codes():
    variants = dict(
        ternary=dict(container="ternary"),
        aligned=dict(align=1.0, uniform=0.5, distinct=True),
        distilled=dict(distill=1.0, straight_through=True),
    )
    few = dict(few=dict(dim=32, most=5))
    for name, changes in (dict.fromkeys(PRESETS, {}) | few).items():
        yield f"heads {name}", partial(made.heads, "cpu", preset=name, epochs=1, **changes)
    for name, changes in variants.items():
        yield f"heads {name}", partial(made.heads, "cpu", epochs=1, **changes)
    for name in CODES:
        yield f"code {name}", partial(code, name)
    yield "code of sums", sums


def of_assignment():
    for name in ARCHITECTURES:
        how = dict(kind=name, steps=3, temperatures=[0.1, None])
        yield f"networks {name}", partial(made.networks, "cpu", **how)
    yield "network", network
    runs = [dict(kind=kind) for kind in LOSSES] + [dict(kind="v3", method=m) for m in LOSS_SOLVERS]
    runs += [dict(kind="v2", method=m, straight_through=True) for m in ("sinkhorn", "gumbel")]
    runs, short = [*runs, dict(kind="v2", factor=True)], dict(steps=3, n=6)
    yield "six layers", partial(made.six_layers, "cpu", runs=runs, **short)
    yield "six layers baseline", partial(made.six_layers, "cpu", network="baseline", **short)


def of_tuples():
    short = dict(steps=3, report=3, items=12)
    for kind in KINDS:
        yield f"proof {kind}", partial(made.noisy, "cpu", kind=kind, **short)
        yield f"encoders {kind}", partial(made.n_encoders, "cpu", names="abc", loss=kind)
    for name in MEASURES:
        yield f"proof {name}", partial(made.noisy, "cpu", measure=name, **short)
    yield "side by side", partial(made.noisy_together, "cpu", **short)
    for projection in ("none", "inv", "iinv"):
        yield f"proof {projection}", partial(made.noisy, "cpu", projection=projection, **short)
        yield f"encoders {projection}", partial(made.n_encoders, "cpu", projection=projection)
    learned = dict(weights="learned", kind="slice", label_smoothing=0.1)
    yield "proof weights", partial(made.noisy, "cpu", **learned, **short)
    for name, how in dict(weights=dict(weights="learned"), normlogits=dict(normlogits=True)).items():
        yield f"encoders {name}", partial(made.n_encoders, "cpu", names="abc", loss="slice", **how)


def of_grounding():
    for name in MASK_DECODERS:
        yield f"decoder {name}", partial(made.decoder, "cpu", kind=name)
    for name in BRIDGES:
        yield f"whole model {name}", partial(made.whole_model, "cpu", bridge=name)
    for name in sorted(READS.keys() - {"source end"}):  # where the bridges are read
        yield f"whole model {name}", partial(made.whole_model, "cpu", read=name)
    for name in (*TEACHINGS, INCOMPLETE):
        yield f"students {name}", partial(made.students, "cpu", teaching=name)
    for name in DETECTION_MATCHERS:
        yield (
            f"detector {name}",
            partial(made.detector, "cpu", side=32, batch_size=2, **{name: dict(steps=3)}),
        )
    rest = (made.bags, made.together, made.guessing_students, made.distilled, made.third_encoder, made.path)
    for training in rest:
        yield training.__name__, partial(training, "cpu")
    yield "language head", language_head
    yield "own table", own_table
    yield "prequential", streams


def trainings():
    "Name and function of every training."
    yield "encoder", encoder
    for name in OBJECTIVES:
        yield f"objective {name}", partial(objective, name)
    yield "probes", probes
    for part in (of_codes, of_assignment, of_tuples, of_grounding):
        yield from part()


def main(path, *names):
    torch.nn.functional.grid_sample = nearest_pixels
    note_makers()
    for name, training in trainings():
        if not names or name in names:
            keep_training(name, training)
    FOUND.update(modules=sorted(MODULES), functions=sorted(FUNCTIONS))
    Path(path).write_text(json.dumps(FOUND, indent=0))


if __name__ == "__main__":
    main(*sys.argv[1:])
