"Tables of judged translations in their true form, agreement with people, and padded token scores."

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.stats import spearmanr

from brace_nb.assignment import assign, bertscore, judged_agreement, lisascore, read_judgements

DA = (
    "lp,src,mt,ref,score,raw,annotators,domain,year\n"
    'en-de,"One, two.","Eins, ""zwei"".","Eins,\nzwei.",0.71,88.0,2,news,2020\n'
    "de-en,Hallo.,Hello.,Hi.,-0.25,61.0,1,news,2020\n"
    "en-de,Empty.,Leer.,Leer.,,,0,news,2020\n"
)
QE = (
    "index\toriginal\ttranslation\tscores\tmean\tz_scores\tz_mean\tmodel_scores\n"
    '0\tHe said "no.\tEr sagte "nein.\t[80, 90, 85]\t85.0\t[0.5, 0.9, 0.7]\t0.7\t-0.31\n'
    "1\tA\u2028line, with a comma\tEine Zeile\t[10, 20, 15]\t15.0\t[-1.5, -0.9, -1.2]\t-1.2\t-1.4\n"
)


def written(folder, name, text):
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def test_a_wmt_table(tmp_path):
    path = written(tmp_path, "da.csv", DA)
    j = read_judgements(path, "wmt-da")
    assert j.candidates == ['Eins, "zwei".', "Hello."] and j.references == ["Eins,\nzwei.", "Hi."]
    assert j.scores.tolist() == [0.71, -0.25] and j.languages == ["en-de", "de-en"]
    assert read_judgements(path, "wmt-da", "de-en").sources == ["Hallo."]
    assert len(read_judgements(path, "wmt-da", "fr-en").scores) == 0
    z = written(tmp_path, "z.csv", DA.replace(",score,", ",z,"))
    assert np.array_equal(read_judgements(z, "wmt-da").scores, j.scores)


def test_an_mlqe_table(tmp_path):
    path = written(tmp_path, "qe.tsv", QE)
    j = read_judgements(path, "mlqe-pe")
    assert j.sources[0] == 'He said "no.' and j.candidates == ['Er sagte "nein.', "Eine Zeile"]
    assert j.scores.tolist() == [0.7, -1.2] and j.references == [None, None]
    older = written(tmp_path, "old.tsv", QE.replace("\tz_mean\t", "\tother\t"))
    assert read_judgements(older, "mlqe-pe").scores.tolist() == [85.0, 15.0]


def test_what_a_table_refuses(tmp_path):
    with pytest.raises(ValueError, match="needs the columns original, translation, z_mean or mean"):
        read_judgements(written(tmp_path, "da.csv", DA), "mlqe-pe")
    with pytest.raises(ValueError, match="got 'good' in line 2"):
        read_judgements(written(tmp_path, "bad.tsv", QE.replace("\t0.7\t", "\tgood\t")), "mlqe-pe")
    with pytest.raises(ValueError, match="one of wmt-da, mlqe-pe"):
        read_judgements(tmp_path / "da.csv", "wmt")
    with pytest.raises(ValueError, match="got \\."):
        read_judgements(written(tmp_path, "empty.csv", ""), "wmt-da")


def test_agreement_is_spearman_with_paired_draws():
    rng = np.random.default_rng(0)
    judged = np.round(rng.normal(size=200), 1)  # with ties
    near, far = judged + 0.3 * rng.normal(size=200), judged + 2 * rng.normal(size=200)
    found = judged_agreement(dict(far=far, near=near, same=far + 1), judged, 300, seed=1)
    for name, scores in dict(far=far, near=near).items():
        low, rho, high = found[name]["rho"]
        assert rho == pytest.approx(spearmanr(scores, judged).statistic) and low < rho < high
    assert found["near"]["ahead"][0] > 0 and found["same"]["ahead"] == (0, 0, 0)
    assert found == judged_agreement(dict(far=far, near=near, same=far + 1), judged, 300, seed=1)
    for bad in (dict(a=far[:5]), dict(a=far * np.nan)):
        with pytest.raises(ValueError, match="a finite score"):
            judged_agreement(bad, judged)


def token_score_by_loops(x, y, u, v, best):
    "Precision and recall of one pair, with no padding."
    x, y = (t / t.norm(dim=-1, keepdim=True) for t in (x, y))
    sim = x @ y.T
    if best:
        return float((u * sim.amax(1)).sum()), float((v * sim.amax(0)).sum())
    a = assign(sim, maximize=True)
    return float((u[a.rows] * sim[a.rows, a.cols]).sum()), float((v[a.cols] * sim[a.rows, a.cols]).sum())


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 19), st.integers(1, 19)), min_size=1, max_size=12),
    st.integers(0, 10**6),
)
def test_padding_changes_no_score(lengths, seed):
    g = torch.Generator().manual_seed(seed)
    xs, ys = ([torch.randn(n[i], 4, generator=g, dtype=torch.float64) for n in lengths] for i in range(2))
    weights = [
        [torch.rand(len(t), generator=g, dtype=torch.float64) + 0.1 for t in side] for side in (xs, ys)
    ]
    for score, best in ((lisascore, False), (bertscore, True)):
        got = score(xs, ys, idf=weights)
        for i, (x, y) in enumerate(zip(xs, ys)):
            u, v = (w[i] / w[i].sum() for w in weights)
            wanted = token_score_by_loops(x, y, u, v, best)
            assert (float(got.precision[i]), float(got.recall[i])) == pytest.approx(wanted)
    stepped = lisascore(xs, ys, method="greedy_best")
    alone = torch.stack([lisascore(x, y, method="greedy_best").f1 for x, y in zip(xs, ys)])
    assert torch.allclose(stepped.f1, alone)


def test_a_gradient_passes_through_padding():
    x, y = torch.randn(3, 4, requires_grad=True), torch.randn(5, 4)
    other = torch.randn(7, 4)
    lisascore([x, other], [y, y]).f1.sum().backward()
    together, x.grad = x.grad, None
    lisascore(x, y).f1.backward()
    assert torch.allclose(together, x.grad, atol=1e-6) and x.grad.abs().sum() > 0
