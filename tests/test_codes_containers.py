"Containers: what a code stands for, in plain loops; float queries by tables; encoders of every container."

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from brace_nb.codes import (
    CONTAINERS,
    AdditiveQuantizer,
    CodeEncoder,
    PrincipalBytes,
    ProductQuantizer,
    binarize,
    hamming_similarity,
    jaccard,
    ternarize,
)
from brace_nb.companion import PALETTE, style

NAMES = list(CONTAINERS)


def rows(n=300, width=24, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, width)).astype(np.float32)
    return torch.from_numpy(x / np.linalg.norm(x, axis=1, keepdims=True))


def made(name, width=24, dim=None, n=300):
    "Container, rows that it takes, bits of a code, book."
    container, x = CONTAINERS[name], rows(n, width)
    x = x.abs() if container.nonnegative else x
    dim = dim or (16 if container.learn else width)
    return container, x, dim, container.learn(x, dim, 0) if container.learn else {}


def stands_for(name, row, book):
    "The row that the code of `row` stands for, in plain loops and float64."
    row = [float(v) for v in row]
    if name == "sign":
        return [1.0 if v > 0 else -1.0 for v in row]
    if name in ("corner", "ternary"):
        of = binarize if name == "corner" else ternarize
        return [float(v) for v in of(torch.tensor([row]))[0]]
    if name == "additive":  # of all sums of two centers the nearest
        centers = book["centers"].double().numpy()
        sums = (centers[0][:, None] + centers[1]).reshape(-1, len(row))
        return sums[np.square(sums - row).sum(1).argmin()].tolist()
    turn, centers = book["turn"].double(), book["centers"].double()
    turned, found = torch.tensor(row, dtype=torch.float64) @ turn, []
    for piece, own in enumerate(centers):
        part = turned[piece * own.shape[1] : (piece + 1) * own.shape[1]]
        found.append(min(own, key=lambda c: float((c - part).square().sum())))
    return (torch.cat(found) @ turn.T).tolist()


@pytest.mark.parametrize("name", NAMES)
def test_codes_stand_for_what_the_loops_say(name):
    container, x, dim, book = made(name)
    decoded = container.decode(container.encode(x[:40], None, book), book)
    told = np.array([stands_for(name, row, book) for row in x[:40]])
    same = np.isclose(decoded, told, atol=1e-5).all(1)
    assert same.mean() >= (0.9 if container.adds else 1)  # a search may end beside the nearest sum
    assert container.formula and container.source and style(container)["color"] in PALETTE.values()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("width", [8, 13, 24])
def test_tables_give_the_cosine_of_a_float_query(name, width):
    container, x, dim, book = made(name, 16 if CONTAINERS[name].learn else width)
    packed = container.pack(container.encode(x, None, book))
    tables, lengths = container.tables(x[:7], dim, book), container.lengths(packed, dim, book)
    assert packed.dtype == torch.uint8 and tables.shape == (7, packed.shape[1], 256)
    for q in range(7):
        for n in range(0, 300, 29):
            told = [float(v) for v in container.decode(container.unpack(packed[n : n + 1], dim), book)[0]]
            cosine = sum(a * b for a, b in zip(x[q].tolist(), told)) / math.sqrt(sum(v * v for v in told))
            by_table = (
                sum(float(tables[q, b, int(packed[n, b])]) for b in range(packed.shape[1])) / lengths[n]
            )
            assert float(by_table) == pytest.approx(cosine, abs=1e-5)


@pytest.mark.parametrize("name", [n for n in NAMES if CONTAINERS[n].learn is None])
@given(st.integers(1, 40), st.integers(0, 1000))
def test_bits_survive_packing_and_gradients_pass(name, width, seed):
    container, x = CONTAINERS[name], rows(5, width, seed)
    x = x.abs() if container.nonnegative else x
    codes = container.encode(x, None, {})
    assert (container.unpack(container.pack(codes), width) == codes).all()
    x.requires_grad_()
    unit, weights = container.unit(x), rows(5, width, seed + 1)
    assert torch.allclose(unit.norm(dim=-1), torch.ones(5), atol=1e-5)
    assert torch.allclose(unit, torch.nn.functional.normalize(container.decode(codes), dim=-1))
    (unit * weights).sum().backward()
    assert torch.equal(x.grad, weights)


def test_the_similarity_of_two_codes():
    x = rows(20, 16)
    a = CONTAINERS["sign"].encode(x)
    assert np.allclose(CONTAINERS["sign"].similarity(a, a), hamming_similarity(a, a))
    b = CONTAINERS["corner"].encode(x.abs())
    assert np.allclose(CONTAINERS["corner"].similarity(b, b), jaccard(b, b))
    container, x, dim, book = made("pq")
    codes = container.encode(x[:9], None, book)
    told = np.array([stands_for("pq", row, book) for row in x[:9]])
    told /= np.linalg.norm(told, axis=1, keepdims=True)
    assert np.allclose(container.similarity(codes, codes, book), told @ told.T, atol=1e-5)


