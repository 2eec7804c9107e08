"Rotation starts, memory, forms of codes, inverted search, and the estimator."

import math

import numpy as np
import pytest
import torch
from test_codes_containers import views

from brace_nb.codes import (
    CodeEncoder,
    CodeIndex,
    InvertedIndex,
    active_bits_loss,
    alignment_loss,
    code_indices,
    code_recall,
    code_tokens,
    codes_from_indices,
    common_space,
    distillation_loss,
    fit_common_space,
    jaccard,
    nearest,
    nearest_corner,
    stored_bytes,
    CONTAINERS,
)


QUICK = dict(dim=16, batch_size=32, epochs=2)


def test_kernel_memory_is_the_ridge_solution_in_plain_loops():
    images, texts = (torch.tensor(v).double() for v in views(20, 6))
    pairs = torch.arange(20).expand(2, -1)
    image, text = fit_common_space(images, texts, pairs, ridge=0.5, width=3.0)
    x, y = images - images.mean(0), texts - texts.mean(0)
    x, y = x / x.norm(dim=1, keepdim=True), y / y.norm(dim=1, keepdim=True)
    kernel = torch.zeros(20, 20, dtype=torch.float64)
    for i in range(20):
        for j in range(20):
            kernel[i, j] = math.exp(3.0 * (float(y[i] @ y[j]) - 1)) + (0.5 if i == j else 0)
    coefficients = torch.linalg.inv(kernel) @ (x - y)
    moved = y + (kernel - 0.5 * torch.eye(20)) @ coefficients
    assert torch.allclose(text(texts), moved / moved.norm(dim=1, keepdim=True), atol=1e-6)
    assert torch.allclose(image(images), x, atol=1e-6)


def test_a_common_space_of_many_pairs_is_summed_and_applied_in_parts(monkeypatch):
    images, texts = map(torch.tensor, views(200))
    pairs = torch.stack([torch.arange(200), torch.arange(200) % 150])
    whole = fit_common_space(images, texts, pairs, spread=0.3, ridge=0.5)
    asked = texts.view(2, 100, -1)
    moved = whole[1](asked)
    monkeypatch.setattr(common_space, "_AT_ONCE", 32)
    monkeypatch.setattr(common_space, "rows_by_memory", lambda *_: 16)
    parts = fit_common_space(images, texts, pairs, spread=0.3, ridge=0.5)
    for one, other in zip(whole, parts):
        for name, tensor in one.state_dict().items():
            assert torch.allclose(tensor, other.state_dict()[name], atol=1e-5), name
    assert torch.allclose(whole[1](asked), moved, atol=1e-6) and moved.shape == asked.shape
    assert torch.allclose(whole[1](texts[0]), moved[0, 0], atol=1e-6)


@pytest.mark.parametrize("powers", [(-100, -100), (70, 70), (125, 125), (-70, 100)])
def test_a_common_space_is_that_of_float64_at_every_scale_of_float32(powers):
    images, texts = (np.ldexp(v / abs(v).max(), p) for v, p in zip(views(60, 6), powers))
    pairs = torch.arange(60).expand(2, -1)
    maps = fit_common_space(*map(torch.tensor, (images, texts)), pairs)
    for own, rows in zip(maps, (images, texts)):
        told = rows.astype(float) - rows.astype(float).mean(0)
        told /= np.linalg.norm(told, axis=1, keepdims=True)
        assert np.allclose(own(torch.tensor(rows)), told, atol=1e-5)
    ends = torch.tensor([[3e38] * 6, [-3e38] * 6])
    far = fit_common_space(ends, ends, torch.arange(2).expand(2, -1))[0](ends)
    assert torch.allclose(far, ends.sign() / 6**0.5)


@pytest.mark.parametrize("preset", ["sign", "rotation", "best", "few", "pq", "additive"])
def test_an_encoder_behind_a_common_space_has_the_same_codes_at_every_scale(preset):
    images, texts = (v / abs(v).max() for v in views())
    quick = dict(QUICK, most=5) if preset == "few" else QUICK
    known = CodeEncoder.preset(preset, **quick).fit(images, texts)
    for powers in ((-100, -100), (63, 63), (127, 127), (-66, 90)):
        x, y = (np.ldexp(v, p) for v, p in zip((images, texts), powers))
        moved = CodeEncoder.preset(preset, **quick).fit(x, y, validation=(x[:50], y[:50]))
        assert np.array_equal(moved.encode_images(x), known.encode_images(images))
        assert np.array_equal(moved.encode_texts(y), known.encode_texts(texts))


