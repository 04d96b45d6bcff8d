"""What happens inside a sampler's worker process."""

from __future__ import annotations

import os
import pickle
import sys
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from rlpyt.envs.state import get_state, set_states
from rlpyt.samplers.base import CompletedCollector, close_envs, make_envs, set_traj_info_attributes
from rlpyt.samplers.buffer import max_timeouts
from rlpyt.samplers.collectors import TrajInfoList
from rlpyt.samplers.signals import EvalSync, StopFlag
from rlpyt.samplers.workers import send_by_value
from rlpyt.utils.plain import check_form
from rlpyt.utils.processors import set_cpu_affinity, yield_to_waker
from rlpyt.utils.seed import env_seed, set_seed


def initialize_worker(rank: int, seed: int | None = None, cpu: Any = None, torch_threads: int | None = None) -> None:
    """Bind this worker process to processors `cpu`, limit its threads, and seed its generators with `seed`.

    Libraries with thread pools get one thread (or `torch_threads`) each, since the processes run in parallel already.
    """
    n_threads = 1 if torch_threads is None else int(torch_threads)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(n_threads)  # For libraries not loaded yet.
    if cpu is not None:
        set_cpu_affinity(cpu)
    if "torch" in sys.modules:  # A process that needs torch has imported it by now.
        sys.modules["torch"].set_num_threads(n_threads)
    if seed is not None:
        set_seed(seed, import_torch=False)


def sampling_process(pipe: Connection, common_kwargs: dict, worker_kwargs: dict) -> None:
    """Make environments and collectors, then execute commands of the master until it sends None.

    Commands are pairs of a name and an argument, see `SamplingWorker.do`.

    Args:
        pipe: to the master.
        common_kwargs: arguments alike for all workers.
        worker_kwargs: this worker's share.
    """
    worker = SamplingWorker(common_kwargs, worker_kwargs)
    try:
        worker.start()
        pipe.send(("ok", None))
        while True:
            worker.reset_if_needed()  # While the master trains.
            command = pipe.recv()
            if command is None:
                break
            send_by_value(pipe, ("ok", worker.do(*command)))
    except BaseException:
        with suppress(Exception):  # The first error is the one to report.
            worker.close()
        raise
    worker.close()
    pipe.send(("ok", None))