def views(n=400, features=24, seed=0):
    random = np.random.default_rng(seed)
    meaning = random.normal(size=(n, 10))
    seen = [meaning @ random.normal(size=(10, features)) for _ in range(2)]
    return [(v + 0.3 * random.normal(size=v.shape)).astype(np.float32) for v in seen]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("preset", ["post", "best"])
def test_an_encoder_of_every_container(tmp_path, name, preset):
    images, texts = views()
    e = CodeEncoder.preset(preset, dim=16, container=name, batch_size=64, epochs=3).fit(images, texts)
    a, b = e.encode_images(images), e.encode_texts(texts)
    assert e.similarity(a, b).shape == (400, 400) and e.score(images, texts) > 5 / 400
    assert (e.transform(images) == a).all() and (e.encode_images(images[:3]) == a[:3]).all()
    scores, tables = e.scores(texts, a), e.query_tables(texts)
    packed = e.encode_images(images, packed=True)
    by_tables = tables[:, np.arange(packed.shape[1])[:, None], packed.T].sum(1) / e.code_lengths(packed)
    assert np.allclose(scores, by_tables, atol=1e-5) and isinstance(scores, np.ndarray)
    assert abs(scores).max() <= 1 + 1e-5
    e.save(tmp_path / "heads")
    again = CodeEncoder.load(tmp_path / "heads")
    assert (again.encode_images(images) == a).all() and np.allclose(again.scores(texts, a), scores)
    assert torch.is_tensor(e.scores(torch.from_numpy(texts), torch.from_numpy(a)))


def test_the_book_belongs_to_the_weights_in_use():
    images, texts = views()
    e = CodeEncoder.preset("rotation", dim=16, container="pq", batch_size=64, epochs=6, learning_rate=0.3)
    e.fit(images[:300], texts[:300], validation=(images[300:], texts[300:]))
    if e.best_epoch < 6:
        assert not torch.equal(e.books["best"]["centers"], e.books["last"]["centers"])
    assert e.use("best").book is e.books["best"] and e.use("last").book is e.books["last"]


def test_what_a_container_refuses():
    images, texts = views()
    with pytest.raises(
        ValueError, match="container must be one of corner, sign, ternary, pq, additive; got 'bits'"
    ):
        CodeEncoder(container="bits")
    for name in ("sign", "pq", "additive"):
        with pytest.raises(ValueError, match=f"container='{name}' and most=3"):
            CodeEncoder.preset("rotation", dim=16, container=name, most=3, epochs=1).fit(
                images, texts
            ).encode(images)
        with pytest.raises(ValueError, match="`align` pulls rows to corners"):
            CodeEncoder(16, name).fit(images, texts, align=1.0)
    for dim, n in ((20, 400), (40, 400), (16, 100)):
        with pytest.raises(ValueError, match="a multiple of 8 bits and as many bytes as divide"):
            CodeEncoder.preset("rotation", dim=dim, container="pq", epochs=0).fit(images[:n], texts[:n])
        with pytest.raises(ValueError, match="a multiple of 8 bits and as many bytes as divide"):
            CodeEncoder.preset("additive", dim=dim, epochs=0).fit(images[:n], texts[:n])


def test_sums_are_nearer_than_pieces_and_each_row_has_a_code_of_its_own():
    x = rows(3000, 24).numpy() @ np.diag(np.linspace(1, 0.1, 24)).astype(np.float32)
    sums, pieces = AdditiveQuantizer(4).fit(x), ProductQuantizer(4).fit(x)
    error = {q: np.square(q.restored(x) - q.turned(x)).sum(1).mean() for q in (sums, pieces)}
    assert error[sums] < 0.9 * error[pieces]
    codes = sums.encode(x[:60])
    assert all((sums.encode(x[i : i + 1])[0] == codes[i]).all() for i in range(60))
    centers = sums.centers.astype(np.float64)  # no change of a single center comes nearer
    for row, code in zip(x[:20].astype(np.float64), codes):
        total = sum(own[number] for own, number in zip(centers, code))
        for own, number in zip(centers, code):
            others = np.square(row - (total - own[number]) - own).sum(1)
            assert np.square(row - total).sum() <= others.min() + 1e-6
    assert np.array_equal(AdditiveQuantizer(4).fit(x).centers, sums.centers)
    far = sums.decode(sums.encode(1e9 * x[:60]))  # so far away every center is chosen by its direction alone
    most = sum((x[:60] @ own.T).max(1) for own in sums.centers)
    assert ((far * x[:60]).sum(1) > 0.999 * most).all()
    large = AdditiveQuantizer(4).fit(np.ldexp(x, 100))  # the same digits
    assert np.array_equal(large.centers, np.ldexp(sums.centers, 100))
    moved = AdditiveQuantizer(4).fit(x + 1000)
    assert np.square(moved.restored(x + 1000) - x - 1000).sum(1).mean() < 1.1 * error[sums]
    with pytest.raises(ValueError, match="at most 32 centers.*got 33. Take ProductQuantizer"):
        AdditiveQuantizer(33).fit(rows(300, 66).numpy())


