"Figures, ledger, fingerprints and the command line."

import json
import os
import subprocess
import sys

import matplotlib
import numpy as np
import pandas as pd
import pytest
import yaml

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402

from brace_nb.companion import claims as C  # noqa: E402
from brace_nb.companion.experiments import code_closure, differences, load_profile, parameters, root  # noqa: E402
from brace_nb.companion.figures import METHODS, PALETTE, method_style, save_figure, to_csv, use_style  # noqa: E402

DRAW = """
import matplotlib; matplotlib.use("Agg")
import matplotlib.pyplot as plt, numpy as np
from brace_nb.companion.figures import save_figure, use_style
use_style()
fig, ax = plt.subplots()
ax.plot(np.linspace(0, 1, 9), np.random.default_rng(0).random(9), label="$x^2$"); ax.scatter([0, 1], [0, 1]); ax.legend()
save_figure(fig, "part/name", data=dict(x=[0.1, 1/3]), alt="A line of nine random points.")
"""


def test_two_processes_draw_the_same_bytes(tmp_path):
    made = []
    for name in "ab":
        (tmp_path / name).mkdir()
        subprocess.run(
            [sys.executable, "-c", DRAW], env=os.environ | {"BRACE_NB_RUN": str(tmp_path / name)}, check=True
        )
        made.append({p.suffix: p.read_bytes() for p in sorted((tmp_path / name / "figures/part").iterdir())})
    assert set(made[0]) == {".png", ".svg", ".csv", ".json"} and made[0] == made[1]
    assert made[0][".csv"] == b"x\n0.1\n0.333333333\n"


def test_save_figure_refuses_what_the_house_does_not_print(tmp_path, monkeypatch):
    monkeypatch.setenv("BRACE_NB_RUN", str(tmp_path))
    use_style()
    fig, _ = plt.subplots()
    frame, alt = pd.DataFrame(dict(x=[1])), "A sentence with enough words."
    for bad, word in [
        (dict(name="name"), "part/name"),
        (dict(alt="short"), "alternative text"),
        (dict(data=None), "needs `data`"),
    ]:
        with pytest.raises(ValueError, match=word):
            save_figure(fig, **(dict(name="a/b", data=frame, alt=alt) | bad))
    wide, _ = plt.subplots(figsize=(5, 2))
    with pytest.raises(ValueError, match="final size"):
        save_figure(wide, "a/b", data=frame, alt=alt)
    save_figure(fig, "a/b", data={"one": frame, "two": frame}, alt=alt)
    assert {p.name for p in (tmp_path / "figures/a").glob("*.csv")} == {"b.one.csv", "b.two.csv"}


DRAWN_TOGETHER = {
    "codes": "float binary ternary sign top-k rotation itq random image text hamming cosine",
    "solvers": "exact greedy_delta greedy_best argbest recursive_top2 recursive_extend gumbel sinkhorn network scipy lapx",
    "formats": "fp32 fp16 bf16 e4m3 e5m2",
    "losses": "pairs axis slice sigmoid",
    "forms": "direct gram streaming einsum",
    "objectives": "clip siglip barlow pcl",
}


def test_methods_have_styles_of_their_own():
    groups = [names.split() for names in DRAWN_TOGETHER.values()]
    assert sorted(sum(groups, [])) == sorted(METHODS)
    assert all(len({METHODS[m] for m in names}) == len(names) for names in groups)
    assert all(method_style(m)["color"] in PALETTE.values() for m in METHODS)
    assert (
        to_csv(pd.DataFrame(dict(x=[1 / 3]), index=pd.Index(["a"], name="key"))) == "key,x\na,0.333333333\n"
    )


def row(**changes):
    return (
        dict(
            seed="s",
            where="w",
            says=1.0,
            tolerance=0.5,
            why="reason",
            needs="nothing",
            experiment="a/b",
            verdict="reproduced",
        )
        | changes
    )


