"""What samplers with worker processes have in common."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import cloudpickle
import numpy as np

from rlpyt.envs.base import ActionForm
from rlpyt.envs.vector import VectorEnvs
from rlpyt.samplers.base import BaseSampler
from rlpyt.samplers.collectors import episodes_per_env
from rlpyt.samplers.parallel.worker import sampling_process
from rlpyt.samplers.traj_infos import FinishedInfos
from rlpyt.samplers.workers import WorkerPool
from rlpyt.types import Agent, Samples
from rlpyt.utils.buffer import np_mp_array
from rlpyt.utils.logging import logger
from rlpyt.utils.misc import split_evenly
from rlpyt.utils.plain import check_form
from rlpyt.utils.processors import allowed_cpus, check_affinity

EVAL_TRAJ_CHECK = 0.1  # Unused: episodes of an evaluation are shared out beforehand, so nobody polls for them.


class ParallelSamplerBase(BaseSampler):
    """Steps environments in worker processes, which write into the batch in shared memory.

    `affinity` sets the number of workers: one for each entry of ``affinity["workers_cpus"]``, or else one for each processor that this
    process may use. They share the environments evenly.
    """

    n_groups = 1  # Groups of workers that an action server serves in turn.
    _pool: WorkerPool | None = None  # While the sampler is running.

    def initialize(
        self,
        agent: Agent,
        affinity: dict | None = None,
        seed: int | None = None,
        bootstrap_value: bool = False,
        traj_info_kwargs: dict | None = None,
        world_size: int = 1,
        rank: int = 0,
        worker_process: Any = None,
    ) -> dict:
        """Initialize the agent, allocate the batch, start the workers and wait until they are ready; return examples of its fields.

        Args:
            agent: the agent.
            affinity: ``workers_cpus`` (list of processor numbers, or of groups of them), ``worker_torch_threads``, ``set_affinity``.
            seed: of the run; each environment has its own stream of random numbers, whichever worker it is in.
            bootstrap_value: record the values that policy gradient methods bootstrap from.
            traj_info_kwargs: set as class attributes of the TrajInfo class, with an underscore in front.
            world_size, rank: how many samplers the run has, and the number of this one.
            worker_process: function to run in the workers instead of `sampling_process`.

        Raises:
            ValueError: affinity, rank or agent do not fit.
            WorkerError: a worker raised or died while it started.
        """
        self.shutdown()
        check_affinity(affinity)
        examples = self._allocate(agent, seed, bootstrap_value, traj_info_kwargs, world_size, rank, self.agent_in_workers)
        self._start(affinity, worker_process)
        return examples

    def _start(self, affinity: dict | None, worker_process: Any = None) -> None:
        """Start the workers and wait until they are ready."""
        self._affinity = affinity = affinity or {}
        cpus = self._workers_cpus(affinity)
        self._agent_ready()
        common_kwargs = self._common_kwargs(affinity)
        workers_kwargs = self._workers_kwargs(cpus)
        self._pool = WorkerPool(
            worker_process or sampling_process,
            [dict(common_kwargs=common_kwargs, worker_kwargs=kwargs) for kwargs in workers_kwargs],
            [worker_name(kwargs) for kwargs in workers_kwargs],
            start_method=self.start_method,
            timeout=self.worker_timeout,
            progress=self._progress,
            on_failure=self._on_failure(),
        )
        self._pool.receive()

    def acting(self, affinity: dict | None) -> tuple[list[int], int | None]:
        """See the base class: each worker acts for its share of the environments, or else a server for a group of workers."""
        affinity = affinity or {}
        n_workers = len(affinity.get("workers_cpus") or allowed_cpus())
        if self.agent_in_workers:
            shares = split_evenly(self.batch_spec.B, min(n_workers, self.batch_spec.B))
            return sorted({len(share) for share in shares}), affinity.get("worker_torch_threads") or 1
        sizes = sorted({len(columns) for columns in self._group_columns(self.batch_spec.B)})
        return sizes, affinity.get("master_torch_threads") or max(len(allowed_cpus()) - n_workers * self.n_groups, 1)

    def obtain_samples(self, itr: int) -> tuple[Samples, list]:
        """Let the workers fill the batch; see `BaseSampler.obtain_samples`."""
        self.itr = itr
        replies = self._run("collect", (itr, self._db_idx), f"collecting batch {itr}")
        return self.samples_pyt, in_order(replies)

    def evaluate_agent(self, itr: int) -> list:
        """Let the workers play evaluation episodes; see `BaseSampler.evaluate_agent`."""
        self._running_pool()
        if self.eval_n_envs == 0:
            raise RuntimeError("There are no evaluation environments: give the sampler eval_n_envs and eval_max_steps.")
        replies = self._run("evaluate", itr, f"evaluating at iteration {itr}")
        return [info for infos in replies for info in infos]

    def state_dict(self) -> dict:
        """Return the state of sampling between two batches; see `BaseSampler.state_dict`."""
        workers = self._ask("save", None, "saving where environments are")
        if any(worker["collector"] is None for worker in workers):
            self._warn_of_new_episodes(self.CollectorCls.__name__)
        return dict(
            agent=self.agent.sampling_state() if self.gpu else None,
            columns=self._all_columns(),
            itr=self.itr,
            workers=workers,
        )

    def load_state_dict(self, state: Any) -> list[int]:
        """After `initialize`: continue from what `state_dict` returned; return the columns whose environments begin a new episode.

        All columns do if workers share the environments differently than before, or if sampling was abandoned.
        """
        check_form(state, dict(itr=int), "sampler")
        if set(state) != {"itr"}:  # Sampling was not abandoned.
            check_form(state, dict(agent=object, columns=list, itr=int, workers=list), "sampler")
        fits = state.get("columns") == self._all_columns()
        if fits and state["agent"] is not None:
            self.agent.set_sampling_state(state["agent"], self.samples_pyt.agent.agent_info)
        if fits and len(state["workers"]) != len(self._columns):
            raise ValueError(f"sampler['workers'] has {len(state['workers'])} entries, and not {len(self._columns)}.")
        workers = state["workers"] if fits else [None] * len(self._columns)
        replies = self._ask("load", (state["itr"], workers), "restoring environments")
        return self._restarted_columns(replies)

    def update_envs(self, updates: Any) -> list[int]:
        """Change environments, between two batches, while the workers run; see `BaseSampler.update_envs`."""
        self._running_pool()
        each = self._env_updates(updates)
        shares = [cloudpickle.dumps([each[b] for b in columns]) for columns in self._columns]
        replies = self._ask("update", (self.itr, shares), "changing environments")
        return self._add_restarted(self._restarted_columns(replies))

    def _restarted_columns(self, replies: list) -> list[int]:
        """Reset the agent's state for restarted environments (env ranks, one list per worker); return their columns."""
        columns = [int(env_rank) - int(self._env_ranks[0]) for env_ranks in replies for env_rank in env_ranks]
        for b in columns if self.gpu else ():
            self._forget(b)
        return columns

    def _forget(self, b: int) -> None:
        """Reset the agent's state for environment `b` of this sampler, where the agent is in this process."""

    def _ask(self, name: str, argument: Any, doing: str) -> list:
        """Give the workers a command. The time waited for it does not count as sampling."""
        pool = self._running_pool()
        waited = pool.waiting.seconds
        replies = pool.request((name, argument), doing)
        pool.waiting.seconds = waited
        return replies

    def _all_columns(self) -> list:
        return [[r.start, r.stop] for r in (*self._columns, *self._eval_columns)]

    def shutdown(self) -> None:
        """Close the environments and end the workers. May be called twice."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.stop()

    @property
    def waiting_seconds(self) -> float:
        """Seconds spent so far waiting for worker processes, in sampling and evaluation."""
        return 0.0 if self._pool is None else self._pool.waiting.seconds

    def _running_pool(self) -> WorkerPool:
        if self._pool is None:
            raise RuntimeError("The sampler is not running; call initialize() before using it.")
        return self._pool

    def _agent_ready(self) -> None:
        """Prepare the agent. This is called after the batch is allocated, and before workers start."""

    def _run(self, name: str, argument: Any, doing: str) -> list:
        """Give the workers a command, and return their replies."""
        return self._running_pool().request((name, argument), doing)

    def _on_failure(self) -> Callable[[], None]:
        """Return a function that interrupts the workers. It holds no reference to the sampler, which can be garbage-collected."""
        return partial(_set, self.stop)

    def _workers_cpus(self, affinity: dict) -> list:
        """Return one entry per worker, group by group: the processors it is bound to, or None."""
        given = affinity.get("workers_cpus")
        cpus: list = allowed_cpus() if given is None else list(given)
        if len(cpus) == 0:
            raise ValueError("affinity['workers_cpus'] is empty: give one entry for each worker process.")
        if given is None or not affinity.get("set_affinity", True):
            cpus = [None] * len(cpus)
        n_groups, B = self.n_groups, self.batch_spec.B
        if given is None or not affinity.get("alternating"):
            cpus *= n_groups
        elif len(cpus) % n_groups:
            raise ValueError(
                f"affinity['workers_cpus'] has {len(cpus)} entries, but with affinity['alternating'] it lists the workers of both groups, "
                "so their number must be even."
            )
        if len(cpus) > B:
            if given is not None:
                logger.log(f"batch_B={B} is less than the {len(cpus)} workers: {B} of them start.")
            each = len(cpus) // n_groups
            cpus = [cpu for group in range(n_groups) for cpu in cpus[group * each :][: B // n_groups]]
        return cpus

    def _group_columns(self, n: int) -> list[range]:
        """Return the environments, of `n`, of each group of workers."""
        return split_evenly(n, self.n_groups)

    def _share(self, n: int, n_workers: int) -> list[range]:
        """Return the environments, of `n`, of each worker."""
        groups = self._group_columns(n)
        return [g[part.start : part.stop] for g in groups for part in split_evenly(len(g), n_workers // self.n_groups)]

    def _common_kwargs(self, affinity: dict) -> dict:
        return dict(
            EnvCls=self.EnvCls,
            env_kwargs=self.env_kwargs,
            agent=self.agent,
            action_form=ActionForm.of(self.agent),
            batch_T=self.batch_spec.T,
            CollectorCls=self.CollectorCls,
            TrajInfoCls=self.TrajInfoCls,
            traj_info_kwargs=self._traj_info_kwargs,
            max_decorrelation_steps=self.max_decorrelation_steps,
            torch_threads=affinity.get("worker_torch_threads"),
            seed=self.seed,
            stop=self.stop,
            global_B=self._global_B,
            eval_CollectorCls=self.eval_CollectorCls,
            eval_EnvCls=self.eval_EnvCls,
            eval_env_kwargs=self.eval_env_kwargs,
            eval_max_T=self.eval_max_T if self.eval_n_envs else 0,
            examples=self._examples,
        )

    def _workers_kwargs(self, cpus: list) -> list[dict]:
        """Return the arguments of each worker: its share of the environments, and memory for it."""
        n_workers, first, first_eval = len(cpus), int(self._env_ranks[0]), self._first_eval_env
        self._progress = np_mp_array(n_workers, np.int64)  # Each worker counts its own time steps.
        self._columns = columns = self._share(self.batch_spec.B, n_workers)
        self._eval_columns = eval_columns = self._share(self.eval_n_envs, n_workers)
        for EnvCls, shares, total in (
            (self.EnvCls, columns, f"batch_B={self.batch_spec.B}"),
            (self.eval_EnvCls, eval_columns, f"eval_n_envs={self.eval_n_envs}"),
        ):
            for share in shares:
                if share and isinstance(EnvCls, VectorEnvs):
                    EnvCls.check_share(len(share), f"a worker has {len(share)} of {total} ({n_workers} workers)")
        self._check_acts_as_ready(max(map(len, columns)))
        max_episodes = episodes_per_env(self.eval_max_trajectories, self.eval_n_envs) if self.eval_n_envs else None
        return [
            dict(
                rank=self.rank * n_workers + i,
                index=i,
                cpus=cpus[i],
                progress=self._progress[i : i + 1],
                env_ranks=np.arange(first + columns[i].start, first + columns[i].stop),
                batches_np=[samples_np[:, columns[i].start : columns[i].stop] for _, samples_np in self._batches],
                eval_env_ranks=[first_eval + e for e in eval_columns[i]],
                eval_max_episodes=None if max_episodes is None else [max_episodes[e] for e in eval_columns[i]],
                sync=None,  # What follows is for action servers.
                step_buffer_np=None,
                eval_step_buffer_np=None,
            )
            for i in range(n_workers)
        ]


def in_order(replies: list) -> list:
    """Return the TrajInfos of all workers in the order in which the episodes ended, whatever the number of workers.

    Args:
        replies: for each worker its TrajInfos, and the `completed_at` of its collector.
    """
    lists, ends = ([reply[i] for reply in replies] for i in range(2))
    if all(isinstance(infos, FinishedInfos) and infos.is_untouched and isinstance(at, np.ndarray) for infos, at in replies):
        rows, env_ranks = np.concatenate(ends).T
        return FinishedInfos.joined(lists, np.lexsort((env_ranks, rows)))
    completed = [info for infos in lists for info in infos]
    completed_at = [tuple(at) for ats in ends if ats is not None for at in ats]
    if len(completed_at) == len(completed):
        completed = [completed[i] for i in sorted(range(len(completed)), key=completed_at.__getitem__)]
    return completed


def _set(flag: np.ndarray) -> None:
    flag[0] = True


def worker_name(kwargs: dict) -> str:
    ranks = kwargs["env_ranks"]
    which = f"environment {ranks[0]}" if len(ranks) == 1 else f"environments {ranks[0]} to {ranks[-1]}"
    return f"sampler worker {kwargs['rank']} ({which})"
