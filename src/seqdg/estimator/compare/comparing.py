"""Choose an algorithm for your own domains, and estimate how it will do on the next: `compare`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

from sklearn.base import clone

from seqdg.base import Folder, UsageError, choose_device, count_cores, count_things, list_some, unknown
from seqdg.bench import (
    RATE,
    Executor,
    ExecutorChoice,
    Fixed,
    InProcess,
    Learner,
    Optuna,
    OwnEstimator,
    OwnEstimatorLearner,
    OwnSettings,
    Progress,
    Proposal,
    Search,
    Target,
    Workers,
    choose_executor,
    draw_proposals,
    find_learner,
    is_estimator,
    make_grid,
    name_estimator,
    read_code,
    show_progress,
    split_settings,
)
from seqdg.core import flatten_settings, parse_settings, shorten, use_own_names
from seqdg.data import Dataset
from seqdg.estimator.compare.combining import (
    Combination,
    combine_candidates,
    copy_object,
    describe_domains,
    list_winners,
    name_winner,
    note_weights,
    predict_choice,
)
from seqdg.estimator.compare.comparison import (
    CHOSEN,
    DEFAULT,
    ORACLE,
    REPORTED,
    RULES,
    SOURCE_VAL,
    STOPPED,
    Comparison,
    check_rules,
    looks_at_held_out,
    score_constant,
    split_rule,
)
from seqdg.estimator.compare.folds import (
    MOST_ROWS,
    Budget,
    Contender,
    KeptRecords,
    Sweep,
    estimate_fit,
    identify_comparison,
    keep_predictions,
    note_left_out,
    run_within,
)
from seqdg.estimator.domain_estimator import DomainEstimator, choose_estimator
from seqdg.estimator.recipe import WEIGHTED, Recipe, WeightedEnsemble, Winner, adapt_recipe, to_plain
from seqdg.estimator.user_data import UserData, count_effective, draw_rows, join_domains, make_user_data
from seqdg.results import AVERAGE, WORST

BASELINE = "agg"
NETS = ("agg", "agg+ema", "coral+ema", "fo-s-mldg+ema", "ffo-s-mldg+ema")
LINEAR, LINEAR_NUMBERS = "logistic", "ridge"
POOLED = ("hist-gradient-boosting", "random-forest", "extra-trees", "svc", "knn")
ALL_USUAL = (*NETS, LINEAR, LINEAR_NUMBERS, *POOLED)
QUICK_POOLED = ("hist-gradient-boosting", "extra-trees")
QUICK_NET = "agg+ema"
SAMPLERS = ("random", "optuna")
MOST_NESTED = 6  # domains up to which pairs of them are held out, unless the user says otherwise


class DoubtfulChoice(UserWarning):
    """A reason not to trust the choice of a comparison; its text says the same."""


def compare(
    X: Any,
    y: Any,
    domains: Any = None,
    candidates: Sequence[Any] | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    estimator: DomainEstimator | None = None,
    search: int = 1,
    sampler: str = "random",
    seeds: int = 3,
    select: str = DEFAULT,
    criterion: str | None = None,
    rules: Sequence[str] = REPORTED,
    baseline: str | None = BASELINE,
    refit: bool = True,
    workers: int | None = 0,
    on_progress: Callable[[Progress], None] | None = None,
    members: int | None = None,
    executor: str = "local",
    address: str | None = None,
    runs: str | Path | None = None,
    on_message: Callable[[str], None] = lambda sentence: None,
    nested: bool | None = None,
    sample_weight: Any = None,
    groups: Any = None,
    minutes: float | None = None,
    ensemble: bool = True,
    verbose: int = 1,
) -> Comparison:
    """Train every candidate with every domain held out in turn, in stacks; then fit their weighted ensemble, or the
    winner among them, on all domains.

    Parameters
    ----------
    X, y : array or data frame, array
        The rows and their labels or targets, as `DomainClassifier.fit` and `DomainRegressor.fit` take them.
    domains : array of shape (row,), or str
        The name or number of each row's domain, or the column of the data frame X that holds it.
    candidates : list, optional
        Names of algorithms, with or without wrappers (`fo-s-mldg+ema`), and of learners that train no neural network
        (`logistic`, `svc`); and estimators or pipelines of scikit-learn, which get the rows as a network does: numbers
        scaled by the sources, an input for each category. By default the usual ones. One that these data cannot train
        is left out with a note, unless no other was named.
    settings : dict, optional
        By candidate, values or lists of alternatives (a grid); `lr` among them is its learning rate.
    estimator : DomainClassifier or DomainRegressor, optional
        How to train; its algorithm and settings are not used. By default a `DomainRegressor` where y holds numbers
        with fractions, else a `DomainClassifier`.
    search : int, default 1
        Candidates per algorithm, as many for each; the first has its settings as they are, the others are drawn from
        the ranges beside them and from a tenth to twice the learning rate.
    sampler : str, default 'random'
        How they are drawn: 'random', or 'optuna'.
    seeds : int, default 3
        Trials of everything.
    select : str, default 'both-near'
        The rule that chooses the winner and its settings: 'source-val', by validation rows of the source domains;
        'leave-one-out', by how well each source is served by training on the others; or 'both', by the mean of the
        two. With '-1se' after it, the simplest candidate wins that is within one standard error of the best; with
        '-near', if it is also within a point of it, or 2 % of an error. Steps are chosen by source validation, by
        'leave-one-out-stopped' as candidates are.
    criterion : str, optional
        What the rule looks at. By default the estimator's.
    rules : list of str
        Others that are reported. With 'source-val' alone, less is trained.
    baseline : str, optional, default 'agg'
        Compared even where `candidates` do not name it, and it may win. None: only those that are named.
    refit : bool, default True
        Whether to fit the winner on all domains.
    workers : int, optional, default 0
        Processes to train in; 0 is this one, None is one per core. A script that asks for more needs
        `if __name__ == "__main__":`.
    on_progress : callable, optional
        Called with the `Progress` as trainings finish, in place of showing it.
    members : int, optional
        How many networks predict together, in every trial; by default as many as the estimator says: 4 for a table.
    executor : str
        'local' or 'ray'.
    address : str, optional
        Where the Ray cluster is; None starts Ray on this machine.
    runs : str or Path, optional
        A directory that keeps what is trained. After an interruption the same call goes on from there, to the same
        result, bit for bit; other data or options start anew.
    on_message : callable, optional
        Called with sentences on what the directory held.
    nested : bool, optional
        Hold out pairs of domains, so that a choice that is judged on a domain has seen nothing of it. By default up to
        6 domains. False: it is made by scores on the other domains, of trainings that knew that domain.
    sample_weight : array of shape (row,), optional
        How much each row counts, in training and in every score, so also in what is chosen.
    groups : array of shape (row,), optional
        Another name of domains.
    minutes : float, optional
        About how long it may all take. Candidates are then tried from the cheapest on, on at most 20,000 rows, drawn
        from every domain in proportion; what is not done in time is cut, and `notes` say what was left out. The winner
        is fitted on all rows, the members of an ensemble from the heaviest on, as many as there is time for. The first
        candidate, the linear model of the usual ones, always runs to its end.
    ensemble : bool, default True
        Combine the candidates by what they say of domains that they have not seen, and fit each that has weight. False:
        fit the one that `select` chooses.
    verbose : int, default 1
        Show how far it is; 0 shows nothing.

    Returns
    -------
    Comparison
        With a leaderboard, the score to expect on the next domain, and the fitted winner.

    Examples
    --------
    >>> import numpy as np
    >>> import seqdg
    >>> draw = np.random.default_rng(0)
    >>> X, hospital = draw.normal(size=(90, 2)), np.repeat(["north", "south", "east"], 30)
    >>> ill = np.where(X[:, 0] > 0, "yes", "no")
    >>> comparison = seqdg.compare(X, ill, hospital, candidates=["logistic"], baseline=None, seeds=1)
    >>> comparison.winner.algorithm
    'logistic'
    >>> comparison.estimator.predict([[2.0, 0.0]]).tolist()
    ['yes']
    """
    budget = None if minutes is None else Budget(minutes)
    domains = join_domains(domains, groups)
    template: DomainEstimator = clone(estimator) if estimator is not None else choose_estimator(y)
    if members is not None:
        template.set_params(members=members)
    criterion = template.criterion if criterion is None else criterion
    check_rules(select, rules)
    if sampler not in SAMPLERS:
        raise unknown("sampler", str(sampler), SAMPLERS)
    if seeds < 1:
        raise UsageError(f"{seeds} seeds were asked for, but at least 1 is needed.")
    recipe = template.set_params(algorithm=BASELINE, settings=None, criterion=criterion).make_recipe()
    if domains is None:
        raise UsageError("compare holds out every domain in turn: give domains, a name or number for each row.")
    whole = make_user_data(X, y, domains, recipe, keep_missing=True, sample_weight=sample_weight)
    _check_data(whole, recipe)
    within, trials = any(map(looks_at_held_out, (select, *rules))), range(recipe.seed, recipe.seed + seeds)
    sweep = Sweep(whole, adapt_recipe(recipe, whole.dataset), trials, within)
    learners, notes = choose_learners(candidates, baseline, sweep, None if budget is None else MOST_ROWS)
    names = list(learners)
    settings = {use_own_names(name): values for name, values in (settings or {}).items()}
    searches = make_searches(learners, settings, search, sampler, sweep.recipe)
    combined = _list_combined(learners, notes) if ensemble else []
    sweep.within = sweep.within or bool(combined)
    if refit and not combined:
        notes += _warn_of_saving(learners)
    if budget is not None and (rows := draw_rows(whole, MOST_ROWS, recipe.seed)) is not None:
        part = whole.take(rows, recipe)
        sweep = replace(sweep, user_data=part, recipe=adapt_recipe(recipe, part.dataset))
        notes.insert(
            0,
            f"The comparison was made on {len(rows)} of {len(whole.dataset.y)} rows, drawn from every domain in "
            f"proportion, to end in {minutes:g} min; the winner is fitted on all.",
        )
    sweep.executor, device = _choose_executor(executor, workers, address, recipe.device)
    sweep.recipe = replace(sweep.recipe, device=device)
    sweep.nested = _decide_nesting(nested, searches, sweep, notes)
    reported = tuple(rule for rule in (*RULES, ORACLE) if rule in rules or rule == select)
    targets: list[Target] = [(), *((d,) for d in sweep.domains)]
    if runs is not None:
        choosing = select, criterion, tuple(rules), baseline, sweep.nested, minutes, ensemble
        codes = [read_code(name, learner) for name, learner in learners.items()]
        how = [names, settings, search, sampler, seeds, *choosing, *filter(None, codes)]
        identity = identify_comparison(sweep.user_data, sweep.recipe, how)
        sweep.sink = KeptRecords(Path(runs), identity, on_message, criterion)
    left_out: dict[str, str] = {}
    combination = None
    with ExitStack() as stack:
        stack.callback(sweep.sink.close)
        sweep.on_progress = on_progress or stack.enter_context(show_progress("comparing", quiet=not verbose))
        if runs is None:
            folder = Path(stack.enter_context(TemporaryDirectory(prefix="seqdg-", ignore_cleanup_errors=True)))
            sweep.sink.saving = keep_predictions(Folder(folder), criterion)
        if budget is None:
            sweep.run(searches, targets, select)
        else:
            count = len(whole.dataset.y)
            left_out = run_within(budget, sweep, learners, searches, targets, select, count, on_message)
        notes = [*whole.dataset.notes, *_note_classes_alone(whole.dataset), *notes, *note_left_out(left_out)]
        able = [name for name in combined if name not in left_out]
        if len(able) > 1:
            combination = combine_candidates(sweep, able, select)
        elif combined:
            notes.append(f"There is no ensemble: {able[0]} is all that is left of {len(combined)} candidates.")
        comparison = _make_comparison(sweep, learners, reported, select, baseline, notes, left_out, combination)
    for sentence in comparison.warnings:
        warnings.warn(sentence, DoubtfulChoice, stacklevel=2)
    if not refit:
        return comparison
    may_fit = _make_limit(budget, sweep, comparison, len(whole.dataset.y))
    return _refit_winner(comparison, learners, template, whole, may_fit)


def fit_and_estimate(
    X: Any,
    y: Any,
    domains: Any,
    estimator: DomainEstimator,
    *,
    seeds: int = 3,
    workers: int = 0,
    on_progress: Callable[[Progress], None] = lambda progress: None,
    executor: str = "local",
    address: str | None = None,
    runs: str | Path | None = None,
    on_message: Callable[[str], None] = lambda sentence: None,
    sample_weight: Any = None,
) -> tuple[DomainEstimator, str]:
    """Fit an estimator as it is, and hold out each domain in turn to say what to expect of it.

    Return it, with the reason where no estimate can be made, such as that there is one domain only.
    """
    recipe = estimator.make_recipe()
    is_own = isinstance(recipe.algorithm, OwnSettings)
    settings = {} if is_own else {recipe.name: flatten_settings(recipe.algorithm)}
    try:
        comparison = compare(
            X, y, domains, [estimator.algorithm if is_own else recipe.name], settings, estimator=estimator, seeds=seeds,
            rules=(SOURCE_VAL,), nested=False, baseline=None, workers=workers, on_progress=on_progress,
            executor=executor, address=address, runs=runs, on_message=on_message, sample_weight=sample_weight,
            ensemble=False,
        )  # fmt: skip
    except UsageError as error:
        return estimator.fit(X, y, domains=domains, sample_weight=sample_weight), str(error)
    return cast("DomainEstimator", comparison.estimator), ""


def count_workers(device: str) -> int:
    """Count the processes to compare in: one per core on CPUs, and 0, which is this process, on a GPU or one core."""
    cores = count_cores() if choose_device(device) == "cpu" else 0
    return cores if cores > 1 else 0


def _choose_executor(name: str, workers: int | None, address: str | None, device: str) -> tuple[Executor, str]:
    """Choose where to train, and on which kind of device there. workers: 0 is this process, or as many as Ray has."""
    choice = ExecutorChoice(executor=name, workers=workers, address=address)
    if name == "ray":
        return choose_executor(replace(choice, workers=workers or None), device)
    count = count_workers(device) if workers is None else workers
    return (Workers(count) if count else InProcess()), device


def _check_data(user_data: UserData, recipe: Recipe) -> None:
    data = user_data.dataset
    if len(data.domains) < 2:
        raise UsageError(f"There is only the domain '{data.domains[0]}': to hold it out, at least one other is needed.")
    if taken := [d for d in data.domains if d in (AVERAGE, WORST)]:
        raise UsageError(f"A domain is called '{taken[0]}', as a summary over all of them is in tables: rename it.")
    if recipe.stop is not None:
        raise UsageError("A comparison chooses the step by itself: leave stop out.")
    assert data.validation is not None
    lacking = [d for d in data.domains if not bool(data.validation[data.rows(d)].any())]
    if lacking:
        least = "a domain needs at least two rows: leave its row out, or join it with another domain"
        cure = "set validation above 0" if recipe.validation == 0 else least
        raise UsageError(f"There are no rows to validate on in {list_some(lacking)}: {cure}.")


def _note_classes_alone(data: Dataset) -> list[str]:
    """Note the classes that a single domain has: with it held out, nothing can be learned about them."""
    alone: dict[str, list[str]] = {}
    for d in data.domains if data.classes else ():
        y = data.y[data.rows(d)]
        others = set(data.y[data.domain != data.index(d)].tolist())
        counts = {c: int((y == c).sum()) for c in sorted(set(y.tolist()) - others)}
        alone.setdefault(d, []).extend(f"'{data.classes[c]}' ({count_things(n, 'row')})" for c, n in counts.items())
    return [
        f"Only {d} has the {'class' if len(names) == 1 else 'classes'} {list_some(names)}: with {d} held out, no "
        "source has it, and its rows count as errors in every score on that domain. The final model learns all classes."
        for d, names in alone.items()
        if names
    ]


def _decide_nesting(wanted: bool | None, searches: Mapping[str, Search], sweep: Sweep, notes: list[str]) -> bool:
    """Decide whether pairs of domains are held out, and say so where they are not."""
    unable = [name for name, search in searches.items() if not sweep.check(Contender(name, *search.first))]
    count, alone = len(set(sweep.folds.values())), len(sweep.domains)
    what = "domains" if count == alone else "groups of domains"
    if count < alone:
        sizes = sorted({len(fold) for fold in sweep.folds.values()})
        notes.append(
            f"The {alone} domains are held out in {count} groups of {' or '.join(map(str, sizes))}: a candidate is "
            f"trained {count} times, however many domains there are. Every domain is scored by itself."
        )
    if not sweep.within:
        return True
    if wanted and unable:
        raise UsageError(
            f"A nested comparison holds out two {what} of {count}, which leaves too few for {', '.join(unable)}: "
            "leave these out, or leave nested out."
        )
    if not unable and (wanted if wanted is not None else count <= MOST_NESTED):
        return True
    why = (
        f"they would leave too few for {', '.join(unable)}"
        if unable
        else f"that would be {count * (count - 1) // 2} more trainings of every candidate and seed (nested=True, or "
        "--nested, makes them)"
    )
    notes.append(
        f"No pairs of the {count} {what} are held out: {why}. The choice that is judged on a domain is made by scores "
        "on the others, of trainings that knew that domain; the expectation may be slightly too good."
    )
    return False


def _make_comparison(
    sweep: Sweep,
    learners: Mapping[str, Learner],
    rules: Sequence[str],
    select: str,
    baseline: str | None,
    notes: Sequence[str],
    left_out: Collection[str],
    combination: Combination | None,
) -> Comparison:
    names = [name for name in learners if name not in left_out]
    targets: list[Target] = [(d,) for d in sweep.domains]
    choice, candidates = sweep.choose((), names, select)
    if choice is None:
        raise UsageError("Training diverged for every candidate. Choose a smaller lr.")
    best = candidates[choice.index]
    data, rate = sweep.user_data.dataset, sweep.recipe.protocol.lr
    stop = sweep.find_stop((), best, select) if learners[best.name].takes_steps else None
    pick = name_winner(best, rate, stop)
    team: dict[str, Any] = {}
    told: Mapping[str, Mapping[str, Any]]
    if combination is not None:
        team = {"combined": combination.outcomes, "members": list_winners(combination, rate), "pick": pick}
        notes = [*notes, *note_weights(combination)]
    if combination is not None:
        told = combination.told
    else:  # kept predictions are those of the steps that validate best
        stopped = split_rule(select)[0] == STOPPED
        told = {} if stopped else describe_domains(sweep, predict_choice(sweep, names, select))
    return Comparison(
        domains=sweep.domains,
        algorithms={name: max(sum(c.name == name for c in sweep.tried[t]) for t in targets) for name in names},
        criterion=sweep.recipe.criterion,
        select=select,
        seeds=len(sweep.seeds),
        winner=Winner(WEIGHTED) if team else pick,
        outcomes={r: [o for t in targets for o in sweep.select_outcomes(t, names, r)] for r in rules},
        chosen={r: [o for t in targets for o in sweep.select_outcomes(t, names, r, CHOSEN)] for r in rules},
        baseline=None if baseline in left_out else baseline,
        notes=tuple(notes),
        left_out=tuple(left_out),
        rows=_count_rows(data),
        constant=score_constant(data),
        classes=tuple(data.classes),
        told=told,
        reason=choice,
        ranked=tuple(candidate.name for candidate in candidates),
        nested=sweep.nested,
        **team,
    )


def _count_rows(data: Dataset) -> dict[str, int]:
    """Count the rows of each domain; where they have weights, how many of equal weight would say as much."""
    if data.weight is None:
        return {d: len(data.rows(d)) for d in data.domains}
    return {d: count_effective(data.weight[data.rows(d)].numpy()) for d in data.domains}


def _warn_of_saving(learners: Mapping[str, Learner]) -> list[str]:
    """Warn before anything trains of candidates whose model could not be saved; return what was said."""
    sentences = []
    for name, learner in learners.items():
        try:
            learner.check_saving()
        except UsageError as error:
            sentences.append(f"{name} is compared and may win, but cannot be saved: {error}")
            warnings.warn(sentences[-1], UserWarning, stacklevel=3)
    return sentences


def _list_combined(learners: Mapping[str, Learner], notes: list[str]) -> list[str]:
    """List the candidates that an ensemble may have as members; none where there are fewer than two to combine."""
    able, refused = [], []
    for name, learner in learners.items():
        try:
            learner.check_saving()
            able.append(name)
        except UsageError as error:
            refused.append(f"{name} is compared, but is no member of the ensemble, as it cannot be saved: {error}")
    if len(able) < 2:
        why = "only 1 candidate is compared" if len(learners) == 1 else "fewer than 2 candidates can be saved"
        notes.append(f"There is no ensemble: {why}.")
        return []
    notes += refused
    return able


def _make_limit(budget: Budget | None, sweep: Sweep, comparison: Comparison, rows: int) -> Callable[[int], bool]:
    """Return what says whether there is time to fit a member of the ensemble, by its index, to so many rows."""
    contenders = {contender.name: contender for contender in sweep.tried.get((), [])}

    def may_fit(index: int) -> bool:
        name = comparison.members[index].algorithm
        return budget is None or estimate_fit(sweep, contenders[name], rows) < budget.left_in_all

    return may_fit


def _refit_winner(
    comparison: Comparison,
    learners: Mapping[str, Learner],
    template: DomainEstimator,
    user_data: UserData,
    may_fit: Callable[[int], bool],
) -> Comparison:
    """Fit the winner on all domains, and put on its card what to expect of it."""
    if comparison.members:
        members = tuple(copy_object(winner, learners[winner.algorithm]) for winner in comparison.members)
        estimator = clone(template).set_params(algorithm=WeightedEnsemble(members), settings=None, stop=None)
    else:
        winner = copy_object(comparison.winner, learners[comparison.winner.algorithm])
        estimator = clone(template).set_params(algorithm=winner.algorithm, settings=winner.settings, stop=winner.stop)
        if winner.lr is not None:
            estimator.set_params(lr=winner.lr)
    estimator.fit_prepared(user_data, may_fit)
    estimator.add_facts(estimate=comparison.describe(), comparison=comparison.describe_candidates())
    return replace(comparison, estimator=estimator)


def list_usual(dataset: Dataset) -> tuple[str, ...]:
    """List the usual candidates: networks, and for rows of numbers what people take who train no net."""
    if len(dataset.shape) != 1:
        return NETS
    return (*NETS, LINEAR_NUMBERS if dataset.is_regression else LINEAR, *POOLED)


def list_quick(is_regression: bool) -> tuple[str, ...]:
    """List the candidates of a quick comparison of a table: those that the ensemble gains most by in little time."""
    return (LINEAR_NUMBERS if is_regression else LINEAR, *QUICK_POOLED, QUICK_NET)


def choose_learners(
    candidates: Sequence[Any] | None, baseline: str | None, sweep: Sweep, most_rows: int | None = None
) -> tuple[dict[str, Learner], list[str]]:
    """Return what trains each candidate, by its name, and notes on those that these data cannot train.

    Where all that were named are such, the first one's reason is raised. most_rows: that are compared on; None: all.
    """
    if isinstance(candidates, str) or (candidates is not None and is_estimator(candidates)):
        raise UsageError(f"candidates is {candidates!r}, but it must be a list, such as [{candidates!r}].")
    named = name_candidates(list_usual(sweep.user_data.dataset) if candidates is None else candidates)
    notes = [*_note_repeated(candidates or ()), *_drop_same(named)]
    learners = {**({baseline: find_learner(baseline)} if baseline and candidates is not None else {}), **named}
    if not learners:
        raise UsageError("No candidate was named. `seqdg list algorithms` shows all.")
    errors: dict[str, UsageError] = {}
    together: list[str] = []
    for name, learner in learners.items():
        contender = Contender(name, learner.build_settings(name), sweep.recipe.protocol.lr)
        try:
            nests = sweep.check(contender)
            together += [name] if sweep.make_trials((), contender)[0].together else []
        except UsageError as error:
            errors[name] = error
            continue
        work = measure_work(sweep.user_data.dataset, most_rows)
        if candidates is None and work > (learner.most_work or work):
            errors[name] = UsageError("for so many rows, inputs and classes it would take minutes. Name it to have it.")
        if candidates is None and sweep.within and not nests and len(sweep.domains) > 2:
            errors[name] = UsageError(
                f"pairs of the {len(sweep.domains)} domains are held out to judge the choice, and what is left is too "
                "little for it. Name it to have it."
            )
    if all(name in errors for name in named or learners):
        raise next(iter(errors.values()))
    notes += [f"{name} was left out: {error}" for name, error in errors.items()]
    if together:
        does = "needs" if len(together) == 1 else "need"
        notes.append(
            f"{', '.join(together)} {does} the rows of an unseen domain together, without labels (transductive)."
        )
    if baseline in learners and baseline not in named and baseline not in errors:
        notes.append(f"{baseline} was not named, but is compared too, as the baseline, and may win.")
    return {name: learner for name, learner in learners.items() if name not in errors}, notes


def _note_repeated(candidates: Sequence[Any]) -> list[str]:
    names = [candidate for candidate in candidates if isinstance(candidate, str)]
    return [f"{name} is named more than once: it is compared once." for name in dict.fromkeys(names) if
            names.count(name) > 1]  # fmt: skip


def _drop_same(learners: dict[str, Learner]) -> list[str]:
    """Drop objects of the user's own that equal an earlier one; return what was dropped."""
    first: dict[OwnEstimator, str] = {}
    notes = []
    for name, learner in list(learners.items()):
        if isinstance(learner, OwnEstimatorLearner) and first.setdefault(learner.unfitted, name) != name:
            notes.append(f"{name} is the same as {first[learner.unfitted]}: it is compared once.")
            del learners[name]
    return notes