def test_a_common_space_that_is_taken_over_is_the_one_that_is_fitted():
    x, y = views(120)
    fresh = CodeEncoder.preset("rotation", ridge=0.5, spread=1.0, **QUICK)
    first = CodeEncoder.preset("rotation", ridge=0.5, spread=1.0, **QUICK | dict(dim=8, epochs=0)).fit(x, y)
    taken = CodeEncoder(**fresh.get_params(deep=False)).fit(x, y, space_of=first)
    assert (taken.encode_images(x) == fresh.fit(x, y).encode_images(x)).all()
    assert (taken.encode_texts(y) == fresh.encode_texts(y)).all()
    after = CodeEncoder(**fresh.get_params(deep=False)).fit(
        x, y, space_of=fresh
    )  # what was learned is not taken over
    assert (after.encode_images(x) == fresh.encode_images(x)).all()
    other = CodeEncoder.preset("rotation", ridge=None, **QUICK).fit(x, y, space_of=first)
    assert np.array_equal(other.common(x, y)[1], first.common(x, y)[1])  # its own options do not count
    with pytest.raises(ValueError, match="common space"):
        CodeEncoder.preset("rotation", **QUICK).fit(x, y, space_of=CodeEncoder())


def test_the_start_of_an_untrained_encoder_is_taken_over(monkeypatch):
    x, y = views(120)
    options = dict(ridge=0.5, **QUICK)
    fresh, start = (
        CodeEncoder.preset("rotation", **options | dict(epochs=n)).fit(x, y) for n in (QUICK["epochs"], 0)
    )
    monkeypatch.setattr("brace_nb.codes.head_training.starting_rotation", None)  # not computed again
    taken = CodeEncoder.preset("rotation", **options).fit(x, y, space_of=start)
    assert np.array_equal(taken.embed_images(x), fresh.embed_images(x))
    for other in (dict(dim=8), dict(seed=QUICK.get("seed", 0) + 1)):
        with pytest.raises(TypeError, match="callable"):
            CodeEncoder.preset("rotation", **options | other).fit(x, y, space_of=start)


def test_objectives_against_plain_loops():
    random = torch.Generator().manual_seed(0)
    q, x = (torch.nn.functional.normalize(torch.rand(5, 7, generator=random), dim=-1) for _ in range(2))
    total = 0.0
    for i in range(5):
        others = [j for j in range(5) if j != i]
        known = torch.stack([3 * x[i] @ x[j] for j in others]).softmax(0)
        found = torch.stack([2 * q[i] @ q[j] for j in others]).softmax(0)
        total += float((known * (known / found).log()).sum()) / 5
    assert float(distillation_loss(q, x, 3.0, 2.0)) == pytest.approx(total, rel=1e-4)
    q.requires_grad_()
    codes = CONTAINERS["corner"].unit(q)
    weights = torch.rand(5, 7, generator=random)
    (codes * weights).sum().backward()
    assert torch.allclose(codes, nearest_corner(q)[0]) and torch.equal(q.grad, weights)
    assert float(active_bits_loss(nearest_corner(q)[0], 1.0)) > 0


def test_targets_of_the_alignment_loss():
    x, y = (torch.nn.functional.normalize(torch.rand(6, 9), dim=-1).requires_grad_() for _ in range(2))
    losses = {t: alignment_loss(x, y, target=t) for t in ("better", "own", "mean")}
    assert losses["own"] <= losses["better"] + 1e-6
    grad = torch.autograd.grad(alignment_loss(x, y, target="own", detach=False), x)[0]
    assert grad.abs().max() < 1e-7
    with pytest.raises(ValueError, match="better, own, mean"):
        alignment_loss(x, y, target="other")


def test_forms_of_a_code():
    codes = np.random.default_rng(0).random((30, 70)) < 0.2
    codes[3] = False
    assert (codes_from_indices(code_indices(codes), 70) == codes).all()
    assert [len(line.split()) for line in code_tokens(codes)] == codes.sum(1).tolist()
    k = codes.sum(1)
    bound = np.mean([math.log2(math.comb(70, int(n))) for n in k]) / 8
    got = stored_bytes(codes)
    assert got["packed"] == 9 and got["index list"] == pytest.approx(k.mean() * 7 / 8)
    assert got["entropy bound"] == pytest.approx(bound)
    assert code_recall(codes[4:], codes[4:]) > 0.9


@pytest.mark.parametrize("k", [1, 7, 200])
def test_inverted_search_ranks_like_the_scan(k):
    random = np.random.default_rng(k)
    codes, asked = random.random((200, 40)) < 0.05, random.random((30, 40)) < 0.05
    rows, similar = nearest(asked, codes, k)
    got = InvertedIndex(codes).search(asked, k)
    assert (got[0] == rows).all() and np.array_equal(got[1], similar)


