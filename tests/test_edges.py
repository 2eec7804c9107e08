"""Inputs at the edge that once gave a wrong answer in silence, or an error of something else."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array

from brace_nb.assignment import assign, expectation_loss, sample_matrices
from brace_nb.codes import (
    CodeEncoder,
    CodeIndex,
    binarize,
    binarize_at_most,
    code_indices,
    code_recall,
    code_statistics,
    encode_files,
    load_codes,
    nearest,
    pack,
    search_files,
)
from brace_nb.core import as_generator, as_tensor, check_finite, widen
from brace_nb.evaluation import alignment, cka, hsic, linear_probe, mean_average_precision
from brace_nb.evaluation import participation_ratio, ranks, sphere_uniformity, summarize_ranks
from brace_nb.grounding import read_aligned, train_table
from brace_nb.ndim import MEASURES, cube_loss, exact_inputs

RNG = np.random.default_rng(0)
SCORES = np.array([[0.9, 0.1, 0.2], [0.3, 0.8, 0.1], [0.2, 0.5, 0.7]])
RIGHT = np.array([[0, 1, 0], [1, 0, 0], [0, 0, 1]], bool)


@pytest.mark.parametrize("form", [np.array, pd.DataFrame, csr_array, torch.from_numpy])
def test_a_matrix_of_what_is_relevant_has_any_form(form):
    assert ranks(SCORES, form(RIGHT)).tolist() == [3, 2, 1]
    assert mean_average_precision(SCORES, form(RIGHT)) == pytest.approx((1 / 3 + 1 / 2 + 1) / 3)


@pytest.mark.parametrize(
    "dtype", ["float16", "bfloat16", "float8_e4m3fn", "uint16", "uint32", "int8", "bool"]
)
def test_ranks_of_every_type(dtype):
    scores = torch.tensor([[1, 0, 1], [0, 1, 1], [0, 0, 1]]).to(getattr(torch, dtype))
    assert ranks(scores).tolist() == [2, 2, 1]
    assert ranks(scores[:0, :0]).tolist() == []


def test_ranks_keep_whole_numbers_of_64_bits():
    assert ranks(np.array([[2**53 + 1, 2**53]], np.uint64)).tolist() == [1]
    assert as_tensor(np.array([2**53 + 1], np.uint64)).tolist() == [2**53 + 1]
    assert widen(torch.tensor([2**24 + 1], dtype=torch.uint32)).tolist() == [2**24 + 1]
    assert ranks(torch.complex(torch.zeros(2, 2), -torch.eye(2)).conj().imag).tolist() == [1, 1]


def test_finiteness_is_seen_behind_a_gradient_and_in_float8(recwarn):
    check_finite(torch.ones(2, 2, requires_grad=True))
    check_finite(torch.ones(2, 2).to(torch.float8_e4m3fn))
    with pytest.raises(ValueError, match=r"rows \[1\]"):
        check_finite(torch.tensor([[1.0], [torch.nan]], requires_grad=True))
    assert not recwarn.list
    with pytest.raises(ValueError, match="finite"):
        summarize_ranks([1, np.nan])


@pytest.mark.parametrize("measure", [k for k, m in MEASURES.items() if not m.only])
def test_pairs_of_a_stack_are_those_of_each(measure):
    xs = [torch.randn(2, 4, 3, generator=torch.Generator().manual_seed(k)) for k in range(3)]
    each = torch.stack([cube_loss([x[s] for x in xs], measure, "pairs") for s in range(2)])
    assert torch.allclose(cube_loss(xs, measure, "pairs"), each, atol=1e-5)


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("name", ["scale", "bias", "label_smoothing"])
def test_a_number_is_one_or_one_of_each_loss(name, stacked):
    xs = torch.randn(3, 2, 2, 3) if stacked else torch.randn(3, 2, 3)
    wrong = (1, 3) if stacked else (1, 2)
    for length in wrong:
        for streaming in ("auto", True):
            with pytest.raises(ValueError, match=name):
                cube_loss(list(xs), **{name: torch.full((length,), 0.5)}, streaming=streaming)


def test_weights_are_of_one_loss_or_of_each():
    for weights in (torch.randn(2, 3), [{(3,): 0.5}, None]):
        with pytest.raises(ValueError, match="weights"):
            cube_loss(list(torch.randn(3, 4, 3)), weights=weights)
    with pytest.raises(ValueError, match="weights"):
        cube_loss(list(torch.randn(3, 2, 4, 3)), weights=[{(3,): 0.5}], streaming=True)


def test_learned_weights_may_start_at_zero():
    xs, w = list(torch.randn(3, 4, 3)), torch.zeros(3, requires_grad=True)
    loss = cube_loss(xs, weights=w)
    assert torch.allclose(loss, cube_loss(xs, weights=torch.ones(3)))
    assert torch.autograd.grad(loss, w)[0].isfinite().all()


@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_a_budget_of_bits_works_at_every_scale(scale):
    v = np.array([[3, 2.9, 2.8, 0.1]]) * scale
    assert (binarize_at_most(v, 4) == binarize(v)).all()


@pytest.mark.parametrize("constant", [0.0, 0.1, 0.7, 1e6])
def test_a_column_that_training_does_not_know_is_no_direction(constant):
    x, y = RNG.normal(size=(150, 4)), RNG.integers(0, 2, 150)
    x[:, 1] += 2 * y
    x[:, 0] = constant
    parts = [(x[k::3], y[k::3]) for k in range(3)]
    want = linear_probe(*parts, strengths=(0.1,))["top1"]
    parts[2][0][::2, 0] *= 1 + 1e-6
    assert linear_probe(*parts, strengths=(0.1,))["top1"] == want


def test_seeds_of_numpy_and_options_of_numpy(tmp_path):
    assert torch.equal(exact_inputs(2, 3, seed=np.int64(3)), exact_inputs(2, 3, seed=3))
    assert torch.equal(sample_matrices("uniform", (2, 2), np.int64(3)), sample_matrices("uniform", (2, 2), 3))
    with pytest.raises(ValueError, match="seed"):
        as_generator(np.random.default_rng(0))
    x = RNG.normal(size=(40, 8)).astype(np.float32)
    model = CodeEncoder.preset("sign", dim=np.int64(8), epochs=np.int64(1)).fit(x, x)
    model.save(tmp_path / "model.safetensors")
    assert (CodeEncoder.load(tmp_path / "model.safetensors").encode(x) == model.encode(x)).all()
    index = CodeIndex(np.int64(16)).add(np.arange(2), np.eye(2, 16, dtype=bool))
    index.save(tmp_path / "index.safetensors")
    assert json.loads(json.dumps(CodeIndex.load(tmp_path / "index.safetensors").dim)) == 16


def test_codes_at_the_edge():
    codes = RNG.random((6, 24)) < 0.5
    assert code_indices(codes[:0]) == []
    with pytest.raises(ValueError, match="uint8"):
        code_recall(pack(codes), pack(codes))
    for dim in (3, 30):
        with pytest.raises(ValueError, match="dimensions"):
            code_statistics(pack(codes), dim=dim)
    with pytest.raises(ValueError, match="most"):
        CodeEncoder(container="sign", most=3).fit(np.eye(8), np.eye(8))
    query = torch.randn(2, 24, generator=torch.Generator().manual_seed(0)).bfloat16()
    packed = torch.from_numpy(pack(codes))
    for ours, theirs in zip(nearest(query, packed, 2), nearest(query.float(), packed, 2)):
        assert torch.equal(ours, theirs)


def test_numbers_beyond_squares():
    x = RNG.normal(size=(20, 5))
    want = participation_ratio(x)
    assert participation_ratio(x * 2.0**400) == want == participation_ratio(x * 2.0**-400)
    assert sphere_uniformity(3, t=360) == pytest.approx(-7.2724, abs=1e-4)
    with pytest.raises(ValueError, match="finite"):
        expectation_loss(torch.tensor([[1.0, torch.nan], [0.0, 1.0]]))


def test_numbers_of_centers_are_no_bits(tmp_path):
    x = RNG.normal(size=(600, 32)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    for preset in ("pq", "additive", "sign"):
        report = encode_files(tmp_path / "x.npy", None, tmp_path / preset, preset=preset, bits=64, epochs=0)
        asked = [row["what"].rpartition(", ")[2] for row in report["rows"]]
        assert ("codes ask" in asked) == (preset == "sign") and "floats ask" in asked
    assert load_codes(tmp_path / "sign/codes.npy", 64).shape == (600, 64)
    for preset in ("pq", "additive"):
        with pytest.raises(ValueError, match=rf"numbers of centers \(`{preset}`\)"):
            load_codes(tmp_path / f"{preset}/codes.npy", 64)
    with pytest.raises(FileNotFoundError, match="Name one of its files: codes.npy"):
        search_files(tmp_path / "sign", tmp_path / "x.npy")


def test_a_table_of_files_of_embeddings_is_refused(tmp_path):
    (tmp_path / "table.csv").write_text("image,text\na.npy,one\nb.npy,two\n")
    with pytest.raises(ValueError, match="'image' must hold texts or paths of pictures"):
        read_aligned(tmp_path / "table.csv")
    names = ["red", "green", "blue", "grey"]
    rows = [f"{a} {b} {c},{c} {b} {a}" for a in names for b in names for c in names]
    (tmp_path / "table.csv").write_text("one,two\n" + "\n".join(rows) + "\n")
    made = train_table(tmp_path / "table.csv", tmp_path / "out", held=0.2, epochs=1, progress=False)
    held, whole = np.load(tmp_path / "out/held/one.npy"), np.load(made.folder / "one.npy")
    assert 10 <= len(held) < len(whole) == 64
    assert all((whole == row).all(1).any() for row in held)
    assert "one (texts)" in (made.folder / "report.html").read_text()


def test_what_has_no_assignment_is_told_of_a_limit():
    with pytest.raises(ValueError, match="cost_limit"):
        assign(np.array([[1.0, 2.0], [np.inf, np.inf]]))
    assert assign(np.array([[1.0, 2.0], [9.0, 9.0]]), cost_limit=5.0).cols.tolist() == [0, -1]


def test_a_scale_is_a_number_of_the_embeddings_type():
    x = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(0)).unbind()
    with pytest.raises(ValueError, match="scale must be a number that torch.float32 can hold"):
        cube_loss(x, scale=1e39)
    assert cube_loss([t.double() for t in x], scale=1e39).isfinite()


@pytest.mark.parametrize("power", [0.5, 1, 2, 3])
def test_rows_that_coincide_have_no_slope_of_alignment(power):
    x = torch.eye(3, dtype=torch.float64).requires_grad_()
    y = torch.eye(3, dtype=torch.float64)[[0, 2, 1]]
    value = alignment(x, y, power)
    assert torch.isclose(value, torch.tensor(2 * 2 ** (power / 2) / 3, dtype=torch.float64))
    (slope,) = torch.autograd.grad(value, x)
    assert slope.isfinite().all() and not slope[0].any() and slope[1:].any()


@pytest.mark.parametrize("index", [hsic, cka])
def test_stacks_of_layers_fit_each_other(index):
    x = torch.randn(2, 9, 4, generator=torch.Generator().manual_seed(0))
    assert index(x, x[:1]).shape == (2,)
    with pytest.raises(ValueError, match="leading axes of both sides must be the same, or 1"):
        index(x, torch.cat([x, x]))
