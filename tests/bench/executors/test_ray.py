"""A real local Ray gives the records that one process gives, whoever dies meanwhile."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
import torch

from command import seqdg
from seqdg.base import SEAL_SIZE
from seqdg.bench.executors import ray as executors
from seqdg.data import make_dataset
from seqdg.results import Store

RAY = importlib.util.find_spec("ray") is not None
needs_ray = pytest.mark.skipif(not RAY, reason="Ray is not installed: `pip install 'seqdg[ray]'` installs it.")
MAIN = "from seqdg.cli import main; main()"
WORDS = ["bench", "--algorithms", "agg,fo-s-mldg,ffo-s-mldg,mldg", "--trials", "2", "--steps", "60"]
ON_RAY = [*WORDS, "--executor", "ray", "--workers", "2", "--checkpoint", "0.2"]


def started(*words: object, mark: str = "", code: str = MAIN, **environment: str) -> subprocess.Popen[str]:
    """`mark` is in the environment of all that comes of it, so that it can be found."""
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, words)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "SEQDG_TEST_MARK": mark, **environment}, start_new_session=True,
    )  # fmt: skip


def finished(run: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = run.communicate(timeout=240)
    return run.returncode, out, err


def results(directory: Path) -> list[tuple[object, ...]]:
    return [(r.key, r.status, r.weights, r.history, r.losses) for r in Store.open(directory).records()]


def wait_for(condition: Callable[[], Any], run: subprocess.Popen[str]) -> Any:
    """Wait until the condition holds; return what it says."""
    until = time.monotonic() + 120
    while not (said := condition()):
        assert run.poll() is None, "it has ended too early"
        assert time.monotonic() < until, "it has not come so far"
        time.sleep(0.05)
    return said


def under_way(directory: Path) -> bool:
    """By its checkpoints, which come sooner than notes in the store: a short run may end without any of those."""
    if any((directory / "checkpoints").glob("*.safetensors")):
        return True
    try:
        return any(group.step > 0 for group in Store.open(directory).running())
    except ValueError:
        return False


def ray_workers(mark: str) -> list[int]:
    """Processes that Ray runs a group in, of the test with this mark."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            ours = f"SEQDG_TEST_MARK={mark}".encode() in (folder / "environ").read_bytes()
            if ours and (folder / "cmdline").read_bytes().startswith(b"ray::_train_remotely"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[tuple[object, ...]], str]:
    """Records and table of one process."""
    directory = tmp_path_factory.mktemp("alone")
    done = seqdg(*WORDS, "--workers", 0, "--out", directory)
    assert done.returncode == 0, done.stderr
    return results(directory), done.stdout


@pytest.mark.ray
@needs_ray
@pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="Ray's workers are found by /proc, which is not here."
)
def test_ray_gives_the_records_of_one_process_and_keeps_weights_though_a_worker_is_killed(
    tmp_path: Path, expected
) -> None:
    mark = uuid4().hex
    run = started(*ON_RAY, "--save-weights", "--out", tmp_path, mark=mark)
    (victim, *_) = wait_for(lambda: under_way(tmp_path) and ray_workers(mark), run)
    os.kill(victim, signal.SIGKILL)
    code, out, err = finished(run)
    assert code == 0, err
    assert "with 2 workers" in err
    assert results(tmp_path) == expected[0]
    assert out == expected[1]
    saved = {path.stem for path in (tmp_path / "weights").iterdir()}
    assert saved == {key for key, *_ in expected[0]}
    assert not list((tmp_path / "checkpoints").glob("*"))


@pytest.mark.ray
@needs_ray
def test_interrupted_on_ray_a_run_keeps_what_is_under_way_and_goes_on(tmp_path: Path) -> None:
    words = ["bench", "--algorithms", "mldg", "--held-out", "0", "--trials", "1", "--steps", "2500"]  # takes seconds
    run = started(*words, *ON_RAY[len(WORDS) :], "--out", tmp_path / "ray")
    wait_for(lambda: under_way(tmp_path / "ray"), run)
    os.killpg(run.pid, signal.SIGINT)
    code, _, err = finished(run)
    assert code == 130, err
    assert "To go on: seqdg bench" in err
    assert "Traceback" not in err
    assert list((tmp_path / "ray" / "checkpoints").glob("*.safetensors"))
    again = seqdg(*words, "--workers", 0, "--out", tmp_path / "ray")
    alone = seqdg(*words, "--workers", 0, "--out", tmp_path / "alone")
    assert again.returncode == alone.returncode == 0, again.stderr + alone.stderr
    assert results(tmp_path / "ray") == results(tmp_path / "alone")
    assert again.stdout == alone.stdout


