"`brace-nb evaluate`: the report on files, end to end; and what it says about files that do not fit."

import json

import numpy as np
import pandas as pd
import pytest

from brace_nb.companion import main
from brace_nb.evaluation import (
    alignment,
    cka,
    draw_split,
    effective_rank,
    evaluate_files,
    linear_probe,
    modality_gap,
    report_text,
    retrieval_report,
    uniformity,
)


def unit(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


@pytest.fixture
def pair(tmp_path):
    "40 images in 4 classes, 2 texts each in shuffled order, related to their image."
    rng = np.random.default_rng(0)
    labels = np.arange(80) % 4
    x = unit(rng.standard_normal((4, 16))[labels] + 0.7 * rng.standard_normal((80, 16)))
    owner = rng.permutation(np.repeat(np.arange(80), 2))
    y = unit(x[owner] + 0.1 * rng.standard_normal((160, 16)))
    texts = np.array([f"text {i}" for i in range(160)])
    return tmp_path, x, y, owner, texts, np.array(list("abcd"))[labels]


def run(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main(["evaluate", *map(str, words)])
    return stop.value.code, *capsys.readouterr()


def value(report, measure, group=""):
    return next(r for r in report["rows"] if r["measure"] == measure and r["group"].startswith(group))


def save_all(pair):
    "The same pair as npy with files beside it, npz, safetensors and parquet: arguments for `evaluate`."
    import pyarrow as pa
    import pyarrow.parquet as pq
    from safetensors.numpy import save_file

    folder, x, y, owner, texts, labels = pair
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", y)
    np.save(folder / "owner.npy", owner)
    (folder / "labels.txt").write_text("\n".join(labels))
    (folder / "texts.txt").write_text("\n".join(texts))
    np.savez(folder / "x.npz", picture=x, label=labels)
    np.savez(folder / "y.npz", sentence=y, text=texts, owner=owner)
    save_file({"image": x, "text": y}, folder / "both.safetensors")
    for name, m, columns in (("x", x, dict(label=labels)), ("y", y, dict(text=texts, owner=owner))):
        pq.write_table(
            pa.table(
                dict(
                    embedding=pa.array(list(m.astype(np.float64))),
                    **{k: pa.array(v) for k, v in columns.items()},
                )
            ),
            folder / f"{name}.parquet",
        )
    beside = [
        "--labels",
        folder / "labels.txt",
        "--captions",
        folder / "texts.txt",
        "--owner",
        folder / "owner.npy",
    ]
    return {
        "npy": [folder / "x.npy", folder / "y.npy", *beside],
        "npz": [folder / "x.npz", folder / "y.npz", "--keys", "picture", "sentence"],
        "parquet": [folder / "x.parquet", folder / "y.parquet"],
        "safetensors": [folder / "both.safetensors", "--keys", "image", "text", *beside],
    }


def test_every_format_gives_the_same_report(pair, capsys):
    reports = []
    for name, words in save_all(pair).items():
        code, out, err = run(capsys, *words, "--json")
        assert code == 0 and not err, (name, err)
        reports.append(json.loads(out))
    for other in reports[1:]:
        assert [r["measure"] for r in other["rows"]] == [r["measure"] for r in reports[0]["rows"]]
        assert [r["value"] for r in other["rows"]] == pytest.approx(
            [r["value"] for r in reports[0]["rows"]], abs=1e-9
        )
    assert (
        reports[0]["images"],
        reports[0]["texts"],
        reports[0]["dimensions"],
        reports[0]["equal_texts"],
        reports[0]["equal_images"],
    ) == (80, 160, 16, 0, 0)


def test_values_equal_the_functions_they_come_from(pair):
    _, x, y, owner, _, labels = pair
    save_all(pair)
    report = evaluate_files(pair[0] / "x.npz", pair[0] / "y.npz")
    relevant = [np.flatnonzero(owner == i) for i in range(80)]
    want = retrieval_report(x @ y.T, relevant)
    for group, way in (("retrieval, image", "i2t"), ("retrieval, text", "t2i")):
        for k in (1, 5, 10):
            assert (
                value(report, f"R@{k}", group)["value"],
                value(report, f"R@{k}", group)["reference"],
            ) == pytest.approx((want[way][f"R@{k}"], want[way][f"chance R@{k}"]))
        assert value(report, "median rank", group)["value"] == want[way]["MedR"]
    assert value(report, "alignment")["value"] == pytest.approx(float(alignment(x[owner], y))) and value(
        report, "uniformity, image"
    )["value"] == pytest.approx(float(uniformity(x)))
    assert value(report, "effective rank, text")["value"] == pytest.approx(
        float(effective_rank(y))
    ) and value(report, "modality gap")["value"] == pytest.approx(float(modality_gap(x, y)))
    mean = unit(np.stack([y[r].sum(0) for r in relevant]))
    assert (
        value(report, "image and text", "CKA")["value"] == pytest.approx(float(cka(x, mean)))
        and abs(value(report, "image and text", "CKA")["reference"]) < 0.05
    )
    assert value(report, "cosine of pairs")["value"] == pytest.approx((x[owner] * y).sum(1).mean())
    assert (
        value(report, "accuracy, image")["value"]
        > 0.6
        > value(report, "accuracy of shuffled labels, image")["value"]
        and value(report, "accuracy by text prototypes")["value"] > 0.6
    )
    assert "accuracy, image" in report_text(report) and report == evaluate_files(
        pair[0] / "x.npz", pair[0] / "y.npz"
    )


def test_a_reference_is_what_no_knowledge_gives(tmp_path):
    "Random texts: retrieval near chance, CKA near 0, uniformity near the sphere's."
    rng = np.random.default_rng(1)
    np.save(tmp_path / "a.npy", rng.standard_normal((1000, 32)))
    np.save(tmp_path / "b.npy", rng.standard_normal((1000, 32)))
    report = evaluate_files(tmp_path / "a.npy", tmp_path / "b.npy")
    for group in ("retrieval, image", "retrieval, text"):
        assert value(report, "R@10", group)["value"] < 0.03 and value(report, "R@10", group)[
            "reference"
        ] == pytest.approx(0.01)
    row = value(report, "uniformity, image")
    assert (
        row["value"] == pytest.approx(row["reference"], abs=0.01)
        and abs(value(report, "image and text", "CKA")["value"]) < 0.01
        and not report["facts"]["unit_length"]
    )


def test_equal_rows_are_all_right_and_are_told(tmp_path, capsys):
    "Fifty classes name a thousand pictures: what equals the own name, or has it, is right."
    rng = np.random.default_rng(0)
    names, label = rng.standard_normal((50, 64)), np.arange(1000) % 50
    np.save(tmp_path / "x.npy", names[label] + 0.3 * rng.standard_normal((1000, 64)))
    np.save(tmp_path / "y.npy", names[label])
    (tmp_path / "names.txt").write_text("\n".join(map(str, label)))
    report = evaluate_files(tmp_path / "x.npy", tmp_path / "y.npy")
    for group in ("retrieval, image", "retrieval, text"):
        assert value(report, "R@1", group)["value"] == 1
        assert value(report, "R@1", group)["reference"] == pytest.approx(20 / 1000)
    assert report["facts"]["equal_texts"] == 950 and report["facts"]["equal_images"] == 0
    told = report_text(report)
    assert "equal texts: 950" in told and "rows that are equal to the partner count as right" in told
    named = evaluate_files(tmp_path / "x.npy", tmp_path / "y.npy", captions=str(tmp_path / "names.txt"))
    assert named == report


def test_a_table_with_a_column_for_each_dimension_and_its_own_names(tmp_path, capsys):
    "As `encode` reads it; columns are asked for by the names that the file has."
    x = np.random.default_rng(0).standard_normal((60, 8)).astype(np.float32)
    frame = pd.DataFrame(x, columns=[f"d{k}" for k in range(8)]).assign(id=np.arange(60) % 3)
    frame.to_parquet(tmp_path / "wide.parquet")
    np.save(tmp_path / "x.npy", x)
    wide, plain = (evaluate_files(tmp_path / name)["rows"] for name in ("wide.parquet", "x.npy"))
    assert wide == plain
    told = evaluate_files(tmp_path / "wide.parquet", labels="id")
    assert value(told, "accuracy, embedding", "linear probe")
    pd.DataFrame({f"word{k}": list("ab") for k in range(300)}).to_parquet(tmp_path / "words.parquet")
    code, _, err = run(capsys, tmp_path / "words.parquet")
    assert code == 2 and "300 arrays, first {'word0'" in err and "word9" not in err


def test_a_split_without_classes_is_an_error(tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.eye(4))
    (tmp_path / "s.txt").write_text("train\ntrain\nval\ntest\n")
    code, _, err = run(capsys, tmp_path / "x.npy", "--split", tmp_path / "s.txt")
    assert code == 2 and "is for probes, which need classes" in err and err.count("\n") == 1


def test_equal_captions_are_all_right(tmp_path):
    x = np.eye(4)
    np.savez(tmp_path / "x.npz", x=x)
    np.savez(tmp_path / "y.npz", y=x[[1, 0, 2, 3]], text=["dog", "dog", "cat", "owl"])
    report = evaluate_files(tmp_path / "x.npz", tmp_path / "y.npz", ks=[1])
    assert (
        value(report, "R@1", "retrieval, image")["value"]
        == value(report, "R@1", "retrieval, text")["value"]
        == 1
        and report["facts"]["equal_texts"] == 1
    )
    np.savez(tmp_path / "z.npz", y=x[[1, 0, 2, 3]])
    assert (
        value(evaluate_files(tmp_path / "x.npz", tmp_path / "z.npz", ks=[1]), "R@1", "retrieval, image")[
            "value"
        ]
        == 0.5
    )


def test_one_modality_and_a_teacher(pair, capsys):
    folder, x, *_ = pair
    save_all(pair)
    code, out, err = run(capsys, folder / "x.npz", "--teacher", folder / "x.npy")
    assert (
        code == 0
        and not err
        and "retrieval" not in out
        and "image and teacher" in out
        and "linear probe" in out
    )
    assert value(evaluate_files(folder / "x.npz", teacher=folder / "x.npy"), "image and teacher")[
        "value"
    ] == pytest.approx(1)


def test_own_split_is_used(pair):
    folder, x, _, _, _, labels = pair
    split = np.array(["train"] * 60 + ["val"] * 10 + ["test"] * 10)
    np.savez(folder / "s.npz", x=x, label=labels, split=split)
    want = linear_probe(
        *((x[split == s], labels[split == s]) for s in ("train", "val", "test")),
        strengths=tuple(10.0**e for e in range(-4, 3)),
    )
    assert value(evaluate_files(folder / "s.npz"), "accuracy, embedding")["value"] == pytest.approx(
        want["top1"]
    )


def test_drawn_splits_keep_groups_together_and_classes_in_train():
    rng = np.random.default_rng(0)
    for seed in range(20):
        labels, a, b = rng.integers(0, 6, 60), rng.integers(0, 40, 60), rng.integers(0, 40, 60)
        split = draw_split(labels, [a, b], seed)
        for g in (a, b):
            for v in set(g):
                assert len(set(split[g == v])) == 1
        assert (
            set(labels) == set(labels[split == "train"]) and (split == draw_split(labels, [a, b], seed)).all()
        )
    share = np.mean([(draw_split(np.arange(100) % 4, seed=s) == "train").mean() for s in range(5)])
    assert 0.59 < share < 0.65


def broken(folder):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((12, 4))
    np.save(folder / "x.npy", x)
    np.save(folder / "short.npy", x[:9])
    np.save(folder / "wide.npy", np.c_[x, x])
    bad = x.copy()
    bad[3, 1] = np.nan
    np.save(folder / "nan.npy", bad)
    np.save(folder / "zero.npy", x * (np.arange(12) != 5)[:, None])
    np.savez(folder / "two.npz", a=x, b=x)
    np.savez(folder / "empty.npz", y=x, text=["a"] * 11 + [" "])
    np.savez(folder / "lost.npz", x=x, label=np.arange(12) % 2, split=["train"] * 6 + ["test"] * 6)
    np.savez(
        folder / "new.npz",
        x=x,
        label=np.r_[np.arange(11) % 2, 7],
        split=["train"] * 6 + ["val"] * 3 + ["test"] * 3,
    )
    half = [None if i == 4 else "ab"[i % 2] for i in range(12)]
    pd.DataFrame(dict(x=list(x), label=half)).to_parquet(folder / "half.parquet")
    np.save(folder / "words.npy", np.array(["a"] * 12))
    np.save(folder / "unknown.npy", np.r_[np.arange(11.0), np.nan])
    (folder / "three.txt").write_text("a\nb\nc")
    (folder / "note.md").write_text("#")
    (folder / "cut.npy").write_bytes(b"\x93NUMPY")
    np.save(folder / "far.npy", np.r_[np.arange(11), 99])
    np.save(folder / "lonely.npy", np.zeros(12, int))


@pytest.mark.parametrize(
    "words, message",
    [
        (["absent.npy"], "does not exist"),
        (["note.md"], "ending in '.md'"),
        (["cut.npy"], "cannot be read"),
        (
            ["x.npy", "short.npy"],
            "9 texts for 12 images: the rows do not match. Give the image of each text with `--owner`",
        ),
        (["x.npy", "wide.npy"], "images have 4 dimensions and texts 8"),
        (["nan.npy"], r"1 rows of 'embedding' are not finite or have no direction, the first: \[3\]"),
        (["zero.npy"], r"the first: \[5\]"),
        (["two.npz"], "name the images and, after it, the texts with `--keys`"),
        (["two.npz", "--keys", "c"], "matrix of numbers called 'c'"),
        (["x.npy", "--labels", "three.txt"], "has 3 values for the 12 rows"),
        (["x.npy", "--labels", "color"], "no column 'color'"),
        (["x.npy", "--labels", "gone.txt"], "there is no file"),
        (["x.npy", "empty.npz"], r"empty.npz: captions \[11\] are empty"),
        (["half.parquet"], r"half.parquet: labels: label has no value in rows \[4\]"),
        (["x.npy", "x.npy", "--owner", "words.npy"], "words.npy: owner must hold row numbers .*; got text"),
        (["x.npy", "--labels", "unknown.npy"], r"unknown.npy has no value in rows \[11\]"),
        (["x.npy", "--owner", "o"], "there are none"),
        (["x.npy", "x.npy", "--owner", "far.npy"], r"far.npy: .*row numbers from 0 to 11; got 0..99"),
        (["x.npy", "x.npy", "--owner", "lonely.npy"], r"lonely.npy: .*11 images have no text"),
        (["x.npy", "--teacher", "short.npy"], "9 rows, the images 12"),
        (["lost.npz"], r"lost.npz: split: no image is in \['val'\]"),
        (["new.npz"], "new.npz: .* do not occur in training"),
        (["x.npy", "x.npy", "x.npy"], "got 3 files"),
        (["x.npy", "x.npy", "-k", "0"], "ks must be a whole number >= 1"),
    ],
)
def test_errors_are_one_line(words, message, tmp_path, capsys, monkeypatch):
    import re

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BRACE_NB_TRACEBACK", raising=False)
    broken(tmp_path)
    code, out, err = run(capsys, *words)
    assert code == 2 and not out and err.startswith("brace-nb: ") and re.search(message, err), err


def test_help_says_what_it_takes(capsys):
    with pytest.raises(SystemExit):
        main(["evaluate", "--help"])
    said = capsys.readouterr().out
    assert all(w in said for w in ("--labels", "--owner", "--json", ".parquet"))
