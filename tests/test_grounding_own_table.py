"`brace-nb train`: what is held out, what is kept, when it stops, how it goes on."

import csv
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from brace_nb.companion import main, root
from brace_nb.grounding import (
    AlignedTuples,
    Watch,
    default_encoders,
    embed_table,
    load_table_encoders,
    own_table,
    pair_recall,
    put_weights,
    read_study,
    report_page,
    retrieval_rows,
    score_of,
    split_items,
    table_text,
    train_table,
    weights_of,
)


def linear_views(n=120, seed=0):
    "Linear pictures of the same hidden numbers."
    random = np.random.default_rng(seed)
    hidden = random.normal(size=(n, 5))
    maps = {name: random.normal(size=(5, 9)) for name in ("image", "text", "sound")}
    return {name: (hidden @ m).astype("float32") for name, m in maps.items()}


def files(folder, views):
    for name, x in views.items():
        np.save(folder / f"{name}.npy", x)
    return {name: folder / f"{name}.npy" for name in views}


def test_cells_equal_to_the_partner_are_right_and_are_told():
    classes = torch.eye(8)[torch.arange(40) % 5]
    rows = retrieval_rows({"picture": classes, "color": classes})
    assert [(r["R@1"], r["low@1"], r["equal"], round(r["chance@1"], 9)) for r in rows] == [
        (1, 1, 40, 0.2)
    ] * 2
    assert "40 of 40 from picture to color" in table_text(rows)
    rng = np.random.default_rng(0)  # by cells, where an encoder rounds equal ones differently
    z = torch.nn.functional.normalize(classes + 1e-6 * torch.tensor(rng.normal(size=(40, 8))).float())
    embedded, equal = dict(a=z, b=classes), dict(a=np.arange(40) % 5, b=np.arange(40) % 5)
    assert all(r["R@1"] == 1 for r in retrieval_rows(embedded, equal=equal))
    assert own_table._held_score(embedded, equal) == 1


def test_a_training_on_equal_cells_is_judged_by_what_is_right(tmp_path):
    "Six colors name 120 pictures: the score that chooses weights can rise, and the report says so."
    picture = linear_views()["image"]
    color = np.random.default_rng(0).normal(size=(6, 9)).astype("float32")[np.arange(120) % 6]
    picture = color + 0.01 * picture
    files(tmp_path, dict(picture=picture, color=color))
    source = {name: tmp_path / f"{name}.npy" for name in ("picture", "color")}
    made = train_table(source, tmp_path / "out", epochs=4, progress=False)
    assert max(look["score"] for look in made.looks) > 0.9
    assert all(row["R@1"] > 0.9 and row["equal"] for row in made.rows)
    assert "from picture to color" in (tmp_path / "out/report.html").read_text()


def test_the_score_without_equal_cells_is_that_of_pair_recall():
    views = {
        name: torch.randn(30, 6, generator=torch.Generator().manual_seed(k)) for k, name in enumerate("abc")
    }
    views["b"][3] = torch.nan
    equal = {name: np.arange(30) for name in views}
    assert own_table._held_score(views, equal) == score_of(pair_recall(views))


def test_every_item_is_in_one_part():
    views = linear_views() | dict(number=np.arange(120, dtype="float32")[:, None])
    parts = split_items(AlignedTuples(views))
    seen = torch.cat([p.views["number"][:, 0] for p in parts]).sort().values
    assert seen.tolist() == list(range(120)) and [len(p) for p in parts] == [96, 12, 12]
    with pytest.raises(
        ValueError, match=r"10 rows; got 40 rows and held=0.1. Set held between 0.25 and 0.37"
    ):
        split_items(AlignedTuples(linear_views(40)))
    for held in (0.25, 0.37):
        assert min(map(len, split_items(AlignedTuples(linear_views(40)), held))) >= 10
    with pytest.raises(ValueError, match="Bring more rows"):
        split_items(AlignedTuples(linear_views(29)))
    with pytest.raises(ValueError):
        split_items(AlignedTuples(views), held=1.5)


