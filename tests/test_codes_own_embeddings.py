"Codes of a user's own files: a budget of bits, stored codes, `encode` and `search`."

import itertools
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.numpy import save_file

from brace_nb.codes import (
    CONTAINERS,
    CodeEncoder,
    binarize,
    binarize_at_most,
    encode_files,
    jaccard,
    load_codes,
    nearest_corner,
    own_embeddings,
    pack,
    report_lines,
    save_codes,
    search_files,
    user_embeddings,
)
from brace_nb.companion import main
from brace_nb.core import check_sums, held_alone
from brace_nb.evaluation import ranks
from made_codes import made_embeddings


@pytest.mark.parametrize("most", [1, 2, 4, 7])
def test_a_budget_against_every_corner(most):
    v = made_embeddings(50, 7)
    corners = [c for c in itertools.product([0, 1], repeat=7) if 1 <= sum(c) <= most]
    for row, code in zip(v.astype(np.float64), binarize_at_most(v, most)):
        best = max(sum(x for x, bit in zip(row, c) if bit) / sum(c) ** 0.5 for c in corners)
        assert 1 <= code.sum() <= most
        assert row[code].sum() / code.sum() ** 0.5 == pytest.approx(best, rel=1e-6)


def test_a_budget_of_all_is_no_budget():
    v = made_embeddings(200, 40)
    assert (binarize_at_most(v, 40) == binarize(v)).all()
    assert (binarize_at_most(np.ones((2, 6)), 3) == np.array([1, 1, 1, 0, 0, 0], bool)).all()
    assert binarize_at_most(torch.from_numpy(v), 3).dtype == torch.bool
    with pytest.raises(ValueError, match="negative"):
        binarize_at_most(-v, 3)


def test_straight_through_keeps_the_budget():
    x = torch.nn.functional.normalize(torch.rand(6, 20), dim=-1).requires_grad_()
    codes = CONTAINERS["corner"].unit(x, most=3)
    weights = torch.rand(6, 20)
    (codes * weights).sum().backward()
    assert ((codes > 1e-6).sum(-1) <= 3).all() and torch.equal(x.grad, weights)
    assert torch.allclose(codes, nearest_corner(x, most=3)[0], atol=1e-6)


@pytest.mark.parametrize("name", ["a.npy", "a.parquet", "a.txt"])
def test_stored_codes_come_back(tmp_path, name):
    codes = np.random.default_rng(0).random((30, 21)) < 0.2
    codes[4] = False
    save_codes(tmp_path / name, codes)
    assert (load_codes(tmp_path / name, 21) == codes).all()
    with pytest.raises(ValueError, match=name):
        load_codes(tmp_path / name, 8)
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_bit_order_of_stored_codes(tmp_path):
    code = np.zeros((1, 16), bool)
    code[0, [1, 7, 8]] = True
    save_codes(tmp_path / "a.npy", code)
    save_codes(tmp_path / "a.parquet", code)
    save_codes(tmp_path / "a.txt", code)
    assert np.load(tmp_path / "a.npy").tolist() == [[2 + 128, 1]]
    assert pq.read_table(tmp_path / "a.parquet")["bits"].to_pylist() == [[1, 7, 8]]
    assert (tmp_path / "a.txt").read_text() == "b1 b7 b8\n"


def views(n=150, features=24, seed=0):
    random = np.random.default_rng(seed)
    things = random.normal(size=(n, 8)) @ random.normal(size=(8, features))
    return [(things + 0.5 * random.normal(size=things.shape)).astype(np.float32) for _ in range(2)]


def write(folder, suffix, **matrices):
    "One file a matrix."
    paths = []
    for name, x in matrices.items():
        path = folder / f"{name}{suffix}"
        if suffix == ".npy":
            np.save(path, x)
        elif suffix == ".npz":
            np.savez(path, x)
        elif suffix == ".parquet":
            pq.write_table(pa.table({"embedding": pa.array(list(x), pa.list_(pa.float32()))}), path)
        else:
            save_file({"embedding": x}, path)
        paths.append(path)
    return paths


QUICK = dict(bits=16, epochs=2, preset="best")


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet", ".safetensors"])
def test_every_kind_of_file(tmp_path, suffix):
    images, texts = views()
    paths = write(tmp_path, suffix, images=images, texts=texts)
    report = encode_files(*paths, tmp_path / "out", **QUICK)
    model = CodeEncoder.load(tmp_path / "out/encoder.safetensors")
    assert (np.load(tmp_path / "out/images.npy") == pack(model.encode_images(images))).all()
    rows, similar = search_files(tmp_path / "out/images.npy", paths[1], top=4, coded=True)
    scores = jaccard(model.encode_texts(texts), model.encode_images(images))
    assert (rows == np.argsort(-scores, axis=1, kind="stable")[:, :4]).all()
    assert np.allclose(similar, -np.sort(-scores, axis=1)[:, :4])
    assert json.loads((tmp_path / "out/report.json").read_text())["rows"] == report["rows"]


