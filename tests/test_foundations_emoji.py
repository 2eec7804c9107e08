"The emoji tuples: what they hold, how they are asked, where they come from, how they were built."

import importlib.util
import io
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import brace_nb
from brace_nb.foundations import (
    DESIGNERS,
    HELD_OUT_DESIGNER,
    SPLITS,
    TRAINING_DESIGNERS,
    box_shrink,
    data_folder,
    load_emoji,
)


@pytest.fixture(scope="module")
def emoji():
    return load_emoji()


def test_counts_are_those_of_the_data_sheet(emoji):
    assert len(emoji) == 1906 and emoji.designers == tuple(DESIGNERS) and len(emoji.languages) == 18
    assert {s: (len(emoji.ids(s)), len(emoji.ids(s, flags=False))) for s in SPLITS} == {
        "train": (1481, 1277),
        "val": (187, 161),
        "test": (238, 206),
    }
    assert emoji.concepts["category"].nunique() == 9 and emoji.concepts["subcategory"].nunique() == 98
    assert {d: len(emoji.available(d)) for d in DESIGNERS} == {
        "noto": 1906,
        "twemoji": 1906,
        "openmoji": 1906,
        "fluent": 1594,
    }
    names = emoji.coverage()["name"]
    assert (names == 1906).sum() == 13 and names[["zu", "am", "ha", "ig", "qu"]].tolist() == [
        1888,
        1888,
        1885,
        1641,
        1619,
    ]


def test_splits_partition_and_never_cut_a_group(emoji):
    parts = [set(emoji.ids(s)) for s in SPLITS]
    assert set.union(*parts) == set(emoji.ids()) and sum(map(len, parts)) == 1906
    assert emoji.concepts.groupby("group")["split"].nunique().max() == 1
    assert set(emoji.ids(["val", "test"])) == parts[1] | parts[2]


def test_training_never_sees_the_held_out_designer():
    assert HELD_OUT_DESIGNER not in TRAINING_DESIGNERS and set(TRAINING_DESIGNERS) | {
        HELD_OUT_DESIGNER
    } == set(DESIGNERS)


def test_images_follow_ids_in_order_with_repeats_and_are_copies(emoji):
    ids = [1905, 3, 3, 0]
    got = emoji.images("noto", ids)
    assert got.shape == (4, 32, 32, 4) and got.dtype == np.uint8
    for row, i in zip(got, ids):
        assert (row == emoji.images("noto", [i])[0]).all()
    got[:] = 0
    assert emoji.images("noto", ids).any()
    assert emoji.images("noto", []).shape == (0, 32, 32, 4) and emoji.images("noto").shape == (
        1906,
        32,
        32,
        4,
    )


@pytest.mark.parametrize("designer", DESIGNERS)
def test_images_are_what_the_parquet_file_holds(emoji, designer):
    frame = pd.read_parquet(data_folder() / f"images_{designer}.parquet")
    for i, webp in frame.iloc[[0, 700, len(frame) - 1]].itertuples(index=False):
        native = np.asarray(Image.open(io.BytesIO(webp)).convert("RGBA"))
        assert (emoji.images(designer, [i], 64)[0] == native).all()
        assert (emoji.images(designer, [i])[0] == box_shrink(native)).all()
        assert (native[native[..., 3] == 0] == 0).all()


def test_missing_pictures_and_names_are_never_filled_in(emoji):
    with pytest.raises(ValueError, match=r"fluent has no picture of 312 .*available\('fluent'\)"):
        emoji.images("fluent")
    assert emoji.images("fluent", emoji.available("fluent")).shape[0] == 1594
    assert emoji.names("qu").count(None) == 1906 - 1619


def test_captions_filter_by_language_kind_and_id(emoji):
    rows = emoji.captions(["en", "sw"], ["name", "keyword"], ids=[5, 9])
    assert (
        set(rows["id"]) == {5, 9}
        and set(rows["lang"]) == {"en", "sw"}
        and set(rows["kind"]) == {"name", "keyword"}
    )
    assert (
        emoji.captions("en", "name")["text"].tolist() == emoji.concepts["name"].tolist() == emoji.names("en")
    )
    assert (
        emoji.names("es", [9, 5]) == emoji.captions("es", "name").set_index("id")["text"].loc[[9, 5]].tolist()
    )
    assert not emoji.captions().duplicated().any() and list(emoji.captions().columns) == [
        "id",
        "lang",
        "kind",
        "text",
    ]


def test_share_alike_tags_come_only_by_name(emoji):
    assert "openmoji_tag" not in set(emoji.captions()["kind"]) and set(
        emoji.captions(kind="openmoji_tag")["lang"]
    ) == {"en"}


def test_coverage_counts_concepts_not_captions(emoji):
    ids = emoji.ids("test", flags=False)
    table = emoji.coverage(ids)
    for lang, kind in (("en", "keyword"), ("qu", "name"), ("am", "keyword")):
        assert table.loc[lang, kind] == emoji.captions(lang, kind, ids)["id"].nunique()
    assert emoji.coverage([]).to_numpy().sum() == 0


