"""The profile `paper`, run end to end on miniatures of the public data in their true formats."""

import hashlib
import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import made_public
import numpy as np
import pytest
import torch

from brace_nb.companion import (
    OPENED,
    Piece,
    asked_for,
    check_public,
    content_of,
    download,
    find_experiments,
    load_claims,
    load_profile,
    pieces,
    public_list,
    root,
)
from brace_nb.companion import cli, resources_of
from brace_nb.foundations import (
    OnDevice,
    embed_texts,
    fast_inference,
    load_cifar10,
    load_clip,
    load_coco_objects,
    load_embedding_shards,
    load_wmt,
    read_coco_cn,
    read_coco_es,
    read_pickled_data,
    read_weights,
)
from brace_nb.grounding import detection_costs, to_corners

HERE = Path(__file__).parent
LARGE = re.compile("steps|epochs|sizes|scenes|pairs|runs|samples|rows|items")  # what takes the time


@pytest.fixture(scope="session")
def public(tmp_path_factory):
    "All miniatures below one folder."
    torch.set_num_threads(1)
    return made_public.make_public(tmp_path_factory.mktemp("public"))


@pytest.fixture(scope="session")
def project(tmp_path_factory):
    "A checkout of its own, with the sizes of the miniatures: nothing of it reaches the committed ledger."
    folder = tmp_path_factory.mktemp("project")
    for name in ("nbs", "brace_nb", "Snakefile", "settings.ini"):
        (folder / name).symlink_to(root() / name)
    shutil.copytree(root() / "data", folder / "data", ignore=shutil.ignore_patterns("derived", "emoji"))
    (folder / "data/emoji").symlink_to(root() / "data/emoji")
    shutil.copy(HERE / "paper_miniature.yaml", folder / "data/profiles/paper.yaml")
    (folder / "figures").mkdir()
    return folder


def run(project, *words, **more):
    environment = os.environ | dict(BRACE_NB_ROOT=str(project), PYTHONPATH=str(root()), OMP_NUM_THREADS="1")
    environment = {k: v for k, v in environment.items() if not k.startswith("BRACE_NB_PUBLIC")} | more
    code = "from brace_nb.companion.cli import main; main()"
    command = [sys.executable, "-c", code, *map(str, words)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=580)


# --- the whole profile


@pytest.fixture(scope="session")
def ledger(project, public):
    "The ledger after `brace-nb figures --profile paper` on the miniatures."
    done = run(project, "figures", "--profile", "paper", "--data", public, "--device", "cpu", "--cores", 1)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return {r["id"]: r for r in json.loads((project / "data/derived/paper/figures/claims.json").read_text())}


def test_the_profile_fills_every_row_and_makes_every_figure(ledger, project):
    rows = {id: r for id, r in load_claims(profile="paper").items() if r["experiment"]}
    silent = [id for id in rows if ledger[id]["measured"] is None]
    assert rows and not silent
    made = {p.stem for p in (project / "data/derived/paper/figures/paper").glob("*.png")}
    assert made == {n.split("/")[1] for n in find_experiments("paper")} - {"pairs", "heads"}
    assert all("; cpu, 20" in ledger[id]["note"] or ledger[id]["note"].startswith("cpu, 20") for id in rows)


def test_what_it_measures_stays_out_of_the_committed_ledger(ledger, project):
    assert not list((project / "figures").iterdir())
    committed = load_claims()
    own = {id for id, r in load_claims(profile="paper").items() if r["experiment"]}
    assert all(not str(committed[id]["experiment"]).startswith("paper/") for id in own)


def test_a_second_run_finds_nothing_to_do_and_other_data_does(ledger, project, public):
    words = ("figures", "--profile", "paper", "--data", public, "--device", "cpu", "--dry-run")
    assert "nothing to run" in run(project, *words).stdout
    path = public / "dog/dog.jpg"
    before = path.read_bytes()
    made_public.save_picture(path, 7)
    said = run(project, *words).stdout
    path.write_bytes(before)
    assert "paper/dog: data public changed" in said and "1 to run" in said


