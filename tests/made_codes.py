"Codes made up for the tests."

import numpy as np


def random_codes(*shape, density=0.1, seed=0):
    return np.random.default_rng(seed).random(shape) < density


def random_ternary(*shape, seed=0):
    return np.random.default_rng(seed).choice(np.array([-1, 0, 1], np.int8), shape, p=[0.1, 0.8, 0.1])


def made_embeddings(rows, dim, seed=0):
    "Softplus of normal numbers."
    return np.log1p(np.exp(np.random.default_rng(seed).normal(-2, 2, (rows, dim)).astype(np.float32)))
