"The loss of distillation by hand, and towers that come closer to a teacher."

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from brace_nb.foundations import ByteBPE, EncoderConfig, build_encoder, load_emoji, train_bpe
from brace_nb.grounding import distil_encoder, distillation, distillation_loss


def unit(*shape, seed=0):
    return F.normalize(torch.randn(shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


def test_loss_in_plain_loops():
    own, teacher = unit(5, 7, seed=1).double(), unit(5, 7, seed=2).double()
    logits = 3.0 * (own @ teacher.T).numpy()
    rows = [np.logaddexp.reduce(logits[i]) - logits[i, i] for i in range(5)]
    columns = [np.logaddexp.reduce(logits[:, i]) - logits[i, i] for i in range(5)]
    cosines = [float(own[i] @ teacher[i]) for i in range(5)]
    expected = 1 - np.mean(cosines) + (np.mean(rows) + np.mean(columns)) / 2
    assert distillation_loss(5 * own, teacher, 3.0).item() == pytest.approx(expected, abs=1e-6)


def test_a_student_comes_closer_and_repeats_exactly():
    tuples, ids = load_emoji(), np.arange(12)
    names = tuples.names("en", ids)
    tokenizer = ByteBPE(train_bpe(names, 400), 400, 16)
    shape = dict(embed_dim=16, image_model="test_vit", image_size=32, text_width=32, text_heads=2)
    config, answers = EncoderConfig(**shape, vocab_size=400, context_length=16), unit(12, 16, seed=3)

    def taught(steps, **how):
        student = build_encoder(config, tokenizer)
        planes = student.preprocess(tuples.images("noto", ids, 32))
        how |= dict(steps=steps, batch_size=12, learning_rate=3e-3)
        losses = distil_encoder(student, planes, answers, tokenizer(names), answers, **how)
        return losses, float((torch.from_numpy(student.encode_texts(names)) * answers).sum(1).mean())

    losses, near = taught(15)
    again, _ = taught(15)
    _, before = taught(1)
    assert losses == again and losses[-1] < losses[0] and near > before + 0.1
    mixed, _ = taught(3, precision="bfloat16")
    assert mixed == pytest.approx(losses[:3], rel=0.05) and mixed != losses[:3]
    other, _ = taught(3, matrix_rate=0.002)
    assert other[0] == losses[0] and other[1:] != losses[1:3]
    with pytest.raises(ValueError, match="precision must be one of"):
        taught(1, precision="half")


def test_muon_takes_the_matrices_of_the_vision_blocks_and_adamw_all_others():
    shape = dict(embed_dim=16, image_model="test_vit", image_size=32, text_width=32, text_heads=2)
    names = load_emoji().names("en", np.arange(12))
    tokenizer = ByteBPE(train_bpe(names, 400), 400, 16)
    model = build_encoder(EncoderConfig(**shape, vocab_size=400, context_length=16), tokenizer).model
    adamw, muon = distillation._optimizers(model, 1e-3, 0.02)
    named = {id(p): name for name, p in model.named_parameters()}
    inside = {named[id(p)] for group in muon.param_groups for p in group["params"]}
    others = {named[id(p)] for group in adamw.param_groups for p in group["params"]}
    blocks = range(len(model.visual.trunk.blocks))
    parts = ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")
    assert inside == {f"visual.trunk.blocks.{i}.{part}.weight" for i in blocks for part in parts}
    assert not inside & others and inside | others == set(named.values())
    convolutions = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3))
    assert len(distillation._optimizers(convolutions, 1e-3, 0.02)) == 1


def test_optimizers_step_as_one_at_their_own_rates():
    a, b = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    both = distillation._Together(
        [torch.optim.SGD([a], 0.1), torch.optim.SGD([b], 0.01)], lambda step: 1 / (step + 1)
    )
    for _ in range(3):
        both.zero_grad()
        (a.sum() + b.sum()).backward()
        both.step()
    course = 1 + 1 / 2 + 1 / 3
    assert a.tolist() == pytest.approx([1 - 0.1 * course] * 2)
    assert b.tolist() == pytest.approx([1 - 0.01 * course] * 2)
    assert len(both.param_groups) == 2
