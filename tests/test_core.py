"The ground floor: arrays, files, threads, the training loop, lazy names."

import hashlib
import inspect
import signal
import subprocess
import sys
import threading
import time
import timeit

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open

from brace_nb.core import (
    read_json,
    Bar,
    EarlyStopping,
    as_tensor,
    atomic_path,
    check_finite,
    check_sums,
    checked,
    deferred_interrupt,
    existing_file,
    expect_fail,
    floats,
    like,
    normalize,
    one_of,
    open_matrix,
    parallel_map,
    random_rotation,
    read_arrays,
    reading,
    rows,
    size,
    train,
    weights_from,
    widen,
    save_tensors,
    write_atomic,
    write_sums,
)

X = np.arange(12.0).reshape(4, 3)


@pytest.mark.parametrize(
    "given",
    [
        X[::-1][::-1],
        X[:, ::-1][:, ::-1],
        X.astype(">f8"),
        X.astype(np.longdouble),
        X.astype("<u2"),
        X.astype(">u4"),
    ]
    + [
        X.astype(np.uint64),
        X.tolist(),
        pd.DataFrame(X),
        X.astype(np.float16),
        X.astype(np.int8),
        np.asfortranarray(X),
    ],
)
def test_whatever_numpy_takes_is_taken(given):
    assert as_tensor(given).tolist() == X.tolist()


@pytest.mark.filterwarnings("error")
def test_read_only_maps_are_taken_without_a_copy_or_a_warning(tmp_path):
    np.save(tmp_path / "x.npy", X)
    held = np.load(tmp_path / "x.npy", mmap_mode="r")
    t = as_tensor(held)
    assert t.data_ptr() == held.__array_interface__["data"][0]


def test_tensors_keep_their_graph():
    x = torch.ones(2, requires_grad=True)
    assert as_tensor(x) is x


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["a"], "w must be real numbers"),
        ([[1], [1, 2]], "w must be an array of numbers"),
        (np.ones(2, complex), "w must be real numbers"),
        (torch.ones(2, dtype=torch.complex64), "w must be real numbers"),
        (None, "w must be real numbers"),
        (np.ma.masked_equal([1, 2], 2), "w must not be masked"),
    ],
)
def test_what_is_no_array_of_numbers_is_named(given, says):
    with pytest.raises(ValueError, match=says):
        as_tensor(given, "w")


@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.uint8, torch.bool, torch.float16, torch.bfloat16, torch.int64]
)
def test_products_of_narrow_numbers_are_exact_after_widening(dtype):
    x = torch.tensor([1, 0, 1, 1]).to(dtype)
    if dtype in (torch.int8, torch.uint8):
        x = x * 100
    wide = widen(x)
    assert wide.dtype == (torch.float64 if dtype == torch.int64 else torch.float32)
    assert (wide @ wide).item() == sum(int(v) ** 2 for v in x.tolist())


def test_finite_names_rows_of_all_leading_axes():
    x = torch.zeros(2, 3, 4)
    x[1, 0, 2] = torch.inf
    with pytest.raises(ValueError, match=r"z must be finite; rows \[3\] hold NaN or infinity. Do this."):
        check_finite(x, "z", "Do this.")
    check_finite(torch.tensor([3e38, 3e38]))  # the sum overflows, the entries do not
    check_finite(torch.zeros(0, 3))


@pytest.mark.parametrize("shape", [(3,), (2, 2, 2), (3, 0)])
def test_rows_are_a_matrix(shape):
    with pytest.raises(ValueError, match="must have the shape"):
        rows(np.ones(shape))


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.floats(-10, 10, width=32), min_size=2, max_size=6),
    st.integers(-140, 120),
    st.sampled_from("fd"),
)
def test_normalize_against_float64_at_every_scale(values, power, kind):
    x = np.array([values], "f" if kind == "f" else "d") * np.dtype(kind).type(2.0) ** power
    if not (x != 0).any() or not np.isfinite(x).all():
        return
    largest = np.abs(x).max().astype(np.longdouble)
    exact = x.astype(np.longdouble) / largest
    exact = exact / np.sqrt((exact**2).sum())
    found = normalize(as_tensor(x)).numpy()
    assert np.allclose(found, exact.astype(float), atol=3e-7 if kind == "f" else 1e-15)