def test_the_report_counts_what_was_held_out(tmp_path):
    images, texts = views()
    paths = write(tmp_path, ".npy", images=images, texts=texts)
    report = encode_files(*paths, tmp_path / "out", held=0.2, ks=(1, 30), **QUICK)
    assert (report["learned_from"], report["held_out"]) == (120, 30)
    away = np.random.default_rng(0).permutation(150)[:30]
    x, y = (v[away].astype(np.float64) for v in (images, texts))
    x, y = (v / np.linalg.norm(v, axis=1, keepdims=True) for v in (x, y))
    hits = 0
    for i in range(30):
        others = [j for j in range(30) if j != i]
        hits += all(x[i] @ y[j] < x[i] @ y[i] for j in others)
        hits += all(x[j] @ y[i] < x[i] @ y[i] for j in others)
    told = {row["what"]: row for row in report["rows"]}
    assert told["floats"]["R@1"] == pytest.approx(100 * hits / 60)
    assert told["floats"]["R@30"] == 100 and told["chance"]["R@1"] == pytest.approx(100 / 30)
    asked = told["best, codes ask"]
    assert asked["bytes"] == 2 and asked["R@1"] > 3 * told["chance"]["R@1"]
    assert asked["R@1 low"] <= asked["R@1"] <= asked["R@1 high"]


def test_of_many_rows_some_are_drawn_to_learn_from_and_all_are_encoded(tmp_path, monkeypatch):
    images, texts = views()
    monkeypatch.setattr(own_embeddings, "_MOST_LEARNED", 100)
    report = encode_files(*write(tmp_path, ".npy", images=images, texts=texts), tmp_path / "out", **QUICK)
    assert (report["learned_from"], report["drawn_from"], report["held_out"]) == (100, 135, 15)
    assert report_lines(report).startswith("learned from 100 of 135, measured on 15 others")
    assert len(np.load(tmp_path / "out/images.npy")) == 150


def test_a_file_of_other_numbers_is_mapped_too(tmp_path):
    (path,) = write(tmp_path, ".npy", x=views()[0].astype(np.float64))
    assert isinstance(user_embeddings(path), np.memmap)


def named_by_class(n=1000, classes=50, dim=64):
    "Pictures around the vectors of their classes, and for each picture the vector of its class."
    rng = np.random.default_rng(0)
    names, label = rng.normal(size=(classes, dim)), np.arange(n) % classes
    return (names[label] + 0.3 * rng.normal(size=(n, dim))).astype("f4"), names[label].astype("f4")


def test_rows_equal_to_the_partner_are_right_and_are_told(tmp_path):
    files = write(tmp_path, ".npy", images=named_by_class()[0], texts=named_by_class()[1])
    report = encode_files(*files, tmp_path / "out", preset="sign", bits=64, epochs=0)
    told = {row["what"]: row["R@1"] for row in report["rows"]}
    assert told["floats"] == 100 and told["sign, floats ask"] > 95 and 1.5 < told["chance"] < 4
    assert (report["equal_images"], report["equal_texts"]) == (0, 950)
    assert "0 rows of the first file and 950 of the second equal another" in report_lines(report)


def test_ranks_of_right_answers_are_those_of_a_loop():
    rng = np.random.default_rng(0)
    for _ in range(20):
        scores, same = rng.integers(0, 4, (6, 6)), rng.integers(0, 5, (2, 6))
        right = own_embeddings._right(same, np.stack([np.arange(6)] * 2, 1))
        pairs = set(zip(*same.tolist()))
        assert [[(a, b) in pairs for b in same[1]] for a in same[0]] == right.tolist()
        wanted = []
        for row, mine in zip(scores, right):
            best = max(row[mine])
            wanted.append(1 + sum(s >= best for s in row[~mine]))
        assert own_embeddings._ranks(scores, right).tolist() == wanted
    scores = rng.normal(size=(9, 9))
    assert (own_embeddings._ranks(scores, np.eye(9, dtype=bool)) == ranks(scores)).all()


def test_lists_longer_than_what_is_held_out_are_refused_before_anything_is_learned(tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(60, 16)).astype("f4"))
    with pytest.raises(ValueError, match=r"below the \d+ rows held out; got \[50\]"):
        encode_files(tmp_path / "x.npy", target=tmp_path / "codes", ks=(50,))


