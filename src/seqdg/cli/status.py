"""`seqdg status`"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from seqdg.cli import options

if TYPE_CHECKING:
    from seqdg.results import Status


def status(
    directory: options.Results,
    errors: Annotated[bool, typer.Option("--errors", help="Also print the traceback of every failed trial.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")] = False,
) -> None:
    """Show the state of a run: trials done, running, failed, diverged and left, and the time that is left."""
    from seqdg.results import open_run, read_status

    now = read_status(directory)
    typer.echo(json.dumps(asdict(now), indent=2) if as_json else format_status(now))
    if errors:
        for key, error in open_run(directory).failures():
            typer.echo(f"\ntrial {key}\n{error.strip()}")


def format_status(now: Status) -> str:
    """Return the state of a run as it is printed."""
    from seqdg.base import count_things
    from seqdg.results import format_duration

    lines = [f"{now.benchmark}: {count_things(now.planned, 'trial')}, {'running' if now.active else 'not running'}"]
    for name in ("done", "running", "failed", "diverged", "left"):
        lines.append(f"  {name:<8} {getattr(now, name):>6}")
    for g in now.groups:
        lines.append(f"  under way: {count_things(g.trials, 'trial')} of {g.algorithm}, step {g.step} of {g.steps}")
    if now.others:
        other = count_things(now.others, "other trial")
        lines.append(f"  and {other}: of earlier runs with other choices, or mixed by `seqdg soup`")
    if now.error:
        lines.append(f"The last failure: {now.error} (`--errors` shows all tracebacks)")
    if now.active and now.seconds_left is not None:
        lines.append(f"{format_duration(now.seconds_left).capitalize()} left.")
    elif not now.active and now.left + now.failed:
        lines.append("The command that started the run does what is left.")
    return "\n".join(lines)
