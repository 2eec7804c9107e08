"The stamp tuples: what they hold, how speech is asked for, what damaged files say, how they were built."

import importlib.util
import shutil

import numpy as np
import pandas as pd
import pytest

from brace_nb.foundations import SPOKEN_LANGUAGES, Spectrograms, data_folder, load_emoji, load_stamps


@pytest.fixture(scope="module")
def stamps():
    return load_stamps()


@pytest.fixture(scope="module")
def build():
    spec = importlib.util.spec_from_file_location("build_stamps", data_folder("stamps") / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_counts_are_those_of_the_data_sheet(stamps):
    assert len(stamps) == 792 and stamps.designers == ("stamps",) and len(stamps.languages) == 58
    assert stamps.concepts["made"].value_counts().to_dict() == {"photograph": 400, "drawing": 392}
    assert {s: len(stamps.ids(s)) for s in ("train", "val", "test")} == {"train": 584, "val": 60, "test": 148}
    assert {lang: len(stamps.spoken(lang)) for lang in SPOKEN_LANGUAGES} == dict(
        fr=767, ro=760, ru=760, ca=757, bg=757, es=732
    )
    assert stamps.names("en", stamps.ids()) == stamps.concepts["name"].tolist()


def test_no_picture_is_empty_and_no_group_straddles_the_splits(stamps):
    pictures = stamps.images("stamps", size=64)
    assert pictures.shape == (792, 64, 64, 4) and (pictures[..., 3] > 0).any((1, 2)).all()
    assert stamps.concepts.groupby("group")["split"].nunique().max() == 1
    said = stamps.concepts.assign(text=stamps.concepts["name"].str.lower())
    assert said.groupby("text")["split"].nunique().max() == 1


def test_speech_follows_the_ids_in_order_with_repeats_and_is_a_copy(stamps):
    ids = stamps.spoken("ru")[[5, 2, 2, 0]]
    got = stamps.speech("ru", ids)
    assert got.shape == (4, 64, 64) and got.dtype == np.uint8
    assert all((row == stamps.speech("ru", [i])[0]).all() for row, i in zip(got, ids))
    got[:] = 0
    assert stamps.speech("ru", ids).max() == 255
    assert stamps.speech(ids=[]).shape == (0, 64, 64)


def test_a_sound_that_is_not_there_is_an_error(stamps):
    silent = np.setdiff1d(stamps.ids(), stamps.spoken("es"))[0]
    with pytest.raises(ValueError, match=rf"not spoken in 'es' \(ids \[{silent}\]\). Pass ids from"):
        stamps.speech("es", [silent])
    with pytest.raises(ValueError, match="lang must be one of"):
        stamps.speech("de")
    with pytest.raises(ValueError, match="holds no spoken names"):
        load_emoji().speech("en", [0])


def test_damaged_speech_is_named(stamps, tmp_path):
    shutil.copytree(data_folder("stamps"), tmp_path / "stamps")
    rows = pd.read_parquet(tmp_path / "stamps/speech_fr.parquet")
    rows.loc[3, "logmel"] = rows.loc[3, "logmel"][:-1]
    rows.to_parquet(tmp_path / "stamps/speech_fr.parquet")
    with pytest.raises(ValueError, match=r"speech_fr.parquet does not hold spectrograms of 64 x 64 bytes"):
        load_stamps(tmp_path / "stamps")


def test_spectrograms_read_by_id():
    levels = np.arange(3 * 4, dtype=np.uint8).reshape(3, 2, 2)
    held = Spectrograms(np.array([2, 5, 9]), levels)
    assert (held.read(np.array([9, 2])) == levels[[2, 0]]).all()


def test_a_tone_lies_in_its_band(build, tmp_path):
    soundfile = pytest.importorskip("soundfile", reason="only the builder of the data reads sound files")
    seconds = np.arange(2 * build.RATE) / build.RATE
    soundfile.write(tmp_path / "x.wav", 0.5 * np.sin(2 * np.pi * 1_000 * seconds), build.RATE)
    bands = build.mel_bands()
    loudest = build.logmel(tmp_path / "x.wav", bands)[:, :40].mean(1).argmax()
    assert loudest == bands[:, round(1_000 * build.WINDOW / build.RATE)].argmax()


def test_mel_bands_by_a_plain_loop(build):
    bands = build.mel_bands()
    mel = [2_595 * np.log10(1 + hertz / 700) for hertz in (50, build.RATE / 2)]
    corners = [700 * (10 ** ((mel[0] + (mel[1] - mel[0]) * k / 65) / 2_595) - 1) for k in range(66)]
    for band in (0, 17, 63):
        for bin in range(0, 513, 7):
            hertz = bin * build.RATE / build.WINDOW
            low, top, high = corners[band : band + 3]
            slope = (hertz - low) / (top - low) if hertz < top else (high - hertz) / (high - top)
            assert bands[band, bin] == pytest.approx(max(0, slope), abs=1e-9)


def test_stamps_that_share_a_sentence_or_a_stem_are_one_group(build):
    found = {
        "animals/frog": {"en": "A frog."},
        "animals/frog-1": {"en": "A green frog."},
        "plants/green": {"en": "The green frog"},
        "plants/oak": {"en": "An oak."},
    }
    first, second, third, other = build.groups(found)
    assert first == second == third != other


def test_texts_of_a_file(build, tmp_path):
    (tmp_path / "x.txt").write_text(
        "A  dog.\nde.utf8=Ein Hund.\nfr.utf8=\nde.utf8=Hund.\nnonsense\n", "utf-8"
    )
    assert build.read_texts(tmp_path / "x.txt") == {"en": "A dog.", "de": "Ein Hund."}
