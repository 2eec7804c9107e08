"Data: emoji tuples, transforms, photo collections, shards, precomputed embeddings."

import io
import json
import tarfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from PIL import Image
from safetensors.torch import save_file

from brace_nb.foundations.data import (
    DESIGNERS,
    HELD_OUT_DESIGNER,
    SPLITS,
    TRAINING_DESIGNERS,
    Sprites,
    as_generator,
    augment,
    box_shrink,
    color_jitter,
    contact_sheet,
    data_folder,
    load_coco,
    load_embeddings,
    load_emoji,
    load_flickr30k,
    load_shards,
    normalize,
    on_background,
    place,
    read_embeddings,
    to_float,
)

pictures = arrays(np.uint8, st.tuples(st.integers(1, 3), st.just(8), st.just(8), st.just(4)))


@pytest.fixture(scope="module")
def emoji():
    return load_emoji()


# ---------------------------------------------------------------- emoji
def test_counts_are_those_of_the_data_sheet(emoji):
    assert len(emoji) == 1906 and emoji.designers == DESIGNERS and len(emoji.languages) == 18
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
    with pytest.raises(FileNotFoundError, match="set to.*now"):
        load_emoji()
    (tmp_path / "emoji").mkdir()
    assert data_folder("emoji") == tmp_path / "emoji"
    with pytest.raises(FileNotFoundError, match="concepts.parquet does not exist"):
        load_emoji()


def test_broken_parquet_says_what_was_expected(tmp_path):
    (tmp_path / "concepts.parquet").write_bytes(b"not parquet")
    with pytest.raises(ValueError, match="not a readable parquet"):
        load_emoji(tmp_path)
    pq.write_table(pa.table({"id": [0]}), tmp_path / "concepts.parquet")
    with pytest.raises(ValueError, match=r"lacks columns \['emoji'"):
        load_emoji(tmp_path)


def test_sprites_of_another_size_are_refused():
    data = io.BytesIO()
    Image.new("RGBA", (32, 32)).save(data, "PNG")
    with pytest.raises(ValueError, match=r"64 x 64; ids \[7\]"):
        Sprites({7: data.getvalue()}, 64).read(np.array([7]), 64)


# ---------------------------------------------------------------- pixels
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


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda x: on_background(x[..., :3]), "uint8 RGBA"),
        (lambda x: on_background(x.astype(float)), "uint8 RGBA"),
        (lambda x: on_background(x, 256), "background must"),
        (lambda x: on_background(x, (1, 2)), "background must"),
        (lambda x: on_background(x, float("nan")), "background must"),
        (lambda x: on_background(x, "red"), "background must"),
        (lambda x: box_shrink(x, 3), "must divide"),
        (lambda x: box_shrink(x, 0), "must divide"),
        (lambda x: box_shrink(x[..., :3]), "uint8 RGBA"),
        (lambda x: box_shrink(x / 2), "uint8 RGBA"),
        (lambda x: to_float(x), "call `on_background` first"),
        (lambda x: normalize(torch.zeros(1, 4, 2, 2)), r"\(\.\.\., 3, H, W\)"),
        (lambda x: normalize(torch.zeros(1, 3, 2, 2, dtype=torch.uint8)), "to_float"),
        (lambda x: augment(x, None), "seed"),
        (lambda x: augment(x, True), "seed"),
        (lambda x: augment(x[:, :4], 0), "square"),
        (lambda x: augment(x, 0, jitter=2), "0 <= jitter <= 1"),
        (lambda x: augment(x, 0, scale=(1.2, 0.8)), "scale"),
        (lambda x: augment(x, 0, rotation=-1), "rotation >= 0"),
        (lambda x: contact_sheet(x, 0), "columns >= 1"),
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


def slow_jitter(x, b, k, s):
    out = np.zeros_like(x, dtype=np.float64)
    weights = np.array([0.299, 0.587, 0.114])
    for i, picture in enumerate(x.astype(np.float64)):
        y = picture * b[i]
        grey = np.tensordot(weights, y, 1)
        y = (y - grey.mean()) * k[i] + grey.mean()
        grey = np.tensordot(weights, y, 1)
        out[i] = np.clip(grey + (y - grey) * s[i], 0, 1)
    return out


