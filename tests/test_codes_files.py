"Files of embeddings become files of codes."

import subprocess
import sys
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from made_codes import made_embeddings
from safetensors.torch import save_file

from brace_nb.codes import binarize, binarize_file, files, pack, pack_ternary, ternarize


def write(path, x, kind):
    if kind == "npy":
        np.save(path := path / "in.npy", x)
    elif kind == "npy fortran":
        np.save(path := path / "in.npy", np.asfortranarray(x))
    elif kind == "npy float64":
        np.save(path := path / "in.npy", x.astype(">f8"))
    elif kind.startswith("safetensors"):
        save_file(
            {
                "e": torch.from_numpy(x).to(getattr(torch, kind.split()[1])),
                **({"other": torch.zeros(2)} if "two" in kind else {}),
            },
            path := path / "in.safetensors",
        )
    else:
        table = dict(
            list={"id": range(len(x)), "e": pa.array(list(x), pa.list_(pa.float32()))},
            large={"e": pa.array(list(x), pa.large_list(pa.float32()))},
            fixed={"e": pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), x.shape[1])},
            columns={"id": range(len(x)), **{f"d{i}": x[:, i] for i in range(x.shape[1])}},
        )[kind.split()[1]]
        pq.write_table(pa.table(table), path := path / "in.parquet", row_group_size=37)
    return path


KINDS = [
    "npy",
    "npy fortran",
    "npy float64",
    "safetensors float32",
    "safetensors bfloat16",
    "safetensors float16",
    "parquet list",
    "parquet large",
    "parquet fixed",
    "parquet columns",
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ternary", [False, True])
def test_binarize_file_equals_binarize(tmp_path, kind, ternary):
    x = made_embeddings(101, 20)
    x = x - x.mean() if ternary else x
    if "float16" in kind:
        x = torch.from_numpy(x).to(getattr(torch, kind.split()[1])).float().numpy()
    source, expected = write(tmp_path, x, kind), (ternarize if ternary else binarize)(x)
    for packed in True, False:
        summary = binarize_file(source, tmp_path / "out.npy", packed=packed, ternary=ternary, chunk_rows=10)
        found = np.load(tmp_path / "out.npy")
        assert (
            found == ((pack_ternary if ternary else pack)(expected) if packed else expected)
        ).all() and found.dtype == (np.uint8 if packed else expected.dtype)
        active = np.sort((expected != 0).sum(-1))
        assert summary == dict(
            rows=101,
            dim=20,
            bytes_in=source.stat().st_size,
            bytes_out=(tmp_path / "out.npy").stat().st_size,
            active_median=active[50],
            active_q97=active[97],
        )
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted([source.name, "out.npy"])


def test_binarize_file_takes_one_chunk_or_many_or_none(tmp_path):
    x = made_embeddings(50, 9)
    source = write(tmp_path, x, "npy")
    for chunk in 1, 7, 50, 500, None:
        binarize_file(source, tmp_path / "out.npy", chunk_rows=chunk)
        assert (np.load(tmp_path / "out.npy") == pack(binarize(x))).all()
    np.save(source, x[:0])
    assert binarize_file(source, tmp_path / "out.npy")["rows"] == 0 and np.load(
        tmp_path / "out.npy"
    ).shape == (0, 2)


def test_binarize_file_chooses_by_key(tmp_path):
    x = made_embeddings(30, 6)
    tensors = write(tmp_path, x, "safetensors float32 two")
    with pytest.raises(ValueError, match="holds the matrices e, other"):
        binarize_file(tensors, tmp_path / "out.npy")
    binarize_file(tensors, tmp_path / "out.npy", key="e")
    assert (np.load(tmp_path / "out.npy") == pack(binarize(x))).all()
    table = tmp_path / "two.parquet"
    pq.write_table(
        pa.table({"a": pa.array(list(x)), "b": pa.array(list(x[:, ::-1])), "c": x[:, 0], "d": x[:, 1]}), table
    )
    with pytest.raises(ValueError, match="Choose with `key`"):
        binarize_file(table, tmp_path / "out.npy")
    binarize_file(table, tmp_path / "out.npy", key="b")
    assert (np.load(tmp_path / "out.npy") == pack(binarize(x[:, ::-1]))).all()
    binarize_file(table, tmp_path / "out.npy", key=["d", "c"])
    assert (np.load(tmp_path / "out.npy") == pack(binarize(x[:, 1::-1]))).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "value, says", [(-1.0, "negative"), (np.nan, "NaN"), (np.inf, "infinite"), (0.0, "only zeros")]
)
def test_binarize_file_names_the_row_of_the_file(tmp_path, kind, value, says):
    x = made_embeddings(101, 20)
    x[83, slice(None) if value == 0 else 4] = value
    source, target = write(tmp_path, x, kind), tmp_path / "out.npy"
    target.write_text("old")
    with pytest.raises(ValueError) as error:
        binarize_file(source, target, chunk_rows=10)
    assert (
        "rows [83] hold" in str(error.value)
        and says in str(error.value)
        and source.name in str(error.value)
        and target.read_text() == "old"
        and len(list(tmp_path.iterdir())) == 2
    )