def test_labels(emoji):
    labels, names = emoji.labels("category", [0, 1905])
    assert [names[i] for i in labels] == emoji.concepts["category"].loc[[0, 1905]].tolist() and len(
        names
    ) == 9


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda e: e.ids("dev"), "split must be one of"),
        (lambda e: e.images("apple"), "designer must be one of"),
        (lambda e: e.images("noto", [1906]), r"ids \[1906\] are not in"),
        (lambda e: e.images("noto", [0.5]), "list of integers"),
        (lambda e: e.images("noto", [[0]]), "list of integers"),
        (lambda e: e.images("noto", [0], 48), "size must divide the native 64"),
        (lambda e: e.images("noto", [0], 0), "size must divide"),
        (lambda e: e.images("noto", [0], 128), "size must divide"),
        (lambda e: e.captions("xx"), "lang must be one of"),
        (lambda e: e.captions(kind="title"), "kind must be one of"),
        (lambda e: e.labels("color"), "column must be one of"),
        (lambda e: e.embeddings(), "no precomputed embeddings"),
    ],
)
def test_bad_requests(emoji, call, message):
    with pytest.raises(ValueError, match=message):
        call(emoji)


def test_data_folder_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("BRACE_NB_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="BRACE_NB_DATA is '"):
        load_emoji()
    (tmp_path / "emoji").mkdir()
    assert data_folder("emoji") == tmp_path / "emoji"
    with pytest.raises(FileNotFoundError, match="concepts.parquet does not exist"):
        load_emoji()


def test_an_installed_package_says_where_its_data_come_from(tmp_path):
    "A copy of the package without the repository around it, as a wheel leaves it in site-packages."
    shutil.copytree(Path(brace_nb.__file__).parent, tmp_path / "brace_nb")
    env = {k: v for k, v in os.environ.items() if k != "BRACE_NB_DATA"} | {"PYTHONPATH": str(tmp_path)}
    call = [sys.executable, "-c", "from brace_nb.foundations import load_emoji; print(len(load_emoji()))"]
    alone = subprocess.run(call, cwd=tmp_path, env=env, capture_output=True, text=True)
    says = alone.stderr.strip().splitlines()[-1]
    assert says.startswith("FileNotFoundError: the data folder") and "BRACE_NB_DATA is not set" in says
    assert "clone it and install from the clone" in says and "`data` folder of a clone" in says
    env["BRACE_NB_DATA"] = str(data_folder("."))
    told = subprocess.run(call, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "1906"


def test_only_light_libraries_are_loaded():
    code = "import sys; from brace_nb.foundations import load_emoji; load_emoji().images('noto', [0]); "
    code += "assert not {'torchvision', 'fastcore', 'open_clip', 'matplotlib', 'sklearn'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
    code = "import sys, brace_nb.foundations; assert not {'torch', 'pandas', 'PIL'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_broken_parquet_says_what_was_expected(tmp_path):
    (tmp_path / "concepts.parquet").write_bytes(b"not parquet")
    with pytest.raises(ValueError, match="not a readable parquet"):
        load_emoji(tmp_path)
    pq.write_table(pa.table({"id": [0]}), tmp_path / "concepts.parquet")
    with pytest.raises(ValueError, match=r"lacks columns \['emoji'"):
        load_emoji(tmp_path)


@pytest.fixture(scope="module")
def builder():
    spec = importlib.util.spec_from_file_location("build_emoji", data_folder() / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_groups_and_splits_are_the_builders(builder, emoji):
    assert [builder.concept_group(n) for n in emoji.concepts["name"]] == emoji.concepts["group"].tolist()
    assert [builder.split_of(g) for g in emoji.concepts["group"]] == emoji.concepts["split"].tolist()


@pytest.mark.parametrize(
    "names",
    [
        ("man running", "woman running facing right", "person running"),
        ("one o’clock", "twelve-thirty"),
        ("kiss: man, man", "kiss"),
        ("keycap: 1", "keycap: #"),
        ("man", "girl", "prince"),
    ],
)
def test_variants_share_a_group(builder, names):
    assert len({builder.concept_group(n) for n in names}) == 1


def test_builder_and_library_shrink_alike(builder):
    x = np.random.default_rng(3).integers(0, 256, (16, 16, 4), dtype=np.uint8)
    assert np.abs(builder.shrink(Image.fromarray(x), 4).astype(int) - box_shrink(x, 4)).max() <= 1


def test_builder_refuses_other_versions(builder, tmp_path):
    with pytest.raises(SystemExit, match="should hold emoji-datasource 16.0.0, but it holds nothing"):
        builder.check_versions(tmp_path)


def test_every_file_has_its_notice_and_licence():
    folder = data_folder()
    notice = (folder / "NOTICE.md").read_text(encoding="utf-8")
    for file in folder.glob("*.parquet"):
        assert f"`{file.name}`" in notice
    for file in (folder / "licences").iterdir():
        assert f"`licences/{file.name}`" in notice and file.stat().st_size > 900
