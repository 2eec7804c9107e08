"COCO and Flickr30k in every form they travel in, and what is said about malformed ones."

import io
import json

import numpy as np
import pytest
from PIL import Image

from brace_nb.foundations import SPLITS, load_coco, load_flickr30k


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
    coco = load_coco(tmp_path, annotations=coco_json(tmp_path / "captions_val2017.json"), images=photos)
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
    coco = load_coco(tmp_path, annotations=coco_json(tmp_path / "c.json"), images=photos)
    whole = np.asarray(Image.open(photos / "1.jpg").convert("RGBA"))
    assert (coco.images("photo", [17], 30)[0] == whole[:, 5:35]).all()
    small = np.asarray(Image.open(photos / "1.jpg").convert("RGBA").resize((20, 15), Image.BICUBIC))
    assert (coco.images("photo", [17], 15)[0] == small[:, 2:17]).all()
    with pytest.raises(ValueError, match="size must be a whole number >= 1"):
        coco.images("photo", [17], 0)


def test_karpathy_splits_for_both(photos, tmp_path):
    path = karpathy_json(tmp_path / "dataset_flickr30k.json")
    both = load_coco(tmp_path, annotations=path, images=photos), load_flickr30k(tmp_path, path, photos)
    for data in both:
        assert [data.ids(s).tolist() for s in SPLITS] == [[0], [1], [2]] and data.captions(ids=[2])[
            "text"
        ].tolist() == ["raw 2 0", "raw 2 1"]
        assert data.images("photo", size=8).shape == (3, 8, 8, 4)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"annotations": [{"image_id": 7, "bbox": []}]}, "not instances.*KeyError: 'caption'"),
        ({"images": None}, "got an object with keys"),
        ({"annotations": [{"image_id": 99, "caption": "x"}]}, r"not listed: \[99\]"),
        ({"images": [{"id": 7}]}, "KeyError: 'file_name'"),
        ({"annotations": [{"image_id": 7, "caption": 3}]}, "AttributeError"),
        ({"annotations": None}, "KeyError"),
        ({"images": "x"}, "got an object"),
    ],
)
def test_malformed_coco(photos, tmp_path, changes, message):
    with pytest.raises(ValueError, match="Expected COCO captions.*" + message):
        load_coco(tmp_path, annotations=coco_json(tmp_path / "c.json", **changes), images=photos)


@pytest.mark.parametrize("name", ["../secret.png", "a/../../secret.png", "/etc/secret.png"])
def test_pictures_outside_their_folder_are_refused(photos, tmp_path, name):
    (tmp_path / "secret.png").write_bytes((photos / "0.jpg").read_bytes())
    images = [{"id": 7, "file_name": name}]
    annotations = [{"image_id": 7, "caption": "x"}]
    with pytest.raises(ValueError, match="images must lie in"):
        load_coco(
            tmp_path,
            annotations=coco_json(tmp_path / "c.json", images=images, annotations=annotations),
            images=photos,
        )


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b.png", 3, None, ["a.png"]])
def test_what_cannot_be_the_name_of_a_picture_is_named(photos, tmp_path, name):
    path = coco_json(tmp_path / "c.json", images=[{"id": 7, "file_name": name}], annotations=[])
    with pytest.raises(ValueError, match="must have names of files; got .*Repair the annotations") as error:
        load_coco(tmp_path, annotations=path, images=photos)
    assert len(str(error.value)) < 200


def test_coco_paths(photos, tmp_path):
    with pytest.raises(FileNotFoundError, match="Expected COCO captions"):
        load_coco(tmp_path, annotations=tmp_path / "none.json", images=photos)
    with pytest.raises(FileNotFoundError, match="image folder .* such as 0.jpg"):
        load_coco(tmp_path, annotations=coco_json(tmp_path / "c.json"), images="none")
    (photos / "1.jpg").unlink()
    with pytest.raises(FileNotFoundError, match=r"1 of 3 images are not in .*\['1.jpg'\]"):
        load_coco(tmp_path, annotations=tmp_path / "c.json", images=photos)
    (tmp_path / "c.json").write_text("[1, 2")
    (tmp_path / "d.json").write_text("[1]")
    with pytest.raises(ValueError, match="JSONDecodeError"):
        load_coco(tmp_path, annotations=tmp_path / "c.json", images=photos)
    with pytest.raises(ValueError, match="got list"):
        load_coco(tmp_path, annotations=tmp_path / "d.json", images=photos)
    with pytest.raises(ValueError, match="unique"):
        twice = [dict(imgid=1, filename="0.jpg", split="val", sentences=[])] * 2
        path = coco_json(tmp_path / "c.json", annotations=None, images=twice)
        load_coco(tmp_path, annotations=path, images=photos)