FINISHED = """
from pathlib import Path
import ray
from digits import make_plan, make_session
from seqdg.bench.benchmark import Request
from seqdg.bench.execution import execute
from seqdg.bench.executors import ray as executors
from seqdg.results.store import Store

drivers = []

class Driver(executors._Driver):
    def __init__(self, *words):
        super().__init__(*words)
        drivers.append(self)

def interrupt(progress):
    if drivers:
        under_way = list(drivers.pop().under_way)
        ray.wait(under_way, num_returns=len(under_way))  # all finish, and none is collected
        raise KeyboardInterrupt

executors._Driver = Driver
plan = make_plan(Request(algorithms=["agg", "fo-s-mldg", "mldg"], held_out=["0"], trials=1, steps=5))
store = Store.create(Path(sys.argv[1]), "rotated-mnist")
executor, _ = executors.connect(3, None, None, "cpu")
try:
    execute(plan, make_session(), executor, store, on_progress=interrupt)
except KeyboardInterrupt:
    print(f"{len(store.finished())} of {len(plan.trials)}, Ray is there: {ray.is_initialized()}")
"""


@pytest.mark.ray
@needs_ray
def test_interrupted_on_ray_a_run_stores_what_is_finished_and_not_yet_collected(tmp_path: Path) -> None:
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n{FINISHED}"
    code, out, err = finished(started(tmp_path, code=code))
    assert code == 0, err
    assert out == "3 of 3, Ray is there: False\n"


ONE_CORE = """
import time
import ray
from seqdg.bench.executors import ray as executors

executors._initialize(ray, 1, None)
mailbox = ray.remote(num_cpus=0)(executors._Mailbox).remote()
files = executors._PostedFiles(mailbox, {})

@ray.remote(num_cpus=1)
def write_often():
    began = time.time()
    for _ in range(20):
        files.write("a file", b"of some bytes")
        time.sleep(0.02)
    return began, time.time()

spans = sorted(ray.get([write_often.remote() for _ in range(4)]))
print(all(ended <= began for (_, ended), (began, _) in zip(spans, spans[1:])))
"""


@pytest.mark.ray
@needs_ray
def test_what_waits_for_the_driver_keeps_its_core_from_other_groups() -> None:
    code, out, err = finished(started(code=ONE_CORE))
    assert code == 0, err
    assert out == "True\n"


CLUSTER = """
import logging, os, sys
from ray.cluster_utils import Cluster
caches = os.environ.get("SEQDG_TEST_CACHES", "")  # of every node its own, as on machines of their own
def cache_of(name):
    return {"env_vars": {"SEQDG_CACHE": os.path.join(caches, name)}} if caches else {}
cpus = 0 if caches.endswith("late") else 1
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": cpus, **cache_of("first")})
node = cluster.add_node(num_cpus=1, **cache_of("second")) if cpus else None
print(cluster.address, flush=True)
for line in sys.stdin:
    if line.strip() == "kill":
        cluster.remove_node(node, allow_graceful=False)
    else:
        cluster.add_node(num_cpus=1, **cache_of("joined"))
    print("done", flush=True)
cluster.shutdown()
"""


@pytest.fixture
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[str], Path]]:
    """A cluster of two nodes with one CPU each; the line `kill` kills the second, `join` adds another. Of `late`, no
    node has a CPU before that one joins."""
    caches = tmp_path / getattr(request, "param", "caches")
    process = started(code=CLUSTER, SEQDG_TEST_CACHES=str(caches))
    assert process.stdout is not None
    yield process.stdout.readline().strip(), process, caches
    process.communicate(timeout=60)


def tell(nodes: subprocess.Popen[str], line: str) -> None:
    assert nodes.stdin is not None
    assert nodes.stdout is not None
    nodes.stdin.write(f"{line}\n")
    nodes.stdin.flush()
    assert nodes.stdout.readline().strip() == "done"


def read_caches(folder: Path) -> list[bytes]:
    """Read every file of rows below a folder."""
    return [path.read_bytes() for path in sorted(folder.rglob("*.npy"))]


@pytest.mark.ray
@needs_ray
def test_on_a_cluster_that_loses_a_node_the_others_take_its_groups(tmp_path: Path, expected, cluster) -> None:
    address, nodes, caches = cluster
    words = [*WORDS, "--executor", "ray", "--address", address, "--checkpoint", "0.2", "--out", tmp_path / "run"]
    run = started(*words, SEQDG_CACHE=str(tmp_path / "driver"))
    wait_for(lambda: under_way(tmp_path / "run") and len(read_caches(caches)) == 2, run)
    tell(nodes, "kill")
    code, out, err = finished(run)
    assert code == 0, err
    assert "with 2 workers" in err
    assert results(tmp_path / "run") == expected[0]
    assert out == expected[1]
    (own,) = read_caches(tmp_path / "driver")
    assert [read_caches(caches / name) for name in ("first", "second")] == [[own], [own]]  # one file on each node


