"""Reads the files that DomainBed and its forks write into trainings.

DomainBed writes a results.jsonl per training, a line per evaluation: `args`, `hparams`, `step`, and for every
environment i the accuracy on 80 % of its rows (`env{i}_in_acc`) and on the other 20 % (`env{i}_out_acc`); a file `done`
says that the training ended. Its forks write one per command, which trains with every environment held out in turn
(`args.real_test_envs`); the names are `env{i}_in` and `env{i}_out`, beside the means `test_in`, `test_out` and
`train_out`, and nothing says that it ended but the summary in log.txt, which also has the accuracy of SWAD's averages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqdg.base import UsageError

FILE, ENDED, LOG = "results.jsonl", "done", "log.txt"
ENVIRONMENT = re.compile(r"env(\d+)_(in|out)(?:_acc)?$")
_JOB = re.compile(r"[0-9a-f]{32}$")  # the folder that a sweep makes for every training, before it begins
_AVERAGED = re.compile(r"SWAD( \(inD\))? = ([0-9.]+)%")

Line = Mapping[str, Any]


@dataclass(frozen=True)
class Training:
    """The lines of one training, from its first evaluation to its last."""

    path: Path  # of its results.jsonl
    lines: Sequence[Line]
    test_envs: tuple[int, ...]
    ended: bool
    is_fork: bool
    averaged: tuple[float, float] | None = None  # SWAD's accuracy: on the held-out domain and on source validation

    @property
    def args(self) -> Mapping[str, Any]:
        args: Mapping[str, Any] = self.lines[0]["args"]
        return args

    @property
    def dataset(self) -> str:
        return str(self.args["dataset"])

    @property
    def environments(self) -> int:
        """How many environments its lines tell of."""
        numbers = [int(m[1]) for name in self.lines[0] if (m := ENVIRONMENT.match(name))]
        return 1 + max((*numbers, *self.test_envs))


def read_sweep(sweep: Path) -> list[Training]:
    """Read every results.jsonl below a folder; a training without an evaluation has no lines, and has not ended."""
    if not sweep.is_dir():
        raise UsageError(f"There is no folder {sweep}. Give the --output_dir of a sweep of DomainBed.")
    files = sorted(sweep.rglob(FILE))
    files += sorted(p / FILE for p in sweep.rglob("*") if _JOB.match(p.name) and p.is_dir() and p / FILE not in files)
    trainings = [training for path in files for training in _read_file(path)]
    if not any(training.lines for training in trainings):
        raise UsageError(
            f"There is no {FILE} with an evaluation below {sweep}. Give the --output_dir of a sweep of DomainBed, or "
            "the train_output of a fork."
        )
    return trainings


def _read_file(path: Path) -> list[Training]:
    """Read a results.jsonl: one training of DomainBed, or several of a fork, one after the other."""
    lines, is_cut = _read_lines(path)
    if not lines:
        return [Training(path, [], (), ended=False, is_fork=False)]
    by_envs = _split_trainings(lines)
    if "real_test_envs" in lines[0]["args"]:
        return _list_fork(path, by_envs, is_cut)
    ended = (path.parent / ENDED).exists()
    if is_cut and ended:
        raise UsageError(f"The last line of {path} is half a line: the file is damaged. Remove its folder.")
    return [Training(path, its, envs, ended, is_fork=False) for envs, its in by_envs.items()]


def _read_lines(path: Path) -> tuple[list[Line], bool]:
    """Read the whole lines of a file, and whether half a line follows them."""
    lines: list[Line] = []
    texts = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []
    for i, text in enumerate(texts):
        try:
            line = json.loads(text)
        except json.JSONDecodeError:
            if i == len(texts) - 1:
                return lines, True
            raise UsageError(f"Line {i + 1} of {path} is not JSON: the file is damaged. Remove its folder.") from None
        _check_line(line, path, i)
        lines.append(line)
    return lines, False


def _check_line(line: Any, path: Path, i: int) -> None:
    lacking = [name for name in ("args", "hparams", "step") if not isinstance(line, dict) or name not in line]
    lacking = lacking or [
        name
        for name in ("algorithm", "dataset", "test_envs", "trial_seed")
        if not isinstance(line["args"], dict) or name not in line["args"]
    ]
    if lacking:
        raise UsageError(
            f"{path} is no results file of DomainBed or a fork: its line {i + 1} has no '{lacking[0]}'. Give a folder "
            "that holds none but theirs."
        )


def _split_trainings(lines: Sequence[Line]) -> dict[tuple[int, ...], list[Line]]:
    """Return the lines of each training by its test environments; of one that was begun again, the last."""
    passes: list[list[Line]] = []
    for line in lines:
        last = passes[-1][-1] if passes else None
        if last is None or _list_test_envs(last) != _list_test_envs(line) or line["step"] <= last["step"]:
            passes.append([])
        passes[-1].append(line)
    return {_list_test_envs(its[0]): its for its in passes}


def _list_test_envs(line: Line) -> tuple[int, ...]:
    args = line["args"]
    return tuple(int(i) for i in args.get("real_test_envs") or args["test_envs"])


def _list_fork(path: Path, by_envs: Mapping[tuple[int, ...], list[Line]], is_cut: bool) -> list[Training]:
    """Say which trainings of a fork's file ended, and what SWAD's averages of these are."""
    log = path.with_name(LOG)
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    *earlier, latest = by_envs
    steps = max(its[-1]["step"] for its in by_envs.values())
    ended = set(earlier)
    if (
        "=== Summary ===" in text
        or _reaches_end(by_envs[latest])
        or (earlier and by_envs[latest][-1]["step"] == steps and not is_cut)
    ):
        ended.add(latest)
    averages = iter(_read_averages(text, len(ended)))
    return [
        Training(path, its, envs, envs in ended, is_fork=True, averaged=next(averages) if envs in ended else None)
        for envs, its in by_envs.items()
    ]


def _reaches_end(lines: Sequence[Line]) -> bool:
    """Whether no further evaluation was due, where the number of steps is known."""
    if len(lines) < 2 or not lines[0]["args"].get("steps"):
        return False
    return bool(2 * lines[-1]["step"] - lines[-2]["step"] > lines[0]["args"]["steps"])


def _read_averages(log: str, count: int) -> Sequence[tuple[float, float] | None]:
    """Read SWAD's accuracy from a log: on the held-out domain and on source validation, for every training."""
    accuracies = [(bool(inside), float(value) / 100) for inside, value in _AVERAGED.findall(log)]
    outside, inside = ([value for is_inside, value in accuracies if is_inside == kind] for kind in (False, True))
    if not len(outside) == len(inside) == count:
        return [None] * count
    return list(zip(outside, inside, strict=True))
