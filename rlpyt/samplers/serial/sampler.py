"""Everything in one process."""

from __future__ import annotations

from typing import Any

from rlpyt.envs.state import get_state, set_states
from rlpyt.samplers.base import BaseSampler, CompletedCollector, close_envs, make_envs
from rlpyt.samplers.parallel.cpu.collectors import CpuResetCollector
from rlpyt.samplers.serial.collectors import SerialEvalCollector
from rlpyt.samplers.traj_infos import load_compiled, pays_at_once
from rlpyt.types import Agent, AgentInputs, Samples
from rlpyt.utils.plain import check_form
from rlpyt.utils.processors import check_affinity
from rlpyt.utils.settings import checked


class SerialSampler(BaseSampler):
    """Runs agent and environments in the master process: the simplest sampler, where ``breakpoint()`` works.

    Takes collectors whose agent is in the same process as the environments.

    A subclass that overrides `initialize` sets `agent`, `samples_pyt` and the attributes below; the other methods then work.

    Attributes:
        collector: runs the training loop; None while the sampler is not running.
        eval_collector: runs the evaluation loop, if there are evaluation environments.
        agent_inputs: what the agent is given at the first step of the next batch.
        traj_infos: statistics of the running episodes, one per environment.
    """

    collector: Any = None
    eval_collector: Any = None
    _is_cut_short = False  # Whether the last batch ended by an error or a signal.
    agent_inputs: AgentInputs
    traj_infos: list

    @checked()
    def __init__(
        self,
        *args: Any,
        CollectorCls: Any = CpuResetCollector,
        eval_CollectorCls: Any = SerialEvalCollector,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, CollectorCls=CollectorCls, eval_CollectorCls=eval_CollectorCls, **kwargs)
        self._envs: list = []  # All that `shutdown` closes.

    def initialize(
        self,
        agent: Agent,
        affinity: dict | None = None,
        seed: int | None = None,
        bootstrap_value: bool = False,
        traj_info_kwargs: dict | None = None,
        rank: int = 0,
        world_size: int = 1,
    ) -> dict:
        """Make environments, initialize the agent, allocate the batch; return examples of its fields.

        Args:
            agent: the agent.
            affinity: unused here: the runner binds the master process.
            seed: of the run; each environment has its own stream of random numbers.
            bootstrap_value: record the values that policy gradient methods bootstrap from.
            traj_info_kwargs: set as class attributes of the TrajInfo class, with an underscore in front.
            rank, world_size: number of this sampler among those of the run, and how many there are.
        """
        self.shutdown()
        check_affinity(affinity)
        examples = self._allocate(agent, seed, bootstrap_value, traj_info_kwargs, world_size, rank, share_batch=False)
        self._start(affinity)
        return examples

    def _start(self, affinity: dict | None) -> None:
        """Make environments and collectors."""
        self._check_acts_as_ready(self.batch_spec.B)
        if pays_at_once(self.TrajInfoCls, self.batch_spec.B, self.batch_spec.T):
            load_compiled()
        self._envs, self._is_cut_short = [], False  # A new list: this may be a copy of another sampler.
        envs = make_envs(self.EnvCls, self.env_kwargs, self.seed, "train_env", self._env_ranks, self._envs)
        self.collector = self.CollectorCls(
            rank=0,
            envs=envs,
            samples_np=self.samples_np,
            batch_T=self.batch_spec.T,
            TrajInfoCls=self.TrajInfoCls,
            agent=self.agent,
            global_B=self._global_B,
            env_ranks=self._env_ranks,
        )
        self.collector.seed = self.seed
        if self.eval_n_envs > 0:
            eval_ranks = range(self._first_eval_env, self._first_eval_env + self.eval_n_envs)
            eval_envs = make_envs(self.eval_EnvCls, self.eval_env_kwargs, self.seed, "eval_env", eval_ranks, self._envs)
            self.eval_collector = self.eval_CollectorCls(
                envs=eval_envs,
                agent=self.agent,
                TrajInfoCls=self.TrajInfoCls,
                max_T=self.eval_max_T,
                max_trajectories=self.eval_max_trajectories,
            )
            self.eval_collector.stop = self.stop
            self.eval_collector.examples, self.eval_collector.env_ranks = self._examples, list(eval_ranks)
        self.agent_inputs, self.traj_infos = self.collector.start_envs(self.max_decorrelation_steps)
        self.collector.start_agent()

    def _use_batch(self, db_idx: int) -> None:
        super()._use_batch(db_idx)
        if self.collector is not None:
            self.collector.samples_np = self.samples_np

    def obtain_samples(self, itr: int) -> tuple[Samples, list]:
        """Run one batch; return it, in memory that the next batch overwrites, and the TrajInfos of the episodes that ended in it.

        After a batch that an error or a signal has cut short, all environments begin a new episode: their steps in it are lost.
        """
        self._check_running()
        if self._is_cut_short:
            self._add_restarted(self.collector.load_state_dict(None, self.agent_inputs, self.traj_infos, itr - 1))
        self.itr, self._is_cut_short = itr, True
        self.collector.reset_if_needed(self.agent_inputs)
        self.agent_inputs, self.traj_infos, completed = self.collector.collect_batch(self.agent_inputs, self.traj_infos, itr)
        self._is_cut_short = False
        return self.samples_pyt, completed

    def evaluate_agent(self, itr: int) -> list:
        """Play evaluation episodes; return their TrajInfos."""
        self._check_running()
        if self.eval_n_envs == 0:
            raise RuntimeError("There are no evaluation environments: give the sampler eval_n_envs and eval_max_steps.")
        return self.eval_collector.collect_evaluation(itr)

    def state_dict(self) -> dict:
        """Return the state of sampling between two batches; see `BaseSampler.state_dict`."""
        collector = self.collector.state_dict(self.agent_inputs, self.traj_infos)
        if collector is None:
            self._warn_of_new_episodes(type(self.collector).__name__)
        return dict(
            agent=self.agent.sampling_state(),
            itr=self.itr,
            collector=collector,
            eval_envs=[get_state(env) for env in self._eval_envs],
        )

    def load_state_dict(self, state: Any) -> list[int]:
        """After `initialize`: continue from what `state_dict` returned; return the columns whose environments begin a new episode."""
        check_form(state, dict(itr=int), "sampler")
        if set(state) == {"itr"}:  # Sampling was abandoned.
            state = dict(state, agent=None, collector=None, eval_envs=[None] * len(self._eval_envs))
        check_form(state, dict(agent=object, itr=int, collector=object, eval_envs=list), "sampler")
        if state["agent"] is not None:
            self.agent.set_sampling_state(state["agent"], self.samples_pyt.agent.agent_info)
        set_states(self._eval_envs, state["eval_envs"], "sampler['eval_envs']")
        return self.collector.load_state_dict(state["collector"], self.agent_inputs, self.traj_infos, state["itr"])

    @property
    def _eval_envs(self) -> list:
        return list(CompletedCollector(self.eval_collector).envs)

    def update_envs(self, updates: Any) -> list[int]:
        """Change environments, between two batches; see `BaseSampler.update_envs`."""
        self._check_running()
        each = self._env_updates(updates)
        try:
            columns = self.collector.update_envs(each, self._envs, self.agent_inputs, self.traj_infos, self.itr)
        except BaseException:  # Some are closed by now, others not yet made.
            self.shutdown()
            raise
        return self._add_restarted(columns)

    def shutdown(self) -> None:
        """Close the environments. May be called twice."""
        collectors = self.collector, self.eval_collector
        envs = self._envs or [env for collector in collectors for env in CompletedCollector(collector).envs]
        self.collector, self.eval_collector, self._envs = None, None, []
        close_envs(envs)

    def _check_running(self) -> None:
        if self.collector is None:
            raise RuntimeError("The sampler is not running; call initialize() before using it.")