def test_binarize_file_refuses_broken_parquet_rows(tmp_path):
    rows = [list(r) for r in made_embeddings(60, 4)]
    for bad, says in (
        (None, r"got none in rows \[41\]"),
        ([1.0, 2.0], r"got others in rows"),
        ([1.0, None, 2.0, 3.0], r"rows \[41\] hold NaN"),
    ):
        rows[41] = bad
        pq.write_table(pa.table({"e": pa.array(rows, pa.list_(pa.float32()))}), tmp_path / "in.parquet")
        with pytest.raises(ValueError, match=says):
            binarize_file(tmp_path / "in.parquet", tmp_path / "out.npy", chunk_rows=7)
    assert not (tmp_path / "out.npy").exists()
    pq.write_table(pa.table({"e": pa.array([[1.0, 2.0]] * 3 + [[1.0]] * 3)}), tmp_path / "in.parquet")
    with pytest.raises(ValueError, match="same length"):
        binarize_file(tmp_path / "in.parquet", tmp_path / "out.npy", chunk_rows=3)
    pq.write_table(pa.table({"word": ["a"]}), tmp_path / "in.parquet")
    with pytest.raises(ValueError, match=r"got columns \['word'\]"):
        binarize_file(tmp_path / "in.parquet", tmp_path / "out.npy")
    with pytest.raises(ValueError, match=r"has no columns \['x'\]"):
        binarize_file(tmp_path / "in.parquet", tmp_path / "out.npy", key="x")


def test_binarize_file_refuses_what_is_no_file_of_embeddings(tmp_path):
    good = write(tmp_path, made_embeddings(5, 4), "npy")
    for suffix in ".npy", ".safetensors", ".parquet":
        (tmp_path / f"bad{suffix}").write_bytes(b"nothing of the kind")
        with pytest.raises(ValueError, match=f"bad{suffix}: "):
            binarize_file(tmp_path / f"bad{suffix}", tmp_path / "out.npy")
        with pytest.raises(FileNotFoundError, match="does not exist"):
            binarize_file(tmp_path / f"missing{suffix}", tmp_path / "out.npy")
    for array in np.zeros(3), np.array([["a"]]), np.zeros((2, 2), complex), np.array([[{}]], object):
        np.save(tmp_path / "bad.npy", array, allow_pickle=True)
        with pytest.raises(ValueError, match="bad.npy: "):
            binarize_file(tmp_path / "bad.npy", tmp_path / "out.npy")
    save_file(dict(x=torch.zeros(3)), tmp_path / "bad.safetensors")
    with pytest.raises(ValueError, match=r"got x of shape \(3,\)"):
        binarize_file(tmp_path / "bad.safetensors", tmp_path / "out.npy")
    (tmp_path / "in.csv").write_text("1,2")
    with pytest.raises(ValueError, match="got in.csv"):
        binarize_file(tmp_path / "in.csv", tmp_path / "out.npy")
    with pytest.raises(ValueError, match="got out.bin"):
        binarize_file(good, tmp_path / "out.bin")
    with pytest.raises(ValueError, match="same file"):
        binarize_file(good, tmp_path / "." / "in.npy")
    with pytest.raises(ValueError, match="chunk_rows must be"):
        binarize_file(good, tmp_path / "out.npy", chunk_rows=0)
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        binarize_file(good, tmp_path / "no" / "out.npy")
    assert not (tmp_path / "out.npy").exists()


def test_binarize_file_interrupted_leaves_the_old_file(tmp_path, monkeypatch):
    source, calls = write(tmp_path, made_embeddings(50, 9), "npy"), []

    def stops(x):
        calls.append(len(x))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return binarize(x)

    monkeypatch.setattr(files, "binarize", stops)
    (tmp_path / "out.npy").write_text("old")
    with pytest.raises(KeyboardInterrupt):
        binarize_file(source, tmp_path / "out.npy", chunk_rows=10)
    assert (
        (tmp_path / "out.npy").read_text() == "old"
        and sorted(p.name for p in tmp_path.iterdir()) == ["in.npy", "out.npy"]
        and calls == [10] * 3
    )


def test_binarize_file_holds_one_chunk(tmp_path):
    rows = np.lib.format.open_memmap(tmp_path / "in.npy", "w+", np.float32, (40_000, 256))  # 41 MB
    for i in range(0, 40_000, 1000):
        rows[i : i + 1000] = made_embeddings(1000, 256, seed=i)
    rows.flush()
    binarize_file(tmp_path / "in.npy", tmp_path / "out.npy", chunk_rows=500)
    tracemalloc.start()
    binarize_file(tmp_path / "in.npy", tmp_path / "out.npy", chunk_rows=500)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * 500 * 256 * 4 < rows.nbytes / 10
    assert (np.load(tmp_path / "out.npy")[-100:] == pack(binarize(np.array(rows[-100:])))).all()


RESIDENT = """
from pathlib import Path
from brace_nb.codes import binarize_file

def peak():
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024

for kind in ".npy", ".safetensors", ".parquet":
    binarize_file(f"tiny{kind}", "out.npy")
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what is in use now
    before = peak()
    binarize_file(f"large{kind}", "out.npy", chunk_rows=1000)
    print(kind, peak() - before)
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="reads the peak memory of a process from /proc"
)
def test_memory_of_the_process_stays_far_below_the_file(tmp_path):
    x = np.tile(made_embeddings(1000, 256), (150, 1))  # 154 MB
    for name, rows in ("tiny", x[:2000]), ("large", x):
        np.save(tmp_path / f"{name}.npy", rows)
        save_file(dict(e=torch.from_numpy(rows)), tmp_path / f"{name}.safetensors")
        pq.write_table(
            pa.table({"e": pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), 256)}),
            tmp_path / f"{name}.parquet",
            row_group_size=len(rows),
            use_dictionary=False,
        )
    found = subprocess.run([sys.executable, "-c", RESIDENT], cwd=tmp_path, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    megabytes = {kind: float(m) for kind, m in map(str.split, found.stdout.splitlines())}
    assert megabytes[".npy"] < 20 and megabytes[".safetensors"] < 20 and megabytes[".parquet"] < 77
