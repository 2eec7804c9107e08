"""Digests of what the package's libraries compute, as json: `python tests/digests.py FILE`.

`tests/test_portable.py` compares those of this processor with those of emulated ones.
"""

import hashlib
import json
import sys
from pathlib import Path

from brace_nb.core import use_one_instruction_set

use_one_instruction_set()

import numba  # noqa: E402
import numpy as np  # noqa: E402
import scipy.integrate  # noqa: E402
import scipy.linalg  # noqa: E402
import scipy.optimize  # noqa: E402
import scipy.sparse.csgraph  # noqa: E402
import scipy.special  # noqa: E402
import scipy.stats  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import linalg, nn  # noqa: E402

FOUND = {}
# Left out, and not called by the package: torch.linalg.lstsq, which differs from run to run, and two that
# begin with an approximation of the vendor (cholesky and solve_triangular in float32). And grid_sample of
# torch, which the emulator (qemu 7.2) cannot run: it crashes in the gathers of AVX2.
PLAIN = "exp exp2 expm1 sin cos tan asin acos atan sinh cosh tanh asinh erf erfc erfinv sigmoid reciprocal"
OF_POSITIVE = "log log2 log10 log1p sqrt rsqrt lgamma digamma square acosh atanh"
ACTIVATIONS = "gelu silu softplus elu logsigmoid mish leaky_relu normalize"
SIDE = 67  # of matrices: more than one block of LAPACK, and no minutes under emulation
MATRIX = "eigh eigvalsh svd qr inv det slogdet eigvals pinv lu_factor"


def keep(name, *values):
    "The digest of some arrays."
    digest = hashlib.sha256()
    for value in values:
        value = value.detach().contiguous().numpy() if isinstance(value, torch.Tensor) else value
        digest.update(np.ascontiguousarray(value).tobytes())
    FOUND[name] = digest.hexdigest()[:12]


def listed(found):
    return found if isinstance(found, tuple) else (found,)


def elementwise(x, kind):
    near, least = x.sigmoid() * 0.98 + 0.01, x.abs() + 0.1
    inside = {"asin", "acos", "erfinv", "atanh"}
    for name in (PLAIN + " " + OF_POSITIVE).split():
        start = near if name in inside else least + 1 if name == "acosh" else least
        keep(
            f"torch {name} {kind}", getattr(torch, name)(x if name in PLAIN and name not in inside else start)
        )
    for size in (7, 64, 1000):
        keep(f"torch sqrt {size} {kind}", least.flatten()[:size].sqrt())
    keep(
        f"torch pow {kind}", least**1.7, least**0.5, least**-1.5, torch.atan2(x, least), torch.hypot(x, least)
    )
    for name in ACTIVATIONS.split():
        keep(f"torch {name} {kind}", getattr(F, name)(x))


def reductions(x, kind):
    keep(f"torch softmax {kind}", x.softmax(-1), x.softmax(0), x.log_softmax(-1), x.logsumexp(0))
    sums = (x.sum(), x.sum(0), x.mean(1), x.var(0), x.std(1), x.norm(dim=-1), x.norm(), x.prod(1))
    keep(f"torch sums {kind}", *sums, x.cumsum(0), x.cumsum(1), linalg.vector_norm(x, 3, -1))
    keep(f"torch distances {kind}", torch.cdist(x[:40], x[:50]), F.cosine_similarity(x[:50], x[50:100]))
    keep(f"torch order {kind}", *x.sort(-1), *x.topk(9), x.median(-1).values, x.argsort(0))
    hard, soft = torch.arange(len(x)) % x.shape[1], x.softmax(1)
    losses = (
        F.cross_entropy(x, hard),
        F.cross_entropy(x, soft),
        F.smooth_l1_loss(x, soft),
        F.mse_loss(x, soft),
    )
    keep(f"torch losses {kind}", *losses, F.binary_cross_entropy_with_logits(x, soft))


