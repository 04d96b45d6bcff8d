"""The training loop for data sets: no sampling, but evaluation."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from rlpyt.algos.base import normalization_of, start_targets
from rlpyt.algos.qpg.base import CompletedQAgent
from rlpyt.algos.replay import ReplayAlgorithm
from rlpyt.envs.specs import as_wrapped, map_parts, parts_by_key, sub_spaces
from rlpyt.episodes.batch import EpisodeBatch
from rlpyt.episodes.minari import from_minari
from rlpyt.replays.base import CompletedReplay
from rlpyt.replays.episode import EpisodeReplayBuffer
from rlpyt.runners.minibatch_rl import MinibatchRlEval
from rlpyt.runners.protocols import CompletedAlgorithm, CompletedSampler
from rlpyt.spaces.base import CompletedSpace
from rlpyt.spaces.parts import integers_of
from rlpyt.utils.buffer import buffer_func
from rlpyt.utils.digests import digests, together
from rlpyt.utils.logging import logger
from rlpyt.utils.misc import attributes, has_all
from rlpyt.utils.plain import check_form
from rlpyt.utils.settings import ANYTHING, checked
from rlpyt.utils.structures import Tree, field_names, from_structure, leaves

_CHANGED = ("min_steps_learn", "replay_size", "learns_statistics")  # What a run changes of its algorithm.
_REPLAYED = ("observations", "last_observations", "actions", "rewards", "step_types", "lengths")  # What a run learns of a data set.


class OfflineRl(MinibatchRlEval):
    """Trains on the episodes of a data set; the sampler plays evaluations only.

    An agent that normalizes observations does it by the statistics of all observations of the data set.

    The data set fills the replay buffer of the algorithm, which may be any that learns from replay: those of `rlpyt.algos.offline`, but
    also DQN or TD3 (with ``behavior_cloning=2.5``, say), but not one that replays sequences for recurrent agents. n-step returns,
    priorities and time limits are those of replay. This runner chooses `replay_size` by the data set, and sets `min_steps_learn` to 0,
    whatever the algorithm was given. `shutdown` gives the algorithm its own values back, so that it may learn online afterwards.

    An iteration is one gradient update, whatever `replay_ratio`. What counts environment steps elsewhere counts updates here: `n_steps`,
    `log_interval_steps`, and the column `CumSteps`.

    Args:
        dataset: an `EpisodeBatch`, an `EpisodeReplayBuffer`, or a data set of Minari or its id, such as "mujoco/hopper/expert-v0". Its
            action space must be that of the environment; without an `env_spec`, its actions must be in that space. A resumed run needs the
            same data again.
        kwargs: see `rlpyt.runners.minibatch_rl.MinibatchRlBase`. The sampler has ``batch_T=1, batch_B=1`` and an environment like that of
            the data set.

    Raises:
        ValueError: the algorithm does not learn from replay, or replays sequences; the sampler has another batch; `save_replay` is True; or
            the data set is empty, does not fit the environment, or is not the one of the run to resume.
    """

    @checked(dataset=ANYTHING)
    def __init__(self, dataset: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dataset = dataset
        name = type(self).__name__
        if not has_all(self.algo, "initialize_replay_buffer"):
            raise ValueError(f"{name} needs an algorithm that learns from replay; {type(self.algo).__name__} is not one.")
        if isinstance(self.algo, ReplayAlgorithm) and self.algo.sequences is not None:
            raise ValueError(
                f"{type(self.algo).__name__} replays sequences for recurrent agents, for which {name} has neither states nor a buffer: "
                "take an algorithm that replays transitions, such as DQN or SAC."
            )
        if self.save_replay:
            raise ValueError(f"{name} reads the data set again when it resumes: leave save_replay out.")
        if CompletedSampler(self.sampler).batch_spec not in (None, (1, 1)):
            raise ValueError(
                f"{name} does not sample: give the sampler batch_T=1 and batch_B=1. Its evaluation environments are eval_n_envs."
            )

    chosen_settings = _CHANGED
    _draws: dict[str, Any] | None = None  # Of the snapshot to resume from.
    _data: dict[str, Any] | None = None  # What identifies the data set.
    _own_settings: dict[str, Any] | None = None  # Those of `_CHANGED` that the algorithm itself had before the run; None between runs.

    def startup(self) -> int:
        """Extend the base class: put the data set into the replay buffer, and learn from the first iteration on."""
        algo: Any = self.algo
        self._draws = None
        episodes = episodes_of(self.dataset)
        self.check_numbers(episodes)
        self._data = _identity(episodes)
        if self._own_settings is None:
            has = attributes(algo)
            self._own_settings = {name: has[name] for name in _CHANGED if name in has}
        algo.min_steps_learn = 0
        n_step = CompletedAlgorithm(algo).n_step_return
        algo.replay_size = len(episodes) + 2 * n_step + 1 + _n_frames(episodes)
        n_itr = super().startup()
        episodes = as_sampled(episodes, *self.agent.env_spaces)
        # Replay never draws the first and the last few rows, so these are blank.
        n_blank = CompletedReplay(algo.replay_buffer).min_rows - 1
        n_after = min(n_step, n_blank)
        self._append_blank(n_blank - n_after, episodes)
        algo.learns_statistics = False  # It gets those of the data set here.
        add_to_statistics = normalization_of(self.agent)
        for i in range(episodes.n_episodes):
            samples, _ = episodes.select([i]).to_samples()
            algo.append(samples)
            if add_to_statistics is not None and self._draws is None:  # A resumed run has the statistics already.
                add_to_statistics(samples.env.observation)
        if add_to_statistics is not None and self._draws is None:
            start_targets(self.agent)
        self._append_blank(n_after, episodes)
        algo.min_itr_learn, algo.updates_per_optimize = 0, 1
        algo.start_with_empty_replay(0)  # A resumed run does not wait for samples either.
        if self._draws is not None:
            self._load_draws(self._draws)
        if self.digests is not None:
            self.digests.take_data({name: getattr(episodes, name) for name in _REPLAYED})
        CompletedQAgent(self.agent).give_min_itr_learn(0)
        logger.log(f"Training on {len(episodes):,} steps of {episodes.n_episodes:,} episodes.")
        return n_itr

    def check_numbers(self, episodes: EpisodeBatch) -> None:
        """Refuse numbers that are NaN or infinite. Override this if they mean something to the agent.

        Observations after a termination may be NaN, since no target uses them.

        Raises:
            ValueError: there is such a number; the message has its step, counted from 0.
        """
        starts = np.cumsum(episodes.lengths) - episodes.lengths
        ends_count = ~np.asarray(episodes.terminals)[starts + episodes.lengths - 1]
        for name in ("observations", "last_observations", "actions", "rewards"):
            for path, array in leaves(getattr(episodes, name), name):
                array = np.asarray(array)
                if array.dtype.kind != "f" or np.isfinite(array).all():
                    continue
                wrong = ~np.isfinite(array.reshape(len(array), -1)).all(axis=1)
                rows = np.flatnonzero(wrong & ends_count if name == "last_observations" else wrong)
                if not len(rows):
                    continue
                if name == "last_observations":
                    where = f"at the end of episode {rows[0]}"
                else:
                    episode = np.searchsorted(starts, rows[0], side="right") - 1
                    where = f"in step {rows[0] - starts[episode]} of episode {episode}, both counted from 0"
                raise ValueError(
                    f"The {path} of the data set have a number that is NaN or infinite, {where}. Leave that episode out, or override "
                    f"check_numbers of {type(self).__name__} if the number means something."
                )

    def shutdown(self) -> None:
        """Extend the base class: give the algorithm its own settings back."""
        try:
            super().shutdown()
        finally:
            self._restore_settings()

    def _restore_settings(self) -> None:
        own, self._own_settings = self._own_settings, None
        if own is None:  # The run ended before it changed any.
            return
        for name in _CHANGED:
            if name in own:
                setattr(self.algo, name, own[name])
            elif name in attributes(self.algo):
                delattr(self.algo, name)  # The value of the class holds again.

    def _append_blank(self, n: int, episodes: EpisodeBatch) -> None:
        """Append `n` rows of zeros, each an episode, to the replay buffer."""
        if n:
            first, _ = episodes.select([0]).to_samples()
            rows = torch.zeros(n, dtype=torch.long)  # n times the first row
            blank = buffer_func(first._replace(agent=first.agent[rows], env=first.env[rows]), torch.zeros_like)
            self.algo.append(blank._replace(env=blank.env._replace(done=torch.ones_like(blank.env.done))))  # type: ignore[attr-defined]

    def counters(self) -> dict:
        """Add what decides which samples are replayed next (random numbers, priorities, a prefetched batch), and which data they are."""
        replay_buffer: Any = self.algo.replay_buffer  # type: ignore[attr-defined]
        return dict(super().counters(), draws=replay_buffer.state_dict(since=replay_buffer.written), data=self._data)

    def load_counters(self, counters: dict) -> None:
        """Extend the base class: keep the state of the draws until the replay buffer has the data set.

        Raises:
            ValueError: the data set is another one.
        """
        super().load_counters(counters)
        check_form(counters, dict(draws=dict), "counters")
        data = counters.get("data", self._data)  # Older snapshots do not have it.
        if data != self._data:
            raise ValueError(
                f"dataset, {_shown(self.dataset)} with {self._data}, is not the one of the run to resume, with {data}: give that one again."
            )
        self._draws = counters["draws"]

    def _load_draws(self, draws: dict[str, Any]) -> None:
        """Continue to draw as a run that saved `draws`, once the replay buffer has the data set."""
        replay_buffer: Any = self.algo.replay_buffer  # type: ignore[attr-defined]
        if "written" in draws:
            replay_buffer.load_state_dict(draws)
        else:  # Older snapshots have no prefetched batch.
            replay_buffer.draws.load_state(draws)

    def run_iteration(self, itr: int) -> None:
        """Optimize on the data set, and store the diagnostics."""
        self.agent.train_mode(itr)
        with self.diagnostics.optimization:
            opt_info = self.algo.optimize_agent(itr, None)
        self.store_diagnostics(itr, [], opt_info)
        self._count_steps(itr)
        self._itr = itr


def _n_frames(episodes: EpisodeBatch) -> int:
    """Return C if observations are, or hold, images [C,H,W], which replay may take for the C latest frames, else 1."""
    return max([1, *(x.shape[1] for _, x in leaves(episodes.observations) if x.ndim == 4)])


def episodes_of(dataset: Any) -> EpisodeBatch:
    """Return the episodes of a data set with the actions that environments got, see `OfflineRl`."""
    if isinstance(dataset, EpisodeReplayBuffer):
        dataset = dataset.episodes()
    if not isinstance(dataset, EpisodeBatch):
        dataset = from_minari(dataset)
    if not dataset.n_episodes:
        raise ValueError("The data set has no episodes.")
    return dataset.for_envs()


def _identity(episodes: EpisodeBatch) -> dict[str, Any]:
    """Return numbers that another data set does not have."""
    arrays = {name: getattr(episodes, name) for name in ("actions", "rewards", "lengths")}
    return dict(steps=len(episodes), episodes=episodes.n_episodes, digest=together(digests(arrays)))


def _shown(dataset: Any) -> str:
    """Return the name of a data set of Minari, or the class of another one."""
    if isinstance(dataset, str):
        return repr(dataset)
    return type(dataset).__name__ if isinstance(dataset, (EpisodeBatch, EpisodeReplayBuffer)) else repr(dataset.id)


# --- The form of a sampler's batches ----------------------------------------------------------------------------------
def as_sampled(episodes: EpisodeBatch, observation_space: Any, action_space: Any) -> EpisodeBatch:
    """Return episodes as samplers record those of an environment with these spaces of rlpyt.

    Parts of observations and actions are in the order of the environment, and have its names. Integers of Gymnasium's spaces are counted
    from 0.

    Raises:
        ValueError: parts are missing or superfluous; or the action space is another one. Without an `env_spec`, actions are compared with
            the space.
    """
    episodes, spec = episodes.numpy(), episodes.env_spec
    recorded_observation, recorded_action = (None, None) if spec is None else (spec.observation_space, spec.action_space)
    fields = {name: getattr(episodes, name) for name in (*EpisodeBatch._PER_STEP, *EpisodeBatch._PER_EPISODE)}
    for name, space, recorded in (
        ("observations", observation_space, recorded_observation),
        ("last_observations", observation_space, recorded_observation),
        ("actions", action_space, recorded_action),
    ):
        tree = _ordered(name, fields[name], from_structure(space.null_value()))
        fields[name] = tree if recorded is None else _counted_from_0(tree, recorded)
    _check_actions("actions", fields["actions"], action_space, recorded_action)
    return EpisodeBatch(env_spec=None, episode_infos=fields.pop("episode_infos_by_episode"), **fields, validate=False)


def _ordered(name: str, tree: Tree, example: Tree) -> Tree:
    """Return a tree with the parts of `example`, in their order."""
    if not isinstance(tree, dict) and not isinstance(example, dict):
        if tree.shape[1:] != np.shape(example):
            raise ValueError(
                f"The {name} of the data set have the shape {tree.shape[1:]}, and those of the environment have {np.shape(example)}."
            )
        return tree
    if not (isinstance(tree, dict) and isinstance(example, dict)):
        theirs, ours = (f"the parts {list(x)}" if isinstance(x, dict) else "no parts" for x in (tree, example))
        raise ValueError(f"The {name} of the data set have {theirs}, and those of the environment have {ours}.")
    keys = dict(zip(field_names(tree), tree))
    missing, excess = [field for field in example if field not in keys], [key for field, key in keys.items() if field not in example]
    if missing or excess:
        lack = [f"lack {missing}"] * bool(missing) + [f"have {excess} in excess"] * bool(excess)
        raise ValueError(f"The {name} of the data set {', and '.join(lack)}: the environment has {list(example)}.")
    return {field: _ordered(f"{name}.{field}", tree[keys[field]], part) for field, part in example.items()}


def _counted_from_0(tree: Tree, space: Any) -> Tree:
    """Return elements [n,...] of a space, but count those of Gymnasium's Discrete and MultiDiscrete from 0."""

    def shifted(part: Any, array: Any) -> Any:
        start = CompletedSpace(part).start
        return array - start if np.any(start) else array

    return map_parts(shifted, space, tree)