def measure_work(dataset: Dataset, most_rows: int | None = None) -> int:
    """Multiply rows, inputs and outputs; two classes are one output, as a number is."""
    classes, rows = len(dataset.classes), len(dataset.y)
    return min(rows, most_rows or rows) * math.prod(dataset.shape) * (classes if classes > 2 else 1)


def name_candidates(candidates: Sequence[Any]) -> dict[str, Learner]:
    """Name every candidate: those that are names by themselves, objects by their class, numbered where it recurs."""
    learners: dict[str, Learner] = {}
    for candidate in candidates:
        if isinstance(candidate, str):
            learners[use_own_names(candidate)] = find_learner(candidate)
            continue
        if isinstance(candidate, DomainEstimator) or not is_estimator(candidate):
            raise UsageError(
                f"A candidate is {_describe(candidate)}, but it must be a name, such as 'agg+ema' or 'logistic', or "
                "an estimator or pipeline of scikit-learn. `estimator` sets how networks are trained."
            )
        name = name_estimator(candidate)
        free = (each for each in (name, *(f"{name}-{i}" for i in range(2, len(learners) + 3))) if each not in learners)
        learners[next(free)] = OwnEstimatorLearner(OwnEstimator(candidate))
    return learners


def _describe(candidate: Any) -> str:
    return f"the class {candidate.__name__}" if isinstance(candidate, type) else f"{candidate!r}"


