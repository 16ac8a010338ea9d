# SPDX-License-Identifier: Apache-2.0
"""The functions of the package. `simulate` runs in this process; what forks, prints and takes long
(`plan`, `sweep` ...) is asked of the program, which answers in JSON."""

import contextlib
import functools
import gzip
import json
import os
import pathlib
import re
import subprocess
import tempfile
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from typing import Any, Dict, List, Mapping, Optional, Union

from . import _core, elsewhere, errors
from .results import Result
from .values import changes_of, is_text, one_of_list, range_of, text_of, value_of, yaml_of

Scenario = Union[str, "os.PathLike[str]", Mapping[str, Any], "ReadScenario"]

_HERE = pathlib.Path(__file__).resolve().parent
_TABLE = _core.command_table()
_OK, _WRONG_INPUT, _OUT_OF_TOLERANCE = 0, 2, 3


def program() -> str:
    """The program `penstock` that belongs to this package."""
    return str((_HERE / "bin" / "penstock").resolve())


_core.set_program_path(program())


class ReadScenario:
    """A scenario read once, to be simulated many times; files that change meanwhile change nothing.

    >>> import penstock
    >>> scenario = penstock.ReadScenario("small-1f1b")
    >>> [scenario.simulate(engine="exact", microbatches=m).makespan_s for m in (4, 8)]
    [26.0, 41.0]
    """

    def __init__(self, source: Scenario):
        source = _require_text("scenario", yaml_of(source) if isinstance(source, Mapping) else os.fspath(source))
        if is_text(source):
            self._core = _core.ReadScenario.of_text(source, "scenario")
        else:
            self._core = _core.ReadScenario.of_file(source)

    def simulate(self, *, engine: str = "simgrid", **overrides: Any) -> Result:
        changes = changes_of(overrides)
        for key, value in changes:
            _require_text(f"--set {key}", key + value)
        return Result(self._core.simulate(changes, engine))

    def _stamps(self):
        return [(path, _stamp(path)) for path in self._core.own_files()]


def _require_text(where: str, text: str) -> str:
    """What no file, no word of a command line and no scenario can have is said here."""
    found = re.search("[\0\ud800-\udfff]", text)
    if found is None:
        return text
    why = "has a NUL character" if found[0] == "\0" else f"has half a character, {ascii(found[0])}"
    raise errors.InputError([(where, 0, 0, why, f"{where}: {why}")])


def _stamp(path):
    try:
        seen = os.stat(path)
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_size, seen.st_ino


@functools.lru_cache(maxsize=32)
def _kept(source, folder, home):
    return [ReadScenario(source), []]


def _read(source: Scenario) -> "ReadScenario":
    """Read again when one of its own files has changed since."""
    if isinstance(source, ReadScenario):
        return source
    source = _require_text("scenario", yaml_of(source) if isinstance(source, Mapping) else os.fspath(source))
    key = source, os.getcwd(), os.environ.get("PENSTOCK_HOME")
    kept = _kept(*key)
    if any(_stamp(path) != stamp for path, stamp in kept[1]):
        kept[:] = ReadScenario(source), []
    return kept


def simulate(scenario: Scenario, *, engine: str = "simgrid", **overrides: Any) -> Result:
    """Does a scenario fit, how fast is it, and why.

    `scenario`: a dict, YAML text, a file, or the name of a shipped one. Overrides are keys of
    scenarios: `microbatches=32`, `cluster__inter="100 Gbps"`.

    >>> simulate("small-1f1b", engine="exact", microbatches=8).makespan_s
    41.0
    >>> simulate("small-1f1b", microbatchez=8)
    Traceback (most recent call last):
    ...
    penstock.errors.InputError: --set microbatchez=8: ...
    """
    kept = _read(scenario)
    if isinstance(kept, ReadScenario):
        return kept.simulate(engine=engine, **overrides)
    try:
        return kept[0].simulate(engine=engine, **overrides)
    finally:
        known = {path for path, _ in kept[1]}
        kept[1] += [s for s in kept[0]._stamps() if s[0] not in known]


# --- asked of the program -----------------------------------------------------------------------


def _words(command: str, options: Mapping[str, Any]) -> List[str]:
    """Options by their names with '_' for '-'; other names are keys of the scenario."""
    known = {name: (value, repeated) for name, value, _, repeated, _ in _TABLE[command][3]}
    words = []
    for key, given in options.items():
        name = key.replace("_", "-")
        if name not in known:
            if "set" not in known or command == "calibrate":  # whose scenario is rarely one
                raise TypeError(f"penstock {command} has no option '{name}'")
            words += ["--set=" + "=".join(change) for change in changes_of({key: given})]
            continue
        value, repeated = known[name]
        if not value:
            words += [f"--{name}"] * bool(given)
        elif given is not None:
            words += [f"--{name}={text}" for text in _texts(given, repeated)]
    return words


