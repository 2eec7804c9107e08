"The lesson's recipes for databases against real servers: the ranking of `nearest`, ties included."

import glob
import json
import os
import shutil
import sqlite3
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

from brace_nb.codes import bit_strings, nearest, pack, unpack
from made_codes import random_codes

LESSON = Path(__file__).parents[1] / "nbs/2_codes/05b_databases.ipynb"


def lesson():
    "Names that the lesson defines, from its imports, tables and functions."
    cells = [
        "".join(c["source"]) for c in json.loads(LESSON.read_text())["cells"] if c["cell_type"] == "code"
    ]
    names = {}
    for cell in cells:
        if cell.startswith(("#| hide\nimport", "RECIPES", "def ")):
            exec(cell, names)
    return names


TAUGHT = lesson()
RECIPES, code_literals, fill_sqlite, search_sqlite = (
    TAUGHT[name] for name in ("RECIPES", "code_literals", "fill_sqlite", "search_sqlite")
)

DIM, TOP = 72, 8


def library():
    "Codes and queries with many ties, and a bit that all share, so that no similarity is 0."
    codes, asked = random_codes(400, DIM), random_codes(12, DIM, seed=1)
    codes[:, 0] = asked[:, 0] = True
    codes[7] = codes[3]
    return codes, asked


def expected(codes, asked):
    "Exact fractions in plain loops."
    found = []
    for query in asked:
        shared = [(int((query & code).sum()), int((query | code).sum())) for code in codes]
        order = sorted(range(len(codes)), key=lambda i: (-shared[i][0] / shared[i][1], i))[:TOP]
        found.append([(i, shared[i][0] / shared[i][1]) for i in order])
    return found


def same(found, wanted):
    assert [[i for i, _ in rows] for rows in found] == [[i for i, _ in rows] for rows in wanted]
    assert np.allclose([[s for _, s in rows] for rows in found], [[s for _, s in rows] for rows in wanted])


def test_sqlite(tmp_path):
    codes, asked = library()
    connection = sqlite3.connect(tmp_path / "codes.db")
    fill_sqlite(connection, codes)
    same(search_sqlite(connection, asked, TOP), expected(codes, asked))
    rows, _ = nearest(asked, codes, TOP)
    assert rows.tolist() == [[i for i, _ in row] for row in expected(codes, asked)]


def test_sqlite_leaves_nothing_half_filled():
    connection = sqlite3.connect(":memory:")
    with pytest.raises(sqlite3.IntegrityError):
        fill_sqlite(connection, random_codes(3, DIM), ids=[1, 1, 2])
    assert connection.execute("SELECT COUNT(*) FROM code").fetchone() == (0,)


def test_usearch():
    from usearch.index import MetricKind, search

    codes, asked = library()
    for query, wanted in zip(asked, expected(codes, asked)):
        found = search(pack(codes), pack(query[None]), len(codes), MetricKind.Jaccard, exact=True)
        order = np.lexsort((found.keys, found.distances))[:TOP]
        same([list(zip(found.keys[order].tolist(), (1 - found.distances[order]).tolist()))], [wanted])


def test_texts_of_codes():
    code = np.zeros((1, 8), bool)
    code[0, [1, 7]] = True
    assert bit_strings(code) == ["01000001"] and pack(code).tolist() == [[130]]
    assert code_literals(code, "list") == ["[1, 7]"] and code_literals(code, "array") == ["{1, 7}"]
    with pytest.raises(ValueError, match="uint8"):
        bit_strings(pack(code))