def test_the_ridge_of_sums_helps_rows_that_were_not_learned(monkeypatch):
    x, others = np.split(rows(5000, 24).numpy(), [3000])

    def missed():
        sums = AdditiveQuantizer(4).fit(x)
        return np.square(sums.restored(others) - others).sum(1).mean()

    with_ridge = missed()
    monkeypatch.setattr("brace_nb.codes.quantizers._SHRINKAGE", 0)
    assert with_ridge < 0.99 * missed()


def sized(n=600, features=24, rank=6):
    "Rows near a plane, the largest entry in [1, 2): no power of two is taken out of them."
    random = np.random.default_rng(3)
    x = random.normal(size=(n, rank)) @ random.normal(size=(rank, features))
    x = x + 0.4 * random.normal(size=x.shape)
    return (1.5 * x / np.abs(x).max()).astype(np.float32)


@pytest.mark.parametrize("rotate", [True, False])
@pytest.mark.parametrize("power", [-110, -70, 70, 100, 126])
def test_centers_of_pieces_have_the_same_digits_at_every_power_of_two(rotate, power):
    x = sized()
    known, moved = ProductQuantizer(4, rotate).fit(x), ProductQuantizer(4, rotate).fit(np.ldexp(x, power))
    codes = known.encode(x)
    assert np.array_equal(moved.encode(np.ldexp(x, power)), codes)
    for a, b in ((moved.decode(codes), known.decode(codes)), (moved.learned()[1], known.learned()[1])):
        assert np.array_equal(a, np.ldexp(b, power))
    assert np.array_equal(moved.turned(np.ldexp(x, power)), np.ldexp(known.turned(x), power))
    assert np.array_equal(moved.learned()[0], known.learned()[0])


@pytest.mark.parametrize("scale", [1e19, 1e20, 1e38, 1e-25, 1e-36])
def test_pieces_of_large_and_small_rows_are_nearest_to_their_centers(scale):
    x = sized()
    rows = x * np.float32(scale)
    fitted = ProductQuantizer(4).fit(rows)
    turned, centers = fitted.turned(rows).astype(float) / scale, fitted.learned()[1].astype(float) / scale
    squares = np.square(turned.reshape(-1, 4, 1, 6) - centers).sum(-1)
    chosen = np.take_along_axis(squares, fitted.encode(rows)[..., None].astype(int), 2)[..., 0]
    assert (chosen <= squares.min(-1) * (1 + 1e-4) + 1e-9).all()
    assert chosen.sum() < 0.05 * np.square(turned - turned.mean(0)).sum()


def test_far_rows_take_the_center_in_their_direction():
    x = sized()
    fitted = ProductQuantizer(4).fit(x)
    products = np.einsum("npf,pcf->npc", fitted.turned(x).reshape(-1, 4, 6), fitted.learned()[1])
    for scale in (1e9, 1e20, 1e37):
        chosen = np.take_along_axis(products, fitted.encode(x * np.float32(scale))[..., None].astype(int), 2)
        assert np.allclose(chosen[..., 0], products.max(-1), rtol=0.01, atol=2e-3)


@pytest.mark.parametrize("made", [ProductQuantizer(4), AdditiveQuantizer(4, steps=1), PrincipalBytes(4)])
def test_quantizers_read_views_and_read_only_rows(made, recwarn):
    x = sized()
    locked = x.copy()
    locked.flags.writeable = False
    codes = made.fit(x).encode(x)
    backward = type(made)(**made.get_params()).fit(x[::-1].copy())
    assert np.array_equal(type(made)(**made.get_params()).fit(x[::-1]).encode(x), backward.encode(x))
    for call in (made.encode, made.turned, made.restored, made.transform):
        assert np.array_equal(call(x[::-1]), call(x[::-1].copy())) and np.array_equal(call(locked), call(x))
    assert np.array_equal(made.encode(x[::-1]), made.encode(x)[::-1])
    assert np.array_equal(made.fit(locked).encode(x), codes) and not recwarn.list
    assert made.encode(x[:0]).shape == (0, 4)


@pytest.mark.parametrize("kind", [ProductQuantizer, AdditiveQuantizer])
def test_quantizers_say_their_own_name_and_how_many_rows_they_need(kind):
    for n in (0, 1, 255):
        with pytest.raises(ValueError, match=rf"{kind.__name__} needs at least 256 rows.*got {n} sample"):
            kind(4).fit(sized()[:n])
    with pytest.raises(ValueError, match=rf"{kind.__name__} needs rows.*\(600, 24\) and 5 pieces"):
        kind(5).fit(sized())


@pytest.mark.parametrize("name", NAMES)
def test_no_rows_have_no_codes(name):
    images, texts = views()
    e = CodeEncoder.preset("rotation", dim=16, container=name, batch_size=64, epochs=1).fit(images, texts)
    for packed in (False, True):
        assert e.encode(images[:0], packed=packed).shape == (
            0,
            *e.encode(images[:1], packed=packed).shape[1:],
        )
    one = e.encode(images[:6].reshape(2, 3, 24))
    assert np.array_equal(one.reshape(6, -1), e.encode(images[:6]))
    assert e.encode(np.zeros((2, 0, 24), np.float32)).shape == (2, 0, one.shape[-1])
