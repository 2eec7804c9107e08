"Precomputed embeddings in every format, with the columns beside them."

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import save_file

from brace_nb.foundations import load_embeddings, read_embeddings


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
        ("r.parquet", "must have the same length"),
        ("s.npy", r"\(1, 1\)"),
    ]:
        with pytest.raises(ValueError, match=f"(?s){name}.*Expected embeddings of shape.*{message}"):
            read_embeddings(tmp_path / name)
    with pytest.raises(FileNotFoundError, match="Expected embeddings of shape"):
        load_embeddings(tmp_path / "none.npy")
