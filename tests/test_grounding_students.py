"""Students side by side against one alone, their losses against the cube's and CLIP's, and sample ratios."""

import itertools

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from brace_nb.foundations import clip_loss, load_emoji
from brace_nb.grounding import (
    INCOMPLETE,
    TEACHINGS,
    TextStudents,
    contrasts,
    guess_language,
    guess_losses,
    hide_words,
    ridge_map,
    samples_ratio,
    teach_language,
    train_students,
)
from brace_nb.ndim import cube_loss


def some_tokens(students, rows=6, length=7, end=29, seed=0):
    "Texts of several lengths, each with one end token and padding behind it."
    draw = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1, end, (students, rows, length), generator=draw)
    last = torch.randint(2, length, (students, rows), generator=draw)
    place = torch.arange(length)
    tokens[place == last[..., None]] = end
    return tokens.masked_fill(place > last[..., None], 0)


def unit(*shape, seed=0):
    return F.normalize(torch.randn(shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


def as_torch_layer(w, width, heads):
    "The first student's block with torch's own layer; `w`: its weights by name."
    layer = nn.TransformerEncoderLayer(
        width, heads, 4 * width, 0.0, "gelu", norm_first=True, batch_first=True
    )

    def of(name):
        return {p: w[f"blocks.0.{name}.{p}"] for p in ("weight", "bias")}

    own = {}
    for theirs, ours in {"linear1": "widen", "linear2": "narrow", "self_attn.out_proj": "mix"}.items():
        own |= {f"{theirs}.{p}": v.T for p, v in of(ours).items()}
    for theirs, ours in {"norm1": "before", "norm2": "between"}.items():
        own |= {f"{theirs}.{p}": v for p, v in of(ours).items()}
    own |= {f"self_attn.in_proj_{p}": v.T for p, v in of("attend").items()}
    layer.load_state_dict(own)
    return layer.double()


@pytest.mark.parametrize("heads", [1, 2])
def test_a_block_is_torchs_layer(heads):
    students = TextStudents([3, 4], 30, 5, 29, width=8, heads=heads).double()
    tokens = some_tokens(2)
    w = {k: p[0].detach() for k, p in zip(students.shapes, students.pieces())}
    layer = as_torch_layer(w, 8, heads)
    x = w["tokens.weight"][tokens[0]] + w["places.weight"][: tokens.shape[-1]]
    x = layer(x, src_key_padding_mask=tokens[0] == 0)
    expected = F.layer_norm(x, (8,), w["last.weight"], w["last.bias"])
    used = tokens[0] != 0
    assert torch.allclose(students.states(tokens)[0][used], expected[used], atol=1e-10)
    at = (tokens[0] == 29).int().argmax(-1)
    read = expected[torch.arange(6), at] @ w["project.weight"] + w["project.bias"]
    assert torch.allclose(students(tokens)[0], F.normalize(read, dim=-1), atol=1e-10)


def test_no_student_feels_the_others():
    tokens, target = some_tokens(3), unit(3, 6, 5)

    def taught(which):
        students = TextStudents([s for s in which], 30, 5, 29, width=8).double()
        rows = list(which)
        return train_students(
            students, lambda step: contrasts(students(tokens[rows]), target[rows].double()), steps=12
        )

    together = taught([0, 1, 2])
    for s in range(3):
        assert torch.allclose(taught([s])[:, 0], together[:, s], atol=1e-8)


def test_no_two_weights_of_a_student_share_their_draws():
    towers = TextStudents([3], 30, 5, 29, width=16, layers=2)
    drawn = [p[0].detach().flatten().numpy() for p in towers.pieces() if p[0].detach().std() > 0]
    assert len(drawn) == 2 + 2 * 4 + 1
    for (i, a), (j, b) in itertools.permutations(enumerate(drawn), 2):
        size = min(len(a), len(b), 64)
        shifted = [np.corrcoef(a[s : s + size], b[:size])[0, 1] for s in range(min(97, len(a) - size + 1))]
        assert max(shifted) < 0.7, (i, j)


def test_padding_changes_nothing():
    students, tokens = TextStudents([0], 30, 5, 29, width=8), some_tokens(1)
    wider = F.pad(tokens, (0, 4))
    assert torch.allclose(students(tokens), students(wider), atol=1e-6)


def test_contrasts_are_clip_s():
    own, other = unit(3, 6, 5, seed=1), unit(3, 6, 5, seed=2)
    expected = torch.stack([clip_loss(a, b, 14.0) for a, b in zip(own, other)])
    assert torch.allclose(contrasts(own, other), expected, atol=1e-5)


def test_a_missing_member_is_no_row_and_no_column():
    own, other = unit(1, 6, 5, seed=1).requires_grad_(True), unit(1, 6, 5, seed=2)
    known = torch.tensor([[True, False, True, True, False, True]])
    rows = known[0].nonzero()[:, 0]
    loss = contrasts(own, other, known=known)
    assert torch.allclose(loss, clip_loss(own[0, rows], other[0, rows], 14.0), atol=1e-5)
    (gradient,) = torch.autograd.grad(loss.sum(), own)
    assert (gradient[0, ~known[0]] == 0).all() and (gradient[0, known[0]] != 0).any()
    nobody = torch.zeros(1, 6, dtype=torch.bool)
    assert contrasts(own, other, known=nobody).item() == 0


@pytest.mark.parametrize("name, measure, scale", [("cosines", "pairwise", 42), ("products", "einsum", 224)])
def test_the_teachings_of_cubes_are_the_slice_loss(name, measure, scale):
    picture, english, own = features = [unit(2, 5, 7, seed=s).double() for s in range(3)]
    expected = [cube_loss([f[s] for f in features], measure, "slice", scale) for s in range(2)]
    found = TEACHINGS[f"cube of {name}"](own, english, picture, None)
    assert torch.allclose(found, torch.stack(expected), atol=1e-9)


def test_every_teaching_pulls_a_text_to_its_own_tuple():
    english = unit(1, 8, 16, seed=3)
    picture = F.normalize(english + 0.05 * unit(1, 8, 16, seed=4), dim=-1)
    known = torch.ones(1, 8, dtype=torch.bool)
    for name, teach in TEACHINGS.items():
        right = teach(english, english, picture, known)
        wrong = teach(english.roll(1, 1), english, picture, known)
        assert right.item() < wrong.item(), name


def test_hidden_words_are_words():
    tokens = some_tokens(4, rows=50)
    masked, hidden = hide_words(tokens, 30, 29, torch.Generator().manual_seed(0), share=0.3)
    words = (tokens > 0) & (tokens < 29)
    assert not (hidden & ~words).any() and hidden.any(-1).all()
    assert (masked[hidden] == 30).all() and (masked[~hidden] == tokens[~hidden]).all()
    assert 0.25 < hidden[words].double().mean().item() < 0.45  # one a text at least


@torch.no_grad()
def test_guess_losses_in_loops():
    students, tokens = TextStudents([0, 1], 31, 5, 29, width=8).double(), some_tokens(2)
    _, hidden = hide_words(tokens, 30, 29, torch.Generator().manual_seed(0))
    states, losses = (
        students.states(tokens.masked_fill(hidden, 30)),
        guess_losses(students, tokens, hidden, 30),
    )
    for s in range(2):
        found = []
        for b, place in hidden[s].nonzero().tolist():
            logits = [float(states[s, b, place] @ students.tokens[s, v]) for v in range(31)]
            found.append(np.logaddexp.reduce(logits) - logits[tokens[s, b, place]])
        assert abs(np.mean(found) - losses[s].item()) < 1e-9


@pytest.mark.parametrize("times", [0.5, 1.0, 3.0])
def test_a_shifted_curve_needs_that_many_more(times):
    sizes = np.array([50.0, 100, 200, 400, 800])

    def score(n):
        return 7 * np.log(n) + 2

    assert samples_ratio(sizes, score(sizes / times), score(sizes)) == pytest.approx(times, rel=1e-6)
    assert samples_ratio(sizes, score(sizes), score(sizes / times)) == pytest.approx(1 / times, rel=1e-6)


def test_curves_without_a_common_score_give_a_bound():
    assert samples_ratio([10, 40], [0.0, 1.0], [2.0, 3.0]) == 4
    assert samples_ratio([10, 40], [2.0, 3.0], [0.0, 1.0]) == 0.25


def test_curves_that_fall_are_read_at_their_best():
    assert samples_ratio([1, 2, 4], [0.0, 2.0, 1.0], [0.0, 2.0, 2.0]) == pytest.approx(1, abs=0.01)
    with pytest.raises(ValueError, match="finite"):
        samples_ratio([1, 2], [0.0, np.nan], [0.0, 1.0])


def test_ridge_map_leaves_out_as_a_loop_does():
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(12, 4, generator=draw).double()
    y = (x @ torch.randn(4, 2, generator=draw).double()) + torch.randn(12, 2, generator=draw)
    scale = torch.linalg.svdvals(x - x.mean(0)).square().mean()
    errors = []
    for penalty in (1e-3, 1.0, 30.0):
        total = 0.0
        for i in range(12):
            keep = torch.arange(12) != i
            a, b = torch.cat([x[keep], torch.ones(11, 1)], 1), y[keep]
            ridge = torch.diag(torch.tensor([penalty * scale] * 4 + [0.0]).double())
            weights = torch.linalg.solve(a.T @ a + ridge, a.T @ b)
            total += (torch.cat([x[i], torch.ones(1)]) @ weights - y[i]).square().sum().item()
        errors.append(total)
    best = (1e-3, 1.0, 30.0)[int(np.argmin(errors))]
    weights, at, to, penalty = ridge_map(x, y, (1e-3, 1.0, 30.0))
    a = torch.cat([x, torch.ones(12, 1)], 1)
    ridge = torch.diag(torch.tensor([best * scale] * 4 + [0.0]).double())
    expected = a @ torch.linalg.solve(a.T @ a + ridge, a.T @ y)
    assert penalty == best and torch.allclose((x - at) @ weights + to, expected, atol=1e-9)


def test_larger_sets_hold_the_smaller_and_ways_share_their_batches():
    tuples = load_emoji()
    ids = tuples.ids("train", flags=False)[:48]
    english, picture = unit(48, 6, seed=1), unit(48, 6, seed=2)
    unseen = tuples.names("es", tuples.ids("test", flags=False)[:10])
    how = dict(sizes=[16, 48], seeds=[0], batch_size=8, width=8)
    known = {}
    first, losses = teach_language(tuples, "es", ids, english, picture, unseen, "English", **how, steps=3)
    again, repeated = teach_language(
        tuples, "es", ids, english, picture, unseen, "English", **how, steps=3, languages=known
    )
    assert torch.equal(first, again) and torch.equal(losses, repeated)
    assert set(known) == {(0, 16), (0, 48)}
    fresh, nothing = teach_language(tuples, "es", ids, english, picture, unseen, "both", **how, steps=0)
    other, _ = teach_language(tuples, "es", ids, english, picture, unseen, INCOMPLETE, **how, steps=0)
    assert len(nothing) == 0 and torch.equal(fresh[1], other[1])  # all 48 known: nothing is incomplete
    guessed, _ = guess_language(tuples, "es", ids, english, unseen, **how, steps=2)
    assert guessed.shape == (2, 10, 6) and torch.allclose(guessed.norm(dim=-1), torch.ones(2, 10), atol=1e-5)
    with pytest.raises(ValueError, match="teaching must be one of"):
        teach_language(tuples, "es", ids, english, picture, unseen, "French", **how)