def test_color_jitter_is_three_plain_steps():
    rng = np.random.default_rng(0)
    x, (b, k, s) = rng.random((5, 3, 4, 4), np.float32), rng.uniform(0.5, 1.5, (3, 5)).astype(np.float32)
    got = color_jitter(torch.from_numpy(x), *map(torch.from_numpy, (b, k, s)))
    assert np.abs(got.numpy() - slow_jitter(x, b, k, s)).max() < 1e-5


def test_augment_repeats_by_seed_and_differs_between_seeds_and_pictures():
    x = np.repeat(random_pictures(0, 1, 16), 4, 0)
    assert torch.equal(augment(x, 3), augment(torch.from_numpy(x), as_generator(3))) and not torch.equal(
        augment(x, 3), augment(x, 4)
    )
    y = augment(x, 3)
    assert (
        y.shape == (4, 3, 16, 16)
        and y.dtype == torch.float32
        and 0 <= y.min()
        and y.max() <= 1
        and not torch.equal(y[0], y[1])
    )
    assert augment(x[:0], 0).shape == (0, 3, 16, 16)
    g = as_generator(3)
    assert torch.equal(augment(x, g), y) and not torch.equal(augment(x, g), y)  # a generator moves on


def test_augment_without_change_is_the_evaluation_transform(emoji):
    x = emoji.images("openmoji", range(64))
    assert (
        augment(x, 0, rotation=0, scale=(1, 1), translation=0, jitter=0, background=(10, 200, 30))
        - to_float(on_background(x, (10, 200, 30)))
    ).abs().max() < 2.1e-3


def test_augment_stays_within_its_bounds():
    x = np.zeros((400, 32, 32, 4), np.uint8)
    x[:, 12:20, 12:20] = 255  # a square of 64 pixels
    y = augment(x, 0, rotation=0, scale=(0.5, 2), translation=0.1, jitter=0, background=0)[:, 0]
    area, where = y.sum((1, 2)), torch.arange(32.0) + 0.5
    side = area.sqrt() / 8
    assert 0.5 - 0.02 <= side.min() < 0.6 and 1.8 < side.max() <= 2.02 and abs(side.log2().mean()) < 0.1
    center = torch.stack([(y.sum(1) * where).sum(1), (y.sum(2) * where).sum(1)]) / area / 32 - 0.5
    assert center.abs().max() <= 0.1 + 4e-3 and center.abs().max() > 0.09 and center.mean().abs() < 0.01


def test_normalize():
    x = torch.rand(2, 3, 4, 4)
    assert torch.allclose(normalize(x, (0.1, 0.2, 0.3), (0.5, 0.6, 0.7))[:, 1], (x[:, 1] - 0.2) / 0.6)


def test_contact_sheet_places_each_picture():
    x = random_pictures(0, 5)
    sheet = contact_sheet(x, 3, gap=1, background=7)
    assert (
        sheet.shape == (2 * 9 + 1, 3 * 9 + 1, 3)
        and (sheet[10:18, 10:18] == on_background(x[4], 7)).all()
        and (sheet[10:18, 19:] == 7).all()
    )


# ---------------------------------------------------------------- photo collections
def photo(seed=0, size=(40, 30)):
    data = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)).save(
        data, "PNG"
    )
    return data.getvalue()


@pytest.fixture
def photos(tmp_path):
    (tmp_path / "images").mkdir()
    for i in range(3):
        (tmp_path / "images" / f"{i}.jpg").write_bytes(photo(i))
    return tmp_path / "images"


def coco_json(path, **changes):
    content = {
        "info": {},
        "licenses": [],
        "images": [{"id": 10 * i + 7, "file_name": f"{i}.jpg", "height": 30, "width": 40} for i in range(3)],
        "annotations": [
            {"id": j, "image_id": 10 * (j % 3) + 7, "caption": f" caption {j} "} for j in range(7)
        ],
        **changes,
    }
    path.write_text(json.dumps({k: v for k, v in content.items() if v is not None}))
    return path