def products(x, kind):
    square, stack = x[:SIDE, :SIDE], x[:256].reshape(8, 32, -1)
    keep(f"torch products {kind}", x @ x[:SIDE].mT, x.mT @ x[:, :SIDE], x @ x[0], stack @ stack.mT)
    sizes = [(n, k) for n in (1, 2, 3, 5, 8, 17, 33) for k in (1, 4, 7, 16, 64)]
    keep(f"torch small products {kind}", *[x[:n, :k] @ x[:k, :n] for n, k in sizes])
    keep(f"torch einsum {kind}", torch.einsum("if,jf,kf->ijk", x[:9], x[9:19], x[19:30]))
    definite = square @ square.mT + torch.eye(SIDE, dtype=x.dtype)
    for name in MATRIX.split():
        found = getattr(linalg, name)(definite)
        keep(f"torch {name} {kind}", *listed(found))
    keep(f"torch solve {kind}", linalg.solve(definite, square))
    keep(f"torch pictures {kind}", F.interpolate(stack[None, :, :, :64], size=(9, 11), mode="bicubic"))


def layers(x, kind):
    batch = x[:16, :128].reshape(2, 8, 128)
    torch.manual_seed(0)
    for layer in (
        nn.LayerNorm(128),
        nn.BatchNorm1d(8),
        nn.TransformerEncoderLayer(128, 4, 64, batch_first=True, activation="gelu"),
    ):
        layer = layer.to(x.dtype)
        found = layer(batch.clone().requires_grad_())
        found.square().sum().backward()
        keep(f"torch {type(layer).__name__} {kind}", found, *[p.grad for p in layer.parameters()])
    decoder = nn.TransformerDecoderLayer(128, 4, 64, 0.0, batch_first=True).to(x.dtype)
    keep(f"torch decoder {kind}", decoder(batch, batch.flip(0)))
    bag = nn.EmbeddingBag(50, 16, mode="mean").to(x.dtype)
    keep(f"torch bag {kind}", bag(torch.arange(96).reshape(12, 8) % 50))
    heads = batch.reshape(2, 8, 4, 32).transpose(1, 2)
    keep(f"torch attention {kind}", F.scaled_dot_product_attention(heads, heads, heads, is_causal=True))
    picture = x[:64, :128].reshape(1, 8, 32, 32)
    turn = torch.tensor([[[0.9, -0.2, 0.1], [0.2, 0.9, -0.1]]], dtype=x.dtype)
    keep(f"torch grid {kind}", F.affine_grid(turn, (1, 8, 24, 24), align_corners=False))
    keep(f"torch pooled {kind}", F.avg_pool2d(picture, 3))


def special(x, kind):
    share, other = x.sigmoid() * 0.98 + 0.01, x.flip(0)
    for name in "ndtr log_ndtr entr".split():
        keep(f"torch {name} {kind}", getattr(torch.special, name)(share))
    keep(f"torch ndtri {kind}", torch.special.ndtri(share), torch.logit(share), torch.logaddexp(x, other))
    keep(f"torch kl {kind}", F.kl_div(x.log_softmax(1), other.softmax(1), reduction="sum"))
    torch.manual_seed(0)
    keep(f"torch gumbel {kind}", F.gumbel_softmax(x, 0.7), torch.rand(9), torch.bernoulli(share))
    keep(f"torch covariance {kind}", torch.cov(x.mT), torch.corrcoef(x[:20]), torch.dot(x[0], x[1]))
    stack = x[:256].reshape(8, 32, -1)
    keep(f"torch baddbmm {kind}", torch.baddbmm(stack @ stack.mT, stack, stack.mT, alpha=0.3))
    keep(f"torch tensordot {kind}", torch.tensordot(stack, stack, ([0, 1], [0, 1])), linalg.svdvals(x[:SIDE]))
    keep(f"torch addcmul {kind}", torch.addcmul(x, other, share), *torch._foreach_norm([x, other]))