def test_normalize_keeps_the_bits_of_plain_division():
    x = torch.randn(100, 17, generator=torch.Generator().manual_seed(0))
    assert torch.equal(normalize(x), x / x.norm(dim=1, keepdim=True))
    mixed = torch.cat([x, x[:1] * 2.0**100])
    assert torch.equal(normalize(mixed), torch.cat([normalize(x), normalize(x[:1])]))


def test_normalize_has_gradients_and_refuses_zero_rows():
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(normalize, x)
    with pytest.raises(ValueError, match=r"zero row has no direction; got rows \[1\]"):
        normalize(torch.tensor([[1.0, 0], [0, 0]]))


def test_like_follows_the_caller():
    assert type(like(torch.tensor(2.0), [1])) is np.float32
    assert isinstance(like(torch.ones(2), np.ones(2)), np.ndarray)
    assert isinstance(like(np.ones(2)[::-1], np.ones(1), torch.ones(1)), torch.Tensor)


def test_random_rotations_are_orthogonal_and_repeat():
    assert np.allclose(random_rotation(7, 3) @ random_rotation(7, 3).T, np.eye(7))
    generator = np.random.default_rng(3)
    assert np.array_equal(random_rotation(7, generator), random_rotation(7, 3))
    assert not np.array_equal(random_rotation(7, generator), random_rotation(7, 3))
    with pytest.raises(ValueError, match="dim >= 1"):
        random_rotation(0)


def test_a_file_is_old_or_new(tmp_path):
    path = tmp_path / "sub" / "a"
    assert write_atomic(path, "one") and not write_atomic(path, b"one") and write_atomic(path, "two")
    with pytest.raises(KeyboardInterrupt), atomic_path(path) as part:
        part.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "two" and list(path.parent.iterdir()) == [path]
    (path.parent / ".a.4194999.part").touch()  # of a process that was killed
    (path.parent / ".a.1.part").touch()  # of one that still writes
    write_atomic(path, "three")
    assert {p.name for p in path.parent.iterdir()} == {"a", ".a.1.part"}


def matrices(folder):
    "The same matrix in every format."
    from safetensors.numpy import save_file

    x = X.astype(np.float32)
    np.save(folder / "x.npy", x)
    np.savez(folder / "x.npz", x=x, name=np.array(["a"] * 4))
    save_file({"x": x}, folder / "x.safetensors")
    pd.DataFrame({"x": list(x)}).to_parquet(folder / "x.parquet")
    return [folder / f"x{s}" for s in (".npy", ".npz", ".safetensors", ".parquet")]


def test_every_format_gives_the_same_matrix_whole_and_in_chunks(tmp_path):
    for path in matrices(tmp_path):
        found = open_matrix(path)
        assert (found.rows, found.dim) == X.shape and "f" in found.dtype.lower()
        assert np.array_equal(found.read(), X)
        parts = [np.asarray(p) for p in found.chunks(3)]
        assert [len(p) for p in parts] == [3, 1] and np.array_equal(np.concatenate(parts), X)
        arrays = read_arrays(path)
        assert np.array_equal(arrays["embedding" if path.suffix == ".npy" else "x"], X)