def karpathy_json(path):
    path.write_text(
        json.dumps(
            {
                "dataset": "flickr30k",
                "images": [
                    dict(
                        sentids=[0, 1],
                        imgid=i,
                        filename=f"{i}.jpg",
                        split=s,
                        sentences=[
                            dict(tokens=["a"], raw=f"raw {i} {k}", imgid=i, sentid=k) for k in range(2)
                        ],
                    )
                    for i, s in enumerate(["train", "val", "test"])
                ],
            }
        )
    )
    return path


def test_coco(photos, tmp_path):
    coco = load_coco(coco_json(tmp_path / "captions_val2017.json"), photos)
    assert coco.ids().tolist() == [7, 17, 27] and coco.captions(ids=[7])["text"].tolist() == [
        "caption 0",
        "caption 3",
        "caption 6",
    ]
    assert coco.images("photo", [27, 7], 16).shape == (2, 16, 16, 4) and coco.names("en", kind="caption") == [
        f"caption {i}" for i in range(3)
    ]
    with pytest.raises(ValueError, match="no splits"):
        coco.ids("train")
    with pytest.raises(ValueError, match="country flags"):
        coco.ids(flags=False)


def test_photos_are_resized_by_the_shorter_side_and_cropped_to_the_center(photos, tmp_path):
    coco = load_coco(coco_json(tmp_path / "c.json"), photos)
    whole = np.asarray(Image.open(photos / "1.jpg").convert("RGBA"))
    assert (coco.images("photo", [17], 30)[0] == whole[:, 5:35]).all()
    small = np.asarray(Image.open(photos / "1.jpg").convert("RGBA").resize((20, 15), Image.BICUBIC))
    assert (coco.images("photo", [17], 15)[0] == small[:, 2:17]).all()
    with pytest.raises(ValueError, match="at least 1 pixel"):
        coco.images("photo", [17], 0)


def test_karpathy_splits_for_both(photos, tmp_path):
    for load in (load_coco, load_flickr30k):
        data = load(karpathy_json(tmp_path / "dataset_flickr30k.json"), photos)
        assert [data.ids(s).tolist() for s in SPLITS] == [[0], [1], [2]] and data.captions(ids=[2])[
            "text"
        ].tolist() == ["raw 2 0", "raw 2 1"]
        assert data.images("photo", size=8).shape == (3, 8, 8, 4)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"annotations": [{"image_id": 7, "bbox": []}]}, "KeyError: 'caption'.*instances"),
        ({"images": None}, "got an object with keys"),
        ({"annotations": [{"image_id": 99, "caption": "x"}]}, r"not listed: \[99\]"),
        ({"images": [{"id": 7}]}, "KeyError: 'file_name'"),
        ({"annotations": [{"image_id": 7, "caption": 3}]}, "AttributeError"),
        ({"annotations": None}, "image entry with KeyError"),
        ({"images": "x"}, "got an object"),
    ],
)
def test_malformed_coco(photos, tmp_path, changes, message):
    with pytest.raises(ValueError, match="Expected COCO captions.*" + message):
        load_coco(coco_json(tmp_path / "c.json", **changes), photos)