def test_what_is_held_out_is_not_learned_from(tmp_path):
    images, texts = views()
    changed = texts.copy()
    away = np.random.default_rng(0).permutation(150)[:15]
    changed[away] = np.roll(texts[away], 1, axis=0)
    first = encode_files(*write(tmp_path, ".npy", a=images, b=texts), tmp_path / "one", **QUICK)
    encode_files(*write(tmp_path, ".npy", a=images, b=changed), tmp_path / "two", **QUICK)
    one, two = (CodeEncoder.load(tmp_path / name / "encoder.safetensors") for name in ("one", "two"))
    assert first["held_out"] == 15 and (one.encode_images(images) == two.encode_images(images)).all()


def test_a_picture_that_stands_in_several_rows_is_on_one_side(tmp_path):
    "Texts that have nothing to do with the pictures are found no better than by lot, whatever was learned."
    rng, about = np.random.default_rng(0), np.repeat(np.arange(120), 5)
    pictures, texts = rng.normal(size=(2, 120, 32)).astype("f4")
    told = texts[about] + 0.05 * rng.normal(size=(600, 32)).astype("f4")
    files = write(tmp_path, ".npy", images=pictures[about], texts=told)
    report = encode_files(*files, tmp_path / "out", preset="best", bits=64, epochs=0, held=0.4)
    found = {row["what"]: row["R@1"] for row in report["rows"]}
    assert report["held_out"] == 48 and report["learned_from"] == 360  # pictures, and rows of the others
    assert found["best, floats ask"] < 15  # 93 where copies stand on both sides


def test_several_captions_a_picture(tmp_path):
    images, texts = views()
    twice, owner = np.concatenate([texts, texts + 0.1]), np.tile(np.arange(150), 2)
    paths = write(tmp_path, ".npy", images=images, texts=twice)
    np.savetxt(tmp_path / "owner.txt", owner, fmt="%d")
    report = encode_files(*paths, tmp_path / "out", owner=tmp_path / "owner.txt", **QUICK)
    assert (report["learned_from"], report["held_out"]) == (270, 15)
    assert np.load(tmp_path / "out/texts.npy").shape == (300, 2)


@pytest.mark.parametrize("form, suffix", [("indices", ".parquet"), ("tokens", ".txt")])
def test_a_budget_and_other_forms(tmp_path, form, suffix):
    paths = write(tmp_path, ".npy", images=views()[0], texts=views()[1])
    report = encode_files(*paths, tmp_path / "out", active=4, form=form, **QUICK)
    codes = load_codes(tmp_path / f"out/images{suffix}", 16)
    assert codes.sum(1).max() <= 4 and report["active_most"] <= 4
    rows, _ = search_files(tmp_path / f"out/texts{suffix}", paths[0], modality="image", top=3)
    assert rows.shape == (150, 3)


def test_the_preset_of_the_post_takes_two_encoders(tmp_path):
    images, texts = views()
    paths = write(tmp_path, ".npy", images=images, texts=texts[:, :20])
    report = encode_files(*paths, tmp_path / "out", **QUICK | dict(preset="post"))
    assert [row["what"] for row in report["rows"]] == ["post, codes ask", "post, floats ask", "chance"]