def _check_actions(name: str, actions: Tree, space: Any, recorded: Any) -> None:
    """Raise ValueError unless the action space of the data set, `recorded`, is that of the environment.

    Integers must be in the space as well. So must be all numbers if `recorded` is None.
    """
    if isinstance(actions, dict):
        parts, of_data = sub_spaces(space), {} if recorded is None else parts_by_key(recorded, actions)
        for key, part in actions.items():
            _check_actions(f"{name}.{key}", part, parts[key], of_data.get(key))
        return
    bounds, given = _bounds(space), None if recorded is None else _bounds(recorded)
    if bounds is None or actions.shape[1:] != bounds.shape[1:]:  # The replay buffer refuses other shapes.
        return
    is_close: Any = np.equal if bounds.dtype.kind in "iu" else np.isclose  # Real numbers may have been rounded to float32.
    if given is not None and given.shape == bounds.shape:
        _refuse(name, given, bounds, ~is_close(given, bounds))
        if actions.dtype.kind not in "iu":
            return
    seen = np.stack([actions.min(axis=0), actions.max(axis=0)])
    _refuse(name, seen, bounds, ~(is_close(seen, bounds) | [seen[0] >= bounds[0], seen[1] <= bounds[1]]))


def _bounds(space: Any) -> np.ndarray | None:
    """Return the smallest and the largest element of a space, as rlpyt counts them [2,...]; None if there are none."""
    space = as_wrapped(space)
    integers, completed = integers_of(space), CompletedSpace(space)
    if integers is not None:
        n, first = integers
        return np.stack([first, first + n - 1])
    if completed.low is None or completed.high is None:
        return None
    return np.stack([np.broadcast_to(bound, completed.shape) for bound in (completed.low, completed.high)])


def _refuse(name: str, theirs: Any, ours: np.ndarray, wrong: np.ndarray) -> None:
    """Raise ValueError with the first range [2,...] that is `wrong`, if any is."""
    if wrong.any():
        i = np.flatnonzero(wrong.any(axis=0))[0]
        (low, high), (own_low, own_high) = theirs.reshape(2, -1)[:, i], ours.reshape(2, -1)[:, i]
        raise ValueError(
            f"The {name} of the data set are from {low} to {high}, but those of the environment from {own_low} to {own_high}: convert "
            "them, and give the data set an env_spec with the action_space of the environment."
        )