def test_coco_paths(photos, tmp_path):
    with pytest.raises(FileNotFoundError, match="Expected COCO captions"):
        load_coco(tmp_path / "none.json", photos)
    with pytest.raises(FileNotFoundError, match="image folder .* such as 0.jpg"):
        load_coco(coco_json(tmp_path / "c.json"), tmp_path / "none")
    (photos / "1.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"1 of 3 images are not in .*\['1.jpg'\]"):
        load_coco(tmp_path / "c.json", photos)
    (tmp_path / "c.json").write_text("[1, 2")
    (tmp_path / "d.json").write_text("[1]")
    with pytest.raises(ValueError, match="no JSON"):
        load_coco(tmp_path / "c.json", photos)
    with pytest.raises(ValueError, match="a JSON list"):
        load_coco(tmp_path / "d.json", photos)
    with pytest.raises(ValueError, match="unique"):
        load_coco(
            coco_json(
                tmp_path / "c.json",
                annotations=None,
                images=[dict(imgid=1, filename="0.jpg", split="val", sentences=[])] * 2,
            ),
            photos,
        )


def test_a_file_that_is_no_picture_is_named(photos, tmp_path):
    (photos / "2.jpg").write_bytes(b"no picture")
    with pytest.raises(ValueError, match="2.jpg is not a picture"):
        load_coco(coco_json(tmp_path / "c.json"), photos).images("photo", [27])


FLICKR = {
    "results.csv": 'image_name| comment_number| comment\n0.jpg| 0| A man , who | waits .\n0.jpg| 1   A dog runs .\n1.jpg| 0|"Quoted" text\n2.jpg| 0| last\n',
    "results_20130124.token": '0.jpg#0\tA man , who | waits .\n0.jpg#1\tA dog runs .\n1.jpg#0\t"Quoted" text\n2.jpg#0\tlast\n',
    "flickr_annotations_30k.csv": 'raw,sentids,split,filename,img_id\n"[""A man , who | waits ."", ""A dog runs .""]","[0, 1]",train,0.jpg,0\n"[""\\""Quoted\\"" text""]",[2],val,1.jpg,1\n"[""last""]",[3],test,2.jpg,2\n',
}


@pytest.mark.parametrize("name", FLICKR)
def test_flickr30k_tables(photos, tmp_path, name):
    (tmp_path / name).write_text(FLICKR[name], encoding="utf-8")
    data = load_flickr30k(tmp_path / name, photos)
    assert data.captions()[["id", "text"]].to_numpy().tolist() == [
        [0, "A man , who | waits ."],
        [0, "A dog runs ."],
        [1, '"Quoted" text'],
        [2, "last"],
    ]
    assert data.images(ids=[2], size=8).shape == (1, 8, 8, 4)
    if "30k" in name:
        assert data.ids("val").tolist() == [1]


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "an empty file"),
        (b"a,b\n1,2\n", "line 1: 'a,b'"),
        (b"image_name| comment_number| comment\n0.jpg|x|y\n", "line 2"),
        (b"\xff\xfe\x00", "no UTF-8"),
        (b"raw,sentids,split,filename,img_id\nnot json,[0],train,0.jpg,0\n", "a row with JSONDecodeError"),
        (b"raw,sentids,split,filename\n[],[0],train,0.jpg\n", "KeyError: 'img_id'"),
    ],
)
def test_malformed_flickr30k(photos, tmp_path, content, message):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(ValueError, match="Expected one of.*" + message):
        load_flickr30k(tmp_path / "t.csv", photos)
    (tmp_path / "t.json").write_text("{}")
    with pytest.raises(ValueError, match="Expected one of"):
        load_flickr30k(tmp_path / "t.json", photos)
    with pytest.raises(FileNotFoundError, match="Expected one of"):
        load_flickr30k(tmp_path / "none.csv", photos)


# ---------------------------------------------------------------- shards
def write_shard(path, members):
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def sample(i, **files):
    return [
        (f"{i:06}.jpg", photo(i)),
        *((f"{i:06}.{k}", v if isinstance(v, bytes) else v.encode()) for k, v in files.items()),
    ]


def test_shards(tmp_path):
    write_shard(
        tmp_path / "s-000000.tar",
        sample(0, txt="one\ntwo\n") + sample(1, json=json.dumps({"caption": "three", "url": "x"})),
    )
    write_shard(
        tmp_path / "s-000001.tar",
        [
            *sample(2, json=json.dumps({"captions": ["four", "five"]})),
            *sample(3, **{"txt": "six", "sw.txt": "sita", "cls": "3"}),
        ],
    )
    data = load_shards(str(tmp_path / "s-{000000..000001}.tar"))
    assert data.captions()[["id", "lang", "text"]].to_numpy().tolist() == [
        [0, "en", "one"],
        [0, "en", "two"],
        [1, "en", "three"],
        [2, "en", "four"],
        [2, "en", "five"],
        [3, "en", "six"],
        [3, "sw", "sita"],
    ]
    for i in (3, 0, 2):
        assert (
            data.images(ids=[i], size=30)[0]
            == np.asarray(Image.open(io.BytesIO(photo(i))).convert("RGBA"))[:, 5:35]
        ).all()
    assert data.images(size=8).shape == (4, 8, 8, 4)
    for pattern in (tmp_path / "s-*.tar", [tmp_path / "s-000000.tar", tmp_path / "s-000001.tar"]):
        assert load_shards(pattern).captions().equals(data.captions())