def _texts(given: Any, repeated: bool) -> List[str]:
    if isinstance(given, Mapping) and repeated:  # {"stages": [2, 4]}
        return [f"{key}={_listed(values, key)}" for key, values in given.items()]
    if repeated and isinstance(given, (list, tuple)):
        return [text_of(one) for one in given]
    return [text_of(given) if isinstance(given, Mapping) else _listed(given)]


def _listed(values: Any, key: str = "") -> str:
    if isinstance(values, (list, tuple, range)):
        return range_of(values) or ",".join(one_of_list(value_of(key, value)) for value in values)
    return os.fspath(values) if isinstance(values, os.PathLike) else text_of(values)


def ask(command: str, sources: List[Any], options: Mapping[str, Any]) -> str:
    """What the program prints. Throws what it says is wrong."""
    with _started(command, sources, options) as process:
        return _answer_of(process)


@contextlib.contextmanager
def _started(command, sources, options, **settings):
    """The program at work; ended when this is left."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        names = [_file_of(source, folder, i) for i, source in enumerate(sources)]
        words = [*command.split(), *_words(command, options), "--", *names]  # a name is no option
        _require_short(words)
        with subprocess.Popen([program(), *words], stdin=subprocess.DEVNULL, text=True,
                              env={**os.environ, "PENSTOCK_ERRORS": "json"},
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, **settings) as process:
            try:
                yield process
            except BaseException:
                _end(process)
                raise


_MOST_OF_WORD = 131_071  #: bytes: Linux starts no program with a longer one


def _require_short(words: List[str]) -> None:
    for word in words:
        try:
            os.fsencode(word)
        except UnicodeEncodeError:
            _require_text(word.partition("=")[0], word)
        if "\0" in word:
            _require_text(ascii(word.partition("=")[0]), word)
        size = len(os.fsencode(word))
        if size <= _MOST_OF_WORD:
            continue
        option, _, value = word.partition("=")
        where = f"{option} {value.partition('=')[0][:60]}"
        why = f"is of {size} bytes, and {_MOST_OF_WORD} are the most; give a range, or a part at a time"
        raise errors.InputError([(where, 0, 0, why, f"{where}: {why}")])


def _end(process: "subprocess.Popen[str]") -> None:
    """So that nothing of it is left: it may take half a second to clean up."""
    process.terminate()
    try:
        process.wait(0.5)
    except subprocess.TimeoutExpired:
        process.kill()
    process.wait()


def _answer_of(process: "subprocess.Popen[str]") -> str:
    output, said = process.communicate()
    if process.returncode in (_OK, _OUT_OF_TOLERANCE):
        return output
    raise _error_in(said, process.returncode)


def _asked(executor: Optional[Executor], command: str, sources: List[Any], options: Mapping[str, Any]) -> str:
    return ask(command, sources, options) if executor is None else _ask_with(executor, command, sources, options)


def _ask_with(executor: Executor, command: str, sources: List[Any], options: Mapping[str, Any]) -> str:
    """The same, while the executor computes its points."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    try:
        options = {**options, "on": f"pipes:{theirs_in},{theirs_out}"}
        with _started(command, sources, options, pass_fds=(theirs_in, theirs_out)) as process, \
                ThreadPoolExecutor(1) as reader:
            os.close(theirs_in)
            os.close(theirs_out)
            theirs_in = theirs_out = -1
            answer = reader.submit(_answer_of, process)
            read, write = os.fdopen(ours_in, "rb"), os.fdopen(ours_out, "wb")
            ours_in = ours_out = -1
            try:
                elsewhere.serve(executor, read, write)
            except BrokenExecutor as broken:
                raise errors.SystemError(f"the executor broke: {broken}; {_why(answer)}") from broken
            except BaseException:
                _end(process)
                raise
            return answer.result()
    finally:
        for descriptor in {theirs_in, theirs_out, ours_in, ours_out} - {-1}:
            os.close(descriptor)


def _why(answer: "Future[str]") -> str:
    error = answer.exception()
    return "" if error is None else str(error)


