"""Evaluation in the master process."""

from __future__ import annotations

from typing import Any

from rlpyt.samplers.collectors import EvalCollector, TrajInfoList, episodes_per_env


class SerialEvalCollector(EvalCollector):
    """Evaluates the agent in the master process, and returns the TrajInfos.

    Args:
        envs: environments to evaluate in.
        agent: chooses the actions.
        TrajInfoCls: makes the statistics of an episode.
        max_T: steps per environment at the most.
        max_trajectories: episodes of all environments together at the most; None sets no limit.
        traj_infos: where to put the TrajInfo of each episode as soon as it ends. Each evaluation empties it first.
    """

    def __init__(
        self,
        envs: list,
        agent: Any,
        TrajInfoCls: Any,
        max_T: int,
        max_trajectories: int | None = None,
        traj_infos: TrajInfoList | None = None,
    ) -> None:
        super().__init__(0, envs, TrajInfoCls, TrajInfoList() if traj_infos is None else traj_infos, max_T, agent=agent)
        self.max_trajectories = max_trajectories
        self.max_episodes = episodes_per_env(max_trajectories, len(envs))

    def collect_evaluation(self, itr: int) -> list:
        """Play episodes and return the TrajInfo of each one completed."""
        self.traj_infos_queue.clear()
        super().collect_evaluation(itr)
        return list(self.traj_infos_queue)