def test_the_library_writes_what_we_read(tmp_path):
    import webdataset

    with webdataset.TarWriter(str(tmp_path / "w.tar")) as sink:
        for i in range(3):
            sink.write({"__key__": f"a/{i}", "png": photo(i), "txt": f"text {i}"})
    data = load_shards(tmp_path / "w.tar")
    assert data.names("en", kind="caption") == ["text 0", "text 1", "text 2"] and data.images(
        size=4
    ).shape == (3, 4, 4, 4)


def test_compressed_shards(tmp_path):
    assert load_shards(write_shard(tmp_path / "s.tar.gz", sample(0, txt="one"))).images(size=8).shape == (
        1,
        8,
        8,
        4,
    )


def test_bad_shards(tmp_path):
    for pattern in (tmp_path / "none.tar", tmp_path / "n-{0..2}.tar", "pipe:echo harm"):
        with pytest.raises(FileNotFoundError, match="Expected local tar shards"):
            load_shards(str(pattern))
    (tmp_path / "x.tar").write_bytes(b"x" * 2000)
    with pytest.raises(ValueError, match="cannot be read"):
        load_shards(tmp_path / "x.tar")
    with pytest.raises(ValueError, match="holds no samples"):
        load_shards(write_shard(tmp_path / "e.tar", []))
    with pytest.raises(ValueError, match=r"'a' has no image.*\['txt'\]"):
        load_shards(write_shard(tmp_path / "t.tar", [("a.txt", b"text")]))
    with pytest.raises(ValueError, match="must hold `caption`"):
        load_shards(write_shard(tmp_path / "j.tar", sample(0, json='{"caption": 3}')))
    with pytest.raises(ValueError, match="cannot be read"):
        load_shards(write_shard(tmp_path / "k.tar", sample(0, json="{")))
    with pytest.raises(ValueError, match="cannot be read"):
        load_shards(write_shard(tmp_path / "u.tar", sample(0, txt=b"\xff\xfe")))


# ---------------------------------------------------------------- embeddings
X = np.random.default_rng(0).standard_normal((5, 4)).astype(np.float32)


def write_npy(path):
    np.save(path, X)


def write_npz(path):
    np.savez(path, embedding=X)


def write_safetensors(path):
    save_file({"embedding": torch.from_numpy(X)}, str(path))


def write_list(path):
    pq.write_table(pa.table({"embedding": pa.array(list(X))}), path)


def write_fixed(path):
    pq.write_table(
        pa.table({"embedding": pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), 4)}),
        path,
        row_group_size=2,
    )


@pytest.mark.parametrize(
    "write, suffix",
    [
        (write_npy, ".npy"),
        (write_npz, ".npz"),
        (write_safetensors, ".safetensors"),
        (write_list, ".parquet"),
        (write_fixed, ".parquet"),
    ],
)
def test_embeddings_come_back(tmp_path, write, suffix):
    write(path := tmp_path / f"e{suffix}")
    got = read_embeddings(path)
    assert got.dtype == np.float32 and (got == X).all() and (read_embeddings(path, "embedding") == X).all()
    data = load_embeddings(path)
    assert (
        data.ids().tolist() == list(range(5))
        and (data.embeddings(ids=[4, 0, 0]) == X[[4, 0, 0]]).all()
        and len(data.captions()) == 0
    )
    with pytest.raises(ValueError, match="no pictures"):
        data.images()
    with pytest.raises(ValueError, match="a matrix of numbers called 'other'"):
        read_embeddings(path, "other")


def test_npy_is_mapped_not_read(tmp_path):
    np.save(tmp_path / "e.npy", X)
    assert isinstance(read_embeddings(tmp_path / "e.npy"), np.memmap)