def _file_of(source: Any, folder: str, number: int) -> str:
    """A scenario given as dict or text as a file that lasts as long as the call."""
    if isinstance(source, Mapping):
        source = yaml_of(source)
    elif not isinstance(source, str) or not is_text(source):
        return os.fspath(source)
    _require_text("scenario", source)
    path = os.path.join(folder, f"scenario{number or ''}.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(source)
    return path


def _error_in(text: str, code: int) -> Exception:
    try:
        said = json.loads(text.strip().split("\n")[-1])
    except ValueError:
        why = text.strip() or f"penstock ended with {code}"
        # What compares or validates several files says of each by itself what is wrong with it.
        return errors.InputError([("", 0, 0, why, why)]) if code == _WRONG_INPUT else errors.SystemError(why)
    if said["kind"] == "input":
        return errors.InputError([(d["file"], d["line"], d["column"], d["message"], d["rendered"])
                                  for d in said["diagnostics"]])
    return {"bug": errors.InternalBug}.get(said["kind"], errors.SystemError)(said["message"])


def _asked_json(command: str, sources: List[Any], options: Mapping[str, Any],
                executor: Optional[Executor] = None) -> Any:
    """What the program prints as JSON, or has written to `output`."""
    text = _asked(executor, command, sources, {**options, "format": "json"})
    output = options.get("output")
    if output is not None and os.fspath(output) != "-":
        opened = gzip.open if os.fspath(output).endswith(".gz") else open
        with opened(output, "rt", encoding="utf-8") as file:
            text = file.read()
    return json.loads(text)


def compare(*scenarios: Scenario, **options: Any) -> List[Dict[str, Any]]:
    """Scenarios or results side by side: the fields of each. `over={"schedule": [...]}` is a row
    for each value.

    >>> rows = compare("small-1f1b", over={"schedule": ["1f1b", "gpipe"]}, engine="exact")
    >>> [row["schedule"] for row in rows]
    ['1f1b', 'gpipe']
    """
    return _asked_json("compare", list(scenarios), options)


def schedule(name: str, **keys: Any) -> Dict[str, Any]:
    """A schedule with unitless op times: what `penstock schedule show` draws.

    >>> schedule("1f1b", stages=4, microbatches=8)["ideal_bubble"] > 0
    True
    """
    return _asked_json("schedule show", [name], keys)


def plan(source: Scenario, *, executor: Optional[Executor] = None, **options: Any) -> Dict[str, Any]:
    """What to run: the best partition, degrees, microbatch and schedule, by our own search over all
    of them, `search="full"`, whose candidates are tasks of the executor, if there is one. Of a
    profile `search="pipedream"` is the default; `search` names another published planner.
    `without_headroom` of our own search says what leaving memory free costs (docs/plan.md)."""
    return _asked_json("plan", [source], options, executor)


def validate(*files: Any, **options: Any) -> Any:
    """Recordings of real runs, and published times, against what is predicted."""
    return _asked_json("validate", list(files), options)


def train(*scenarios: Scenario, **options: Any) -> List[Dict[str, Any]]:
    """Trains scenarios for real under the update rules of their schedules: for each what
    `penstock train --format json` says of it, its loss curves among it."""
    return _asked_json("train", list(scenarios), options)["scenarios"]


def calibrate(source: Any = None, **options: Any) -> Dict[str, Any]:
    """Measures stages and links on this machine. `profile` of what it returns is the text of the
    profile, which is kept where `output` says; else nowhere."""
    sources = [] if source is None else [source]
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        output = options.setdefault("output", os.path.join(folder, "profile.yaml"))
        said = json.loads(ask("calibrate", sources, {**options, "format": "json"}))
        said["profile"] = pathlib.Path(output).read_text(encoding="utf-8")
    return said


def sweep(*scenarios: Scenario, over: Mapping[str, Any], executor: Optional[Executor] = None,
          **options: Any) -> "Rows":
    """Every combination of the values of `over`, on all cores of this machine, or as tasks of an
    executor (Dask's, MPI's, any of `concurrent.futures`; its workers need this package).

    With `output` the rows go to that file and none are returned; `resume=True` continues it.

    >>> rows = sweep("small-1f1b", over={"stages": [2, 4], "microbatches": [4, 8]}, engine="exact")
    >>> [(row["stages"], row["microbatches"], row["makespan_s"]) for row in rows]
    [(2, 4, 17), (2, 8, 31), (4, 4, 26), (4, 8, 41)]
    """
    options = {**options, "over": over}
    if options.get("output") is None:
        options["format"] = "json"
    text = _asked(executor, "sweep", list(scenarios), options)
    # A line feed alone: other ends of lines may stand in a name.
    rows = Rows(json.loads(line) for line in text.split("\n") if line and "format" in options)
    for key, values in over.items():
        given = _given(key.replace("__", "."), values)
        for row in rows if given else ():
            row[key] = given.get(row.get(key), row.get(key))
    return rows


def _given(key, values):
    """What rows have of values that were quoted, with the values as they were given."""
    texts = [v for v in values if isinstance(v, str)] if isinstance(values, (list, tuple)) else []
    return {one_of_list(value_of(key, v)): v for v in texts if _core.is_text_key(key)}


class Rows(List[Dict[str, Any]]):
    """Rows of a sweep, in order of its points."""

    def DataFrame(self) -> Any:  # noqa: N802 - what it returns
        """As pandas has it."""
        import pandas

        return pandas.DataFrame(list(self))

    def _repr_html_(self) -> str:
        return self.DataFrame()._repr_html_()
