"""The options of a run are those of one dataclass, wherever they are asked for."""

from __future__ import annotations

import inspect
import shlex
from pathlib import Path

import pytest

from seqdg.base import UsageError
from seqdg.bench import Request, load_benchmark, run
from seqdg.cli.bench_commands import bench
from seqdg.cli.options import takes


def test_python_and_the_command_line_have_the_options_of_a_request() -> None:
    asked = {name for name, about in Request.__dataclass_fields__.items() if about.init}
    assert set(inspect.signature(run).parameters) == asked | {"benchmark", "progress", "command"}
    assert set(inspect.signature(takes(bench)).parameters) == asked | {"benchmark", "dry_run"}


def test_what_python_gives_comes_to_what_the_command_line_gives() -> None:
    settings = {"agg": {"lr": 0.1}, "s-mldg": {"alpha": [0.05, 0.6]}}
    asked = Request(settings=settings, out="runs/mine", save_weights=True, workers=2)  # type: ignore[arg-type]
    assert asked.settings == ("agg.lr=0.1", "s-mldg.alpha=0.05,0.6")
    assert (asked.out, asked.save_weights) == (Path("runs/mine"), "last")
    assert asked.workers == 2
    assert Request(save_weights=None).save_weights == Request(save_weights=False).save_weights == ""  # type: ignore[arg-type]


def test_what_makes_no_sense_is_refused_when_it_is_asked_for() -> None:
    with pytest.raises(UsageError, match="algorithms is 'agg', but it must be a list of names"):
        Request(algorithms="agg")
    with pytest.raises(UsageError, match="There is no executor 'slurm'"):
        Request(executor="slurm")
    with pytest.raises(UsageError, match=r"settings has 0\.1 for 'agg', but it must have settings by name"):
        Request(settings={"agg": 0.1})  # type: ignore[arg-type]


def test_the_command_that_is_noted_asks_for_the_same_trials() -> None:
    assert Request().write_command("pacs") == "seqdg bench pacs"
    asked = Request(
        ["agg", "coral"],
        ["0"],
        2,
        seed=3,
        settings=["agg.lr=0.1"],
        search=2,
        reuse=True,
        settings_from=Path("a b.toml"),
    )
    assert shlex.split(asked.write_command("pacs")) == [
        "seqdg", "bench", "pacs", "--algorithms", "agg,coral", "--held-out", "0", "--trials", "2", "--seed", "3",
        "--search", "2", "--settings-from", "a b.toml", "--select", "source-val", "--reuse", "--set", "agg.lr=0.1",
    ]  # fmt: skip
    assert shlex.split(Request(select="leave-one-out").write_command("pacs"))[3:] == ["--select", "leave-one-out"]


def test_the_name_of_a_benchmark_may_change_its_data(tmp_path: Path) -> None:
    name = "turned-digits:number=3,degrees=30,noise=0.5,rows=20"
    chosen = load_benchmark(name)
    assert chosen.name == name
    assert chosen.data == {"format": "turned-digits", "number": 3, "degrees": 30.0, "noise": 0.5, "rows": 20}
    assert Request().find_directory(chosen) == Path("runs/turned-digits-number=3,degrees=30,noise=0.5,rows=20")
    assert len(chosen.make_task(None).dataset().y) == 3 * (20 + 160)
    own = tmp_path / "mine.toml"
    own.write_text((Path(load_benchmark.__code__.co_filename).parents[1] / "benchmarks/turned-digits.toml").read_text())
    assert load_benchmark(f"{own}:rows=30").data["rows"] == 30
    with pytest.raises(UsageError, match=r"\[data\] of turned-digits has no key 'nois'. Did you mean 'noise'"):
        load_benchmark("turned-digits:nois=0.1")
    with pytest.raises(UsageError, match="'rows' in \\[data\\] of turned-digits is 'many'"):
        load_benchmark("turned-digits:rows=many")