def programs():
    "The folder of PostgreSQL's programs, or None: those of the path, else the newest of Debian."
    known = [shutil.which("initdb"), *sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"), reverse=True)]
    folders = [Path(path).resolve().parent for path in known if path]
    return next((folder for folder in folders if (folder / "psql").is_file()), None)


@pytest.fixture(scope="module")
def psql():
    "A function that runs SQL on a server of its own, which lives in a temporary folder."
    where = programs()
    if where is None:
        pytest.skip("PostgreSQL's initdb is not installed")
    owner = dict(user="nobody") if os.getuid() == 0 else {}
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    quiet = dict(check=True, capture_output=True, text=True, cwd="/", **owner)
    if owner:
        shutil.chown(folder, "nobody")
    data = ["-D", folder / "data"]
    subprocess.run([where / "initdb", *data, "-A", "trust", "-U", "me", "-N"], **quiet)
    settings = f"-k {folder} -c listen_addresses='' -c fsync=off -c max_connections=5"
    start = [where / "pg_ctl", *data, "-w", "-l", folder / "log", "-o", settings, "start"]
    subprocess.run(start, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/", **owner)

    def run(sql):
        words = [where / "psql", "-h", folder, "-U", "me", "-d", "postgres", "-qAt", "-v", "ON_ERROR_STOP=1"]
        return subprocess.run([*words, "-F", ","], input=sql, **quiet).stdout

    try:
        yield run
    finally:
        subprocess.run([where / "pg_ctl", *data, "-m", "immediate", "stop"], **quiet)
        shutil.rmtree(folder)


def has(psql, extension):
    known = psql(f"SELECT count(*) FROM pg_available_extensions WHERE name = '{extension}';")
    if known.strip() != "1":
        pytest.skip(f"the extension {extension} is not installed in PostgreSQL")


def literal(text, kind):
    return f"B'{text}'" if kind == "bits" else f"'{text}'"


def in_postgresql(psql, name, more=""):
    "What a recipe finds for each query."
    (codes, asked), recipe = library(), RECIPES[name]
    texts = [literal(text, recipe["query"]) for text in code_literals(codes, recipe["query"])]
    rows = ",".join(f"({i},{text})" for i, text in enumerate(texts))
    create = recipe["create"].format(dim=DIM)
    fill = f"DROP TABLE IF EXISTS code;\n{create}\nINSERT INTO code VALUES {rows};"
    psql("SET client_min_messages = error;" + fill + more)
    found = []
    for text in code_literals(asked, recipe["query"]):
        sql = recipe["search"].replace(":query", literal(text, recipe["query"])).replace(":k", str(TOP))
        lines = [line.split(",") for line in psql(sql + ";").splitlines()]
        found.append([(int(i), float(s)) for i, s in lines])
    return found, expected(codes, asked)


def test_postgresql_arrays_of_whole_numbers(psql):
    has(psql, "intarray")
    same(*in_postgresql(psql, "postgresql intarray"))
    query = "SET enable_seqscan = off; EXPLAIN SELECT id FROM code WHERE bits && '{1,2}'::int[];"
    assert "code_bits_idx" in psql(query)  # the GIN index answers


def test_postgresql_bit_strings(psql):
    if int(psql("SHOW server_version_num;")) < 140000:
        pytest.skip("bit_count came with PostgreSQL 14")
    same(*in_postgresql(psql, "postgresql bit"))


def test_postgresql_pgvector(psql):
    has(psql, "vector")
    same(*in_postgresql(psql, "postgresql pgvector"))


def test_postgresql_pgvector_by_its_index(psql):
    "The index is used, and finds as similar codes as there are for nine places of ten."
    has(psql, "vector")
    psql("ALTER ROLE me SET enable_seqscan = off;")
    name = "postgresql pgvector, by its index"
    found, wanted = in_postgresql(psql, name)
    good = [s >= best[-1][1] - 1e-9 for rows, best in zip(found, wanted) for _, s in rows]
    assert len(good) == 12 * TOP and np.mean(good) >= 0.9
    plan = RECIPES[name]["search"].replace(":query", f"B'{'01' * (DIM // 2)}'").replace(":k", "3")
    assert "Index Scan using code_code_idx" in psql(f"EXPLAIN {plan};")
    psql("ALTER ROLE me RESET enable_seqscan;")


def test_postgresql_reads_a_csv_file_of_codes(psql):
    has(psql, "intarray")
    codes, _ = library()
    psql("DROP TABLE IF EXISTS code;" + RECIPES["postgresql intarray"]["create"])
    lines = "".join(f'{i},"{text}"\n' for i, text in enumerate(code_literals(codes, "array")))
    psql(f"COPY code FROM STDIN CSV;\n{lines}\\.\n")
    counted = psql("SELECT id, icount(bits) FROM code ORDER BY id;").split()
    assert counted == [f"{i},{n}" for i, n in enumerate(codes.sum(1))]


def test_psql_fills_in_the_names_of_a_recipe(psql):
    has(psql, "intarray")
    codes, asked = library()
    psql("DROP TABLE IF EXISTS code;" + RECIPES["postgresql intarray"]["create"])
    texts = enumerate(code_literals(codes, "array"))
    psql("INSERT INTO code VALUES " + ",".join(f"({i},'{text}')" for i, text in texts) + ";")
    query = code_literals(asked, "array")[0]
    sql = f"\\set query '''{query}'''\n\\set k {TOP}\n" + RECIPES["postgresql intarray"]["search"] + ";"
    assert [int(line.split(",")[0]) for line in psql(sql).split()] == [
        i for i, _ in expected(codes, asked)[0]
    ]


def test_the_files_that_the_lesson_on_own_embeddings_writes(psql, monkeypatch):
    "Its SQL, as `psql -f` reads it, ranks signs by Hamming distance as `nearest` does."
    cells = json.loads((LESSON.parent / "10_own_embeddings.ipynb").read_text())["cells"]
    (cell,) = [c for c in cells if "def write_postgresql" in "".join(c["source"])]
    names = dict(np=np, bit_strings=bit_strings, unpack=unpack)
    exec("".join(cell["source"]).split("\n\n\nwrite_postgresql(")[0], names)
    codes, asked = library()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        with monkeypatch.context() as patch:
            patch.chdir(folder)
            names["write_postgresql"](pack(codes), pack(asked), DIM)
        sql = Path(folder, "codes.sql").read_text().replace("codes.csv", f"{folder}/codes.csv")
        found = psql("DROP TABLE IF EXISTS code;\n" + sql).split()
    rows, _ = nearest(asked, codes, 5, "hamming")
    assert np.array(found, int).reshape(-1, 5).tolist() == rows.tolist()