def test_a_file_that_is_no_picture_is_named(photos, tmp_path):
    (photos / "2.jpg").write_bytes(b"no picture")
    with pytest.raises(ValueError, match="2.jpg is not a picture"):
        load_coco(tmp_path, annotations=coco_json(tmp_path / "c.json"), images=photos).images("photo", [27])


FLICKR = {
    "results.csv": (
        "image_name| comment_number| comment\n"
        "0.jpg| 0| A man , who | waits .\n"
        "0.jpg| 1   A dog runs .\n"
        '1.jpg| 0|"Quoted" text\n'
        "2.jpg| 0| last\n"
    ),
    "results_20130124.token": (
        '0.jpg#0\tA man , who | waits .\n0.jpg#1\tA dog runs .\n1.jpg#0\t"Quoted" text\n2.jpg#0\tlast\n'
    ),
    "flickr_annotations_30k.csv": (
        "raw,sentids,split,filename,img_id\n"
        '"[""A man , who | waits ."", ""A dog runs .""]","[0, 1]",train,0.jpg,0\n'
        '"[""\\""Quoted\\"" text""]",[2],val,1.jpg,1\n'
        '"[""last""]",[3],test,2.jpg,2\n'
    ),
}


@pytest.mark.parametrize("name", FLICKR)
def test_flickr30k_tables(photos, tmp_path, name):
    (tmp_path / name).write_text(FLICKR[name], encoding="utf-8")
    data = load_flickr30k(tmp_path, table=tmp_path / name, images=photos)
    assert data.captions()[["id", "text"]].to_numpy().tolist() == [
        [0, "A man , who | waits ."],
        [0, "A dog runs ."],
        [1, '"Quoted" text'],
        [2, "last"],
    ]
    assert data.images(ids=[2], size=8).shape == (1, 8, 8, 4)
    if "30k" in name:
        assert data.ids("val").tolist() == [1]


def test_a_folder_as_it_is_unpacked_is_enough(photos, tmp_path):
    (tmp_path / "annotations").mkdir()
    coco_json(tmp_path / "annotations/captions_train2017.json")
    photos.rename(tmp_path / "train2017")
    assert (
        load_coco(tmp_path, "train").ids().tolist()
        == load_coco(tmp_path, annotations="annotations/captions_train2017.json", images="train2017")
        .ids()
        .tolist()
    )
    with pytest.raises(FileNotFoundError, match="captions_val2017.json"):
        load_coco(tmp_path)
    (tmp_path / "train2017").rename(tmp_path / "flickr30k-images")
    karpathy_json(tmp_path / "dataset_flickr30k.json")
    assert load_flickr30k(tmp_path).ids("val").tolist() == [1]
    with pytest.raises(FileNotFoundError, match="results.csv"):
        load_flickr30k(tmp_path / "annotations")


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "an empty file"),
        (b"a,b\n1,2\n", "line 1: 'a,b'"),
        (b"image_name| comment_number| comment\n0.jpg|x|y\n", "line 2"),
        (b"\xff\xfe\x00", "UnicodeDecodeError"),
        (b"raw,sentids,split,filename,img_id\nnot json,[0],train,0.jpg,0\n", "JSONDecodeError"),
        (b"raw,sentids,split,filename\n[],[0],train,0.jpg\n", "KeyError: 'img_id'"),
    ],
)
def test_malformed_flickr30k(photos, tmp_path, content, message):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(ValueError, match="Expected one of.*" + message):
        load_flickr30k(tmp_path, table=tmp_path / "t.csv", images=photos)
    (tmp_path / "t.json").write_text("{}")
    with pytest.raises(ValueError, match="Expected one of"):
        load_flickr30k(tmp_path, table=tmp_path / "t.json", images=photos)
    with pytest.raises(FileNotFoundError, match="Expected one of"):
        load_flickr30k(tmp_path, table=tmp_path / "none.csv", images=photos)
