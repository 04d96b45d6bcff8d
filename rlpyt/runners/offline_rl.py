"""The training loop for data sets: no sampling, but evaluation."""

from __future__ import annotations

from typing import Any

from rlpyt.episodes.batch import EpisodeBatch
from rlpyt.episodes.minari import from_minari
from rlpyt.replays.episode import EpisodeReplayBuffer
from rlpyt.runners.minibatch_rl import MinibatchRlEval
from rlpyt.utils.logging import logger
from rlpyt.utils.plain import check_form
from rlpyt.utils.settings import ANYTHING, checked


class OfflineRl(MinibatchRlEval):
    """Trains on the episodes of a data set; the sampler plays evaluations only.

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
        if not hasattr(self.algo, "initialize_replay_buffer"):
            raise ValueError(f"{name} needs an algorithm that learns from replay; {type(self.algo).__name__} is not one.")
        if self.save_replay:
            raise ValueError(f"{name} reads the data set again when it resumes: leave save_replay out.")
        if getattr(self.sampler, "batch_spec", (1, 1)) != (1, 1):
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
        algo.replay_size = len(episodes) + 2 * getattr(algo, "n_step_return", 1) + 1  # Replay leaves out a few newest steps.
        n_itr = super().startup()
        for i in range(episodes.n_episodes):
            algo.append(episodes.select([i]).to_samples()[0])
        algo.min_itr_learn, algo.updates_per_optimize = 0, 1
        algo.start_with_empty_replay(0)  # A resumed run does not wait for samples either.
        if self._draws is not None:
            algo.replay_buffer.draws.load_state(self._draws)
        if hasattr(self.agent, "give_min_itr_learn"):
            self.agent.give_min_itr_learn(0)
        logger.log(f"Training on {len(episodes):,} steps of {episodes.n_episodes:,} episodes.")
        return n_itr

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


def episodes_of(dataset: Any) -> EpisodeBatch:
    """Return the episodes of a data set, see `OfflineRl`."""
    if isinstance(dataset, EpisodeReplayBuffer):
        dataset = dataset.episodes()
    if not isinstance(dataset, EpisodeBatch):
        dataset = from_minari(dataset)
    if not dataset.n_episodes:
        raise ValueError("The data set has no episodes.")
    return dataset
