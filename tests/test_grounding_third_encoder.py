"The third encoder: what learns, what a step does (against plain loops), what is followed, what is refused."

import itertools
import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from brace_nb.foundations import (
    ByteBPE,
    CaptionSampler,
    EncoderConfig,
    TrainingConfig,
    encode_tokens,
    learning_rate,
    load_emoji,
    train_bpe,
)
from brace_nb.grounding import CaptionBatches, cube_summary, text_student, train_third_encoder

torch.set_num_threads(1)
TOWER = dict(
    embed_dim=8, image_model="test_resnet", text_width=16, text_heads=1, text_layers=1, vocab_size=300
)
SHAPE = EncoderConfig(**TOWER)
RECIPE = TrainingConfig(
    steps=4, batch_size=6, warmup=2, languages=("es",), token_dropout=0.0, learning_rate=3e-3
)


@pytest.fixture(scope="module")
def world():
    tuples = load_emoji()
    ids = np.array(tuples.ids("train", flags=False)[:20])
    tokenizer = ByteBPE(train_bpe(tuples.captions(lang="es", ids=ids).text, 300), 300)
    captions = CaptionSampler(tuples, ids, RECIPE, tokenizer)
    frozen = [
        F.normalize(torch.randn(20, 8, generator=torch.Generator().manual_seed(i)), dim=-1) for i in range(2)
    ]
    return ids, tokenizer, captions, frozen


def batches(world, seed=0):
    ids, tokenizer, captions, _ = world
    return CaptionBatches(captions, tokenizer, "es", ids, 6, seed)


def teacher_distance(features):
    return 1 - (features[0] * features[-1]).sum(-1).mean()


def test_only_the_text_tower_learns(world):
    student = text_student(SHAPE, world[1])
    assert not any(p.requires_grad for p in student.visual.parameters())
    assert not student.logit_scale.requires_grad
    named = dict(student.named_parameters())
    for name in ("token_embedding.weight", "positional_embedding", "text_projection", "ln_final.weight"):
        assert named[name].requires_grad
    before = {k: v.clone() for k, v in student.state_dict().items()}
    train_third_encoder(student, batches(world), world[3], teacher_distance, RECIPE)
    moved = {k for k, v in student.state_dict().items() if not torch.equal(v, before[k])}
    assert moved == {k for k, p in named.items() if p.requires_grad}


def test_batches_repeat_and_belong_to_their_rows(world):
    ids, tokenizer, captions, _ = world
    one, two = batches(world), batches(world)
    for step in range(5):
        (rows, tokens), (again, same) = one(step), two(step)
        assert torch.equal(rows, again) and torch.equal(tokens, same)
        assert len(set(rows.tolist())) == 6
    for row, text in zip(rows, tokens):
        names = captions.names["es"][int(ids[row])] + captions.keywords["es"].get(int(ids[row]), [])
        text = set(text.tolist())
        assert any(set(name) <= text for name in names)


def plain_adamw_step(values, gradients, decayed, rate, config):
    "The first step of AdamW, from its definition (moments divided by 1 - beta are g and g^2)."
    out = {}
    for k, p in values.items():
        g = gradients[k].double()
        p = p.double() * (1 - rate * config.weight_decay) if decayed[k] else p.double()
        out[k] = p - rate * g / (g.abs() + 1e-8)
    return out


def test_one_step_is_the_loss_its_gradient_and_adamw(world):
    ids, tokenizer, _, frozen = world
    student = text_student(SHAPE, tokenizer, seed=2)
    start = {k: p.detach().clone() for k, p in student.named_parameters() if p.requires_grad}
    rows, tokens = batches(world, seed=2)(0)
    features = F.normalize(encode_tokens(student, tokens), dim=-1)
    picture, name = (f[rows] for f in frozen)
    terms = []
    for teacher, both in itertools.product((picture, name), (False, True)):
        logits = [[7.0 * (a * b).sum() for b in features] for a in teacher]
        logits = list(zip(*logits)) if both else logits
        terms += [torch.stack([v for v in line]).logsumexp(0) - line[i] for i, line in enumerate(logits)]
    value = sum(terms) / len(terms)
    value.backward()
    slopes = {k: p.grad.clone() for k, p in student.named_parameters() if p.requires_grad}

    def loss(features):
        from brace_nb.foundations import clip_loss

        picture, name, own = features
        return (clip_loss(picture, own, 7.0) + clip_loss(name, own, 7.0)) / 2

    fresh, one = text_student(SHAPE, tokenizer, seed=2), TrainingConfig(**{**vars(RECIPE), "steps": 1})
    history, looks = train_third_encoder(fresh, batches(world, seed=2), frozen, loss, one)
    assert looks == [] and [h["step"] for h in history] == [0]
    assert history[0]["loss"] == pytest.approx(float(value.detach()), rel=1e-5)
    decayed = {k: p.ndim >= 2 and not k.endswith("positional_embedding") for k, p in start.items()}
    wanted = plain_adamw_step(start, slopes, decayed, learning_rate(0, one), one)
    for k, p in fresh.named_parameters():
        if p.requires_grad:
            heard = slopes[k].abs() > 1e-6  # the sign of a vanishing slope is a matter of rounding
            assert torch.allclose(p[heard], wanted[k].float()[heard], atol=2e-5), k


@pytest.mark.parametrize("n", [2, 3])
def test_the_summary_of_a_cube_equals_loops(n):
    features = [
        F.normalize(torch.randn(4, 5, generator=torch.Generator().manual_seed(i)), dim=-1) for i in range(n)
    ]
    cells = {}
    for at in itertools.product(range(4), repeat=n):
        pairs = itertools.combinations(range(n), 2)
        cells[at] = np.mean([float(features[a][at[a]] @ features[b][at[b]]) for a, b in pairs])
    own = {at: v for at, v in cells.items() if len(set(at)) == 1}
    others = [v for at, v in cells.items() if at not in own]
    got = cube_summary(features)
    wanted = dict(positive=np.mean(list(own.values())), negative=np.mean(others), first=own[(0,) * n])
    wanted |= dict(worst=max(others), similarity=np.mean(list(cells.values())))
    assert got == pytest.approx(wanted, abs=1e-6)


def test_looks_come_before_during_and_after(world):
    seen = []

    def look(student):
        seen.append(student.token_embedding.weight.detach().clone())
        return dict(found=len(seen))

    def looked(every):
        student = text_student(SHAPE, world[1])
        _, looks = train_third_encoder(
            student, batches(world), world[3], teacher_distance, RECIPE, look=look, look_every=every
        )
        return [x["step"] for x in looks]

    assert looked(2) == [0, 2, 4] and not torch.equal(seen[0], seen[1])
    assert looked(3) == [0, 3, 4] and looked(0) == [0, 4] and looked(9) == [0, 4]


def test_training_repeats_and_lowers_the_loss(world):
    runs, longer = [], TrainingConfig(**{**vars(RECIPE), "steps": 25})
    for _ in range(2):
        student = text_student(SHAPE, world[1])
        runs.append(train_third_encoder(student, batches(world), world[3], teacher_distance, longer)[0])
    assert runs[0] == runs[1]
    losses = [h["loss"] for h in runs[0]]
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) and all(map(math.isfinite, losses))


def test_teachers_that_do_not_fit_are_refused(world):
    student = text_student(SHAPE, world[1])
    for frozen in ([], [torch.ones(20, 8), torch.ones(3, 8)]):
        with pytest.raises(ValueError, match="one number of rows|list of torch tensors"):
            train_third_encoder(student, batches(world), frozen, teacher_distance, RECIPE)