class Towers(nn.Module):
    "A convolution tower beside a transformer, as an encoder of pictures and texts."

    def __init__(self):
        super().__init__()
        first = [nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.GELU(), nn.MaxPool2d(2)]
        second = [nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU()]
        last = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 24)]
        self.image = nn.Sequential(*first, *second, *last)
        layer = nn.TransformerEncoderLayer(24, 4, 48, dropout=0.1, batch_first=True)
        self.words, self.text = nn.Embedding(100, 24), nn.TransformerEncoder(layer, 2)

    def forward(self, pictures, ids):
        both = self.image(pictures), self.text(self.words(ids)).mean(1)
        return [F.normalize(x, dim=-1) for x in both]


def optimizer(kind, fused):
    "Three steps along gradients that are drawn; those of a network are in `training`."
    draw = torch.Generator().manual_seed(0)
    # a multiple of 16: at the rest of a row the emulator (qemu 7.2) crashes in SGD
    weights = [torch.randn(64, 5, generator=draw).requires_grad_() for _ in range(3)]
    stepping = getattr(torch.optim, kind)(weights, lr=1e-2, fused=fused)
    for _ in range(3):
        for weight in weights:
            weight.grad = torch.randn(weight.shape, generator=draw)
        stepping.step()
    keep(f"optimizer {kind} fused={fused}", *weights)


def training():
    torch.manual_seed(0)
    model = Towers()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    pictures, ids = torch.randn(4, 3, 16, 16), torch.arange(4 * 8).reshape(4, 8) % 100
    for _ in range(3):
        image, text = model(pictures, ids)
        loss = F.cross_entropy(10 * image @ text.mT, torch.arange(4))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    keep("training", loss, *[p.grad for p in model.parameters()], *model.parameters())


def of_numpy(x, kind):
    least = np.abs(x) + x.dtype.type(0.1)
    for name in "exp exp2 expm1 sin cos tan arctan sinh cosh tanh arcsinh square".split():
        keep(f"numpy {name} {kind}", getattr(np, name)(x))
    for name in "log log2 log10 log1p sqrt cbrt".split():
        keep(f"numpy {name} {kind}", getattr(np, name)(least))
    keep(f"numpy sums {kind}", x.sum(), x.sum(0), x.mean(1), x.std(0), x.var(), np.cumsum(x), least**1.7)
    keep(f"numpy products {kind}", x @ x.T, x.T @ x, x @ x[0], np.einsum("if,jf->ij", x, x))
    keep(f"numpy order {kind}", np.sort(x), np.argsort(x, 0), np.partition(x, 5), np.quantile(x, 0.3, 0))
    gram = x.T @ x + np.eye(x.shape[1], dtype=x.dtype)
    for name in "eigh svd inv qr cholesky eigvals".split():
        keep(f"numpy {name} {kind}", *listed(getattr(np.linalg, name)(gram)))
    keep(f"numpy solve {kind}", np.linalg.solve(gram, x.T), np.linalg.lstsq(x, x[:, :2], rcond=None)[0])


def of_scipy(x):
    shares = np.linspace(0.01, 0.99, 99)
    keep("scipy quantiles", scipy.stats.norm.ppf(shares), scipy.stats.t.ppf(shares, 5))
    keep("scipy ranks", scipy.stats.rankdata(x[0]), scipy.stats.spearmanr(x[:, 0], x[:, 1])[0])
    keep(
        "scipy sums", scipy.special.logsumexp(x, 1), scipy.special.softmax(x, 1), scipy.special.gammaln(x**2)
    )
    keep("scipy assignment", *scipy.optimize.linear_sum_assignment(x))
    keep("scipy decompositions", scipy.linalg.svd(x)[1], *scipy.linalg.eigh(x.T @ x))
    keep("scipy procrustes", scipy.linalg.orthogonal_procrustes(x, x[::-1])[0])