def test_damaged_and_strange_files_are_named(tmp_path):
    for path in matrices(tmp_path):
        path.write_bytes(path.read_bytes()[:20])
        with pytest.raises(ValueError, match=path.name):
            open_matrix(path)
        with pytest.raises(ValueError, match=path.name):
            read_arrays(path)
    np.save(tmp_path / "o.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(ValueError, match="o.npy"):
        open_matrix(tmp_path / "o.npy")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        open_matrix(tmp_path / "nowhere.npy")
    (tmp_path / "x.csv").write_text("1,2")
    with pytest.raises(ValueError, match="must be one of"):
        open_matrix(tmp_path / "x.csv")


def test_bad_rows_of_parquet_are_counted_from_the_start_of_the_file(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    for bad, says in (([1.0], "the same length, here 2; got others in rows"), (None, "got none in rows")):
        lists = pa.chunked_array([[[1.0, 2.0]] * 3, [[1.0, 2.0], bad, [1.0, 2.0]]], pa.list_(pa.float32()))
        pq.write_table(pa.table(dict(e=lists)), tmp_path / "x.parquet", row_group_size=3)
        for read in (read_arrays, lambda path: list(open_matrix(path).chunks(2))):
            with pytest.raises(ValueError, match=rf"x.parquet.*{says} \[4\]"):
                read(tmp_path / "x.parquet")
    twice = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], ["a", "a"])
    pq.write_table(twice, tmp_path / "x.parquet")
    with pytest.raises(ValueError, match="x.parquet: two columns have one name"):
        open_matrix(tmp_path / "x.parquet")


def harmful(path):
    class Harm:
        def __reduce__(self):
            return (open, (str(path), "w"))

    return np.array([Harm()], object)


HEADERS = ["__import__('os').system('exit 1')", "(" * 300, "[1, 2]"]
HEADERS += [
    f"{{'descr': {d}, 'fortran_order': False, 'shape': {s}}}"
    for d, s in (("'O'", "(2, 2)"), ("None", "(1,)"))
]
HEADERS += ["{'descr': '<f4', 'fortran_order': False, 'shape': (True, 5)}"]


def test_no_file_runs_code_and_every_strange_header_is_named(tmp_path):
    for header in HEADERS:
        text = header.ljust(500).encode() + b"\n"
        content = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + bytes(64)
        (tmp_path / "x.npy").write_bytes(content)
        with pytest.raises(ValueError, match="x.npy"):
            open_matrix(tmp_path / "x.npy")
    np.savez(tmp_path / "x.npz", x=harmful(tmp_path / "DONE"))
    np.save(tmp_path / "x.npy", harmful(tmp_path / "DONE"), allow_pickle=True)
    torch.save(dict(x=torch.ones(2, 2)), tmp_path / "t.npz")
    for name in ("x.npz", "x.npy", "t.npz"):
        for read in (open_matrix, read_arrays):
            with pytest.raises(ValueError, match=name):
                read(tmp_path / name)
    assert not (tmp_path / "DONE").exists()


def test_float8_is_read_as_float32(tmp_path):
    from safetensors.torch import save_file

    save_file({"x": torch.tensor(X).to(torch.float8_e4m3fn)}, tmp_path / "x.safetensors")
    assert np.array_equal(open_matrix(tmp_path / "x.safetensors").read(), X)
    assert np.array_equal(read_arrays(tmp_path / "x.safetensors")["x"], X)


def test_a_key_chooses_among_several(tmp_path):
    np.savez(tmp_path / "two.npz", a=X, b=X + 1)
    assert open_matrix(tmp_path / "two.npz", "b").read()[0, 0] == 1
    with pytest.raises(ValueError, match="holds the matrices a, b; got key None"):
        open_matrix(tmp_path / "two.npz")


@pytest.mark.parametrize("threads", [1, 3, None])
def test_results_are_in_order_and_the_earliest_error_is_raised(threads):
    assert parallel_map(lambda i: i * i, range(20), threads) == [i * i for i in range(20)]
    assert parallel_map(str, [], threads) == []

    def work(i):
        if i in (2, 5):
            raise ValueError(f"item {i}")
        return i

    with pytest.raises(ValueError, match="item 2"):
        parallel_map(work, range(8), threads)


def test_after_a_failure_nothing_begins_and_what_runs_is_waited_for():
    begun, ended = [], []

    def work(i):
        begun.append(i)
        if i == 1:
            raise ValueError("item 1")
        time.sleep(0.2)
        ended.append(i)

    with pytest.raises(ValueError, match="item 1"):
        parallel_map(work, range(50), threads=2)
    assert 0 in ended and sorted(ended) == sorted(set(begun) - {1}) and len(begun) <= 3


