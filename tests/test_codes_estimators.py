"Encoders and quantizers as scikit-learn's estimators: its own checks, and what callers see of it."

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from brace_nb.codes import AdditiveQuantizer, CodeEncoder, PrincipalBytes, ProductQuantizer

EARLY = "the house refuses a bad option where it is set, not at the next fit"
NAMES = "attributes after fit have names without an underscore, which saved files and lessons use"
WORDS = "a wrong number of features is refused in the house's words, which name both numbers"
EXCEPTIONS = {  # check -> why it does not hold
    "CodeEncoder": {
        "check_do_not_raise_errors_in_init_or_set_params": EARLY,
        "check_dont_overwrite_parameters": NAMES,
        "check_n_features_in_after_fitting": WORDS,
        "check_parameters_default_constructible": "recipes are frozen objects and no plain values",
        "check_fit2d_predict1d": "a single row may be encoded without a second axis",
    },
    "PrincipalBytes": {
        "check_do_not_raise_errors_in_init_or_set_params": EARLY,
        "check_dont_overwrite_parameters": NAMES,
        "check_n_features_in_after_fitting": WORDS,
    },
}


@pytest.mark.parametrize("estimator", [CodeEncoder(dim=8), PrincipalBytes(1)])
def test_the_checks_of_scikit_learn(estimator):
    reasons = EXCEPTIONS[type(estimator).__name__]
    results = check_estimator(estimator, on_fail=None)
    failed = {r["check_name"]: str(r["exception"]) for r in results if r["status"] == "failed"}
    assert failed.keys() == reasons.keys(), failed
    assert sum(r["status"] == "passed" for r in results) >= 38


@pytest.mark.parametrize("kind", [ProductQuantizer, AdditiveQuantizer])
def test_centers_fail_only_for_want_of_rows(kind):
    others = EXCEPTIONS["PrincipalBytes"].keys()
    for r in check_estimator(kind(1), on_fail=None):
        if r["status"] == "failed" and r["check_name"] not in others:
            told = [str(e) for e in (r["exception"], r["exception"].__cause__, r["exception"].__context__)]
            assert any("at least 256 rows" in t for t in told), (r["check_name"], told)


def rows(n=300, features=8):
    return np.random.default_rng(0).normal(size=(n, features)).astype(np.float32)


@pytest.mark.parametrize(
    "estimator, width",
    [(CodeEncoder(dim=8), 8), (PrincipalBytes(2), 2), (ProductQuantizer(2), 2), (AdditiveQuantizer(2), 2)],
)
def test_what_a_caller_sees(estimator, width):
    x = rows()
    with pytest.raises(NotFittedError):
        clone(estimator).transform(x)
    codes = clone(estimator).fit_transform(x, x)
    fitted = clone(estimator).fit(pd.DataFrame(x, columns=list("abcdefgh")), x)
    assert fitted.n_features_in_ == 8 and fitted.feature_names_in_.tolist() == list("abcdefgh")
    assert (np.asarray(fitted.transform(x)) == codes).all() and codes.shape == (300, width)
    names = fitted.get_feature_names_out()
    frame = fitted.set_output(transform="pandas").transform(pd.DataFrame(x[:3], index=[5, 6, 7]))
    assert list(frame.columns) == list(names) and frame.index.tolist() == [5, 6, 7]
    assert (frame.to_numpy() == codes[:3]).all()
    with pytest.raises(ValueError, match="transform must be"):
        fitted.set_output(transform="polars")
    pipeline = make_pipeline(StandardScaler(), clone(estimator)).set_output(transform="pandas")
    assert list(pipeline.fit(x, x).transform(x).columns) == list(names)


def test_a_y_of_one_column():
    x = rows()
    alone, column = (CodeEncoder(dim=8) for _ in range(2))
    alone.fit(x, x[:, 0], epochs=2)
    column.fit(x, x[:, :1], epochs=2)
    assert alone.features == (8, 1) and (alone.encode_images(x) == column.encode_images(x)).all()
    assert alone.score(x, x[:, 0]) == column.score(x, x[:, :1])
    with pytest.raises(ValueError, match="requires y"):
        CodeEncoder(dim=8).fit(x, None)
