"""`brace-nb` as a shell sees it: one line, an exit code, nothing half-written."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile

import numpy as np
import pytest
import torch

import brace_nb
from brace_nb.codes import binarize, pack
from brace_nb.companion import VERDICTS, figures_folder, main, root, to_text


def started(*words, **options):
    code = "import sys; from brace_nb.companion import main; main(sys.argv[1:])"
    pipes = dict(stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return subprocess.Popen([sys.executable, "-c", code, *map(str, words)], **pipes | options)


def run(capsys, *words):
    "Exit code, output and the one line of complaint."
    with pytest.raises(SystemExit) as stop:
        main(list(map(str, words)))
    out, err = capsys.readouterr()
    return stop.value.code, out, err


def complains(capsys, says, *words):
    code, _, err = run(capsys, *words)
    assert code == 2 and err.startswith("brace-nb: ") and err.count("\n") == 1 and says in err, err


@pytest.fixture
def folder(tmp_path):
    np.save(tmp_path / "x.npy", np.abs(np.random.default_rng(0).normal(size=(200, 40))).astype(np.float32))
    return tmp_path


def names(folder):
    return sorted(p.name for p in folder.iterdir())


def test_version(capsys):
    assert run(capsys, "--version")[:2] == (0, f"brace-nb {brace_nb.__version__}\n")


def test_a_reader_who_has_enough():
    process = started("claims")
    process.stdout.readline()
    process.stdout.close()
    assert process.wait(60) == 128 + signal.SIGPIPE
    assert process.stderr.read() == ""


def test_claims_judges_the_rows_it_shows(capsys):
    rows = json.loads((figures_folder("cpu") / "claims.json").read_text())
    good = next(r for r in rows if r["verdict"] == r["accepted"] and r["measured"] is not None)
    only = [r for r in rows if r["id"].startswith(good["id"])]
    code, out, err = run(capsys, "claims", "--id", good["id"], "--check")
    assert (code, err) == (0, "") and all(row["id"] in out for row in only)
    complains(capsys, "no row of {'id': 'nobody.'}", "claims", "--id", "nobody.", "--check")


def test_claims_filters_and_shows_what_the_source_says(capsys):
    rows = json.loads((figures_folder("cpu") / "claims.json").read_text())
    for verdict in VERDICTS:
        code, out, _ = run(capsys, "claims", "--verdict", verdict)
        shown = re.findall(rf"^{verdict} +\w+\.", out, re.M)  # rows of second worlds follow, without an id
        assert code == 0 and len(shown) == sum(r["verdict"] == verdict for r in rows)
    _, out, _ = run(capsys, "claims", "--source", "thesis_6", "--kind", "erratum")
    shown = [r for r in rows if r["source"] == "thesis_6" and r["kind"] == "erratum"]
    assert shown and all(r["id"] in out for r in shown) and out.count("thesis.") >= len(shown)
    assert str(shown[0]["says"])[:40] in out and str(shown[0]["where"]) in out
    _, out, _ = run(capsys, "claims", "--section", "7.1")
    assert "thesis.s7_1.rq3" in out and "(6.7.1" not in out
    complains(capsys, "no row of {'section': '99.9'}", "claims", "--section", "99.9")


def test_one_row_is_printed_in_full_with_its_files(capsys):
    rows = json.loads((figures_folder("cpu") / "claims.json").read_text())
    row = next(r for r in rows if r["id"] == "sbrace.counterexample.interval")
    code, out, _ = run(capsys, "claims", "--id", row["id"])
    for part in ("text", "says", "where", "test", "verdict", "note"):
        assert row[part] in out and code == 0
    for file in ("nbs/experiments/{}.ipynb", "figures/{}_interval.png", "data/numbers/{}_interval.csv"):
        path = file.format(row["experiment"])
        assert f" {path}\n" in out + "\n" and (root() / path).is_file()
    assert f"brace-nb figures --only {row['experiment']}\n" in out and "data/evidence" not in out
    out = run(capsys, "claims", "--id", "project.ndim.equal_time")[1]
    assert "data/evidence/grounding/proof_of_concept_losses.json" in out


def test_repeated_rows_are_counted_without_an_empty_list():
    rows = json.loads((figures_folder("cpu") / "claims.json").read_text())
    again = next(r for r in rows if "same_as" in r)
    said = to_text([again]).splitlines()[-1]
    assert said == "1 row, 1 of which repeat another and are counted there"


def test_claims_fails_on_the_row_it_shows(capsys, monkeypatch, tmp_path):
    rows = json.loads((figures_folder("cpu") / "claims.json").read_text())
    good = next(r for r in rows if r["verdict"] == r["accepted"] and r["measured"] is not None)
    other = next(r for r in rows if not r["id"].startswith(good["id"]) and r["measured"] is not None)
    other["verdict"] = "refuted" if other["accepted"] != "refuted" else "differs"
    (tmp_path / "claims.json").write_text(json.dumps(rows))
    monkeypatch.setattr("brace_nb.companion.folders.figures_folder", lambda profile: tmp_path)
    assert run(capsys, "claims", "--id", good["id"], "--check")[0] == 0
    code, _, err = run(capsys, "claims", "--id", other["id"], "--check")
    assert code == 1 and other["id"] in err


@pytest.mark.parametrize("end", (signal.SIGINT, signal.SIGTERM))
def test_an_interrupted_binarize_leaves_nothing(tmp_path, end):
    np.save(tmp_path / "x.npy", np.ones((400_000, 64), np.float32))
    (tmp_path / "out.npy").write_bytes(b"old")
    process = started("binarize", tmp_path / "x.npy", tmp_path / "out.npy", "--rows", 64)
    until = time.monotonic() + 60
    while not any(p.stat().st_size for p in tmp_path.glob(".*.part")) and time.monotonic() < until:
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(end)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + end
    assert "Traceback" not in err
    assert names(tmp_path) == ["out.npy", "x.npy"] and (tmp_path / "out.npy").read_bytes() == b"old"


def test_outputs_that_are_no_files(folder, capsys):
    (folder / "d.npy").mkdir()
    (folder / "null.npy").symlink_to("/dev/null")
    for name in ("d.npy", "null.npy"):
        complains(capsys, "is a folder or a device", "binarize", folder / "x.npy", folder / name)
    assert (folder / "null.npy").is_symlink() and not os.path.isfile("/dev/null")
    complains(capsys, "written as .npy", "binarize", folder / "x.npy", "/dev/null")
    complains(capsys, "no folder", "binarize", folder / "x.npy", folder / "no" / "out.npy")


def test_control_characters_are_shown_and_not_sent(tmp_path, capsys):
    name = "a\x1b[2J\x07\x9b\u202e.npy"
    code, out, err = run(capsys, "binarize", tmp_path / name, tmp_path / "out.npy")
    assert (
        code == 2 and r"a\x1b[2J\x07\x9b\u202e.npy" in err and not set("\x1b\x07\x9b\u202e") & set(out + err)
    )


def test_a_link_stays_and_its_target_is_written(folder, capsys):
    (folder / "far").mkdir()
    (folder / "link.npy").symlink_to("far/out.npy")
    assert run(capsys, "binarize", folder / "x.npy", folder / "link.npy")[0] == 0
    assert (folder / "link.npy").is_symlink()
    assert np.array_equal(np.load(folder / "far" / "out.npy"), pack(binarize(np.load(folder / "x.npy"))))
    assert names(folder / "far") == ["out.npy"]


def test_a_full_disk(folder):
    np.save(folder / "x.npy", np.ones((20_000, 64), np.float32))

    def small():
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    process = started("binarize", folder / "x.npy", folder / "out.npy", preexec_fn=small)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err.splitlines()[-1].startswith("brace-nb: ") and "out.npy was not written" in err
    assert "Traceback" not in err and names(folder) == ["x.npy"]


def header(path, shape):
    "A .npy file that announces a shape and holds nothing."
    with open(path, "wb") as out:
        np.lib.format.write_array_header_1_0(out, dict(descr="<f4", fortran_order=False, shape=shape))


@pytest.mark.parametrize("shape", ((-1, 40), (0, 10**12), (10**12, 40), (10**30, 40)))
@pytest.mark.parametrize("what", ("binarize", "evaluate"))
def test_bad_headers(tmp_path, capsys, shape, what):
    header(tmp_path / "x.npy", shape)
    words = [tmp_path / "out.npy"] if what == "binarize" else []
    complains(capsys, "x.npy", what, tmp_path / "x.npy", *words)
    assert names(tmp_path) == ["x.npy"]


@pytest.mark.parametrize("what", ("binarize", "evaluate"))
def test_a_torch_file_named_npy(tmp_path, capsys, what):
    torch.save(torch.ones(3, 3), tmp_path / "x.npy")
    complains(capsys, "archive", what, tmp_path / "x.npy", *[tmp_path / "out.npy"][: what == "binarize"])


def test_a_key_for_a_file_of_one_array(folder, capsys):
    complains(capsys, "got key 'z'", "binarize", folder / "x.npy", folder / "out.npy", "--key", "z")


def test_parquet_lists_of_texts(tmp_path, capsys):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(dict(tags=[["a", "b"], ["c"]])), tmp_path / "x.parquet")
    for words in (
        ["binarize", tmp_path / "x.parquet", tmp_path / "out.npy"],
        ["evaluate", tmp_path / "x.parquet"],
    ):
        complains(capsys, "x.parquet", *words)
    complains(capsys, "tags", "binarize", tmp_path / "x.parquet", tmp_path / "out.npy", "--key", "tags")


def test_a_missing_label_is_named(tmp_path, capsys):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = list(np.random.default_rng(0).normal(size=(12, 4)))
    pq.write_table(pa.table(dict(e=rows, label=["a", "b", None] * 4)), tmp_path / "x.parquet")
    complains(capsys, "labels: label has no value in rows [2, 5, 8, 11]", "evaluate", tmp_path / "x.parquet")


def test_an_archive_that_expands_beyond_the_limit(tmp_path, capsys, monkeypatch):
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros((1000, 1000), np.float32))
    monkeypatch.setenv("BRACE_NB_MAX_BYTES", "1000000")
    says = "expands to 4 MiB; the limit is 1 MiB. Set BRACE_NB_MAX_BYTES"
    complains(capsys, says, "binarize", tmp_path / "x.npz", tmp_path / "out.npy")
    complains(capsys, says, "evaluate", tmp_path / "x.npz")
    np.savez(tmp_path / "y.npz", x=np.ones((1000, 1000), np.float32))  # expands to its own size
    assert run(capsys, "binarize", tmp_path / "y.npz", tmp_path / "out.npy")[0] == 0
    monkeypatch.setenv("BRACE_NB_MAX_BYTES", "5000000")
    complains(capsys, "only zeros", "binarize", tmp_path / "x.npz", tmp_path / "out.npy")


def test_a_zip_that_lies_about_its_size(tmp_path, capsys, monkeypatch):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", b"not an array")
    complains(capsys, "x.npz", "binarize", tmp_path / "x.npz", tmp_path / "out.npy")
