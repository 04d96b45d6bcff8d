"""The training loop for data sets: no sampling, but evaluation."""

from __future__ import annotations

from typing import Any

import torch

from rlpyt.algos.base import normalization_of, start_targets
from rlpyt.algos.qpg.base import CompletedQAgent
from rlpyt.episodes.batch import EpisodeBatch
from rlpyt.episodes.minari import from_minari
from rlpyt.replays.base import CompletedReplay
from rlpyt.replays.episode import EpisodeReplayBuffer
from rlpyt.runners.minibatch_rl import MinibatchRlEval
from rlpyt.runners.protocols import CompletedAlgorithm, CompletedSampler
from rlpyt.utils.buffer import buffer_func
from rlpyt.utils.logging import logger
from rlpyt.utils.misc import has_all
from rlpyt.utils.plain import check_form
from rlpyt.utils.settings import ANYTHING, checked
from rlpyt.utils.structures import leaves


class OfflineRl(MinibatchRlEval):
    """Trains on the episodes of a data set; the sampler plays evaluations only.

    An agent that normalizes observations does it by the statistics of all observations of the data set.

    The data set fills the replay buffer of the algorithm, which may be any that learns from replay: those of `rlpyt.algos.offline`, but
    also DQN or TD3 (with ``behavior_cloning=2.5``, say). n-step returns, priorities and time limits are those of replay.

    An iteration is one gradient update, whatever `replay_ratio`. What counts environment steps elsewhere counts updates here: `n_steps`,
    `log_interval_steps`, and the column `CumSteps`.

    Args:
        dataset: an `EpisodeBatch`, an `EpisodeReplayBuffer`, or a data set of Minari or its id, such as "mujoco/hopper/expert-v0".
        kwargs: see `rlpyt.runners.minibatch_rl.MinibatchRlBase`. The sampler has ``batch_T=1, batch_B=1`` and an environment like that of
            the data set.

    Raises:
        ValueError: the algorithm does not learn from replay, the sampler has another batch, `save_replay` is True, or the data set is
            empty or does not fit the environment.
    """

    @checked(dataset=ANYTHING)
    def __init__(self, dataset: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.dataset = dataset
        name = type(self).__name__
        if not has_all(self.algo, "initialize_replay_buffer"):
            raise ValueError(f"{name} needs an algorithm that learns from replay; {type(self.algo).__name__} is not one.")
        if self.save_replay:
            raise ValueError(f"{name} reads the data set again when it resumes: leave save_replay out.")
        if CompletedSampler(self.sampler).batch_spec not in (None, (1, 1)):
            raise ValueError(
                f"{name} does not sample: give the sampler batch_T=1 and batch_B=1. Its evaluation environments are eval_n_envs."
            )

    _draws: dict[str, Any] | None = None  # Of the snapshot to resume from.

    def startup(self) -> int:
        """Extend the base class: put the data set into the replay buffer, and learn from the first iteration on."""
        algo: Any = self.algo
        self._draws = None
        episodes = episodes_of(self.dataset)
        algo.min_steps_learn = 0
        n_step = CompletedAlgorithm(algo).n_step_return
        algo.replay_size = len(episodes) + 2 * n_step + 1 + _n_frames(episodes)
        n_itr = super().startup()
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
            algo.replay_buffer.draws.load_state(self._draws)
        CompletedQAgent(self.agent).give_min_itr_learn(0)
        logger.log(f"Training on {len(episodes):,} steps of {episodes.n_episodes:,} episodes.")
        return n_itr

    def _append_blank(self, n: int, episodes: EpisodeBatch) -> None:
        """Append `n` rows of zeros, each an episode, to the replay buffer."""
        if n:
            first, _ = episodes.select([0]).to_samples()
            rows = torch.zeros(n, dtype=torch.long)  # n times the first row
            blank = buffer_func(first._replace(agent=first.agent[rows], env=first.env[rows]), torch.zeros_like)
            self.algo.append(blank._replace(env=blank.env._replace(done=torch.ones_like(blank.env.done))))  # type: ignore[attr-defined]

    def counters(self) -> dict:
        """Add what decides which samples are replayed next: random numbers and priorities."""
        return dict(super().counters(), draws=self.algo.replay_buffer.draws.state())  # type: ignore[attr-defined]

    def load_counters(self, counters: dict) -> None:
        """Extend the base class: keep the state of the draws until the replay buffer has the data set."""
        super().load_counters(counters)
        check_form(counters, dict(draws=dict), "counters")
        self._draws = counters["draws"]

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