def test_index_removes_filters_and_maps(tmp_path):
    codes = np.random.default_rng(0).random((60, 32)) < 0.3
    index, ids = CodeIndex(32).add(np.arange(60) * 2, codes), np.arange(60) * 2
    similar = np.asarray(jaccard(codes[:4], codes))
    for row, (near, scores) in zip(similar, index.within(codes[:4], 0.3)):
        assert set(near) == set(ids[row >= 0.3]) and (np.diff(scores) <= 0).all()
    found = index.search(codes[:4], 5, among=ids[:20])[0]
    assert (found == index.search(codes[:4], 5, among=ids < 40)[0]).all() and found.max() < 40
    index.save(tmp_path / "index")
    mapped = CodeIndex.load(tmp_path / "index", mapped=True)
    assert isinstance(mapped.codes, np.memmap)
    assert (mapped.search(codes[:4], 5)[0] == index.search(codes[:4], 5)[0]).all()
    index.remove([0, 4])
    assert len(index) == 58 and not np.isin([0, 4], index.search(codes[:4], 58)[0]).any()
    with pytest.raises(ValueError, match=r"got \[4\]"):
        index.remove([4])


@pytest.mark.parametrize("change", [{}, dict(shared=False), dict(epochs=0), dict(dim=40, distill=0.5)])
def test_rotation_heads_learn_and_come_back(tmp_path, change):
    images, texts = views(120)
    e = CodeEncoder.preset("best", **QUICK | change).fit(images, texts)
    assert e.score(images, texts) > 0.3
    e.save(tmp_path / "heads")
    again = CodeEncoder.load(tmp_path / "heads")
    assert (again.encode_texts(texts) == e.encode_texts(texts)).all() and again.get_params() == e.get_params()


@pytest.mark.parametrize("features, dim", [(24, 24), (24, 8), (96, 24), (24, 48)])
def test_a_sharpness_that_follows_the_data_lights_half_of_the_bits(tmp_path, features, dim):
    images, texts = views(300, features)
    e = CodeEncoder.preset("best", dim=dim, epochs=0, ridge=None, spread=None).fit(images, texts)
    share = e.encode_images(images).mean()
    assert 0.4 < share < 0.6
    fixed = CodeEncoder.preset("best", dim=dim, epochs=0, ridge=None, spread=None, sharpness=100.0)
    assert fixed.fit(images, texts).encode_images(images).mean() < share
    e.save(tmp_path / "heads")
    again = CodeEncoder.load(tmp_path / "heads")
    assert (again.encode_images(images) == e.encode_images(images)).all()


@pytest.mark.parametrize("most", [1, 4])
def test_an_encoder_keeps_its_budget(tmp_path, most):
    images, texts = views(120)
    e = CodeEncoder.preset("few", dim=16, most=most, epochs=3, batch_size=32).fit(images, texts)
    both = np.concatenate([e.encode_images(images), e.encode_texts(texts)])
    assert 1 <= both.sum(1).min() and both.sum(1).max() <= most
    e.save(tmp_path / "heads")
    assert (CodeEncoder.load(tmp_path / "heads").encode_texts(texts) == e.encode_texts(texts)).all()


def test_the_estimator_of_scikit_learn():
    from sklearn.base import clone
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    images, texts = views(120)
    e = CodeEncoder.preset("best", **QUICK)
    assert clone(e).get_params() == e.get_params()
    codes = make_pipeline(StandardScaler(), clone(e)).fit(images, texts).transform(images)
    assert codes.shape == (120, 16) and codes.dtype == bool
    search = GridSearchCV(e, dict(dim=[8, 16]), cv=2).fit(images, texts)
    assert search.best_params_ == dict(dim=16)
    with pytest.raises(ValueError, match="got lr"):
        e.set_params(lr=1)
    nested = GridSearchCV(e, dict(training__epochs=[0, 2], start__ridge=[None, 0.5]), cv=2)
    assert set(nested.fit(images, texts).best_params_) == {"training__epochs", "start__ridge"}
    assert clone(e).set_params(epochs=3).get_params()["training__epochs"] == 3  # a field by its own name


def test_presets_change_only_what_they_name():
    post, best, few = (CodeEncoder.preset(name).get_params() for name in ("post", "best", "few"))
    assert post == CodeEncoder().get_params()
    changed = {k for k in best if best[k] != few[k]}
    assert changed == {"dim", "most", "training", "training__epochs", "training__learning_rate"}
    again = CodeEncoder.preset("best", epochs=60, learning_rate=1e-2, dim=512, most=20)
    assert again.get_params() == few


def test_bad_input_is_named():
    images, texts = views(120)
    e = CodeEncoder.preset("best", **QUICK)
    with pytest.raises(ValueError, match="at least 16 different rows"):
        e.fit(images[:5], texts[:5])
    with pytest.raises(ValueError, match="constant features"):
        e.fit(np.ones_like(images), texts)
    with pytest.raises(ValueError, match=r"rows \[2\]"):
        e.fit(np.where(np.arange(120)[:, None] == 2, np.nan, images), texts)
    with pytest.raises(ValueError, match="120 images and 100 texts"):
        e.fit(images, texts[:100])
