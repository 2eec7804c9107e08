"The embeddings of the lessons: the committed file is what it says, and what the encoder gives."

import importlib.util
import json

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file

from brace_nb.companion import artifacts, root
from brace_nb.foundations import DESIGNERS, emoji_embeddings

FOLDER = root() / "data/embeddings"


@pytest.fixture(scope="module")
def build():
    spec = importlib.util.spec_from_file_location("build_embeddings", FOLDER / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def facts():
    return json.loads((FOLDER / "emoji.json").read_text())


def test_the_committed_file_has_its_recorded_digest(build, facts):
    assert build.digest(FOLDER / "emoji.safetensors") == facts["sha256"]
    assert (FOLDER / "emoji.safetensors").stat().st_size < 2e6


def test_the_committed_file_is_cut_out_of_the_encoders_result(build, facts):
    try:
        result = artifacts(facts["experiment"], facts["profile"])
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    committed, cut = load_file(FOLDER / "emoji.safetensors"), build.cut(result)
    assert committed.keys() == cut.keys() and (committed["id"] == cut["id"]).all()
    if build.digest(result / "checkpoint/model.safetensors") == facts["weights"]:
        assert all((committed[k] == cut[k]).all() for k in cut)
        return
    # trained on another machine, whose rounding is its own: the same concepts must still be alike
    cosines = [np.float32(a["image_noto"]) @ np.float32(a["image_noto"]).T for a in (committed, cut)]
    upper = np.triu_indices(len(cut["id"]), 1)
    assert np.corrcoef(cosines[0][upper], cosines[1][upper])[0, 1] > 0.5, "run data/embeddings/build.py"


def test_concepts_are_whole_and_cover_every_split(build):
    emoji = emoji_embeddings()
    assert emoji.concepts["split"].value_counts().to_dict() == build.COUNTS
    assert list(emoji.vectors) == sorted(
        [f"image_{d}" for d in DESIGNERS] + ["text_en", "text_es", "text_sw", "text_zh"]
    )
    for designer in DESIGNERS:
        assert emoji.available(designer).tolist() == emoji.ids().tolist()
    for name in ("en", "es", "sw", "zh"):
        assert None not in emoji.names(name)


def test_rows_are_those_of_the_file_at_unit_length():
    emoji, stored = emoji_embeddings(), load_file(FOLDER / "emoji.safetensors")
    for name, rows in emoji.vectors.items():
        assert rows.dtype == np.float32 and rows.shape == (320, 256)
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
        np.testing.assert_allclose(rows, stored[name].astype(np.float32), atol=2e-4)


def test_pictures_and_names_of_training_concepts_meet():
    emoji = emoji_embeddings()
    train = emoji.ids("train")
    cosines = emoji.embeddings("image_twemoji", train) @ emoji.embeddings("text_en", train).T
    hits = (cosines.argmax(1) == np.arange(len(train))).mean()
    shuffled = (np.roll(cosines, 1, axis=1).argmax(1) == np.arange(len(train))).mean()
    assert hits > 0.4 > 0.05 > shuffled
    with pytest.raises(FileNotFoundError, match="emoji.safetensors"):
        emoji_embeddings("nowhere")


def test_the_film_of_a_training_moves_and_stays_small():
    path = root() / "data/film/film.gif"
    with Image.open(path) as film:
        assert film.n_frames > 50
        first = np.asarray(film.convert("RGB"), float)
        film.seek(film.n_frames - 1)
        last = np.asarray(film.convert("RGB"), float)
    assert path.stat().st_size < 1e6 and first.shape == last.shape
    matrix = last[84:348, 30:294].reshape(12, 22, 12, 22, 3).mean((1, 3, 4))  # one brightness a cell
    others = matrix[~np.eye(12, dtype=bool)]
    high = others.mean() + 2 * others.std()
    assert np.diag(matrix).mean() > high  # it ends diagonal
    assert last[354:376, 300:322].mean() < high  # but for the concept that no training shows