def test_an_interrupt_comes_before_errors_and_threads_may_share_out_their_work():
    def work(i):
        raise KeyboardInterrupt if i == 3 else ValueError

    with pytest.raises(KeyboardInterrupt):
        parallel_map(lambda i: time.sleep(0.1) or work(i), range(4), threads=4)
    nested = parallel_map(lambda i: parallel_map(lambda j: i * j, range(9), threads=3), range(5), threads=3)
    assert nested == [[i * j for j in range(9)] for i in range(5)]


def test_threads_run_at_once():
    barrier = threading.Barrier(2, timeout=20)
    assert sorted(parallel_map(lambda i: barrier.wait() * 0 + i, range(2), threads=2)) == [0, 1]


def quadratic(lr=0.1):
    p = torch.ones(2, requires_grad=True)
    return p, torch.optim.SGD([p], lr=lr)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: torch.nn.Linear(5, 3).weight,
        lambda: torch.nn.Bilinear(2, 3, 4).weight,
        lambda: torch.nn.Conv2d(2, 3, 2).weight,
        lambda: torch.nn.EmbeddingBag(7, 3).weight,
        lambda: torch.nn.GRUCell(2, 3).weight_hh,
        lambda: torch.nn.TransformerEncoderLayer(8, 2, 8).self_attn.in_proj_weight,
        lambda: torch.nn.init.orthogonal_(torch.empty(3, 3)),
        lambda: torch.nn.init.trunc_normal_(torch.empty(3, 3)),
        lambda: torch.nn.init.kaiming_normal_(torch.empty(3, 3)),
        lambda: torch.cat([torch.rand(3), torch.randn(3), torch.randperm(5), torch.randint(9, (2,))]),
        lambda: torch.normal(torch.zeros(3), 1).bernoulli_().exponential_().random_(),
    ],
)
def test_weights_of_a_thread_are_those_of_the_seed_whoever_else_draws(draw):
    torch.manual_seed(7)
    want, free = [draw(), draw()], torch.rand(1000)
    made, done = [], threading.Event()

    def others():
        while not done.is_set():
            torch.rand(1)

    noise = threading.Thread(target=others)
    noise.start()
    for _ in range(50):
        with weights_from(7):
            made.append([draw(), draw()])
    done.set()
    noise.join()
    assert all(torch.equal(x, y) for pair in made for x, y in zip(pair, want))
    torch.manual_seed(7)
    with weights_from(8):
        given_one = torch.rand(3, generator=torch.Generator().manual_seed(2))
        draw()
    draw(), draw()
    assert torch.equal(torch.rand(1000), free)
    assert torch.equal(given_one, torch.rand(3, generator=torch.Generator().manual_seed(2)))


def test_train_is_the_plain_loop():
    p, optimizer = quadratic()
    losses = train(
        lambda step: (p**2).sum() * (step + 1), optimizer, 5, learning_rate=lambda step: 0.1 / (step + 1)
    )
    x, expected = np.ones(2, np.float32), []
    for step in range(5):
        expected.append((x**2).sum() * (step + 1))
        x = x - np.float32(0.1 / (step + 1)) * 2 * x * (step + 1)
    assert np.allclose(losses, expected) and np.allclose(p.detach(), x)


def test_train_resumes_stops_clips_and_calls_back():
    p, optimizer = quadratic()
    seen = []

    def watch(state):
        seen.append((state.step, float(state.loss), state.loss.requires_grad))
        state.stop = state.step == 6

    losses = train(lambda step: (p**2).sum(), optimizer, 100, start=4, max_norm=0.1, callbacks=[watch])
    assert (
        [s for s, _, _ in seen] == [4, 5, 6]
        and losses == [v for _, v, _ in seen]
        and not any(g for *_, g in seen)
    )
    assert abs(1 - p[0].item() - 3 * 0.01 / 2**0.5) < 1e-6


