"""Worker processes that step environments, and an agent in the master process that acts for all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rlpyt.samplers.actors import BatchActor, EvalActor, Share, can_act_for_some
from rlpyt.samplers.buffer import build_step_buffer
from rlpyt.samplers.parallel.base import ParallelSamplerBase
from rlpyt.samplers.parallel.gpu.action_server import ActionServer, Crowd, Group, outputs_on_device, serve, serve_ready, turn_to
from rlpyt.samplers.parallel.gpu.collectors import GpuEvalCollector, GpuResetCollector
from rlpyt.samplers.signals import GroupSignals, Semaphore
from rlpyt.samplers.traj_infos import has_own_step
from rlpyt.samplers.workers import WorkerError, describe_failure, ending_on_failure
from rlpyt.types import Agent, StepBuffer
from rlpyt.utils import accelerator
from rlpyt.utils.buffer import PinnedMemory
from rlpyt.utils.misc import torch_threads
from rlpyt.utils.processors import allowed_cpus
from rlpyt.utils.settings import Number, checked

__all__ = ["GpuSampler", "GpuSamplerBase", "StepBuffer", "build_step_buffer"]


class GpuSamplerBase(ParallelSamplerBase):
    """Combined with an `ActionServer`, which says how many groups of workers take turns.

    Workers write observations, rewards and the like straight into the batch in shared memory, where the agent reads them; the agent
    writes its actions and agent_info there. What the agent sees as previous action and reward at the beginning of a batch, and all of an
    evaluation, is in step buffers.

    The agent is on the CPU, or on the GPU that the runner moves it to. torch threads that the agent uses while it acts on the CPU:
    ``affinity["master_torch_threads"]`` if given, else one for each processor that no worker needs, and at least one.

    Args:
        serve_fraction: the agent acts as soon as workers with this part of the environments are ready, each worker at its own step. With 1
            it waits for all of them. A smaller number is faster if some environment steps take much longer than others. It calls the agent
            more often, with fewer environments. Samples then depend on timing, by random numbers that the agent draws, and by rounding.
    """

    gpu = True
    overlap = True  # See `ActionServer`.

    @checked(serve_fraction=Number(0, 1, above=True))
    def __init__(
        self,
        *args: Any,
        CollectorCls: Any = GpuResetCollector,
        eval_CollectorCls: Any = GpuEvalCollector,
        serve_fraction: float = 1,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, CollectorCls=CollectorCls, eval_CollectorCls=eval_CollectorCls, **kwargs)
        self.serve_fraction = serve_fraction
        if serve_fraction < 1 and self.n_groups > 1:
            raise ValueError(f"serve_fraction={serve_fraction} is for one group of workers: {type(self).__name__} serves two.")

    def _check_initialize(self, agent: Agent, world_size: int, rank: int) -> None:
        super()._check_initialize(agent, world_size, rank)
        if self.serve_fraction < 1 and not can_act_for_some(agent):
            raise ValueError(
                f"serve_fraction={self.serve_fraction}, but {type(agent).__name__} defines reset_one and not acting_for: the action server "
                "asks it about some of the environments at a time. Extend acting_for (see BaseAgent), or leave serve_fraction at 1."
            )

    def serve_actions(self, itr: int) -> None:
        """Act for the workers through one batch, recording what the agent does in the batch."""
        n_workers = [signals.n_workers for signals in self._signals]
        self._serve(self._training_actors(), n_workers, self.batch_spec.T, itr, f"batch {itr}")

    def serve_actions_evaluation(self, itr: int) -> None:
        """Act for the workers until all of them have played their episodes."""
        n_workers = [  # Those with evaluation environments, in each group: the first ones.
            sum(1 for columns in self._eval_columns if columns and columns[0] in group) for group in self._group_columns(self.eval_n_envs)
        ]
        self._serve(self._evaluation_actors(), n_workers, self.eval_max_T, itr, f"the evaluation at iteration {itr}")

    def _serve(self, actors: list, n_workers: list[int], n_steps: int, itr: int, what: str) -> None:
        pool, actions_first = self._running_pool(), not self.workers_read_agent_info
        with torch_threads(self.server_threads), outputs_on_device(self.agent):
            try:
                actors[0].set_mode(itr)  # For all of them: it is the same agent.
                for actor in actors:
                    actor.prepare(itr)
                if self.serve_fraction < 1:
                    serve_ready(self.agent, Crowd(actors, self._signals[0], pool, self.serve_fraction), n_steps, actions_first)
                else:
                    groups = [Group(i, *parts, pool) for i, parts in enumerate(zip(actors, self._signals, n_workers))]
                    serve(self.agent, groups, n_steps, self.overlap, actions_first)
            except WorkerError:
                raise
            except Exception as error:
                describe_failure(error, f"This was in the action server, during {what}.")
                raise

    def _training_actors(self) -> list[BatchActor]:
        """Return the actors for one batch."""
        actors = self._actors.get(self._db_idx)
        if actors is None:
            actors = self._actors[self._db_idx] = [
                BatchActor(
                    self.agent,
                    self.samples_np[:, columns.start : columns.stop],
                    self.step_buffer_np.action[columns.start : columns.stop],
                    self.step_buffer_np.reward[columns.start : columns.stop],
                    self._null_action,
                    self.mid_batch_reset,
                    first_env=int(self._env_ranks[columns.start]),
                    share=share,
                )
                for columns, share in self._served_together(self._columns, self.batch_spec.B)
            ]
            if accelerator.can_lock_shared_memory(self.agent.device):
                batch = self.samples_np._replace(final_observation=None, terminal_observation=None)
                self._pinned.append(PinnedMemory(batch, self.agent.device))
        return actors

    def _evaluation_actors(self) -> list[EvalActor]:
        """Return the actors for one evaluation; one may have no evaluation environments."""
        return [
            EvalActor(
                self.agent,
                self.eval_step_buffer_np[columns.start : columns.stop],
                self._null_action,
                self._first_eval_env + columns.start,
                share=share,
            )
            for columns, share in self._served_together(self._eval_columns, self.eval_n_envs)
        ]

    def _served_together(self, of_workers: list[range], n: int) -> list[tuple[range, Share | None]]:
        """Return the environments, of `n`, of each actor, and its share: those of a group in lockstep, otherwise those of one worker."""
        if self.serve_fraction == 1:
            return [(columns, None) for columns in self._group_columns(n)]
        return [(columns, Share(torch.arange(columns.start, columns.stop), n)) for columns in of_workers if columns]

    @property
    def workers_read_agent_info(self) -> bool:
        """Whether the TrajInfo class sees every step with its agent_info."""
        return has_own_step(self.TrajInfoCls)

    @property
    def server_threads(self) -> int:
        """torch threads of the agent while it acts."""
        given = self._affinity.get("master_torch_threads")
        if given:
            return given
        # Not those of waiting workers, which need them at once, while torch's threads still spin for more work.
        n_free = len(allowed_cpus()) - len(self._running_pool().processes)
        return max(1, min(n_free, torch.get_num_threads()))

    @property
    def signals(self) -> list[Semaphore]:
        """All semaphores; empty between batches."""
        return [semaphore for signals in self._signals for semaphore in signals.semaphores]

    def shutdown(self) -> None:
        """Close the environments and end the workers. May be called twice."""
        self._actors: dict = {}  # By the batch they write into.
        self._pinned: list = []
        super().shutdown()

    def _run(self, name: str, argument: Any, doing: str) -> list:
        pool = self._running_pool()
        with ending_on_failure(pool):
            pool.send((name, argument), doing)
            if name == "collect":
                self.serve_actions(argument[0])
            else:
                self.serve_actions_evaluation(argument)
            return pool.receive()

    def _forget(self, b: int) -> None:
        """Reset the agent's state for environment `b` of this sampler."""
        for number, columns in enumerate(self._group_columns(self.batch_spec.B)):
            if b in columns:
                turn_to(self.agent, number)
                self.agent.reset_one(idx=b - columns.start)

    def _agent_ready(self) -> None:
        """Prepare the agent to act for all environments in this process."""
        self.agent.collector_initialize(global_B=self._global_B, env_ranks=self._env_ranks)

    def _common_kwargs(self, affinity: dict) -> dict:
        return {**super()._common_kwargs(affinity), "agent": None, "examples": None}

    def _workers_kwargs(self, cpus: list) -> list[dict]:
        """Add the signals of each worker, and its part of the step buffers."""
        n_workers, B = len(cpus), self.batch_spec.B
        examples = self._examples
        if not self.workers_read_agent_info:
            examples = {**examples, "agent_info": None}
        _, self.step_buffer_np = build_step_buffer(examples, B)
        if self.eval_n_envs:
            _, self.eval_step_buffer_np = build_step_buffer(examples, self.eval_n_envs)
        self._signals = [GroupSignals(n_workers // self.n_groups) for _ in range(self.n_groups)]
        workers_kwargs = super()._workers_kwargs(cpus)
        for i, kwargs in enumerate(workers_kwargs):
            group, number = divmod(i, n_workers // self.n_groups)
            columns, eval_columns = self._columns[i], self._eval_columns[i]
            kwargs["sync"] = self._signals[group].of_worker(number)
            kwargs["step_buffer_np"] = self.step_buffer_np[columns.start : columns.stop]
            if eval_columns:
                kwargs["eval_step_buffer_np"] = self.eval_step_buffer_np[eval_columns.start : eval_columns.stop]
            if not self.workers_read_agent_info:  # Its types could make workers import torch.
                kwargs["batches_np"] = [samples._replace(agent=samples.agent._replace(agent_info=None)) for samples in kwargs["batches_np"]]
        return workers_kwargs

    def _on_failure(self) -> Callable[[], None]:
        """Also release workers that wait for actions."""
        stop, signals = super()._on_failure(), self._signals

        def abandon() -> None:
            stop()
            for group in signals:
                group.abandon()

        return abandon


class GpuSampler(ActionServer, GpuSamplerBase):
    """Workers step environments, the master process acts for all of them at once: for agents on a GPU, or with few processors."""