def run(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main(list(map(str, words)))
    return stop.value.code, *capsys.readouterr()


def test_the_command_line(tmp_path, capsys):
    paths = write(tmp_path, ".npy", images=views()[0], texts=views()[1])
    quick = ["--bits", 16, "--epochs", 2, "--out", tmp_path / "codes"]
    code, out, _ = run(capsys, "encode", *paths, *quick)
    assert code == 0 and "sign, floats ask" in out and "best --epochs 0, codes ask" in out
    assert "Take `" in out and "which is written" in out
    code, out, _ = run(capsys, "search", tmp_path / "codes/images.npy", paths[1], "--top", 2)
    lines = [line.split("\t") for line in out.splitlines()]
    assert code == 0 and lines[0] == ["query", "rank", "row", "similarity"] and len(lines) == 301
    assert [line[:2] for line in lines[1:3]] == [["0", "1"], ["0", "2"]]
    code, out, _ = run(capsys, "encode", *paths, *quick, "--json")
    assert json.loads(out)["held_out"] == 15


def faults(folder):
    "Words of the command line, and what the one line says."
    images, texts = views()
    broken = images.copy()
    broken[3, 2] = np.inf
    made = dict(i=images, t=texts, nan=broken, short=texts[:99], same=np.ones_like(images), slim=texts[:, :9])
    made |= dict(line=np.ones(7), none=images[:0])
    write(folder, ".npy", **made)
    zero = texts.copy()
    zero[2] = 0
    write(folder, ".npy", zero=zero, wide=images[:, :0], one=images[:1])
    (folder / "empty.txt").write_text("")
    (folder / "owner.txt").write_text("0\n1\nx\n")
    (folder / "words.csv").write_text("nothing")
    yield "same.npy t.npy --bits 16".split(), "1 of them different"
    yield "nan.npy t.npy --bits 16".split(), "nan.npy: embeddings must be finite; rows [3]"
    yield "i.npy short.npy --bits 16".split(), "150 images and 99 texts"
    yield "i.npy slim.npy --bits 16".split(), "preset 'post'"
    yield "i.npy t.npy --bits 0".split(), "bits must be"
    yield "i.npy t.npy --bits 16 --active 0".split(), "active must be"
    yield "i.npy t.npy --bits 16 --held 1.5".split(), "held must be"
    yield (
        "i.npy t.npy --bits 16 --preset other".split(),
        "preset must be one of auto, post, rotation, best, few, sign, pq, additive",
    )
    yield "i.npy --preset post".split(), "one file has no pairs to train on; got preset post"
    yield "i.npy --preset sign --epochs 5".split(), "got preset sign with 5 epochs"
    yield "i.npy --preset pq --bits 12".split(), "got --bits 12 of"
    yield "i.npy --preset additive --bits 512".split(), "at most 256 bits; got --bits 512. Take pq"
    yield "i.npy t.npy --preset pq --bits 16 --active 4".split(), "no --active; got --bits 16"
    yield "i.npy t.npy --preset sign --bits 16 --active 4".split(), "preset sign has half of its bits active"
    yield "i.npy zero.npy --bits 16".split(), "zero.npy: embeddings must be directions, not 0; rows [2]"
    yield "wide.npy t.npy --bits 16".split(), "wide.npy: embeddings need at least one feature"
    yield "i.npy t.npy --bits 16 -k 0".split(), "ks must be"
    yield "i.npy -k -1".split(), "ks must be"
    yield "i.npy --preset pq --bits 16 --form tokens".split(), "kept packed; got --form tokens"
    yield "i.npy t.npy --bits 16 --out owner.txt".split(), "is a file, and codes are written into a folder"
    yield "one.npy --bits 16".split(), "got 0.1 of 1 rows"
    yield "empty.txt".split(), "got an empty file"
    yield "i.npy t.npy --bits 16 --form other".split(), "form must be one of packed, indices, tokens"
    yield "i.npy t.npy --bits 16 --owner owner.txt".split(), "owner.txt: owners are whole numbers"
    yield "i.npy t.npy --bits 16 --owner no.txt".split(), "no file no.txt"
    yield "line.npy t.npy --bits 16".split(), "numeric array (rows, D)"
    yield "none.npy none.npy --bits 16".split(), "two rows to measure with"
    yield "words.csv t.npy --bits 16".split(), "must be one of .npy"
    yield "no.npy t.npy --bits 16".split(), "no.npy"


def test_bad_input_is_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words, says in faults(tmp_path):
        code, _, err = run(capsys, "encode", *words)
        assert code == 2 and err.count("\n") == 1 and says in err, (words, err)
        assert not Path("codes").exists()


def test_too_few_things_for_the_bits(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path, ".npy", i=views(40, 64)[0], t=views(40, 64)[1])
    code, _, err = run(capsys, "encode", "i.npy", "t.npy", "--bits", 64)
    assert code == 2 and "64 bits needs at least 64 different things to learn from; got 36" in err


def test_search_names_what_does_not_fit(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    paths = write(tmp_path, ".npy", i=views()[0], t=views()[1])
    encode_files(*paths, tmp_path, **QUICK)
    with pytest.raises(ValueError, match="would be written over"):
        encode_files(tmp_path / "images.npy", paths[1], tmp_path, **QUICK)
    np.save("slim.npy", np.ones((150, 9), np.float32))
    np.save("other.npy", np.zeros((3, 9), np.uint8))
    (tmp_path / "words.txt").write_text("b1 c2\n")
    encoder = ["--encoder", "encoder.safetensors"]
    for words, says in (
        (["images.npy", "slim.npy"], "must have 24 features"),
        (["other.npy", "texts.npy"], "must list other.npy"),
        (["images.npy", "no.npy"], "no.npy"),
        (["no.npy", "texts.npy"], "no.npy"),
        (["other.npy", "t.npy", *encoder], "uint8 (n, 2)"),
        (["words.txt", "t.npy", *encoder], "'c2'"),
        (["images.npy", "texts.npy", "--encoder", "images.npy"], "CodeEncoder.save"),
        (["images.npy", "texts.npy", "--modality", "sound"], "one of image, text"),
        (["images.npy", "texts.npy", "--top", 0], "top must be"),
        (["images.npy", "texts.npy", "--shortlist", 0], "shortlist must be"),
        (["images.npy", "t.npy", "--rescore", "slim.npy"], "must have the shape (n, F) with F ="),
    ):
        code, _, err = run(capsys, "search", *words)
        assert code == 2 and err.count("\n") == 1 and says in err, (words, err)


def documents(n=600, features=32, seed=1):
    random = np.random.default_rng(seed)
    return (random.normal(size=(n, 6)) @ random.normal(size=(6, features))).astype(np.float32)


def test_one_matrix_is_enough(tmp_path):
    x = documents()
    (path,) = write(tmp_path, ".npy", docs=x)
    report = encode_files(path, target=tmp_path / "out", bits=32, held=0.2, ks=(1, 10))
    told = {row["what"]: row for row in report["rows"]}
    away = np.random.default_rng(0).permutation(600)[:120]
    model = CodeEncoder.load(tmp_path / "out/encoder.safetensors")
    held = x[np.sort(away)].astype(np.float64)
    unit = held / np.linalg.norm(held, axis=1, keepdims=True)
    scores = model.scores(held.astype(np.float32), model.encode(held.astype(np.float32)))
    hits = 0
    for i in range(120):
        others = [j for j in range(120) if j != i]
        near = sorted(others, key=lambda j: -(unit[i] @ unit[j]))[:10]
        found = sorted(others, key=lambda j: (-scores[i, j], j))[:10]
        hits += len(set(near) & set(found))
    assert told[f"{report['chosen']}, floats ask"]["R@10"] == pytest.approx(100 * hits / 1200, abs=0.2)
    assert told["floats"]["R@10"] == 100 and {"sign", "rotation", "pq", "additive"} == set(report["tried"])
    assert report["chosen"] == max(report["tried"], key=report["tried"].get)
    assert report["advice"].startswith(f"Take `{report['chosen']}`, which is written")
    assert np.load(tmp_path / "out/codes.npy").shape == (600, 4)


@pytest.mark.parametrize("preset", ["sign", "rotation", "pq", "additive"])
def test_every_way_is_written_on_request_and_searched_as_by_its_scores(tmp_path, preset):
    x = documents()
    (path,) = write(tmp_path, ".npy", docs=x)
    report = encode_files(path, target=tmp_path / "out", bits=32, preset=preset)
    model = CodeEncoder.load(tmp_path / "out/encoder.safetensors")
    assert report["chosen"] == preset and model.container == dict(rotation="corner").get(preset, preset)
    rows, best = search_files(tmp_path / "out/codes.npy", path, modality="image", top=5)
    scores = model.scores(x, model.encode(x), "image")
    assert np.allclose(best, -np.sort(-scores, axis=1)[:, :5], atol=1e-5)
    assert np.allclose(np.take_along_axis(scores, rows, 1), best, atol=1e-5)
    again, cosines = search_files(tmp_path / "out/codes.npy", path, rescore=path, top=5, shortlist=30)
    assert (again[:, 0] == np.arange(600)).mean() > 0.95 and np.allclose(cosines[:, 0].max(), 1)
    if model.kept.learn:
        with pytest.raises(ValueError, match="asked by floats"):
            search_files(tmp_path / "out/codes.npy", path, coded=True)
    else:
        coded, _ = search_files(tmp_path / "out/codes.npy", path, modality="image", coded=True, top=5)
        assert coded.shape == (600, 5)


def test_a_run_that_was_killed_goes_on(tmp_path, monkeypatch):
    from brace_nb.codes import code_folders

    (path,) = write(tmp_path, ".npy", docs=documents())
    plain = encode_files(path, target=tmp_path / "whole", bits=16, preset="sign")
    monkeypatch.setattr(code_folders, "_AT_ONCE", 100)
    encode, calls = CodeEncoder.encode, []

    def dying(self, x, *args, **options):
        calls.append(len(x))
        if calls.count(100) == 4:
            raise KeyboardInterrupt
        return encode(self, x, *args, **options)

    monkeypatch.setattr(CodeEncoder, "encode", dying)
    with pytest.raises(KeyboardInterrupt):
        encode_files(path, target=tmp_path / "out", bits=16, preset="sign")
    assert [p.name for p in (tmp_path / "out").iterdir()] == [".unfinished"]
    monkeypatch.setattr(CodeEncoder, "encode", encode)
    monkeypatch.setattr(CodeEncoder, "fit", None)  # it is fitted already
    again = encode_files(path, target=tmp_path / "out", bits=16, preset="sign")
    assert again["rows"] == plain["rows"]
    names = {"codes.npy", "encoder.safetensors", "report.json", "SHA256SUMS"}
    assert {p.name for p in (tmp_path / "out").iterdir()} == names
    assert (tmp_path / "out/codes.npy").read_bytes() == (tmp_path / "whole/codes.npy").read_bytes()


def test_damage_and_mixtures_are_named(tmp_path):
    (path,) = write(tmp_path, ".npy", docs=documents(300))
    for name, seed in (("a", 0), ("b", 5)):
        encode_files(path, target=tmp_path / name, bits=16, preset="sign", seed=seed)
    random, folder = np.random.default_rng(0), tmp_path / "a"
    for file in sorted(folder.iterdir()):
        whole = file.read_bytes()
        bits = (
            range(8 * len(whole)) if file.name == "SHA256SUMS" else random.integers(8 * len(whole), size=40)
        )
        for bit in list(map(int, bits)):
            damaged = bytearray(whole)
            damaged[bit // 8] ^= 1 << bit % 8
            file.write_bytes(damaged)
            with pytest.raises((ValueError, FileNotFoundError)):
                check_sums(folder)
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=str(folder)):
            search_files(folder / "codes.npy", path)
        file.write_bytes(whole)
    assert search_files(folder / "codes.npy", path)[0].shape == (300, 10)
    for name in ("codes.npy", "encoder.safetensors"):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes((tmp_path / "b" / name).read_bytes())
        with pytest.raises(ValueError, match="not of one writing"):
            search_files(folder / "codes.npy", path)
        (folder / name).write_bytes(whole)


@pytest.mark.parametrize("rows, draws", [(300, 5), (2000, 3)])
def test_few_rows_are_drawn_more_than_once_for_the_choice(tmp_path, rows, draws):
    "What was tried is the mean of the draws, each made here by hand."
    random = np.random.default_rng(0)
    hidden = random.normal(size=(rows, 6)) @ random.normal(size=(6, 32))
    sides = [(hidden + random.normal(size=hidden.shape)).astype("float32") for _ in range(2)]
    for name, x in zip("ab", sides, strict=True):
        np.save(tmp_path / f"{name}.npy", x)
    report = encode_files(tmp_path / "a.npy", tmp_path / "b.npy", tmp_path / "out", bits=32, epochs=0)
    learned = rows - round(0.1 * rows)
    asked = round(0.1 * learned)
    for share in report["tried"].values():  # whole numbers of hits, both ways, over all draws
        hits = share / 100 * 2 * asked * draws
        assert hits == pytest.approx(round(hits), abs=1e-6)
    assert any(
        abs(share / 100 * 2 * asked - round(share / 100 * 2 * asked)) > 1e-6
        for share in report["tried"].values()
    )


def numbered_rows(lines):
    "Embeddings of `text 0`, `text 1`, ..."
    return made_embeddings(300, 24, seed=0)[[int(line.split()[1]) for line in lines]]


def test_an_embedding_that_was_stopped_goes_on(tmp_path, monkeypatch):
    "Of 300 texts in pieces of 64 the run ends in the third, and half of a row is on disk."
    asked = []

    def embed(lines):
        asked.append(len(lines))
        if len(asked) == 4:
            raise KeyboardInterrupt
        return numbered_rows(lines)

    found = "brace_nb.codes.texts_and_pictures"
    monkeypatch.setattr(f"{found}.embedder", lambda p, m=None: (Path(p).read_text().splitlines(), embed))
    monkeypatch.setattr(f"{found}._PIECE", 64)
    texts, kept = tmp_path / "docs.txt", tmp_path / "out/.unfinished/embeddings.npy"
    texts.write_text("".join(f"text {i}\n" for i in range(300)))
    how = dict(target=tmp_path / "out", preset="sign", bits=16)
    with pytest.raises(KeyboardInterrupt):
        encode_files(texts, **how)
    assert kept.stat().st_size == 128 + 2 * 64 * 24 * 4
    with open(kept, "ab") as file:
        file.write(bytes(50))
    encode_files(texts, **how)
    assert asked == [1, 64, 64, 64, 1, 64, 64, 44]
    assert np.array_equal(np.load(tmp_path / "out/embeddings.npy"), made_embeddings(300, 24, seed=0))
    texts.write_text("".join(f"text {i}\n" for i in range(299, -1, -1)))  # other texts start anew
    encode_files(texts, **how)
    assert np.array_equal(np.load(tmp_path / "out/embeddings.npy"), made_embeddings(300, 24, seed=0)[::-1])


def test_texts_are_embedded_once_and_shown(tmp_path, capsys, monkeypatch):
    "The embeddings are kept beside the codes; a search prints the text of each row."
    asked = []

    def embedder(path, model=None):
        asked.append(str(path))
        return Path(path).read_text().splitlines(), numbered_rows

    monkeypatch.setattr("brace_nb.codes.texts_and_pictures.embedder", embedder)
    monkeypatch.chdir(tmp_path)
    Path("docs.txt").write_text("".join(f"text {i}\n" for i in range(300)))
    Path("ask.txt").write_text("text 5\ntext 250\n")
    code, out, err = run(capsys, "encode", "docs.txt", "--preset", "sign", "--bits", "16")
    assert code == 0 and "codes/embeddings.npy" in err and asked == ["docs.txt"]
    assert np.array_equal(np.load("codes/embeddings.npy"), made_embeddings(300, 24, seed=0))
    words = ["search", "codes/codes.npy", "ask.txt", "--top", "3", "--rescore", "codes/embeddings.npy"]
    code, out, _ = run(capsys, *words, "--show", "docs.txt")
    rows = [line.split("\t") for line in out.splitlines()[1:]]
    assert code == 0 and asked == ["docs.txt", "ask.txt"] and len(rows) == 6
    assert run(capsys, "encode", "docs.txt", "--preset", "sign", "--bits", "8")[0] == 0  # starts from them
    assert run(capsys, "encode", "docs.txt", "--preset", "sign", "--bits", "16")[0] == 0
    assert asked == ["docs.txt", "ask.txt"] and "embeddings.npy" in check_sums("codes")
    assert all(row[4] == f"text {row[2]}" for row in rows)
    assert [row[2] for row in rows if row[1] == "1"] == ["5", "250"]
    assert run(capsys, *words)[1].splitlines()[1] == "\t".join(rows[0][:4])
    code, _, err = run(capsys, *words, "--show", "ask.txt")
    assert code == 2 and "ask.txt must hold what was encoded" in err and err.count("\n") == 1
    Path("long.txt").write_text("text\n" * 301)
    np.save("short.npy", np.load("codes/embeddings.npy")[:20])
    for option, path, got in (("--show", "long.txt", 301), ("--rescore", "short.npy", 20)):
        code, _, err = run(capsys, *words[:3], option, path)
        said = f"{path} must hold what was encoded, 300 rows as codes/codes.npy; got {got}."
        assert code == 2 and said in err and err.count("\n") == 1


def test_what_is_no_better_than_chance_is_called_so(tmp_path):
    images, texts = np.random.default_rng(0).normal(size=(2, 400, 32)).astype("f4")
    files = write(tmp_path, ".npy", i=images, t=texts)
    report = encode_files(*files, tmp_path / "out", preset="sign", bits=32, epochs=0)
    assert "no better than chance (2.5 %)" in report["advice"]


def test_truth_values_are_embeddings_too(tmp_path):
    bits = np.random.default_rng(0).random((300, 32)) < 0.5
    (path,) = write(tmp_path, ".npy", x=bits)
    encode_files(path, target=tmp_path / "out", preset="sign", bits=16)
    rows, _ = search_files(tmp_path / "out/codes.npy", path, modality="image", top=1)
    assert (rows[:, 0] == np.arange(300)).mean() > 0.5


def test_another_run_does_not_end_an_unfinished_one(tmp_path):
    first, second = write(tmp_path, ".npy", a=made_embeddings(300, 24), b=made_embeddings(200, 24, seed=1))
    (tmp_path / "out").mkdir()
    work = tmp_path / "out/.unfinished"

    def stopped(path, target):  # between two moves
        if path.name == "codes.npy":
            raise KeyboardInterrupt
        return moved(path, target)

    moved = Path.replace
    with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "replace", stopped)
        encode_files(first, target=tmp_path / "out", bits=16, preset="sign")
    assert (work / "SHA256SUMS").is_file() and (tmp_path / "out/encoder.safetensors").is_file()
    report = encode_files(second, target=tmp_path / "out", bits=8, preset="rotation")
    assert report["chosen"] == "rotation" and np.load(tmp_path / "out/codes.npy").shape == (200, 1)
    assert not work.exists() and "codes.npy" in check_sums(tmp_path / "out")


def test_a_folder_has_one_writer_at_a_time(tmp_path):
    (path,) = write(tmp_path, ".npy", a=made_embeddings(200, 24))
    with held_alone(tmp_path / "out"), pytest.raises(RuntimeError, match="another run writes into .*out"):
        encode_files(path, target=tmp_path / "out", bits=8, preset="sign")
    assert not (tmp_path / "out").exists()
    encode_files(path, target=tmp_path / "out", bits=8, preset="sign")
    assert "codes.npy" in check_sums(tmp_path / "out")


def test_a_folder_is_held_from_the_first_embedding_on(tmp_path, monkeypatch):
    "What a second run embeds would else lie among the files of the first."
    texts = tmp_path / "docs.txt"
    texts.write_text("".join(f"text {i}\n" for i in range(300)))
    how, held = dict(target=tmp_path / "out", preset="sign", bits=16), []

    def embed(lines):
        with pytest.raises(RuntimeError, match="another run writes into .*out"):
            encode_files(texts, **how)
        held.append(len(lines))
        return numbered_rows(lines)

    known = "brace_nb.codes.texts_and_pictures.embedder"
    monkeypatch.setattr(known, lambda p, m=None: (Path(p).read_text().splitlines(), embed))
    encode_files(texts, **how)
    assert held == [1, 300] and "embeddings.npy" in check_sums(tmp_path / "out")


def test_a_folder_in_the_way_is_named_before_anything_is_fitted(tmp_path):
    (path,) = write(tmp_path, ".npy", a=made_embeddings(300, 24))
    (tmp_path / "out/codes.npy").mkdir(parents=True)
    with pytest.raises(ValueError, match="codes.npy must be a file to be written; got a folder"):
        encode_files(path, target=tmp_path / "out", bits=16, preset="sign")
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["codes.npy"]


def test_embeddings_belong_to_their_codes(tmp_path, capsys, monkeypatch):
    rows = dict(a=made_embeddings(300, 24), b=made_embeddings(300, 24, seed=1))

    def embedder(path, model=None):
        return [(path[0], i) for i in range(300)], lambda some: np.stack([rows[name][i] for name, i in some])

    monkeypatch.setattr("brace_nb.codes.texts_and_pictures.embedder", embedder)
    monkeypatch.chdir(tmp_path)
    for name in rows:
        Path(f"{name}.txt").write_text(f"{name}\n" * 300)
    words = ["--preset", "sign", "--bits"]
    assert run(capsys, "encode", "a.txt", *words, 16)[0] == 0
    code, _, err = run(
        capsys, "encode", "b.txt", "--preset", "pq", "--bits", 40
    )  # refused after the embedding
    assert code == 2 and "whole bytes that divide the features" in err
    assert np.array_equal(np.load("codes/embeddings.npy"), rows["a"]) and len(check_sums("codes")) == 5
    damaged = bytearray(Path("codes/embeddings.npy").read_bytes())
    damaged[-1] ^= 1
    Path("codes/embeddings.npy").write_bytes(damaged)
    code, _, err = run(capsys, "search", "codes/codes.npy", "a.txt", "--rescore", "codes/embeddings.npy")
    assert code == 2 and "damaged, or not of one writing" in err
    assert run(capsys, "encode", "a.txt", *words, 16)[0] == 0  # what is damaged is made anew
    assert np.array_equal(np.load("codes/embeddings.npy"), rows["a"])


@pytest.mark.parametrize("preset", ["sign", "rotation", "pq", "additive"])
@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e20, 3e37, 1e200])
def test_lengths_of_rows_do_not_matter(tmp_path, preset, scale):
    x = made_embeddings(600, 24).astype(np.float64)
    lengths = np.exp(np.random.default_rng(0).normal(size=(600, 1)))
    kind = np.float64 if scale > 1e100 else np.float32
    files = write(tmp_path, ".npy", plain=x, scaled=(x * lengths * scale / lengths.max()).astype(kind))
    reports = [encode_files(f, target=tmp_path / f.stem, preset=preset, bits=32) for f in files]
    codes = [np.load(tmp_path / f.stem / "codes.npy") for f in files]
    assert np.mean(codes[0] != codes[1]) < 0.02  # as far as float32 tells the directions apart
    assert abs(reports[0]["rows"][-2]["R@10"] - reports[1]["rows"][-2]["R@10"]) < 3
    for path, stem in ((files[1], "plain"), (files[0], "scaled")):
        rows, _ = search_files(tmp_path / stem / "codes.npy", path, modality="image", top=1)
        assert (rows[:, 0] == np.arange(600)).mean() > 0.9


def test_an_encoder_of_other_codes_is_refused(tmp_path):
    first, second = write(tmp_path, ".npy", a=made_embeddings(300, 24), b=made_embeddings(300, 24, seed=1))
    for path in (first, second):
        encode_files(path, target=tmp_path / path.stem, bits=16, preset="sign")
    codes, own = tmp_path / "a/codes.npy", tmp_path / "a/encoder.safetensors"
    with pytest.raises(ValueError, match="encoder must be the one that made"):
        search_files(codes, first, encoder=tmp_path / "b/encoder.safetensors")
    copy = tmp_path / "copy.safetensors"
    copy.write_bytes(own.read_bytes())
    assert np.array_equal(search_files(codes, first, encoder=copy)[0], search_files(codes, first)[0])


@pytest.mark.parametrize("form", ["indices", "tokens"])
def test_lists_of_bits_are_written_by_ways_that_make_bits(tmp_path, form):
    (path,) = write(tmp_path, ".npy", a=made_embeddings(600, 24))
    report = encode_files(path, target=tmp_path / "out", bits=16, form=form)
    assert report["chosen"] in ("sign", "rotation") and not (tmp_path / "out/.unfinished").exists()
