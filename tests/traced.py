"""What a run calls, imports and opens; all of it must be in what its result depends on.

`python tests/traced.py codes/optimum ndim` traces these experiments at smoke size and says what lies outside;
results that they need are those of `make figures PROFILE=smoke`.
"""

from __future__ import annotations
import builtins
import contextlib
import ctypes
import os
import struct
import sys
import threading
from collections.abc import Iterable
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path


def _watcher(
    file: int,  # Descriptor, open for appending
    folder: str,  # Functions defined below it count
):  # For `sys.settrace`
    seen, own = {}, watch.__code__.co_filename

    def look(frame, event, argument):
        code = frame.f_code
        if id(code) not in seen:
            seen[id(code)] = code  # kept, so that no other code gets its id
            if code.co_filename.startswith(folder) and code.co_filename != own:
                os.write(file, f"{code.co_filename}\t{code.co_qualname}\n".encode())

    return look


def _kernels(folder: str) -> dict[int, tuple[int, object]]:
    "Compiled versions of every numba kernel of the loaded modules, by the identity of its dispatcher."
    modules = [m for m in list(sys.modules.values()) if str(getattr(m, "__file__", "")).startswith(folder)]
    found = [o for m in modules for o in vars(m).values() if type(o).__name__ == "CPUDispatcher"]
    return {id(d): (len(d.overloads), d.py_func.__code__) for d in found}


def _write_kernels(file: int, folder: str, before: dict) -> None:
    "A line for each kernel with a version that was not there before."
    for key, (versions, code) in _kernels(folder).items():
        if versions > before.get(key, (0, None))[0]:
            os.write(file, f"{code.co_filename}\t{code.co_qualname}\n".encode())


@contextlib.contextmanager
def _unwatched_compilation():
    "Inside, numba compiles without being watched, which takes minutes; it is imported for that."
    from numba.core.dispatcher import Dispatcher as dispatcher

    compile = dispatcher.compile

    def unwatched(*arguments):
        look = sys.gettrace()
        sys.settrace(None)
        try:
            return compile(*arguments)
        finally:
            sys.settrace(look)

    dispatcher.compile = unwatched
    try:
        yield
    finally:
        dispatcher.compile = compile


_OPEN, _FOLDER = 0x20, 0x40000000  # of inotify


@contextlib.contextmanager
def _opened_data(path: Path):
    "Lines `open, path` for what anything, compiled code too, opens below BRACE_NB_DATA."
    top = os.environ.get("BRACE_NB_DATA")
    if not top:
        yield
        return
    system = ctypes.CDLL(None)
    notes = system.inotify_init1(os.O_NONBLOCK)
    folders = [Path(top), *(p for p in Path(top).rglob("*") if p.is_dir())]
    places = {system.inotify_add_watch(notes, os.fsencode(p), _OPEN): p for p in folders}
    try:
        yield
    finally:
        with contextlib.suppress(BlockingIOError), open(path, "a") as file:
            while said := os.read(notes, 1 << 20):
                while said:
                    place, mask, _, length = struct.unpack_from("iIII", said)
                    name, said = said[16 : 16 + length].rstrip(b"\0").decode(), said[16 + length :]
                    if not mask & _FOLDER:
                        file.write(f"open\t{places[place] / name}\n")
        os.close(notes)


_CUSTOM = "from traced import watch\nwatch({path!r}, {folder!r})\n"


def _watch_imports(file: int, folder: str) -> None:
    "A line `import, name` for every import by a module below the folder, or by a cell."
    real = builtins.__import__

    def look(name, scope=None, local=None, fromlist=(), level=0):
        scope = scope or {}
        where, cell = scope.get("__file__") or "", scope.get("__name__") == "__main__"
        if not level and (cell or where.startswith(folder)) and where != watch.__code__.co_filename:
            os.write(file, f"import\t{name.partition('.')[0]}\n".encode())
        return real(name, scope, local, fromlist, level)

    builtins.__import__ = look


_WATCHED = set()  # Descriptors that are written to now


def _watch_files(file: int, folder: str) -> None:
    "A line `open, path` for every file that is opened to be read in the clone, but no code."
    clone, moved = str(Path(folder).parent), os.environ.get("BRACE_NB_DATA") or "/nowhere"

    def look(event, arguments):
        if (
            event == "open"
            and file in _WATCHED
            and isinstance(arguments[0], str)
            and not set("wxa+") & set(arguments[1] or "r")
        ):
            path = os.path.abspath(arguments[0])
            own = path.startswith(folder) or path == watch.__code__.co_filename
            if path.startswith((f"{clone}/", f"{moved}/")) and not own:
                os.write(file, f"open\t{path}\n".encode())

    _WATCHED.add(file)
    sys.addaudithook(look)  # for good


def watch(
    path: str,  # File to append to
    folder: str,  # Functions defined below it count
) -> int:  # Descriptor of the file
    "Write down every function that this process calls from now on."
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    look = _watcher(file, folder)
    _watch_imports(file, folder)
    _watch_files(file, folder)
    threading.settrace(look)
    sys.settrace(look)
    return file