def test_columns_beside_the_vectors(tmp_path):
    pq.write_table(
        pa.table(
            {
                "id": [5, 5, 6, 7, 8],
                "embedding": list(X),
                "text": ["a", "b", None, "d", "e"],
                "lang": ["en", "sw", "en", "en", "sw"],
                "split": ["train", "train", "val", "test", "test"],
            }
        ),
        tmp_path / "e.parquet",
    )
    data = load_embeddings(tmp_path / "e.parquet")
    assert (data.embeddings(ids=data.ids("test")) == X[3:]).all() and data.captions("sw")[
        "text"
    ].tolist() == ["b", "e"]
    assert data.captions()["id"].tolist() == [0, 1, 3, 4] and data.concepts["source_id"].tolist() == [
        5,
        5,
        6,
        7,
        8,
    ]


def test_several_matrices(tmp_path):
    np.savez(tmp_path / "e.npz", image=X, text=2 * X)
    with pytest.raises(ValueError, match=r"holds 2 matrices; pass key= one of \['image', 'text'\]"):
        read_embeddings(tmp_path / "e.npz")
    data = load_embeddings(tmp_path / "e.npz")
    assert (data.embeddings("text") == 2 * X).all() and list(
        load_embeddings(tmp_path / "e.npz", "text").vectors
    ) == ["text"]
    with pytest.raises(ValueError, match="pass the name"):
        data.embeddings()
    with pytest.raises(ValueError, match="name must be one of"):
        data.embeddings("audio")
    np.savez(tmp_path / "f.npz", image=X, text=X[:2])
    with pytest.raises(ValueError, match="different lengths"):
        load_embeddings(tmp_path / "f.npz")


def test_bfloat16_becomes_float32(tmp_path):
    save_file({"e": torch.from_numpy(X).bfloat16()}, str(tmp_path / "e.safetensors"))
    got = read_embeddings(tmp_path / "e.safetensors")
    assert got.dtype == np.float32 and (got == torch.from_numpy(X).bfloat16().float().numpy()).all()


def test_bad_embedding_files(tmp_path):
    np.save(tmp_path / "o.npy", np.array([{"a": 1}], object), allow_pickle=True)
    np.savez(tmp_path / "o.npz", e=np.array([[None]], object))
    np.save(tmp_path / "v.npy", X[0])
    (tmp_path / "x.npy").write_bytes(b"x")
    (tmp_path / "x.csv").write_text("1,2")
    (tmp_path / "x.safetensors").write_bytes(b"x" * 20)
    (tmp_path / "x.parquet").write_bytes(b"x")
    pq.write_table(pa.table({"e": [[1.0, 2.0], [3.0]]}), tmp_path / "r.parquet")
    np.save(tmp_path / "s.npy", np.array([["a"]]))
    for name, message in [
        ("o.npy", "Python objects"),
        ("o.npz", "allow_pickle"),
        ("v.npy", r"float32 \(4,\)"),
        ("x.npy", "cannot be read"),
        ("x.csv", "ending in '.csv'"),
        ("x.safetensors", "cannot be read"),
        ("x.parquet", "cannot be read"),
        ("r.parquet", "need one length"),
        ("s.npy", r"\(1, 1\)"),
    ]:
        with pytest.raises(ValueError, match=f"(?s){name}.*Expected embeddings of shape.*{message}"):
            read_embeddings(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="Expected embeddings of shape"):
        load_embeddings(tmp_path / "none.npy")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_equals_cpu():
    x = torch.from_numpy(random_pictures(0, 4, 16))
    assert torch.equal(on_background(x.cuda(), 9).cpu(), on_background(x, 9))
    assert augment(x.cuda(), 3).is_cuda and torch.allclose(
        augment(x.cuda(), 3).cpu(), augment(x, 3), atol=1e-4
    )


def test_torchvision_is_not_needed():
    import subprocess
    import sys

    code = "import sys; from brace_nb.foundations.data import load_emoji; load_emoji().images('noto', [0]); assert not {'torchvision', 'fastcore', 'open_clip'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# ---------------------------------------------------------------- the builder of data/emoji
@pytest.fixture(scope="module")
def builder():
    import importlib.util

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
    x = random_pictures(3, 1, 16)[0]
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