def test_a_loss_that_is_not_finite_names_the_step():
    p, optimizer = quadratic()
    with pytest.raises(FloatingPointError, match="loss of step 2 is inf. Lower the learning rate"):
        train(lambda step: p.sum() * (torch.inf if step == 2 else 1.0), optimizer, 5)


def test_bar_counts_the_steps(capsys):
    p, optimizer = quadratic()
    bar = Bar("fitting")
    train(lambda step: (p**2).sum(), optimizer, 3, callbacks=[bar])
    assert "fitting" in capsys.readouterr().err and bar.bar.n == 3
    train(lambda step: (p**2).sum(), optimizer, 3, callbacks=[Bar(show=False)])
    assert capsys.readouterr().err == ""


def test_early_stopping():
    stopping = EarlyStopping(2)
    assert [stopping.update(v, i) for i, v in enumerate([3.0, 2.0, 2.0, 2.1])] == [True, True, True, False]
    assert not stopping.stop and not stopping.update(2.2, 4) and stopping.stop and stopping.best_at == 2
    with pytest.raises(ValueError, match="patience"):
        EarlyStopping(0)


def test_an_interrupt_is_deferred_in_the_main_thread_only():
    before = signal.getsignal(signal.SIGINT)
    with deferred_interrupt() as interrupted:
        assert not interrupted()
        signal.raise_signal(signal.SIGINT)
        assert interrupted()
    assert signal.getsignal(signal.SIGINT) is before
    found = []
    other = threading.Thread(target=lambda: found.append(deferred_interrupt().__enter__()()))
    other.start()
    other.join()
    assert found == [False] and signal.getsignal(signal.SIGINT) is before


def test_expect_fail_fails_when_nothing_does(capsys):
    with expect_fail("two"):
        int("two")
    assert "invalid literal" in capsys.readouterr().out
    with pytest.raises(AssertionError, match="nothing was raised"), expect_fail():
        pass
    with pytest.raises(AssertionError, match="expected an error with 'three'"), expect_fail("three"):
        int("two")


