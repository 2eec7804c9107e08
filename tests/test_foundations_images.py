"Pictures: sizes, backgrounds, motion: loops and properties."

import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image

from brace_nb.core import as_generator
from brace_nb.foundations import (
    Sprites,
    box_shrink,
    contact_sheet,
    normalize_colors,
    on_background,
    place,
    to_float,
)


pictures = arrays(np.uint8, st.tuples(st.integers(1, 3), st.just(8), st.just(8), st.just(4)))


def test_sprites_of_another_size_are_refused():
    data = io.BytesIO()
    Image.new("RGBA", (32, 32)).save(data, "PNG")
    with pytest.raises(ValueError, match=r"64 x 64; ids \[7\]"):
        Sprites({7: data.getvalue()}, 64).read(np.array([7]), 64)


def slow_shrink(rgba, k):
    n, h, w, _ = rgba.shape
    out = np.zeros((n, h // k, w // k, 4))
    for p in np.ndindex(n, h // k, w // k):
        box = (
            rgba[p[0], p[1] * k : (p[1] + 1) * k, p[2] * k : (p[2] + 1) * k].reshape(-1, 4).astype(np.float64)
        )
        alpha = box[:, 3].sum()
        if np.rint(alpha / k**2):
            out[p] = [*(box[:, :3] * box[:, 3:]).sum(0) / alpha, alpha / k**2]
    return out


@settings(max_examples=30, deadline=None)
@given(pictures, st.sampled_from([2, 4]))
def test_box_shrink_is_the_premultiplied_mean(rgba, k):
    assert np.abs(box_shrink(rgba, k) - slow_shrink(rgba, k)).max() <= 0.5 + 1e-4
    assert (box_shrink(rgba, 1) == rgba).all()


@settings(max_examples=30, deadline=None)
@given(pictures, st.tuples(*[st.integers(0, 255)] * 3))
def test_on_background_is_the_blend_rounded(rgba, color):
    alpha = rgba[..., 3:].astype(np.float64) / 255
    exact = rgba[..., :3] * alpha + np.array(color) * (1 - alpha)
    got = on_background(rgba, color)
    assert got.dtype == np.uint8 and np.abs(got - exact).max() <= 0.5 + 1e-9
    assert (on_background(torch.from_numpy(rgba), color).numpy() == got).all()
    each = np.tile(np.array(color), (len(rgba), 1))
    assert (on_background(rgba, each) == got).all() and (
        on_background(torch.from_numpy(rgba), torch.from_numpy(each)).numpy() == got
    ).all()


def test_any_layout_is_taken():
    x = random_pictures(0)
    assert (on_background(x[::-1])[::-1] == on_background(x)).all()
    assert torch.equal(to_float(on_background(x)[::-1]), to_float(on_background(x[::-1])))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda x: on_background(x[..., :3]), r"\(\.\.\., H, W, 4\)"),
        (lambda x: on_background(x.astype(float)), "pictures of uint8"),
        (lambda x: on_background(x, 256), "background must"),
        (lambda x: on_background(x, (1, 2)), "background must"),
        (lambda x: on_background(x, float("nan")), "background must"),
        (lambda x: on_background(x, "red"), "background must"),
        (lambda x: box_shrink(x, 3), "must divide"),
        (lambda x: box_shrink(x, 0), "factor must be a whole number"),
        (lambda x: box_shrink(x[..., :3]), r"\(\.\.\., H, W, 4\)"),
        (lambda x: box_shrink(x / 2), "pictures of uint8"),
        (lambda x: to_float(x), r"\(N, H, W, 3\)"),
        (lambda x: normalize_colors(torch.zeros(1, 4, 2, 2)), r"\(\.\.\., 3, H, W\)"),
        (lambda x: normalize_colors(torch.zeros(1, 3, 2, 2, dtype=torch.uint8)), "floating point"),
        (lambda x: contact_sheet(x, 0), "columns must be a whole number"),
        (lambda x: contact_sheet(x[0]), "N, H, W"),
    ],
)
def test_bad_pictures(call, message):
    with pytest.raises(ValueError, match=message):
        call(np.zeros((2, 8, 8, 4), np.uint8))


def random_pictures(seed, n=3, side=8):
    return np.random.default_rng(seed).integers(0, 256, (n, side, side, 4), dtype=np.uint8)