def of_statistics(x):
    a, b = x[:, 0], x[:, 1] + 0.3 * x[:, 0]
    tests = (scipy.stats.kendalltau, scipy.stats.ks_2samp, scipy.stats.ttest_rel)
    keep("scipy tests", *[np.array(test(a, b)) for test in tests], np.array(scipy.stats.kstest(a, "norm")))
    keep("scipy moments", np.array([scipy.stats.kurtosis(a), scipy.stats.skew(a)]))
    found = scipy.stats.bootstrap((a,), np.mean, n_resamples=200, rng=np.random.default_rng(0))
    keep("scipy bootstrap", np.array(found.confidence_interval))
    interval = scipy.stats.binomtest(37, 99).proportion_ci(method="wilson")
    keep("scipy binomial", np.array(interval), scipy.special.betainc(2.0, 3.5, np.linspace(0, 1, 99)))
    norm, circle = scipy.stats.norm, scipy.stats.vonmises(2.0).rvs(99, random_state=0)
    keep("scipy densities", norm.cdf(a), norm.pdf(a), scipy.stats.poisson.pmf(np.arange(9), 2.3), circle)
    keep("scipy integral", np.array(scipy.integrate.quad(norm.pdf, -1, 2)), scipy.special.expi(np.abs(a)))
    sparse = scipy.sparse.csr_array(np.abs(x[:60, :60]) + 1)
    keep("scipy sparse", *scipy.sparse.csgraph.min_weight_full_bipartite_matching(sparse), sparse @ x[:60])
    keep("numpy statistics", np.corrcoef(x.T), np.cov(x.T), np.polyfit(a, b, 3), np.arccos(np.tanh(a)))
    keep("numpy bins", *np.histogram(x, 20), np.interp(a, np.sort(b), a), np.geomspace(1, 9, 7), np.trace(x))
    keep("numpy missing", np.nanmean(x), np.nanstd(x, 0), np.nanquantile(x, 0.3), np.average(a, weights=b**2))


def of_sklearn(x):
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA, TruncatedSVD
    from sklearn.ensemble import RandomForestRegressor
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import average_precision_score

    labels = (x[:, 0] > 0).astype(int)
    keep("sklearn logistic", LogisticRegression(max_iter=200).fit(x[:, 1:20], labels).coef_)
    keep("sklearn k-means", KMeans(5, n_init=2, random_state=0).fit(x).cluster_centers_)
    keep("sklearn pca", PCA(5, random_state=0).fit_transform(x))
    forest = RandomForestRegressor(10, random_state=0).fit(x[:, 1:9], x[:, 0])
    keep("sklearn forest", forest.predict(x[:, 1:9]))
    texts = [" ".join(f"word{j}" for j in np.flatnonzero(row > 1)) for row in x]
    weighted_words = TfidfVectorizer().fit_transform(texts)
    keep("sklearn words", weighted_words.data, TruncatedSVD(5, random_state=0).fit_transform(weighted_words))
    keep("sklearn precision", np.array(average_precision_score(labels, x[:, 1])))


@numba.njit(fastmath=True)
def weighted(x):
    total = 0.0
    for value in x:
        total += np.exp(value) * value
    return total


def main(path):
    random, draws = np.random.default_rng(0), torch.Generator().manual_seed(0)
    keep("torch draws", torch.randn(1000, generator=draws), torch.randperm(1000, generator=draws))
    wide = torch.randn(257, 131, generator=draws, dtype=torch.float64)
    for kind in (torch.float32, torch.float64):
        for family in (elementwise, reductions, products, layers, special):
            family(wide.to(kind), str(kind))
    for kind in ("AdamW", "Adam", "SGD"):
        for fused in (True, False):
            optimizer(kind, fused)
    training()
    x = random.standard_normal((131, SIDE))
    keep("numpy draws", random.gamma(2.0, 1.0, 99), random.permutation(99), random.beta(2, 3, 50))
    for kind in ("float32", "float64"):
        of_numpy(x.astype(kind), kind)
    of_scipy(x)
    of_statistics(x)
    of_sklearn(x)
    keep("numba", weighted(x.ravel()))
    Path(path).write_text(json.dumps(FOUND, indent=0))


if __name__ == "__main__":
    main(sys.argv[1])