def slow_stop(scores, patience):
    "Looks one by one: the first best, and how long ago that was."
    best = max(range(len(scores)), key=lambda i: (scores[i], -i))
    return len(scores) - 1 - best >= patience


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([0.1, 0.2, 0.3]), min_size=1, max_size=12), st.integers(1, 5))
def test_it_stops_when_nothing_better_came_for_a_while(tmp_path_factory, scores, patience):
    watch = Watch(tmp_path_factory.getbasetemp() / "none", None, patience)
    assert watch.enough([dict(score=s) for s in scores]) == slow_stop(scores, patience)
    assert watch.best == max(scores)


def test_the_best_weights_are_kept_and_come_back(tmp_path):
    tuples = AlignedTuples(linear_views(40))
    good, bad = default_encoders(tuples, 8, seed=0), default_encoders(tuples, 8, seed=1)
    watch = Watch(tmp_path / "best.safetensors", tuples, 3)
    first, second = (watch.more(e)["score"] for e in (good, bad))
    put_weights(bad, watch.path)
    kept, wanted = weights_of(bad), weights_of(good if first >= second else bad)
    assert all(torch.equal(kept[k], wanted[k]) for k in wanted)


def test_recall_is_that_of_plain_loops():
    random = torch.Generator().manual_seed(0)
    views = {k: torch.nn.functional.normalize(torch.randn(15, 4, generator=random)) for k in "ab"}
    views["b"][3] = torch.nan  # missing
    rows = retrieval_rows(views)
    keep = [i for i in range(15) if i != 3]
    for row, (x, y) in zip(rows, (("a", "b"), ("b", "a")), strict=True):
        cosines = views[x].double() @ views[y].double().T
        hits = [sum(cosines[i, j] >= cosines[i, i] for j in keep) <= 1 for i in keep]
        assert row["items"] == 14 and row["R@1"] == pytest.approx(sum(hits) / 14)
        assert 0 <= row["low@1"] <= row["R@1"] <= row["high@1"] <= 1


def test_a_training_learns_and_its_report_names_what_it_did(tmp_path):
    made = train_table(
        files(tmp_path, linear_views()), tmp_path / "out", epochs=6, embed_dim=8, progress=False
    )
    assert made.looks[-1]["score"] > made.looks[0]["score"] + 0.2
    assert made.best == min(
        k["step"] for k in made.looks if k["score"] == max(x["score"] for x in made.looks)
    )
    page = (made.folder / "report.html").read_text()
    assert "96 items to learn from, 12 to choose the weights, 12 for this report" in page
    assert "image" in page and "data:image/png;base64," in page
    embedded = np.load(made.folder / "image.npy")
    assert embedded.shape == (120, 8) and np.allclose(np.linalg.norm(embedded, axis=1), 1, atol=1e-5)


def test_it_stops_early_and_a_second_call_changes_nothing(tmp_path):
    random = np.random.default_rng(0)
    noise = {k: random.normal(size=(120, 4)).astype("float32") for k in ("a", "b")}
    options = dict(epochs=40, patience=2, embed_dim=4, progress=False)
    first = train_table(files(tmp_path, noise), tmp_path / "out", **options)
    assert first.looks[-1]["step"] < 40 * 4
    before = (first.folder / "best.safetensors").read_bytes()
    again = train_table(files(tmp_path, noise), tmp_path / "out", **options)
    assert again.looks == first.looks and (first.folder / "best.safetensors").read_bytes() == before


def test_a_page_shows_names_as_text():
    rows = retrieval_rows({"<b>": torch.eye(12), "c": torch.eye(12)})
    page = report_page("a & b", rows, [dict(step=0, loss=1.0)], [dict(step=0, score=0.5)], 0)
    assert "&lt;b&gt;" in page and "a &amp; b" in page
    assert score_of({"R@1": 0.2, "R@10": 0.6}) == pytest.approx(0.4)