def make_searches(
    learners: Mapping[str, Learner], settings: Mapping[str, Mapping[str, Any]], count: int, sampler: str, recipe: Recipe
) -> dict[str, Search]:
    """Make a search for every candidate: its settings as they are, a grid of them, or `count` that are drawn."""
    for name in settings:
        if name not in learners:
            raise unknown("candidate to compare", name, learners)
    searches: dict[str, Search] = {}
    for name, learner in learners.items():
        tried = _expand_settings(name, learner, settings.get(name, {}), recipe)
        fixed = [*settings.get(name, {}), *([] if learner.takes_steps else [RATE])]
        if len(tried) > 1 and count > 1:
            raise UsageError(f"{name} has a grid of settings and a search for others: choose one of the two.")
        if count > 1 and sampler == "optuna":
            searches[name] = Optuna(tried[0], count, recipe.seed, fixed=fixed)
        else:
            searches[name] = Fixed(
                tried if len(tried) > 1 else draw_proposals(tried[0], count, recipe.seed, fixed=fixed)
            )
    return searches


def _expand_settings(name: str, learner: Learner, values: Mapping[str, Any], recipe: Recipe) -> list[Proposal]:
    """List every combination of the values of an algorithm's settings and of its learning rate."""
    if isinstance(learner, OwnEstimatorLearner):
        return [Proposal(learner.build_settings(name, **values), recipe.protocol.lr)]
    if RATE in values and not learner.takes_steps:
        raise UsageError(f"{name} has no learning rate: leave {RATE} out.")
    rate = values.get(RATE, recipe.protocol.lr)
    rates = [to_plain(lr) for lr in (rate if isinstance(rate, list) else [rate])]
    if not rates:
        raise UsageError(f"The grid gives no value for {RATE}: give at least one.")
    for lr in rates:
        if isinstance(lr, bool) or not isinstance(lr, int | float):
            raise UsageError(f"{RATE} of {name} is {lr!r}, but it must be a number.")
        replace(recipe.protocol, lr=lr)  # raises where it cannot be one
    settings = make_grid(learner.build_settings(name), {k: v for k, v in values.items() if k != RATE})
    return [Proposal(algorithm, float(lr)) for algorithm in settings for lr in rates]


def parse_settings_texts(texts: Sequence[str], candidates: Sequence[str] | None) -> dict[str, dict[str, Any]]:
    """Parse texts such as `fo-s-mldg.alpha=0.1` into the settings that `compare` takes for the same algorithms."""
    settings: dict[str, dict[str, Any]] = {}
    if not texts:
        return settings
    full = {shorten(name): name for name in candidates or ALL_USUAL}  # with the file that an algorithm comes from
    for short, values in split_settings(texts, candidates or ALL_USUAL).items():
        if not values:  # of a candidate that may not be among those of these data
            continue
        name = full[short]
        rest = {setting: text for setting, text in values.items() if setting != RATE}
        built = parse_settings(find_learner(name).build_settings(name), rest, name)
        parsed = {setting: flatten_settings(built)[setting] for setting in rest}
        settings[name] = {**parsed, **({RATE: _parse_rate(name, values[RATE])} if RATE in values else {})}
    return settings


def _parse_rate(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{RATE} of {name} is '{text}', but it must be a number.") from None
