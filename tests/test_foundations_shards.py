"Tar shards as webdataset writes them, and what is said about bad ones."

import io
import json
import tarfile

import numpy as np
import pytest
from PIL import Image
from test_foundations_photo_collections import photo

from brace_nb.foundations import load_shards


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


def test_a_file_name_is_not_a_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_shard(tmp_path / "good.tar", sample(0, txt="one"))
    name = tmp_path / "pipe:touch DONE; cat good.tar #.tar"
    write_shard(name, sample(1, txt="two"))
    assert sorted(load_shards("*.tar").names("en", kind="caption")) == ["one", "two"]
    assert not (tmp_path / "DONE").exists()


def test_compressed_shards(tmp_path):
    assert load_shards(write_shard(tmp_path / "s.tar.gz", sample(0, txt="one"))).images(size=8).shape == (
        1,
        8,
        8,
        4,
    )


@pytest.mark.parametrize("pattern", ["{0..999999999}", "{a..z}" * 5, "{a..h}" * 6, "{{0..999},x}{0..999}"])
def test_a_pattern_of_endless_names_is_refused(tmp_path, pattern):
    with pytest.raises(ValueError, match="files; at most 100,000 are looked for"):
        load_shards(str(tmp_path / f"{pattern}.tar"))


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
    (tmp_path / "head.tar.gz").write_bytes(b"\x1f\x8b\x08")
    twice = write_shard(tmp_path / "twice.tar", [("a.png", photo(0)), ("a.png", photo(1)), ("a.txt", b"a")])
    deep = write_shard(tmp_path / "deep.tar", sample(0, json="[" * 100_000))
    for path in (tmp_path / "head.tar.gz", twice, deep):
        with pytest.raises(ValueError, match=f"{path.name} holds a shard that cannot be read"):
            load_shards(path)


def test_a_compressed_shard_has_a_limit(tmp_path, monkeypatch):
    with tarfile.open(tmp_path / "x.tar.gz", "w:gz") as tar:
        for name, data in (("a.png", bytes(10**6)), ("a.txt", b"zeros")):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    monkeypatch.setenv("BRACE_NB_MAX_BYTES", "100000")
    with pytest.raises(ValueError, match="x.tar.gz expands to 1 MiB; the limit is 0 MiB"):
        load_shards(str(tmp_path / "x.tar.gz"))
    for told in ("much", "-1", "1e9"):
        monkeypatch.setenv("BRACE_NB_MAX_BYTES", told)
        with pytest.raises(
            ValueError, match=f"BRACE_NB_MAX_BYTES must be a whole number of bytes; got '{told}'"
        ):
            load_shards(str(tmp_path / "x.tar.gz"))
    monkeypatch.setenv("BRACE_NB_MAX_BYTES", "2000000")
    assert len(load_shards(str(tmp_path / "x.tar.gz"))) == 1