def test_the_example_files_are_what_the_commands_take():
    folder = root() / "data/examples"
    with (folder / "names.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 400 and set(rows[0]) == {"english", "german", "spanish", "japanese", "label"}
    assert read_study(folder / "study.yaml").runs == 6


def test_the_command_prints_the_table_and_says_what_is_wrong(tmp_path, capsys):
    lines = ["one,two"] + [f"word{k} {k % 7},mot{k} {k % 7}" for k in range(100)]
    (tmp_path / "own.csv").write_text("\n".join(lines))
    words = ["train", str(tmp_path / "own.csv"), "--out", str(tmp_path / "out"), "--quiet", "--epochs", "1"]
    with pytest.raises(SystemExit) as end:
        main([*words, "--embed_dim", "8"])
    assert not end.value.code and "R@10" in (said := capsys.readouterr().out) and "report.html" in said
    assert "brace-nb embed NEW.csv" in said
    with pytest.raises(SystemExit) as end:
        main([*words, "--embed_dim", "16"])
    assert end.value.code == 2 and "belongs to another run" in capsys.readouterr().err


def test_an_interrupted_training_goes_on(tmp_path):
    paths = files(tmp_path, linear_views())
    code = (
        "import sys\nfrom brace_nb.grounding import train_table\n"
        f"train_table({ {k: str(v) for k, v in paths.items()}!r}, {str(tmp_path / 'out')!r}, epochs=2000, "
        "patience=2000, embed_dim=8, progress=False)"
    )
    job = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    state = tmp_path / "out/state.safetensors"
    for _ in range(1200):
        if state.exists() or job.poll() is not None:
            break
        time.sleep(0.1)
    job.send_signal(signal.SIGINT)
    said = job.communicate(timeout=120)[1]
    assert "training stopped after step" in said and state.exists()
    stopped = int(re.search(r"stopped after step (\d+)", said)[1])
    assert 0 < stopped < 2000 * 4


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    "A table of pictures and two languages, some cells empty, and a training on it."
    from PIL import Image

    folder = tmp_path_factory.mktemp("table")
    lines = ["picture,one,two,label"]
    for k in range(100):
        color = tuple(int(c) for c in np.random.default_rng(k).integers(0, 256, 3))
        Image.new("RGB", (5, 5), color).save(folder / f"{k}.png")
        lines.append(f"{k}.png,word{k} {k % 7},{'' if k % 9 == 0 else f'mot{k}'},{k % 3}")
    (folder / "own.csv").write_text("\n".join(lines))
    options = dict(epochs=1, embed_dim=8, image_size=16, progress=False)
    train_table(folder / "own.csv", folder / "out", **options)
    return folder


def test_classes_are_told_by_probes_and_a_wrong_name_is_an_error(table, tmp_path, capsys):
    page = (table / "out/report.html").read_text()
    assert re.search(r"by a linear probe: picture \d+ %, one \d+ %, two \d+ %\.", page)
    with pytest.raises(SystemExit):
        main(["train", str(table / "own.csv"), "--out", str(tmp_path / "out"), "--label", "nope"])
    assert "has no column 'nope' of classes (--label); it has ['picture'," in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_training_rows_come_back_byte_for_byte_and_new_rows_alone(table, tmp_path):
    again = load_table_encoders(table / "out").embed(table / "own.csv")
    assert list(again) == ["picture", "one", "two"]
    for name, z in again.items():
        kept = np.load(table / f"out/{name}.npy")
        assert z.numpy().tobytes() == kept.tobytes() and np.isnan(kept).any() == (name == "two")
    lines = (table / "own.csv").read_text().splitlines()
    (table / "new.csv").write_text("\n".join(["two,picture,one,more", "mot7 and more,7.png,word7 0,", ",,a"]))
    new = embed_table(table / "new.csv", table / "out", tmp_path / "new")
    assert lines[8].startswith("7.png,word7 0,mot7,")
    for name in ("picture", "one"):  # in another batch: the last bits may differ
        assert torch.allclose(new[name][0], again[name][7], atol=1e-5)
        assert np.array_equal(np.load(tmp_path / f"new/{name}.npy"), new[name], equal_nan=True)
    assert not torch.allclose(new["two"][0], again["two"][7], atol=1e-3)
    assert [bool(z[1].isnan().all()) for z in new.values()] == [True, False, True]


def test_the_file_of_weights_is_enough_and_one_view_too(table, tmp_path):
    shutil.copy(table / "out/best.safetensors", tmp_path / "kept.safetensors")
    encoders = load_table_encoders(tmp_path / "kept.safetensors")
    (tmp_path / "one.csv").write_text("one\nword3 3\n" + "long " * 50)
    z = encoders.embed(tmp_path / "one.csv", ["one"])
    assert list(z) == ["one"] and z["one"].shape == (2, 8) and z["one"].isfinite().all()


def test_files_of_embeddings_and_of_tokens_come_back(tmp_path):
    views = linear_views() | dict(tokens=np.random.default_rng(0).integers(1, 300, (120, 6)))
    paths = files(tmp_path, views)
    train_table(paths, tmp_path / "out", epochs=1, embed_dim=8, progress=False)
    encoders = load_table_encoders(tmp_path / "out")
    for name, z in encoders.embed(paths).items():
        assert z.numpy().tobytes() == np.load(tmp_path / f"out/{name}.npy").tobytes()
    np.save(tmp_path / "wide.npy", np.zeros((3, 10), "float32"))
    with pytest.raises(ValueError, match="Expected 9 real numbers a row"):
        encoders.embed({"text": tmp_path / "wide.npy"}, ["text"])
    np.save(tmp_path / "high.npy", np.full((3, 6), 300))
    with pytest.raises(ValueError, match="whole numbers from 0 to 299"):
        encoders.embed({"tokens": tmp_path / "high.npy"}, ["tokens"])


@pytest.mark.parametrize(
    ("text", "views", "says"),
    [
        ("picture,one\n1.png,a", None, r"no \['two'\] in .*got \['picture', 'one'\]"),
        ("picture,one,two\n1.png,a,b", ["three"], "views must be some of"),
        ("picture,one,two\n1.png,a,b", [], "views must be some of"),
        ("picture,one,two\n", None, "a row for each item"),
        ("", None, "new.csv is not what was expected"),
        ("one,two\n ,b", ["one"], "view 'one'.*captions must say something"),
        ("picture\nnone.png", ["picture"], "none.png does not exist.*row 0"),
        ("picture\nnew.csv", ["picture"], "cannot identify image file.*new.csv"),
    ],
)
def test_a_table_that_does_not_fit_is_named(table, text, views, says):
    (table / "new.csv").write_text(text)
    with pytest.raises((ValueError, OSError), match=says):
        load_table_encoders(table / "out").embed(table / "new.csv", views)


def test_damage_and_mixture_are_named(table, tmp_path):
    with pytest.raises(ValueError, match="otherwise. Give a .csv"):
        load_table_encoders(table / "out").embed({"one": table / "out/one.npy"}, ["one"])
    with pytest.raises(FileNotFoundError, match="best.safetensors.*brace-nb train"):
        load_table_encoders(tmp_path)
    weights = (table / "out/best.safetensors").read_bytes()
    kept = tmp_path / "best.safetensors"
    for place in np.random.default_rng(0).integers(0, len(weights), 20):
        damaged = bytearray(weights)
        damaged[place] ^= 1
        kept.write_bytes(damaged)
        with pytest.raises(ValueError, match="best.safetensors"):
            load_table_encoders(tmp_path)
    shutil.copytree(table / "out", tmp_path / "mixed")
    z = np.load(table / "out/one.npy")
    np.save(tmp_path / "mixed/one.npy", -z)
    with pytest.raises(ValueError, match="one.npy.*not of one writing"):
        load_table_encoders(tmp_path / "mixed")


def test_names_that_are_no_names_of_files_are_refused_before_training(tmp_path):
    lines = ["a/b,two"] + [f"word{k},mot{k}" for k in range(100)]
    (tmp_path / "own.csv").write_text("\n".join(lines))
    with pytest.raises(ValueError, match="without '/'"):
        train_table(tmp_path / "own.csv", tmp_path / "out", epochs=1, progress=False)
    assert not (tmp_path / "out").exists()


def test_columns_may_begin_alike(tmp_path):
    views = {name: x for name, x in zip(("text", "text.1"), linear_views().values())}
    made = train_table(files(tmp_path, views), tmp_path / "out", epochs=1, embed_dim=4, progress=False)
    assert list(load_table_encoders(made.folder).encoders) == ["text", "text.1"]


def test_the_command_embeds_new_rows(table, tmp_path, capsys):
    (tmp_path / "new.csv").write_text("one,two\nword,mot\nword,")
    words = ["embed", str(tmp_path / "new.csv"), "--trained", str(table / "out")]
    with pytest.raises(SystemExit) as end:
        main([*words, "--out", str(tmp_path / "new"), "--views", "one", "two"])
    assert not end.value.code and "two.npy: 2 rows of 8, 1 missing" in capsys.readouterr().out
    with pytest.raises(SystemExit) as end:
        main([*words, "--out", str(table / "out"), "--views", "one"])
    assert end.value.code == 2 and "holds a training" in capsys.readouterr().err