def test_a_missing_piece_is_one_line_and_the_others_run(project, public, tmp_path):
    some = tmp_path / "some"
    some.mkdir()
    for name in ("coco", "detr"):
        (some / name).symlink_to(public / name)
    words = (
        "figures",
        "--profile",
        "paper",
        "--data",
        some,
        "--device",
        "cpu",
        "--dry-run",
        "--only",
        "paper",
    )
    lines = run(project, *words).stdout.splitlines()
    (line,) = [x for x in lines if "paper/cifar10 cannot run" in x]
    assert "needs 'paper/heads'" in line or "expected cifar-10-batches-py/test_batch" in line
    (line,) = [x for x in lines if "paper/pairs cannot run" in x]
    assert "conceptual_captions: expected *.tar or img_emb/*.npy in" in line and "img2dataset" in line
    assert not [x for x in lines if "paper/detr cannot run" in x]


def test_the_folder_must_be_named_and_be_there(project):
    words = ("figures", "--profile", "paper", "--device", "cpu", "--dry-run")
    assert "no folder of public data is named" in run(project, *words).stderr
    assert "does not exist" in run(project, *words, "--data", "/no/such").stderr


# --- what is declared


def test_rows_are_recorded_where_data_under_says_and_nowhere_else():
    recorded = {id: e.name for e in find_experiments("paper").values() for id in e.claims}
    assert recorded == {
        id: r["experiment"] for id, r in load_claims(profile="paper").items() if r["experiment"]
    }


def test_every_piece_and_every_cost_is_known():
    found, known = find_experiments("paper"), pieces()
    asked = {p for e in found.values() for p in asked_for(e.sources)}
    assert asked <= set(known) and set(public_list()["experiments"]) == set(found)
    for piece in known.values():
        assert piece.files and piece.get
        assert all(d.keys() & {"md5", "sha256"} and d["url"].startswith("http") for d in piece.downloads)


def test_no_row_is_both_measured_and_out_of_reach():
    out = {id: r for id, r in load_claims().items() if "nobody" in r.get("under", {})}
    assert out and not [id for id, r in out.items() if r["experiment"] or "paper" in r["under"]]


def test_other_profiles_do_not_run_the_part():
    assert not [n for n in find_experiments("cpu") if n.startswith("paper/")]
    assert all(n.startswith("paper/") for n in find_experiments("paper"))