def still(n):
    return dict(
        angle=torch.zeros(n),
        scale=torch.ones(n),
        shift=torch.zeros(n, 2),
        background=torch.full((n, 3), 0.25),
    )


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_place_turns_counter_clockwise(turns):
    x = random_pictures(turns)
    got = place(x, **{**still(3), "angle": torch.full((3,), 90.0 * turns)})
    want = place(np.rot90(x, turns, (1, 2)).copy(), **still(3))
    assert torch.allclose(got, want, atol=1e-5)


def test_place_moves_right_and_down():
    x = random_pictures(1)
    shifted = np.zeros_like(x)
    shifted[:, 1:, 2:] = x[:, :-1, :-2]
    got = place(x, **{**still(3), "shift": torch.tensor([[2 / 8, 1 / 8]]).expand(3, 2)})
    assert torch.allclose(got, place(shifted, **still(3)), atol=1e-5)


def test_place_magnifies_about_the_center():
    dot = np.zeros((1, 8, 8, 4), np.uint8)
    dot[:, 3:5, 3:5] = 255
    big = place(dot, torch.zeros(1), torch.tensor([2.0]), torch.zeros(1, 2), torch.zeros(1, 3))
    assert torch.allclose(big[0, 0].sum(), torch.tensor(16.0), atol=1e-4) and big[0, 0, 3:5, 3:5].min() == 1


def test_place_interpolates_premultiplied_colors():
    x = np.zeros((1, 4, 4, 4), np.uint8)
    x[..., :3] = [0, 255, 0]
    x[:, :, :2] = [255, 0, 0, 255]  # invisible green beside red
    moved = place(x, torch.zeros(1), torch.ones(1), torch.tensor([[1 / 8, 0.0]]), torch.zeros(1, 3))
    assert moved[:, 1].abs().max() < 1e-6 and moved[:, 0].max() > 0.9


def test_placing_in_its_own_place_is_the_evaluation_transform():
    x = random_pictures(5)
    placed = place(x, **{**still(3), "background": torch.tensor([[10.0, 200.0, 30.0]] * 3) / 255})
    assert (placed - to_float(on_background(x, (10, 200, 30)))).abs().max() < 2.1e-3
    assert place(x[:0], **still(0)).shape == (0, 3, 8, 8)


def test_generators():
    g = as_generator(3)
    assert as_generator(g) is g
    assert torch.equal(torch.rand(4, generator=g), torch.rand(4, generator=as_generator(np.int64(3))))
    for wrong in (None, True, 0.5):
        with pytest.raises(ValueError, match="seed"):
            as_generator(wrong)


def test_normalize_colors():
    x = torch.rand(2, 3, 4, 4)
    assert torch.allclose(normalize_colors(x, (0.1, 0.2, 0.3), (0.5, 0.6, 0.7))[:, 1], (x[:, 1] - 0.2) / 0.6)


def test_contact_sheet_places_each_picture():
    x = random_pictures(0, 5)
    sheet = contact_sheet(x, 3, gap=1, background=7)
    assert (
        sheet.shape == (2 * 9 + 1, 3 * 9 + 1, 3)
        and (sheet[10:18, 10:18] == on_background(x[4], 7)).all()
        and (sheet[10:18, 19:] == 7).all()
    )


@pytest.mark.gpu
def test_cuda_equals_cpu():
    x = torch.from_numpy(random_pictures(0, 4, 16))
    assert torch.equal(on_background(x.cuda(), 9).cpu(), on_background(x, 9))


@pytest.mark.parametrize("limit", (100, 200))  # PIL refuses twice the limit, and only warns above it
def test_a_picture_of_too_many_pixels_is_named(monkeypatch, limit):
    import io

    from PIL import Image

    from brace_nb.foundations import Sprites

    file = io.BytesIO()
    Image.new("RGBA", (16, 16)).save(file, "PNG")
    assert Sprites({7: file.getvalue()}, 16).read([7], 16).shape == (1, 16, 16, 4)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    with pytest.raises(ValueError, match="picture 7 has too many pixels.*MAX_IMAGE_PIXELS"):
        Sprites({7: file.getvalue()}, 16).read([7], 16)
    with pytest.raises(ValueError, match="picture 8 is not a picture that can be read"):
        Sprites({8: b"none"}, 16).read([8], 16)