@contextlib.contextmanager
def _programs(path: Path, folder: str):
    "Inside, Python programs that this process starts watch too."
    beside, before = path.with_suffix(".site"), os.environ.get("PYTHONPATH")
    beside.mkdir(parents=True, exist_ok=True)
    (beside / "sitecustomize.py").write_text(_CUSTOM.format(path=str(path), folder=folder))
    paths = [str(beside), str(Path(__file__).parent), *([before] if before else [])]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)
    try:
        yield
    finally:
        os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)


@contextlib.contextmanager
def traced(
    path: Path | str,  # Takes a line "file, tab, name" for every function that is called inside
    folder: Path | str,  # Functions defined below it count
):
    "Write down what the block calls; threads, forks and Python programs that it starts are watched too."
    path, folder = Path(path).resolve(), f"{Path(folder).resolve()}/"
    before, imports = _kernels(folder), builtins.__import__
    with _programs(path, folder), _unwatched_compilation(), _opened_data(path):
        file = watch(str(path), folder)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)
            builtins.__import__ = imports
            _write_kernels(file, folder, before)
            _WATCHED.discard(file)
            os.close(file)


def executed(
    path: Path | str,  # Written by `traced`
    folder: Path | str,  # That holds the package
) -> dict[str, set[str]]:  # Module -> names of its functions; "<module>" is its top level
    "What a block called."
    found = {}
    lines = Path(path).read_text(encoding="utf-8").splitlines() if Path(path).exists() else []
    for file, name in (line.split("\t") for line in lines if line.startswith("/")):
        module = Path(file).relative_to(Path(folder).resolve()).with_suffix("").as_posix().replace("/", ".")
        found.setdefault(module.removesuffix(".__init__"), set()).add(name)
    return found


_distributions = cache(packages_distributions)  # reads the lists of files of all that is installed


def used(
    path: Path | str,  # Written by `traced`
) -> tuple[set[str], set[str]]:  # Distributions that the package or a cell imports; files that were read
    "What else a block depends on."
    found = {"import": set(), "open": set()}
    for kind, name in (line.split("\t") for line in Path(path).read_text(encoding="utf-8").splitlines()):
        found.get(kind, set()).add(name)
    of = _distributions()
    return {d.lower() for name in found["import"] for d in of.get(name, ())}, found["open"]


_HARMLESS = set(  # Of the engine: nothing of a result is computed by them
    "brace_nb ipython execnb papermill nbformat matplotlib-inline pyyaml psutil tqdm".split()
)
# Their rows, parameters and cells are in the fingerprint one by one; results of others by their digests
OF_THE_ENGINE = ("data/claims", "data/under", "data/profiles", "data/derived", "nbs", "settings.ini")


def unheld(
    path: Path | str,  # Written by `traced`
    inputs: dict[str, str],  # From `fingerprint`
    clone: Path,
) -> list[str]:  # Distributions, files
    "What a run imported or read and its fingerprint does not hold."
    distributions, files = used(path)
    held = {words.split()[0] for words in inputs["packages"].split(", ")} | _HARMLESS
    data = [key.removeprefix("data ") for key in inputs if key.startswith("data ")]
    moved = Path(os.environ.get("BRACE_NB_DATA") or clone / "data")  # stands for `data`
    data = [str(moved / Path(name).relative_to("data")) for name in data if name.startswith("data/")]
    engine = (*OF_THE_ENGINE, "brace_nb.egg-info")
    asked = (*data, *(str(clone / f) for f in engine), sys.prefix)  # packages have versions
    return sorted(distributions - held) + sorted(f for f in files if not f.startswith(asked))


def outside(
    found: dict[str, set[str]],  # From `executed`
    modules: Iterable[str],  # What the result depends on
) -> list[str]:  # "module: its functions"
    "Functions that ran and that the result does not depend on."
    return [f"{module}: {', '.join(sorted(found[module]))}" for module in sorted(found.keys() - set(modules))]


def strange(experiment, folder):
    "Functions that an experiment calls outside its inputs."
    from functools import partial

    from brace_nb.companion import code_closure, fingerprint, root, run_notebook

    calls = Path(folder) / experiment.name.replace("/", "-")
    around = partial(traced, calls, root() / "brace_nb")
    run_notebook(experiment.path, f"{calls}.ipynb", experiment.values, root(), around=around)
    found = executed(calls, root())
    found.pop(run_notebook.__module__, None)  # shows the pictures of every notebook
    return outside(found, code_closure(experiment.sources)) + unheld(calls, fingerprint(experiment), root())


if __name__ == "__main__":
    import tempfile

    from brace_nb.companion import find_experiments, select

    with tempfile.TemporaryDirectory() as folder:
        os.environ["BRACE_NB_RUN"] = folder
        (Path(folder) / "run.json").write_text('{"profile": "smoke"}')
        for name, experiment in select(find_experiments("smoke"), ",".join(sys.argv[1:])).items():
            print(name, strange(experiment, folder) or "nothing outside")