def test_the_check_lists_rows_and_what_is_missing(public, project, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("BRACE_NB_ROOT", str(project))
    entries = {e["experiment"]: e for e in check_public(public)}
    assert not any(e["missing"] for e in entries.values()) and len(entries["paper/dog"]["rows"]) == 15
    for folder, code, words in ((tmp_path / "none", 1, "lacks clip_b32, cifar10"), (public, 0, "ready")):
        with pytest.raises(SystemExit) as ended:
            cli.main(["paper", "check", str(folder)])
        assert (ended.value.code or 0) == code and words in (said := capsys.readouterr().out)
        assert ("which is not there yet" in said) == (code == 1)


def test_a_piece_is_counted_weighed_and_opened(public, project, monkeypatch, tmp_path):
    monkeypatch.setenv("BRACE_NB_ROOT", str(project))
    content = content_of(pieces()["coco"], public)
    assert any("of 118,287 files train2017" in fault for fault in content.faults) and content.size > 0
    assert any(what.endswith("pixels") for what in content.opened.values())
    piece = Piece("one", ["*.png"], "nowhere")
    (tmp_path / "one.png").write_bytes(b"no picture")
    assert "one.png cannot be read" in content_of(piece, tmp_path).faults[0]
    (tmp_path / "one.png").unlink()
    assert content_of(piece, tmp_path).files == {"*.png": 0}


@pytest.mark.parametrize("ending", OPENED)
def test_a_file_that_is_not_what_its_ending_says_is_named(tmp_path, ending):
    (tmp_path / f"some{ending}").write_bytes(b"")
    (fault,) = content_of(Piece("one", [f"*{ending}"], "nowhere"), tmp_path).faults
    assert fault.startswith(f"some{ending} cannot be read")


# --- the formats


def test_cifar_is_what_unpickling_gives(public):
    path = public / "cifar10/cifar-10-batches-py/test_batch"
    ours, theirs = read_pickled_data(path), pickle.loads(path.read_bytes(), encoding="latin1")
    assert ours.keys() == theirs.keys() and ours["labels"] == theirs["labels"]
    assert np.array_equal(ours["data"], theirs["data"]) and ours["filenames"] == theirs["filenames"]
    pictures, labels, names = load_cifar10(public / "cifar10")
    assert np.array_equal(pictures[3, :, :, 1].ravel(), theirs["data"][3, 1024:2048])
    assert names[labels[3]] == "cat"


class Harm:
    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("function", [eval, os.system, np.load, print])
def test_no_pickle_runs_code(tmp_path, function, protocol):
    mark = tmp_path / "ran"
    words = f"open({str(mark)!r}, 'w')" if function is eval else str(mark)
    harm = Harm(function, words)
    (tmp_path / "bad").write_bytes(pickle.dumps(dict(data=harm), protocol=protocol))
    with pytest.raises(ValueError, match="is not what was expected"):
        read_pickled_data(tmp_path / "bad")
    assert not mark.exists()


@pytest.mark.parametrize(
    "content", [b"", b"\x80", b"\x80\x02}.", b"K\x01.", b"\x80\x02(tR.", b"not a pickle"]
)
def test_damaged_pickles_are_one_error(tmp_path, content):
    (tmp_path / "bad").write_bytes(content)
    if content == b"\x80\x02}.":
        assert read_pickled_data(tmp_path / "bad") == {}
        return
    with pytest.raises(ValueError, match="is not what was expected"):
        read_pickled_data(tmp_path / "bad")


def test_small_files_that_never_end_are_refused(tmp_path):
    lists = [1]
    for _ in range(10):
        lists = [lists] * 10
    itself = []
    itself.append(itself)
    for held in (lists, itself):
        (tmp_path / "bad").write_bytes(pickle.dumps(dict(data=held)))
        with pytest.raises(ValueError, match="is not what was expected"):
            read_pickled_data(tmp_path / "bad")
    (tmp_path / "bad").write_bytes(pickle.dumps(dict(data=list(range(300_000)))))
    assert len(read_pickled_data(tmp_path / "bad")["data"]) == 300_000


@pytest.mark.parametrize(
    "file, seed, patch", [("clip_b32/ViT-B-32.pt", 0, 16), ("clip_l14/*.safetensors", 2, 8)]
)
def test_weights_of_each_layout_give_the_model_they_came_from(public, file, seed, patch):
    (path,) = public.glob(file)
    encoder, model = load_clip(path), made_public.tiny_clip(seed, patch).eval()
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    tokens = encoder.tokenizer(["a cat", "two dogs"])
    with torch.no_grad():
        assert torch.allclose(encoder.model.encode_image(x), model.encode_image(x), atol=2e-2)
        assert torch.allclose(encoder.model.encode_text(tokens), model.encode_text(tokens), atol=2e-2)
    assert encoder.config["quick_gelu"]


def test_weights_of_open_clip_lose_their_prefix(public):
    (path,) = public.glob("clip_b16/*.bin")
    assert not [k for k in read_weights(path) if k.startswith("module.")]


def test_spanish_and_chinese_captions(public):
    es = read_coco_es(public / "coco_es/data/train_human_spanish.xlsx")
    zh = read_coco_cn(public / "coco_cn")
    assert es.text[1] == "un cuadrado número 0, vista 1" and es.id.tolist()[:6] == [0] * 5 + [3]
    assert zh.id.tolist() == list(range(0, 24, 2)) and zh.text[2] == "第4个方块在彩色背景上"


def test_costs_of_detr_by_hand(public):
    o = load_coco_objects(public / "coco/annotations/instances_val2017.json", public / "coco/val2017", 1)[0]
    g = torch.Generator().manual_seed(0)
    logits, boxes = torch.randn(3, 92, generator=g), 0.2 + 0.5 * torch.rand(3, 4, generator=g)
    cost = detection_costs(logits[None], boxes[None], o.classes, to_corners(o.boxes))[0]
    likely = logits.double().softmax(-1)
    for q in range(3):
        for a, (k, truth) in enumerate(zip(o.classes.tolist(), o.boxes.double())):
            box = boxes[q].double()
            (l, t, r, b), (L, T, R, B) = (
                (v[0] - v[2] / 2, v[1] - v[3] / 2, v[0] + v[2] / 2, v[1] + v[3] / 2) for v in (box, truth)
            )
            inner = max(0, min(r, R) - max(l, L)) * max(0, min(b, B) - max(t, T))
            union = (r - l) * (b - t) + (R - L) * (B - T) - inner
            around = (max(r, R) - min(l, L)) * (max(b, B) - min(t, T))
            giou = inner / union - (around - union) / around
            own = 5 * sum(abs(box - truth)) - likely[q, k] - 2 * giou
            assert abs(float(own) - float(cost[q, a])) < 1e-4
    assert len(o.classes) == 2  # the crowd is left out


@pytest.mark.parametrize(
    "load, damage, expected",
    [
        (load_embedding_shards, None, "img_emb/img_emb_0.npy"),
        (load_wmt, None, "system-outputs/PAIR"),
        (load_cifar10, None, "data_batch_1"),
        (read_coco_cn, None, "imageid.human-written-caption.txt"),
        (load_clip, None, "CLIP weights of OpenAI or open_clip"),
    ],
)
def test_an_empty_folder_says_what_was_expected(tmp_path, load, damage, expected):
    with pytest.raises((FileNotFoundError, ValueError)) as error:
        load(tmp_path)
    assert expected in str(error.value) and "\n" not in str(error.value)


def test_a_damaged_shard_of_embeddings_is_computed_again(public, tmp_path):
    encoder = load_clip(public / "clip_b32/ViT-B-32.pt")
    texts = [made_public.caption(i) for i in range(10)]
    once = embed_texts(encoder, texts, tmp_path, shard_rows=4)
    (tmp_path / "00002.npy").unlink()
    assert np.array_equal(embed_texts(encoder, texts, tmp_path, shard_rows=4), once)
    assert np.allclose(once, encoder.encode_texts(texts), atol=1e-5)
    with pytest.raises(ValueError, match="holds other embeddings"):
        embed_texts(encoder, texts[::-1], tmp_path, shard_rows=4)


class Broken(BaseHTTPRequestHandler):
    "A server that resumes, and hangs up after 4,000 bytes of its first answer."

    content, asked = bytes(range(250)) * 40, []

    def do_GET(self):
        start = int(self.headers.get("Range", "bytes=0-")[6:-1])
        self.asked.append(start)
        self.send_response(416 if start >= len(self.content) else 206 if start else 200)
        self.send_header("Content-Length", str(len(self.content) - start))
        self.end_headers()
        self.wfile.write(self.content[start : 4000 if len(self.asked) == 1 else None])

    def log_message(self, *_):
        "Say nothing."


@pytest.fixture
def broken_server():
    Broken.asked.clear()
    server = HTTPServer(("127.0.0.1", 0), Broken)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/weights.bin"
    server.shutdown()
    server.server_close()


def test_a_download_goes_on_where_it_stopped_and_is_checked(broken_server, tmp_path):
    right = dict(url=broken_server, sha256=hashlib.sha256(Broken.content).hexdigest())
    with pytest.raises(ConnectionError, match="6000 bytes early.*the same command goes on from there"):
        download(right, tmp_path)
    assert download(right, tmp_path).read_bytes() == Broken.content and Broken.asked[-1] == 4000
    (tmp_path / "weights.bin").rename(tmp_path / "weights.bin.part")  # killed before it had its name
    assert download(right, tmp_path).read_bytes() == Broken.content and Broken.asked[-1] == len(
        Broken.content
    )
    (tmp_path / "weights.bin").unlink()
    with pytest.raises(ValueError, match="expected 00"):
        download(right | dict(sha256="00"), tmp_path)
    assert not list(tmp_path.iterdir())


# --- clusters, dry runs and GPUs


def test_jobs_ask_for_a_gpu_where_they_use_one():
    found = find_experiments("paper")
    assert resources_of(found["paper/six"]) == dict(mem_mb=32000, runtime=1200, gpu=1)
    assert resources_of(find_experiments("cpu")["codes/heads"]) == dict(mem_mb=4000, runtime=120, gpu=0)


def test_slurm_plans_the_profile_with_gpus(project, public):
    where = "--directory data/derived/paper --profile data/profiles/slurm --dry-run --config profile=paper"
    command = f"-m snakemake --snakefile Snakefile {where} -- done/paper/cifar10.json"
    own = dict(BRACE_NB_ROOT=str(project), BRACE_NB_PUBLIC_DATA=str(public), BRACE_NB_DEVICE="cuda")
    environment = os.environ | own | dict(PYTHONPATH=str(root()))
    how = dict(cwd=project, env=environment, capture_output=True, text=True, timeout=300)
    (project / "data/derived/paper").mkdir(parents=True, exist_ok=True)
    done = subprocess.run([sys.executable, *command.split()], **how)
    assert done.returncode == 0, done.stderr[-2000:]
    said = done.stdout + done.stderr
    assert "paper__cifar10" in said and "gpu=1" in said and "mem_mb=32000" in said


def test_smoke_is_the_profile_gpu_made_small_on_the_cpu():
    "`make test` runs every experiment of `smoke`, so a name or a shape of `gpu` that fails, fails there."
    smoke, found, taken_over = load_profile("smoke"), find_experiments("smoke"), []
    for name, told in load_profile("gpu").experiments.items():
        assert told.keys() <= smoke.experiments[name].keys(), f"smoke leaves out what gpu says of {name}"
        assert {k: type(v) for k, v in told.items()} == {k: type(found[name].values[k]) for k in told}
        taken_over += [f"{name}: {k}" for k, v in told.items() if found[name].values[k] == v]
    assert not (large := [said for said in taken_over if LARGE.search(said.partition(": ")[2])]), (
        f"smoke does not shrink {large}"
    )
    assert "grounding/detection_formats: formats" in taken_over
    assert all(e.values.get("device", "cpu") == "cpu" for e in found.values()) and not smoke.requires


def test_a_device_of_the_caller_replaces_that_of_a_profile(monkeypatch):
    monkeypatch.setenv("BRACE_NB_DEVICE", "cuda")
    assert load_profile("smoke").requires == "cuda"
    assert find_experiments("smoke")["codes/sweep"].values["device"] == "cuda"
    monkeypatch.setenv("BRACE_NB_DEVICE", "cpu")
    assert not load_profile("gpu").requires
    assert find_experiments("gpu")["codes/sweep"].values["device"] == "cpu"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_encoders_on_cuda_follow_the_cpu(public):
    here, there = (load_clip(public / "clip_b32/ViT-B-32.pt", device) for device in ("cpu", "cuda"))
    x = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3), dtype=np.uint8)
    with fast_inference(there, compiled=True) as fast:
        z = fast.encode_images(x)
    assert np.allclose(z, here.encode_images(x), atol=0.05)
    linear = torch.nn.Linear(4, 2)
    far = OnDevice(torch.nn.Linear(4, 2), "cuda", "float32")
    far.encoder.load_state_dict(linear.state_dict())
    rows = torch.randn(3, 4)
    assert not far(rows).is_cuda and torch.allclose(far(rows), linear(rows), atol=1e-5)
