"""Choices between computations whose results are equal up to rounding, such as two libraries for the same product.

Which one is faster depends on the processor, the number of threads and the sizes, so it is measured. A *question* is a tuple, such as
``("linear", 256, 3456, 512)``, and its answer one of several *alternatives*, of which the first is the default::

    questions of a run  -->  answers in the file of this machine  -->  those that are missing are measured, and added to the file
                                                                       |
    adopt(answers)      -->  chosen(question), in the code that computes, in every process of the run

The file makes runs repeatable: a question is measured once on a machine, and has the same answer in all later runs. Where the file cannot
be written, nothing is measured, and all answers are the defaults. So two runs with the same questions have the same answers in any case,
unless the file is deleted between them. `settle` is what runs call.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from rlpyt.utils.misc import write_json
from rlpyt.utils.settings import Kind

FORMAT = 1
BUDGET = 0.3  # seconds in which all questions of a run are measured
ROUNDS = 5
MARGIN = 1.05  # How many times as fast as the default another alternative must be, in every round.
_MOST_CALLS = 40  # in a round
_LEAST = 0.003  # seconds, with less of which a comparison does not begin
_SPARE = 0.25  # of the time, in case some calls take longer
_LONGEST_WAIT = 30.0  # seconds, for another process that measures
OFF = "RLPYT_CALIBRATE"  # Environment variable: 0 turns measuring off, see `set_calibration`.

Question = tuple  # of words and numbers
Answer = Any  # A word or a whole number.


# --- What is chosen in this process -----------------------------------------------------------------------------------
_chosen: dict[Question, Answer] = {}


def chosen(question: Question) -> Answer | None:
    """Return the answer to a question in this process; None stands for the default."""
    return _chosen.get(question)


def is_chosen(answer: Answer) -> bool:
    """Return whether this is the answer to any question in this process."""
    return answer in _chosen.values()


def adopt(answers: Mapping[str, Answer]) -> None:
    """Let this process, and processes that it starts from now on, compute as these answers say, and everything else by default.

    Args:
        answers: by the text of the question, as `current` returns them.
    """
    _chosen.clear()
    _chosen.update({_question(text): answer for text, answer in answers.items()})


def current() -> dict[str, Answer]:
    """Return the answers in this process as plain data."""
    return {_text(question): answer for question, answer in _chosen.items()}


def adopted() -> dict[Question, Answer]:
    """Return the answers in this process by question."""
    return dict(_chosen)


@contextmanager
def trying(question: Question, answer: Answer) -> Iterator[None]:
    """Within this context, `answer` is chosen."""
    before = dict(_chosen)
    _chosen[question] = answer
    try:
        yield
    finally:
        _chosen.clear()
        _chosen.update(before)


def _text(question: Question) -> str:
    return " ".join(map(str, question))


def _question(text: str) -> Question:
    return tuple(int(part) if part.isdecimal() else part for part in text.split())


def are_answers(value: Any) -> bool:
    """Return whether a value is what `current` may return."""
    return isinstance(value, Mapping) and all(
        isinstance(text, str) and (isinstance(answer, str) or (type(answer) is int and answer > 0)) for text, answer in value.items()
    )


CALIBRATE = Kind(
    "True, False, or a dictionary of choices as in params.json", lambda value: value is True or value is False or are_answers(value)
)


# --- Whether runs measure ---------------------------------------------------------------------------------------------
_is_on: bool | None = None  # None leaves it to the environment variable.


def set_calibration(on: bool | None) -> None:
    """Let runs measure, or not, if their `calibrate` is None: all that start in this process from now on.

    None, as at first, means yes, unless the environment variable ``RLPYT_CALIBRATE`` is 0.
    """
    global _is_on
    _is_on = on


def is_calibrated() -> bool:
    """Return whether runs measure if their `calibrate` is None."""
    return os.environ.get(OFF) != "0" if _is_on is None else _is_on


# --- When models exist ------------------------------------------------------------------------------------------------
_waiting: list[Callable[[Any], None]] = []


@contextmanager
def once_models_exist(call: Callable[[Any], None]) -> Iterator[None]:
    """Call ``call(agent)`` once, as soon as an agent that is initialized within this context has its models.

    At that time no worker processes have been started.
    """
    _waiting.append(call)
    try:
        yield
    finally:
        if call in _waiting:
            _waiting.remove(call)


def models_exist(agent: Any) -> None:
    """Tell who waits in `once_models_exist`. Agents call this when they have made their models."""
    while _waiting:
        _waiting.pop()(agent)


# --- Measuring --------------------------------------------------------------------------------------------------------
class Comparison(NamedTuple):
    """A question, and how it is measured.

    Attributes:
        question: words and numbers; the sizes of what is computed among them.
        alternatives: possible answers, the default first.
        prepare: returns a function that does the computation once, as is chosen. Called only if the question is measured.
        use: returns the context in which an alternative is chosen.
        conditions: what else the answer depends on, such as "2 threads".
    """

    question: Question
    alternatives: Sequence[Answer]
    prepare: Callable[[], Callable[[], Any]]
    use: Callable[[Answer], AbstractContextManager]
    conditions: str = ""

    @property
    def key(self) -> str:
        """The question in the file of the machine."""
        return ", ".join(filter(None, [_text(self.question), self.conditions, "of " + "/".join(map(str, self.alternatives))]))


class Verdict(NamedTuple):
    """The answer to a question, and the reason in words."""

    answer: Answer
    why: str


def compare(comparison: Comparison, seconds: float, clock: Callable[[], float] = time.perf_counter) -> Verdict:
    """Measure which alternative is fastest: medians of some calls of each, in `ROUNDS` rounds, in turn.

    The default wins unless another one is `MARGIN` times as fast in every round, or if `seconds` are too short to tell.
    """
    default, *others = alternatives = list(comparison.alternatives)
    deadline = clock() + seconds
    times: dict[Answer, list[float]] = {answer: [] for answer in alternatives}

    def round_of(n_calls: int, order: list[Answer]) -> dict[Answer, float]:
        """Return the median of each alternative; raise _TooLong after the deadline."""
        medians = {}
        for answer in order:
            with comparison.use(answer):
                taken = []
                for _ in range(n_calls):
                    start = clock()
                    compute()
                    taken.append(clock() - start)
                    if clock() > deadline:
                        raise _TooLong
            medians[answer] = statistics.median(taken)
        return medians

    try:
        if seconds < _LEAST:
            raise _TooLong
        compute = comparison.prepare()
        round_of(1, alternatives)  # Prepares kernels, threads and memory.
        each_call = sum(round_of(1, alternatives).values())
        left = (1 - _SPARE) * (deadline - clock())
        if left < ROUNDS * each_call:
            raise _TooLong
        n_calls = min(_MOST_CALLS, int(left / (ROUNDS * each_call)))
        for i in range(ROUNDS):
            for answer, median in round_of(n_calls, alternatives[:: 1 if i % 2 == 0 else -1]).items():
                times[answer].append(median)
    except _TooLong:
        return Verdict(default, f"the default: {1e3 * max(seconds, 0):.0f} ms, all the time that there was, did not suffice to measure")
    speeds = {answer: [d / t for d, t in zip(times[default], times[answer])] for answer in others}
    faster = [answer for answer in others if min(speeds[answer]) >= MARGIN]
    best = max(faster or others, key=lambda answer: statistics.median(speeds[answer]))
    said = f"{min(speeds[best]):.2f} to {max(speeds[best]):.2f} times as fast"
    if faster:
        return Verdict(best, f"{said} as {default} in {ROUNDS} rounds")
    return Verdict(default, f"the default: {best} is {said} in {ROUNDS} rounds, not {MARGIN} times in each")


class _TooLong(Exception):
    """Measuring takes longer than it may."""


# --- The file of a machine --------------------------------------------------------------------------------------------
class Settled(NamedTuple):
    """Answers by the text of the question, and a line for the log about each of them."""

    answers: dict[str, Answer]
    lines: dict[str, str]


def settle(
    comparisons: Sequence[Comparison],
    machine: str,
    directory: Any = None,
    budget: float = BUDGET,
    clock: Callable[[], float] = time.perf_counter,
    obstacle: Callable[[], str | None] = lambda: None,
    keeps_defaults: bool = True,
) -> Settled:
    """Answer all questions: from the file of this machine, or by measurements, which are added to the file.

    Args:
        comparisons: the questions; those with most to gain come first, because the time of `budget` may not suffice for all.
        machine: what an answer may depend on, such as processor and versions. Each text has a file.
        directory: where the files are; None is `cache_directory`.
        budget: seconds for all measurements.
        clock: returns seconds.
        obstacle: returns the reason why nothing can be measured now, or None; called only before measurements.
        keeps_defaults: whether to store defaults that were taken only because nothing could be measured. Runs that must repeat need this.
    """
    path = Path(directory or cache_directory()) / f"{_file_name(machine)}.json"
    answers, lines = {}, {}
    try:
        with _locked(path):
            kept = _read(path, machine)
            missing = [each for each in comparisons if not _has_answer(each, kept)]
            why_not = obstacle() if missing else None
            deadline = clock() + budget
            for i, each in enumerate(missing):
                if why_not is not None:
                    until = f". It remains so until {path} is deleted: then later runs measure" if keeps_defaults else ""
                    kept[each.key] = dict(answer=each.alternatives[0], why=f"the default: {why_not}{until}")
                    continue
                try:
                    verdict = compare(each, max(deadline - clock(), 0) / (len(missing) - i), clock)
                except RuntimeError as error:  # Of torch, where an alternative is not possible.
                    verdict = Verdict(each.alternatives[0], f"the default: measuring raised {type(error).__name__}: {error}")
                kept[each.key] = dict(answer=verdict.answer, why=verdict.why)
            if missing and (why_not is None or keeps_defaults):
                write_json(path, dict(format=FORMAT, machine=machine, answers=kept), indent=1)
    except OSError as error:
        why = f"the default: nothing is measured, since {path} cannot hold the result ({type(error).__name__}: {error.strerror or error})"
        kept, missing = {each.key: dict(answer=each.alternatives[0], why=why) for each in comparisons}, list(comparisons)
    for each in comparisons:
        text, found = _text(each.question), kept[each.key]
        answers[text] = found["answer"]
        origin = "" if each in missing else f"; measured earlier, and kept in {path}"
        conditions = f" ({each.conditions})" if each.conditions else ""
        lines[text] = f"{text}{conditions}: {found['answer']}, {found['why']}{origin}"
    return Settled(answers, lines)


def cache_directory() -> Path:
    """Return the directory of the files: ``rlpyt`` in the user's directory of caches (``XDG_CACHE_HOME``, else ``~/.cache``)."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return Path(given if os.path.isabs(given) else os.path.expanduser("~/.cache")) / "rlpyt" / "choices"


def _file_name(machine: str) -> str:
    import hashlib

    return hashlib.sha256(machine.encode()).hexdigest()[:16]


def _has_answer(comparison: Comparison, kept: Mapping[str, Any]) -> bool:
    found = kept.get(comparison.key)
    return isinstance(found, dict) and isinstance(found.get("why"), str) and found.get("answer") in comparison.alternatives


def _read(path: Path, machine: str) -> dict[str, Any]:
    """Return the answers in a file; none if there is no such file, or if it is damaged or of another format."""
    with suppress(FileNotFoundError, ValueError):  # Bad JSON and bad UTF-8 are ValueErrors.
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, dict) and (content.get("format"), content.get("machine")) == (FORMAT, machine):
            answers = content.get("answers")
            return answers if isinstance(answers, dict) else {}
    return {}


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Let one process at a time read, measure and write; raise OSError if the directory does not allow it, or another takes too long.

    The system releases the lock of a process that dies.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_suffix(".lock"), "a") as file:
        try:
            import fcntl
        except ImportError:  # Not a POSIX system.
            yield
            return
        deadline = time.monotonic() + _LONGEST_WAIT
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"another process has held {file.name} for {_LONGEST_WAIT:.0f} s") from None
                time.sleep(0.02)
        yield