class SamplingWorker:
    """The environments and collectors of one worker, wherever it lives.

    Args:
        common_kwargs: arguments alike for all workers.
        worker_kwargs: this worker's share.
    """

    def __init__(self, common_kwargs: dict, worker_kwargs: dict) -> None:
        self._common, self._own = _Kwargs(common_kwargs), _Kwargs(worker_kwargs)
        self._all_envs: list = []  # All that exist, also after an error.

    def start(self) -> None:
        """Get this process ready, make environments and collectors, and decorrelate the environments."""
        c, w = self._common, self._own
        seed = None if c.seed is None else env_seed(c.seed, "agent", int(w.env_ranks[0]))
        initialize_worker(w.rank, seed, w.cpus, c.torch_threads)
        if w.sync is not None:
            yield_to_waker()
        set_traj_info_attributes(c.TrajInfoCls, c.traj_info_kwargs)
        envs = make_envs(c.EnvCls, c.env_kwargs, c.seed, "train_env", w.env_ranks, self._all_envs)
        self.batches_np = self.make_batches(max(envs, key=partial(max_timeouts, T=c.batch_T)))
        self._collector = collector = c.CollectorCls(
            rank=w.rank,
            envs=envs,
            samples_np=self.batches_np[0],
            batch_T=c.batch_T,
            TrajInfoCls=c.TrajInfoCls,
            agent=c.agent,
            sync=w.sync,
            step_buffer_np=w.step_buffer_np,
            global_B=c.global_B,
            env_ranks=w.env_ranks,
        )
        collector.seed, collector.progress, collector.action_form = c.seed, w.progress, c.action_form
        self._eval_envs = make_envs(c.eval_EnvCls, c.eval_env_kwargs, c.seed, "eval_env", w.eval_env_ranks, self._all_envs)
        self._eval_collector = None
        if self._eval_envs:
            self._eval_collector = eval_collector = c.eval_CollectorCls(
                rank=w.rank,
                envs=self._eval_envs,
                TrajInfoCls=c.TrajInfoCls,
                traj_infos_queue=TrajInfoList(),
                max_T=c.eval_max_T,
                agent=c.agent,
                sync=w.sync,
                step_buffer_np=w.eval_step_buffer_np,
            )
            eval_collector.max_episodes, eval_collector.env_ranks = w.eval_max_episodes, w.eval_env_ranks
            eval_collector.progress, eval_collector.stop = w.progress, c.stop
            eval_collector.examples, eval_collector.action_form = c.examples, c.action_form
            if w.sync is None:
                max_episodes = None if w.eval_max_episodes is None else sum(w.eval_max_episodes)
                eval_collector.sync = EvalSync(StopFlag(c.stop, eval_collector, max_episodes))
        self._agent_inputs, self._traj_infos = collector.start_envs(c.max_decorrelation_steps)
        collector.start_agent()

    def make_batches(self, env: Any) -> list:
        """Return this worker's columns of each batch; `env` is the environment that needs the most memory."""
        return self._own.batches_np

    def do(self, name: str, argument: Any) -> Any:
        """Execute a command of the master, and return the reply.

        ::

            collect, (itr, batch number)   -> (TrajInfos of completed episodes, (time step, environment) where each ended)
            evaluate, itr                  -> TrajInfos
            save, None                     -> this worker's state
            load, (itr, states)            -> the environments that restart; states: after batch itr, one for each worker or None
            update, (itr, updates)         -> the environments that restart; updates: pickled environment updates, for each worker
        """
        if name == "save":
            return self._save()
        if name == "load":
            itr, states = argument
            return self._load(itr, states[self._own.index])
        if name == "update":
            itr, updates = argument
            mine = pickle.loads(updates[self._own.index])
            columns = self._collector.update_envs(mine, self._all_envs, self._agent_inputs, self._traj_infos, itr)
            return [int(self._own.env_ranks[b]) for b in columns]
        if name == "collect":
            itr, db_idx = argument
            collector = self._collector
            collector.samples_np = self.batches_np[db_idx]
            self._agent_inputs, self._traj_infos, completed = collector.collect_batch(self._agent_inputs, self._traj_infos, itr)
            return completed, CompletedCollector(collector).completed_at
        if self._eval_collector is None:
            return []
        self._eval_collector.traj_infos_queue = TrajInfoList()
        self._eval_collector.collect_evaluation(argument)
        return [info for info in self._eval_collector.traj_infos_queue if info is not None]  # None may mark the end of an evaluation.

    def _save(self) -> dict:
        """Return the state of this worker between two batches, as plain data."""
        return dict(
            agent=None if self._common.agent is None else self._common.agent.sampling_state(),
            collector=self._collector.state_dict(self._agent_inputs, self._traj_infos),
            eval_envs=[get_state(env) for env in self._eval_envs],
        )

    def _load(self, itr: int, state: dict | None) -> list:
        """Continue from what `_save` returned; return the numbers of the environments that restart."""
        if state is None:
            state = dict(agent=None, eval_envs=[None] * len(self._eval_envs), collector=None)
        check_form(state, dict(agent=object, collector=object, eval_envs=list), "worker")
        if state["agent"] is not None:
            self._common.agent.set_sampling_state(state["agent"], self.batches_np[0].agent.agent_info)
        set_states(self._eval_envs, state["eval_envs"], "worker['eval_envs']")
        restarted = self._collector.load_state_dict(state["collector"], self._agent_inputs, self._traj_infos, itr)
        return [int(self._own.env_ranks[b]) for b in restarted]

    def reset_if_needed(self) -> None:
        """Between two commands: reset idle environments."""
        self._collector.reset_if_needed(self._agent_inputs)

    def close(self) -> None:
        """Close all environments."""
        close_envs(self._all_envs)


class _Kwargs:
    """Attribute access to a dictionary of arguments."""

    def __init__(self, kwargs: dict) -> None:
        self.__dict__.update(kwargs)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"The arguments of a worker have no {name!r}.")