def test_core_is_light_and_complete():
    code = (
        "import sys, brace_nb.core as c; [getattr(c, n) for n in c.__all__];"
        "heavy = {'numba', 'pandas', 'pyarrow', 'matplotlib', 'sklearn', 'safetensors'};"
        "print(sorted(heavy & {m.split('.')[0] for m in sys.modules}))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
    with pytest.raises(ImportError):
        from brace_nb.core import nothing_of_the_kind  # noqa: F401


def test_reading_says_what_a_file_should_hold(tmp_path):
    path = tmp_path / "x.json"
    path.write_text("[]")
    with pytest.raises(
        ValueError, match=f"{path} is not what was expected. Expected a list; got KeyError: 'a'"
    ):
        with reading(path, "a list"):
            {}["a"]
    with pytest.raises(ValueError, match="Expected a list; got 3 words"), reading(path, "a list"):
        raise ValueError("3 words")
    missing = tmp_path / "y.json"
    with pytest.raises(FileNotFoundError, match="Expected a list"), reading(missing, "a list"):
        raise AssertionError("a file that is not there is not read")
    with pytest.raises(FileNotFoundError, match="Expected a list"), reading(path, "a list"):
        existing_file(missing, "a list")


def test_digests_name_the_file_that_is_missing_damaged_or_not_listed(tmp_path):
    for name in ("a.npy", "b.txt"):
        (tmp_path / name).write_text(name)
    write_sums(tmp_path, ["a.npy", "b.txt"])
    told = [f"{hashlib.sha256(n.encode()).hexdigest()}  {n}" for n in ("a.npy", "b.txt")]
    assert (tmp_path / "SHA256SUMS").read_text().splitlines() == told
    assert check_sums(tmp_path) == ["a.npy", "b.txt"]
    (tmp_path / "b.txt").write_text("c")
    with pytest.raises(ValueError, match="b.txt is not what was expected"):
        check_sums(tmp_path)
    (tmp_path / "b.txt").unlink()
    with pytest.raises(ValueError, match=r"b\.txt is missing; SHA256SUMS lists it. Put it back"):
        check_sums(tmp_path)
    for damaged in ("x", f"{told[0][:64]}  ", f"{told[0]}\x07"):
        (tmp_path / "SHA256SUMS").write_text(damaged)
        with pytest.raises(ValueError, match="SHA256SUMS is not what was expected"):
            check_sums(tmp_path)


@checked(width=size, kind=one_of(["plain", "wide"]))
class Guarded:
    def __init__(self, width: int, kind="plain"):
        self.width, self.kind = width, kind

    def add(self, x: torch.Tensor, times: float = 1.0):
        return self.width + times * x.sum()

    @checked(x=floats("N N"))
    def trace(self, x):
        return x.trace()

    @staticmethod
    def twice(steps: int):
        return 2 * steps

    @classmethod
    def of(cls, width: int):
        return cls(width)

    def _own(self, steps: int):
        return steps


@pytest.mark.parametrize(
    ["call", "told"],
    [
        (lambda: Guarded(0), "width must be a whole number >= 1; got 0"),
        (lambda: Guarded("3"), "width must be a whole number"),
        (lambda: Guarded(True), "width must be a whole number >= 1; got True"),
        (lambda: Guarded(np.True_), "width must be a whole number >= 1; got"),
        (lambda: Guarded(3, kind="narrow"), "kind must be one of plain, wide; got 'narrow'"),
        (lambda: Guarded(3).add([1.0]), "x must be a torch tensor"),
        (lambda: Guarded(3).add(torch.ones(2), times=np.nan), "times must be a finite number"),
        (lambda: Guarded(3).trace(torch.ones(2, 3)), r"x must have the shape \(N, N\)"),
        (lambda: Guarded.twice(1.5), "steps must be a whole number; got 1.5"),
        (lambda: Guarded.of(2.5), "width must be a whole number >= 1"),
        (lambda: type("Child", (Guarded,), {})(None), "width must be"),
    ],
)
def test_a_guarded_class_names_what_is_wrong(call, told):
    with pytest.raises(ValueError, match=told):
        call()


def test_a_guarded_class_works_as_before():
    one = Guarded.of(3)
    assert one.add(torch.ones(2), 2) == 7 and Guarded.twice(3) == one.twice(3) == 6 and one._own("x") == "x"
    assert list(inspect.signature(Guarded).parameters) == ["width", "kind"]
    with pytest.raises(TypeError, match="no method with arguments"):
        checked(depth=size)(Guarded)


def test_a_check_costs_about_a_microsecond():
    def plain(x, steps):
        return x

    guarded = checked(x=size, steps=size)(plain)
    price = [min(timeit.repeat(lambda f=f: f(3, 4), number=2000, repeat=9)) / 2000 for f in (plain, guarded)]
    assert price[1] - price[0] < 2e-5  # a busy machine; about 2e-6 when it is free


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_equal_content_gives_equal_bytes(kind, tmp_path):
    facts = dict(z='a "quoted" \\ line\nand a bell \x07', b="é", a="{}")
    found = set()
    for i in range(8):
        save_tensors(tmp_path / f"{i}.safetensors", {"x": kind([1.0, 2.0]), "y": kind([3])}, facts)
        found.add((tmp_path / f"{i}.safetensors").read_bytes())
    assert len(found) == 1
    with safe_open(tmp_path / "0.safetensors", "np") as file:
        assert file.metadata() == facts and file.get_tensor("x").tolist() == [1.0, 2.0]


@pytest.mark.parametrize("content", ["{}", "[]", "null", "3", '{"a": 1}', '{"a": {"b": "x"}}', '[{"id": 1}]'])
def test_json_of_another_form_is_named_with_its_cure(content, tmp_path):
    path = tmp_path / "x.json"
    path.write_text(content)
    form = {"a": {...: int}} if content.startswith("{") else [dict(id=str)]
    fits = content == "[]"
    if fits:
        assert read_json(path, like=form) == []
    else:
        with pytest.raises(ValueError, match=r"x\.json is not readable json \(of another form\)\. Delete it"):
            read_json(path, like=form)
