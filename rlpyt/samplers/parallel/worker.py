"""What happens inside a sampler's worker process."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from rlpyt.envs.state import get_state, set_state
from rlpyt.samplers.base import close_envs, make_envs, set_traj_info_attributes
from rlpyt.samplers.collectors import TrajInfoList
from rlpyt.samplers.workers import set_cpu_affinity, yield_to_waker
from rlpyt.utils.seed import env_seed, set_seed


def initialize_worker(rank: int, seed: int | None = None, cpu: Any = None, torch_threads: int | None = None) -> None:
    """Bind this worker process to processors `cpu`, limit its threads, and seed its generators with `seed`.

    Libraries that start threads of their own get one (or `torch_threads`) each: the processes are the parallelism.
    """
    n_threads = 1 if torch_threads is None else int(torch_threads)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(n_threads)  # For libraries not loaded yet.
    if cpu is not None:
        set_cpu_affinity(cpu)
    if "torch" in sys.modules:  # Nobody who needs it is here without it.
        sys.modules["torch"].set_num_threads(n_threads)
    if seed is not None:
        set_seed(seed, import_torch=False)


def sampling_process(pipe: Connection, common_kwargs: dict, worker_kwargs: dict) -> None:
    """Make environments and collectors, then do what the master commands until it says None.

    Commands are ``("collect", (itr, which of the batches))`` and ``("evaluate", itr)``. The replies are the TrajInfos of completed
    episodes, the former as ``(completed, completed_at)``: with the time step and environment at which each ended. For checkpoints there
    are ``("save", None)``, to which this worker's state is the reply, and ``("load", (itr, states))`` with those of all workers (or None)
    after batch `itr`; the reply is which environments begin anew.

    Args:
        pipe: to the master.
        common_kwargs: arguments alike for all workers.
        worker_kwargs: this worker's share.
    """
    c, w = _Kwargs(common_kwargs), _Kwargs(worker_kwargs)
    seed = None if c.seed is None else env_seed(c.seed, "agent", int(w.env_ranks[0]))
    initialize_worker(w.rank, seed, w.cpus, c.torch_threads)
    if w.sync is not None:
        yield_to_waker()
    set_traj_info_attributes(c.TrajInfoCls, c.traj_info_kwargs)
    envs: list = []
    try:
        _serve(pipe, c, w, envs)
    except BaseException:
        with suppress(Exception):  # What happened first is what matters.
            close_envs(envs)
        raise
    close_envs(envs)
    pipe.send(("ok", None))


def _serve(pipe: Connection, c: _Kwargs, w: _Kwargs, all_envs: list) -> None:
    """The work of `sampling_process`; `all_envs` is filled with the environments that exist."""
    envs = make_envs(c.EnvCls, c.env_kwargs, c.seed, "train_env", w.env_ranks, all_envs)
    collector = c.CollectorCls(
        rank=w.rank,
        envs=envs,
        samples_np=w.batches_np[0],
        batch_T=c.batch_T,
        TrajInfoCls=c.TrajInfoCls,
        agent=c.agent,
        sync=w.sync,
        step_buffer_np=w.step_buffer_np,
        global_B=c.global_B,
        env_ranks=w.env_ranks,
    )
    collector.seed, collector.progress = c.seed, w.progress
    eval_envs = make_envs(c.EnvCls, c.eval_env_kwargs, c.seed, "eval_env", w.eval_env_ranks, all_envs)
    eval_collector = None
    if eval_envs:
        eval_collector = c.eval_CollectorCls(
            rank=w.rank,
            envs=eval_envs,
            TrajInfoCls=c.TrajInfoCls,
            traj_infos_queue=TrajInfoList(),
            max_T=c.eval_max_T,
            agent=c.agent,
            sync=w.sync,
            step_buffer_np=w.eval_step_buffer_np,
        )
        eval_collector.max_episodes, eval_collector.env_ranks = w.eval_max_episodes, w.eval_env_ranks
        eval_collector.progress, eval_collector.stop = w.progress, c.stop
        eval_collector.examples = c.examples
    agent_inputs, traj_infos = collector.start_envs(c.max_decorrelation_steps)
    collector.start_agent()
    pipe.send(("ok", None))
    while True:
        collector.reset_if_needed(agent_inputs)  # While the master trains.
        command = pipe.recv()
        if command is None:
            break
        name, argument = command
        if name == "save":
            reply = _state(c, w, collector, eval_envs, agent_inputs, traj_infos)
        elif name == "load":
            reply = _load(argument[0], argument[1][w.index], c, w, collector, eval_envs, agent_inputs, traj_infos)
        elif name == "collect":
            itr, db_idx = argument
            collector.samples_np = w.batches_np[db_idx]
            agent_inputs, traj_infos, completed = collector.collect_batch(agent_inputs, traj_infos, itr)
            reply = completed, getattr(collector, "completed_at", None)
        else:
            reply = []
            if eval_collector is not None:
                eval_collector.traj_infos_queue = TrajInfoList()
                eval_collector.collect_evaluation(argument)
                reply = list(eval_collector.traj_infos_queue)
        pipe.send(("ok", reply))


def _state(c: _Kwargs, w: _Kwargs, collector: Any, eval_envs: list, agent_inputs: Any, traj_infos: list) -> dict:
    """Where this worker is between two batches, as plain data."""
    return dict(
        agent=None if collector.gpu else c.agent.sampling_state(),
        collector=collector.state_dict(agent_inputs, traj_infos),
        eval_envs=[get_state(env) for env in eval_envs],
    )


def _load(
    itr: int, state: dict | None, c: _Kwargs, w: _Kwargs, collector: Any, eval_envs: list, agent_inputs: Any, traj_infos: list
) -> list:
    """Go on from there; return the numbers of the environments that begin anew."""
    state = state or dict(agent=None, eval_envs=[None] * len(eval_envs), collector=None)
    if state["agent"] is not None:
        c.agent.set_sampling_state(state["agent"], w.batches_np[0].agent.agent_info)
    for env, env_state in zip(eval_envs, state["eval_envs"], strict=True):
        if env_state is not None:
            set_state(env, env_state)
    return [int(w.env_ranks[b]) for b in collector.load_state_dict(state["collector"], agent_inputs, traj_infos, itr)]


class _Kwargs:
    """Attribute access to a dictionary of arguments."""

    def __init__(self, kwargs: dict) -> None:
        self.__dict__.update(kwargs)
