"""One place steps and resets environments: for batches, for evaluations, and for whole episodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rlpyt.envs.base import as_flag, as_number, fast_reset, fast_step
from rlpyt.samplers.rows import FLAGS, StepRow, fit
from rlpyt.samplers.workers import describe_failure

Outcome = tuple[int, Any, Any, Any]  # (b, reward, done, env_info) of a step of environment `b`


class EnvCalls:
    """The environments of one process, with their fast calls looked up once, and errors that say which environment they are from.

    Args:
        envs: the environments.
        env_ranks: numbers of these environments among all; None counts from 0.
        of: whose environments they are, for messages.
    """

    def __init__(self, envs: list, env_ranks: Any = None, of: str = "") -> None:
        self.envs = envs
        self.steps = [fast_step(env) for env in envs]
        self.resets = [fast_reset(env) for env in envs]
        self.env_ranks = list(range(len(envs))) if env_ranks is None else [int(rank) for rank in env_ranks]
        self._of = of
        self._env_info_type: type | None = None  # The newest type of env_info that fits.
        self._has_traj_done = False  # Whether it has this field.

    def step(
        self,
        running: Iterable[tuple[int, Any]],
        action: Any,
        row: StepRow,
        when: Callable[[int], str],
        take: Callable[[Outcome], Any] | None = None,
    ) -> list[int]:
        """Step environments, writing what they return into `row`; return those whose episode or trajectory ended.

        Args:
            running: the environments to step, as pairs of column and call (see `steps`).
            action: the action of each column, which the environment may change.
            row: memory for what they return.
            when: returns, for messages, which step this is of environment `b`.
            take: called with the outcome of each environment; None if nobody needs it.
        """
        observations, rewards, columns, only_column = row.observations, row.reward_cells, row.column_cells, row.only_column
        ended: list[int] = []
        b, has_traj_done, env_info_type = 0, self._has_traj_done, self._env_info_type
        try:
            for b, step_env in running:
                reward, done, env_info = step_env(action[b], observations[b])
                if done is not False:  # Which the row holds already.
                    if type(done) not in FLAGS:
                        done = as_flag(done)
                    row.done_cells[b] = done
                try:
                    rewards[b] = reward
                except (TypeError, ValueError):
                    rewards[b] = reward = as_number(reward)
                if type(env_info) is not env_info_type:
                    self._has_traj_done = has_traj_done = row.check(env_info)
                    self._env_info_type = env_info_type = type(env_info)
                if columns:
                    try:
                        if only_column is not None:
                            (only_column[b],) = env_info
                        else:
                            for column, value in zip(columns, env_info):
                                column[b] = value
                    except (TypeError, ValueError, OverflowError):
                        for column, value, name in zip(row.columns, env_info, env_info._fields):
                            fit(b, value, column, f"env_info.{name}")
                if done or (has_traj_done and env_info.traj_done):
                    ended.append(b)
                if take is not None:
                    take((b, reward, done, env_info))
        except (Exception, SystemExit) as error:
            self.explain(error, b, when(b))
            raise
        return ended

    def reset(self, b: int, observation: Any, when: str) -> None:
        """Reset environment `b`, writing into `observation`; `when` is for messages."""
        try:
            self.resets[b](observation)
        except (Exception, SystemExit) as error:
            self.explain(error, b, f"in reset, {when}")
            raise

    def first_observation(self, b: int, when: str) -> Any:
        """Reset environment `b` and return its observation, where there is no memory for it yet; `when` is for messages."""
        try:
            return self.envs[b].reset()
        except (Exception, SystemExit) as error:
            self.explain(error, b, f"in reset, {when}")
            raise

    def explain(self, error: BaseException, b: int, where: str) -> None:
        """Attach to an error which environment it is from."""
        describe_failure(error, f"This was in environment {self.env_ranks[b]}{self._of}, {where}.")