@pytest.fixture
def project(tmp_path, monkeypatch):
    for sub in ("nbs", "data", "figures"):
        (tmp_path / sub).mkdir()
    (tmp_path / "settings.ini").touch()
    monkeypatch.setenv("BRACE_NB_ROOT", str(tmp_path))
    monkeypatch.setenv("BRACE_NB_RUN", str(tmp_path / "run"))
    return tmp_path


def write(project, rows):
    (project / "data/claims.yaml").write_text(yaml.safe_dump(rows, sort_keys=False))


@pytest.mark.parametrize(
    "change, message",
    [
        (dict(verdict="maybe"), "is none of"),
        (dict(tolerance=None, says="sentence"), "a sentence has none"),
        (dict(why=""), "has a reason"),
        (dict(on_miss="wrong"), "on_miss"),
        (dict(extra=1), "unknown fields"),
        (dict(experiment=None), "is `not run`"),
    ],
)
def test_rows_are_checked(project, change, message):
    write(project, {"a": row(**change)})
    with pytest.raises(ValueError, match=message):
        C.load_claims()


def test_record_judges_and_refuses(project):
    sentence = row(says="it holds", on_miss="refuted")
    del sentence["tolerance"], sentence["why"]
    write(project, {"number": row(), "sentence": sentence})
    assert C.record("number", np.float32(1.25)) == "reproduced"
    assert C.record("number", 1.75) == "differs"
    assert C.record("sentence", "fact", holds=np.bool_(True)) == "reproduced"
    assert C.record("sentence", "fact", "by this counterexample", holds=False) == "refuted"
    for bad, message in [
        (("numbr", 1), r"unknown ledger id 'numbr'; close: \['number'\]"),
        (("number", "one"), "finite number"),
        (("number", float("inf")), "finite number"),
        (("sentence", 1), "holds=True"),
        (("number", 1, "", True), "drop `holds`"),
        (("sentence", "x", "", False), "by what proof"),
    ]:
        with pytest.raises(ValueError, match=message):
            C.record(*bad)
    (project / "run/run.json").write_text(json.dumps(dict(experiment="c/d")))
    with pytest.raises(ValueError, match="belongs to experiment"):
        C.record("number", 1)


def test_ledger_joins_keeps_and_reports(project):
    write(project, {"a": row(), "b": row(), "c": row(experiment=None, verdict="not run", needs="GPU | more")})
    first = C.write_ledger({"a": dict(measured=1.1, verdict="reproduced", note="n")})
    assert C.counts(first) == {"reproduced": 1, "differs": 0, "refuted": 0, "not run": 2}
    assert C.problems(first) == ["b: experiment a/b did not record it"]
    second = C.write_ledger({"b": dict(measured=9.0, verdict="differs", note="")})
    assert second[0]["measured"] == 1.1 and "accepts 'reproduced'" in C.problems(second)[0]
    assert C.problems([r | {"needs": "data"} for r in second], exact_only=True) == []
    page = (project / "figures/CLAIMS.md").read_text()
    assert "3 rows: 1 reproduced, 1 differs, 0 refuted, 1 not run." in page and "needs GPU \\| more" in page


def test_closure_follows_modules_methods_registers_and_reexports(tmp_path):
    package = tmp_path / "pkg"
    (package / "sub").mkdir(parents=True)
    (package / "base.py").write_text(
        "REGISTRY = {}\ndef register(f): REGISTRY[f.__name__] = f; return f\n@register\ndef always(): return deep()\ndef deep(): return 1\ndef other(): return 2\n"
    )
    (package / "sub/top.py").write_text(
        "from ..base import other as renamed\nimport functools\n@functools.lru_cache\ndef f():\n    from pkg.base import REGISTRY\n    return renamed() + len(REGISTRY)\nclass K:\n    def g(self): return f()\ndef h(): return 3\n"
    )
    names = lambda code: set(code_closure([code], tmp_path, "pkg"))
    assert names("from pkg.sub.top import h") == {"pkg.sub.top:h"}
    assert names("from pkg.sub.top import K") == {
        "pkg.sub.top:K",
        "pkg.sub.top:f",
        "pkg.base:other",
        "pkg.base:REGISTRY",
        "pkg.base:<import>",
        "pkg.base:register",
        "pkg.base:deep",
    }
    assert {"pkg.sub.top:h", "pkg.sub.top:K"} <= names("from pkg.sub import top") and {
        "pkg.sub.top:h",
        "pkg.sub.top:K",
    } <= names("import pkg.sub.top as t")
    before = code_closure(["from pkg.base import other"], tmp_path, "pkg")
    (package / "base.py").write_text((package / "base.py").read_text().replace("return 1", "return 5"))
    after = code_closure(["from pkg.base import other"], tmp_path, "pkg")
    assert before != after, "what a module registers on import counts, with what that uses"


