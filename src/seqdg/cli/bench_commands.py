"""Commands that train on benchmarks: bench, study, status, merge, rerun, soup, analyze."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from seqdg import base, core, paper, report, results, training
from seqdg import bench as benchmarks
from seqdg import study as studies
from seqdg.cli import options
from seqdg.cli.terminal import end_interrupted, explain_interruption, quote_command, quote_path, say


def bench(benchmark: str = "rotated-mnist", /, dry_run: bool = False, *, asked: options.RunOptions) -> None:
    """Compare algorithms on a benchmark, and print the table.

    Each trial trains on all domains but one and is tested on that one. Trials that the run directory holds are not
    trained again. Interrupt it whenever you like: the same command continues where it stopped.

        seqdg bench --algorithms agg,fo-s-mldg --trials 3

    Parameters
    ----------
    dry_run
        Train nothing; print what would run, and about how much time, memory and disk it takes.
    """
    request = asked.make_request()
    chosen = benchmarks.load_requested(benchmark, request)
    if dry_run:
        typer.echo(benchmarks.preview_run(chosen, request))
        return
    directory = request.find_directory(chosen)
    with explain_interruption(directory):
        run = benchmarks.run_benchmark(chosen, request, quote_command())
    statuses = run.count_statuses()
    if any(status != results.FAILED for status in statuses):
        typer.echo(run.table(asked.select))
        where = quote_path(directory)
        say(
            f"Next: `seqdg report {where}` writes one page with figures and tests; `seqdg table {where} --baseline "
            "agg` tests the differences."
        )
    if statuses[results.FAILED]:
        say(f"seqdg: {benchmarks.describe_failures(run)}")
        raise typer.Exit(1)


def study(
    file: Path,
    /,
    out: Path = Path("runs/study"),
    data: Path | None = None,
    device: str = "auto",
    parts: str | None = None,
    minutes: float = math.inf,
    workers: int | None = None,
    dry_run: bool = False,
    answers: bool = False,
    publish: bool = False,
    from_nothing: bool = False,
    format: str = "text",
    figures: Path | None = None,
    select: str | None = None,
) -> None:
    """Run a study part by part, or print its answers.

    Interrupt it whenever you like: the same command continues where it stopped. Trials in the published records that
    the file names count as done.

        seqdg study benchmarks/study.toml --data DIR --minutes 9

    Parameters
    ----------
    file : FILE
        The study's file, such as benchmarks/study.toml.
    out
        Where the run directories of its parts are, one for each: DIR/SET/KIND.
    parts : A,B
        Parts to run, by name; a set stands for all its parts, and * works.
    minutes : N
        Stop after this many minutes, between groups or, with workers, within one. Default: no limit.
    dry_run
        Show what would run, and what is done.
    answers
        Print the answers to the hypotheses.
    publish
        Pack the run directories of the parts into the folder that the file names.
    from_nothing
        Ignore the published records: only what is in --out counts as done, and only that is answered from. If --out
        is empty, everything is trained again.
    format : text|markdown|json
        Format of the answers.
    figures : DIR
        With --answers: draw them, as SVG, PDF and PNG files in DIR.
    select : source-val|last|oracle|oracle-split
        With --answers: how the step that counts is chosen, as by `seqdg table`. Settings stay those that source
        validation chose.  [default: source-val]
    """
    read = studies.load_study(file)
    if from_nothing:
        if publish:
            raise base.UsageError("--from-nothing goes with running, --dry-run and --answers, not with --publish.")
        read = replace(read, published=None)
    if select is not None and not answers:
        raise base.UsageError("--select goes with --answers: what is trained is always chosen by source validation.")
    chosen = read.select_parts(options.split_names(parts))
    if dry_run:
        typer.echo(studies.describe_plan(read, chosen, out, data, workers or 1))
    elif answers:
        answered = studies.answer_study(read, out, select or studies.USUAL)
        typer.echo(studies.render_answers(answered, format).rstrip("\n"))
        if figures is not None:
            for path in report.write_figures([studies.make_answers_figure(answered)], figures):
                say(str(path))
    elif publish:
        for line in studies.publish_parts(read, chosen, out):
            typer.echo(line)
    else:
        _run_study(read, chosen, studies.StudyWhere(out, data, device, workers, minutes))


def _run_study(study: studies.Study, parts: Sequence[studies.Part], where: studies.StudyWhere) -> None:
    try:
        failed = studies.run_study(study, parts, where)
    except studies.OutOfTime:
        typer.echo("The time limit has elapsed. The same command continues where this one stopped.")
        return
    except KeyboardInterrupt:
        raise end_interrupted("the same command continues where this one stopped.") from None
    if failed:
        reason = failed[0].error.strip().splitlines()[-1]
        say(f"seqdg: {len(failed)} trials failed, the first ({failed[0].algorithm}): {reason}")
        raise typer.Exit(1)
    typer.echo("All parts are done.")


def status(
    directory: Path,
    /,
    errors: bool = False,
    as_json: options.AsJson = False,
) -> None:
    """Show how far a run is: trials done, failed and left.

    It also shows what is being trained, what diverged, and the time that is left.

    Parameters
    ----------
    errors
        Also print the traceback of every failed trial.
    """
    now = results.read_status(directory)
    typer.echo(json.dumps(asdict(now), indent=2) if as_json else format_status(now))
    if errors:
        for key, error in results.open_run(directory).failures():
            typer.echo(f"\ntrial {key}\n{error.strip()}")


def format_status(now: results.Status) -> str:
    """Return the state of a run as it is printed."""
    trials = base.count_things(now.planned, "trial")
    lines = [f"{now.benchmark}: {trials}, {'running' if now.active else 'not running'}"]
    for name in ("done", "running", "failed", "diverged", "left"):
        lines.append(f"  {name:<8} {getattr(now, name):>6}")
    for g in now.groups:
        lines.append(
            f"  under way: {base.count_things(g.trials, 'trial')} of {g.algorithm}, step {g.step} of {g.steps}"
        )
    if now.others:
        other = base.count_things(now.others, "other trial")
        lines.append(f"  and {other}: of earlier runs with other choices, or mixed by `seqdg soup`")
    if now.error:
        lines.append(f"The last failure: {now.error} (`--errors` shows all tracebacks)")
    if now.active and now.seconds_left is not None:
        lines.append(f"{base.format_duration(now.seconds_left).capitalize()} left.")
    elif not now.active and now.left + now.failed:
        lines.append("The command that started the run does what is left.")
    return "\n".join(lines)


def merge(
    shards: list[Path],
    /,
    out: Path,
) -> None:
    """Join the shards of `seqdg bench --shard` in one run.

    Exit code 1 means that some trials are missing. Merge as often as you like: what has finished since is added.

        seqdg merge runs/rotated-mnist/shard-* --out runs/rotated-mnist

    Parameters
    ----------
    shards : DIR...
        Directories of shards.
    out : DIR
        The run directory to write; trials that it holds already stay.
    """
    merged = benchmarks.merge_shards(shards, out)
    typer.echo("\n".join(benchmarks.describe_merge(merged, out)))
    if merged.left:
        raise typer.Exit(1)


def rerun(
    directory: Path,
    trials: list[str] | None = None,
    /,
    sample: int = 3,
    seed: int = 0,
    alone: bool = False,
    within: float = 1.0,
    list_them: Annotated[bool, "--list"] = False,
    algorithms: str | None = None,
    domainbed: Path | None = None,
    *,
    again: options.SessionOptions,
) -> None:
    """Train recorded trials again, and compare the numbers.

        seqdg rerun docs/results/pacs-features --sample 5 --data ~/data

    On the same kind of device (of CPUs: with the same instructions, such as AVX2) and version of torch, a trial is
    trained in the same stack as before, and every accuracy must be the same number.

    Elsewhere, and with --alone, rounding differs: accuracy at the step chosen by source validation and at the last step
    must be within --within points, or within one test row if that is more.

    Exit code 1 means that some trial does not agree. For a trial of an older version of seqdg it names the commit that
    reproduces it. Trials of your own algorithm are refused where its code has changed since.

    Parameters
    ----------
    trials : [TRIAL...]
        Keys of trials, or their beginnings. Default: a random sample.
    sample : N
        How many trials to draw, if none are named.
    seed
        Seed of the sample.
    alone
        Train each trial by itself, even where its stack would give the same bits.
    within : POINTS
        Allowed difference in accuracy where the numbers cannot be exactly the same.
    list_them
        List the trials with their keys, and train nothing.
    algorithms : A,B
        Your own algorithms in the run, as module:name or file.py:name.
    """
    base.set_checkout(base.DOMAINBED, domainbed)
    run = results.open_run(directory)
    records, groups, name = run.records(), run.groups(), run.benchmark
    if list_them:
        for r in records:
            typer.echo(f"{r.key}  {r.algorithm}  {','.join(r.held_out)}  seed {r.seed}  {r.status}")
        return
    wanted = benchmarks.pick_records(records, trials or (), sample, seed)
    names = {core.shorten(name): name for name in options.split_words(algorithms)}
    if isinstance(run, results.Store):  # a packed run has no code in it
        benchmarks.refuse_changed_code(
            run,
            directory,
            [names.get(r.algorithm, r.algorithm) for r in wanted],
            "the new code cannot repeat what the old code gave. Go back to the old code, or name trials of other "
            "algorithms: --list shows them all.",
        )
    run.close()
    domains = tuple({d: None for r in wanted for d in r.held_out})
    session = again.make_session(name, training.Saving(), domains)
    repeats = []
    for repeat in benchmarks.rerun(records, wanted, session, groups, alone, within, names):
        repeats.append(repeat)
        r = repeat.recorded
        say(f"trained {len(repeats)} of {len(wanted)}: {r.algorithm}, {','.join(r.held_out)}")
    typer.echo(_format_repeats(repeats), nl=False)
    if not all(c.agrees for c in repeats):
        raise typer.Exit(1)


def _format_repeats(repeats: Sequence[benchmarks.Repeat]) -> str:
    """Format recorded and new accuracy side by side, and say what was compared."""
    columns = "trial,algorithm,held out,seed,step,recorded,here,last: recorded,here,weights,"
    lines = [columns.split(",")]
    for c in repeats:
        r, numbers = c.recorded, []
        for step in (c.step, c.last):
            numbers += [_format_accuracy(c.accuracy(record, step)) for record in (r, c.again)]
        same = "not kept" if not r.weights else "same" if c.same_weights else "differ"
        verdict = "agrees" if c.agrees else "DIFFERS"
        lines.append([r.key, r.algorithm, ",".join(r.held_out), str(r.seed), str(c.step), *numbers, same, verdict])
    agree = sum(c.agrees for c in repeats)
    return (
        "\n".join([*report.draw_table(lines), "", *_describe_rules(repeats), f"{agree} of {len(repeats)} agree."])
        + "\n"
    )


def _describe_rules(repeats: Sequence[benchmarks.Repeat]) -> list[str]:
    """Say what must agree, and why."""
    rules = []
    exact, near = [c for c in repeats if c.allowed == 0], [c for c in repeats if c.allowed > 0]
    if exact:
        new = exact[0].again
        rules.append(
            f"{len(exact)} trained in the stack of the record, on the same kind of device ({new.device}) and torch "
            f"({new.versions['torch']}): accuracy must be the same at every evaluation."
        )
        if not all(c.agrees for c in exact):
            rules.append("Where only rounding may differ, such as between CPUs of two makes, compare with --alone.")
    if near:
        old, new = near[0].recorded, near[0].again
        here = "the same kind of device" if near[0].alike else f"{new.device}, torch {new.versions['torch']}"
        there = f"{old.device}, torch {old.versions.get('torch')}, {old.stacked} in a stack"
        rules.append(
            f"{len(near)} trained alone on {here} (the record: {there}), where arithmetic is rounded otherwise: "
            f"accuracy must be within {max(c.allowed for c in near):.1f} points at the chosen and at the last step."
        )
        instructions = None if near[0].alike else re.fullmatch(r"cpu \(.+, (\w+)\)", old.device)
        if instructions and new.device.startswith("cpu"):
            rules.append(f"With ATEN_CPU_CAPABILITY={instructions[1]} many a CPU repeats the stack to the bit.")
    return rules


def _format_accuracy(value: float | None) -> str:
    return "diverged" if value is None else f"{value:.2f}"


def soup(
    directory: Path,
    /,
    kind: str = "uniform",
    algorithms: str | None = None,
    members: int = 0,
    criterion: str | None = None,
    *,
    again: options.SessionOptions,
) -> None:
    """Average the trained models of a run: soups, ensembles.

    They become more columns of its table: agg(soup), agg(greedy-soup) or agg+sma(ensemble).

        seqdg bench --algorithms agg --search 8 --trials 3 --save-weights --out runs/soup
        seqdg soup runs/soup --kind greedy
        seqdg table runs/soup --baseline agg

    A soup is the mean of the weights of a search's candidates, for one held-out domain and seed, which start from the
    same weights (model soups, DiWA). Seeds start from different weights: of them an ensemble takes the mean of the
    probabilities; of averaged trainings such as agg+sma this is EoA.

    The held-out domain chooses nothing. What is there is not made again.

    Parameters
    ----------
    directory : DIR
        Run directory, made with --save-weights.
    kind : uniform|greedy|ensemble
        uniform: the mean of the weights of all candidates of a held-out domain and seed. greedy: of those that do
        not lower source validation, tried from the best down. ensemble: the mean of the probabilities of the seeds'
        models, the best candidate of each.
    algorithms : A,B
        Algorithms to combine; your own as file.py:name. Default: all.
    members : N
        Seeds of one ensemble, in their order; 0: all seeds in one.
    criterion : CRITERION
        By what source validation ranks candidates.
    """
    names = options.split_names(algorithms)
    benchmarks.mix_run(directory, again.make_session, kind, names, members, criterion, quote_command(), say)
    mixed = report.Results.open(directory)
    typer.echo(mixed.table(criterion=criterion))
    mixed.close()


def analyze(
    kind: str,
    benchmark: str = "rotated-mnist",
    /,
    algorithms: str | None = None,
    held_out: str | None = None,
    trials: int | None = None,
    steps: int | None = None,
    first_steps: int | None = None,
    seed: int = 0,
    settings: options.Settings = None,
    domain: str | None = None,
    out: Path | None = None,
    data: Path | None = None,
    device: str = "auto",
    figures: Path | None = None,
) -> None:
    """Run an analysis of the paper: print and keep its numbers.

    It trains the algorithms that it looks at. `seqdg report` shows the pictures of the same run directory.

        seqdg analyze alignment --algorithms agg,fo-s-mldg

    Parameters
    ----------
    kind : KIND
        Which analysis, such as invariance, tsne or cost; the documentation lists all.
    held_out : D
        The domain to hold out. Default: the last; for ensemble, each in turn.
    trials
        Number of seeds. Default: one or two, depending on the analysis.
    first_steps : N
        Training steps of the first phase, for invariance. Default: as many as of the second (--steps).
    domain : D
        The domain of interest, for ranks. Default: the first source.
    """
    analysis = report.find_analysis(kind)
    if analysis is None:
        raise base.unknown("analysis", kind, report.list_analyses())
    if first_steps is not None and not analysis.has_first_phase:
        raise base.UsageError(f"{kind} has one phase. Give its length with --steps, without --first-steps.")
    chosen = benchmarks.load_benchmark(benchmark)
    directory = benchmarks.Request(out=out).find_directory(chosen)
    results.make_directory(directory)
    if figures is not None:
        results.make_directory(figures, "--figures")  # now, not after the training
    executor, device = benchmarks.choose_executor(benchmarks.ExecutorChoice(), device)
    session = benchmarks.Session(chosen.make_task(data), device)
    base.prepare_process()
    with results.lock_directory(directory), _count_steps(f"{kind} on {chosen.name}") as on_progress:
        store = results.Store.create(directory, chosen.name)
        study = paper.Study(
            chosen, session, options.split_names(algorithms) or analysis.algorithms,
            held_out or session.task.dataset().domains[-1],
            analysis.trials if trials is None else trials, seed, analysis.steps if steps is None else steps,
            settings or (), first_steps=first_steps, domain=domain,
            everywhere=analysis.everywhere and held_out is None, executor=executor, on_progress=on_progress,
        )  # fmt: skip
        payload = {
            "of": {**study.describe(), "domain": domain},
            "numbers": analysis.compute(study),
            "command": quote_command(),
        }
        store.add_analysis(kind, payload)
        store.close()
    section = report.show_analysis(kind, payload)
    typer.echo(_format_section(section), nl=False)
    say(f"The numbers are kept. `seqdg report {directory}` shows the picture.")
    if figures is not None:
        for path in report.write_figures(section.figures, figures):
            typer.echo(path)


@contextmanager
def _count_steps(label: str) -> Iterator[Callable[[int], None]]:
    """Count steps on a terminal; yield a function to call with the number of new ones."""
    from rich.console import Console

    taken = 0
    with Console(stderr=True).status(label) as status:

        def on_progress(steps: int) -> None:
            nonlocal taken
            taken += steps
            status.update(f"{label}: {taken} steps")

        yield on_progress


def _format_section(section: report.Section) -> str:
    """Format its sentences, then its tables, for a terminal."""
    lines = [section.title, *section.text]
    for table in [*section.tables, *(t for t in section.aside if t.caption != report.HOW)]:
        grid = [list(table.head), *([name, *cells] for name, cells in table.rows)]
        lines += ["", table.caption]
        lines += report.draw_table([[cell.removeprefix("*") for cell in line] for line in grid])
    return "\n".join(lines) + "\n"