@pytest.mark.ray
@needs_ray
@pytest.mark.parametrize("cluster", ["late"], indirect=True)
def test_a_node_that_joins_later_fetches_the_rows_and_trains(tmp_path: Path, expected, cluster) -> None:
    address, nodes, caches = cluster
    run = started(*WORDS, "--executor", "ray", "--address", address, "--out", tmp_path / "run")
    wait_for((tmp_path / "run" / "results.sqlite").exists, run)
    tell(nodes, "join")
    code, out, err = finished(run)
    assert code == 0, err
    assert results(tmp_path / "run") == expected[0]
    assert out == expected[1]
    assert len(read_caches(caches / "joined")) == 1
    assert not read_caches(caches / "first")


class Fetched:
    """Stands in for what Ray returns at once, and for what a future of it returns."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def future(self) -> Fetched:
        return self

    def result(self) -> bytes:
        return self.content


def test_rows_travel_in_blocks_and_a_node_fetches_them_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "BLOCK", 1000)
    monkeypatch.setenv("SEQDG_CACHE", str(tmp_path / "driver"))
    x = np.random.default_rng(0).normal(size=(60, 11)).astype(np.float32)
    dataset = make_dataset(x, np.arange(60) % 2, domain=np.repeat(["a", "b", "c"], 20))
    path = executors._find_file(dataset)
    assert executors._find_file(dataset) == path
    size = path.stat().st_size - SEAL_SIZE
    shelf, asked = executors._Shelf(str(path), path.name, size), []

    def read(start: int, length: int) -> Fetched:
        asked.append(length)
        return Fetched(shelf.read(start, length))

    about = {f.name: getattr(dataset, f.name) for f in fields(dataset) if f.name != "x"}
    hand = SimpleNamespace(read=SimpleNamespace(remote=read))
    rows = executors._SharedRows("run", path.name, size, about, True, hand)
    monkeypatch.setenv("SEQDG_CACHE", str(tmp_path / "node"))
    for _ in range(2):
        there = rows.open()
        assert torch.equal(there.x, dataset.x)
        assert there.fingerprint == dataset.fingerprint
    assert sum(asked) == size
    assert max(asked) == 1000
    # A driver that is a client of the cluster gives its file to the actor, on whose node it is then the node's own.
    monkeypatch.setenv("SEQDG_CACHE", str(tmp_path / "head"))
    far = executors._Shelf("/nowhere/rows.npy", path.name, size)
    assert far.needs_content()
    content = path.read_bytes()
    for start in range(0, len(content), 1000):
        far.append(content[start : start + 1000], start + 1000 >= len(content))
    assert read_caches(tmp_path / "head") == [content]
    assert torch.equal(rows.open().x, dataset.x)
    assert sum(asked) == size  # nothing more was fetched


@pytest.mark.ray
@needs_ray
def test_a_cluster_that_asks_for_a_token_is_named_and_entered_with_it() -> None:
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid4().hex}
    nodes = started(code=CLUSTER, **token)
    assert nodes.stdout is not None
    address = nodes.stdout.readline().strip()
    enter = f"from seqdg.bench.executors.ray import connect; print(connect(None, None, {address!r}, 'cpu')[1])"
    code, _, err = finished(started(code=enter, RAY_NUM_REDIS_GET_RETRIES="1"))
    assert code != 0
    assert f"What answers at '{address}' does not let this command in" in err
    assert "set RAY_AUTH_MODE=token" in err
    code, out, err = finished(started(code=enter, **token))
    assert code == 0, err
    assert out == "cpu\n"
    nodes.communicate(timeout=60)


class NoGpus:
    """Stands in for Ray, up to the first group: a cluster of two CPUs."""

    @staticmethod
    def init(*words: object, **settings: object) -> None: ...

    @staticmethod
    def cluster_resources() -> dict[str, float]:
        return {"CPU": 2.0}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--address", "127.0.0.1:9"], "There is no Ray cluster at '127.0.0.1:9' ("),
        (["--address", "nowhere"], "an address is HOST:PORT, or auto"),
        (["--device", "cuda"], "1 worker with 1 of a GPU each cannot be had: the cluster has 0 GPUs."),
        (["--device", "cuda:1"], "Ray chooses among a cluster's GPUs, so 'cuda:1' cannot be asked for."),
        (["--device", "cpu", "--gpus-per-worker", "0.5"], "Part of a GPU was asked for, and the device is the CPU."),
        (["--workers", "0"], "0 workers were asked for, and Ray needs at least one."),
    ],
)
def test_what_a_cluster_cannot_give_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], sentence: str
) -> None:
    monkeypatch.setitem(sys.modules, "ray", NoGpus)
    done = seqdg("bench", "--executor", "ray", *words, "--out", tmp_path)
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not done.stdout


def test_without_ray_its_executor_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    done = seqdg("bench", "--executor", "ray", "--out", tmp_path)
    assert done.returncode == 2
    assert "Ray is not installed. `pip install 'seqdg[ray]'` installs it" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