def test_parameters_and_profiles(project):
    def notebook(*cells):
        (project / "nbs/n.ipynb").write_text(
            json.dumps(
                dict(cells=[dict(cell_type="code", source=s, metadata=dict(tags=t)) for s, t in cells])
            )
        )
        return project / "nbs/n.ipynb"

    assert parameters(
        notebook(("a = 1\nb = [1, {'x': -2}]", ["parameters"]), ("%matplotlib inline\na, b", []))
    ) == dict(a=1, b=[1, {"x": -2}])
    for cells, message in [
        ([("a", [])], "exactly one"),
        ([("a = 1", ["parameters"]), ("b = 2", [])], "never read"),
        ([("a = f(1)", ["parameters"]), ("a", [])], "not a literal"),
        ([("import x", ["parameters"])], "lines only"),
    ]:
        with pytest.raises(ValueError, match=message):
            parameters(notebook(*cells))
    (project / "data/profiles").mkdir()
    (project / "data/profiles/cpu.yaml").write_text("all: {device: cpu}\npart/name: {a: 1}\n")
    p = load_profile("cpu")
    assert (p.everywhere, p.experiments, p.requires) == ({"device": "cpu"}, {"part/name": {"a": 1}}, "")
    with pytest.raises(ValueError, match="known: cpu"):
        load_profile("tpu")
    assert differences({"a": "1", "b": "2"}, {"a": "1", "c": "3"}) == ["c is new", "b is gone"]


def test_missing_checkout_says_what_was_expected(tmp_path, monkeypatch):
    monkeypatch.setenv("BRACE_NB_ROOT", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="settings.ini"):
        root()


def command(*words):
    return subprocess.run(
        [sys.executable, "-c", "from brace_nb.companion.cli import main; main()", *map(str, words)],
        capture_output=True,
        text=True,
    )


def test_binarize_command(tmp_path):
    v = np.random.default_rng(0).exponential(size=(300, 40)).astype(np.float32)
    np.save(tmp_path / "in.npy", v)
    done = command("binarize", tmp_path / "in.npy", tmp_path / "out.npy", "--rows", 64)
    assert done.returncode == 0, done.stderr
    from brace_nb.codes.codes import unpack
    from brace_nb.codes.projection import binarize, ternarize

    assert (unpack(np.load(tmp_path / "out.npy"), 40) == binarize(v)).all() and "300" in done.stdout
    assert command("binarize", tmp_path / "in.npy", tmp_path / "dense.npy", "--dense").returncode == 0
    assert (np.load(tmp_path / "dense.npy").astype(bool) == binarize(v)).all()
    np.save(tmp_path / "signed.npy", v - 1)
    refused = command("binarize", tmp_path / "signed.npy", tmp_path / "no.npy")
    assert (
        refused.returncode == 2 and "Traceback" not in refused.stderr and not (tmp_path / "no.npy").exists()
    )
    assert (
        command("binarize", tmp_path / "signed.npy", tmp_path / "t.npy", "--ternary", "--dense").returncode
        == 0
    )
    assert (np.load(tmp_path / "t.npy") == ternarize(v - 1)).all()
    missing = command("binarize", tmp_path / "none.npy", tmp_path / "x.npy")
    assert missing.returncode == 2 and "none.npy" in missing.stderr


def test_list_and_help():
    assert command("--help").returncode == 0
    listed = command("list", "--profile", "smoke")
    assert listed.returncode == 0 and "codes/" in listed.stdout
