"""The one training loop and the one evaluation loop.

A collector steps the environments of one process. Environments write their observation straight into the next row of the batch, which
is at once the stored sample and the agent's next input. Everything the loop touches is bound before it starts, so that an environment step
makes no array, no namedarraytuple and no tensor.

`rlpyt.samplers.columns` has what happens to environments outside of the loops, `rlpyt.samplers.rows` the memory of a step.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from rlpyt.envs.base import ActionForm, for_envs, write_observation
from rlpyt.samplers.actors import MANY, BatchActor, EvalActor, EveryStep, RemoteActor
from rlpyt.samplers.buffer import agent_example, build_step_buffer_np
from rlpyt.samplers.columns import BaseCollector, DecorrelatingStartCollector, ResumableCollector, action_form_of, calls_of
from rlpyt.samplers.ready import ReadyActors, fill_as_ready
from rlpyt.samplers.rows import (
    EndSlots,
    Fault,
    FloatLeaves,
    Row,
    StepRow,
    env_rows,
    reward_fault,
    step_of_batch,
    step_of_evaluation,
    timeout_fault,
)
from rlpyt.samplers.stepping import EnvCalls, Outcome
from rlpyt.samplers.traj_infos import BatchTracker, episode_tracker, finishes_at_once, has_own_step
from rlpyt.samplers.vector import VectorCalls, end_vector_episodes
from rlpyt.types import Agent, AgentInputs, Samples, StepBuffer
from rlpyt.utils.buffer import buffer_func
from rlpyt.utils.collections import field_of

__all__ = [
    "BaseCollector",
    "BaseEvalCollector",
    "DecorrelatingStartCollector",
    "EvalCollector",
    "TrainingCollector",
    "TrajInfoList",
    "env_rows",
    "episodes_per_env",
]


class _Views(NamedTuple):
    """Views of one batch for the training loop."""

    batch: Samples
    rows: list[Row]
    first_observation: Any  # structure [1,B,...]
    actor: BatchActor | RemoteActor | ReadyActors
    floats: FloatLeaves


class TrainingCollector(ResumableCollector):
    """The training loop.

    `samples_np` may alternate between several batches; the collector looks up each of them once.

    An episode as the agent sees it ends with ``done``; the environment is reset, and its TrajInfo finished, with
    ``env_info.traj_done`` (with ``done`` where there is no such field). If a trajectory ends without ``done``, the agent's episode is
    recorded as truncated there, since the next observation is of another one.

    If `mid_batch_reset`, an environment is reset as soon as its trajectory ends. Otherwise it is idle after ``done`` until the batch is
    full: the rest of its column holds zeros, with ``done`` True. Between batches it is then reset. If its trajectory has not ended, it
    continues from its last observation instead.
    """

    gpu = False
    _tracker: Any = None
    _at_once = False  # Whether the tracker finishes the episodes of a batch when it ends.
    _ends: list[tuple[int, int]] = []  # What `completed_at` returns, where the tracker does not know it.
    steps_vectors = True  # An override of `collect_batch` that replaces the loop is told by `VectorColumn`.

    def _bind(self, agent_inputs: AgentInputs, traj_infos: list) -> None:
        """Look up everything the loop needs."""
        if self._tracker is not None:
            self._tracker.store()
        super()._bind(agent_inputs, traj_infos)
        self._views: dict[int, _Views] = {}  # By the id of the batch.
        calls, waits = self._calls, not self.mid_batch_reset
        if isinstance(calls, VectorCalls):
            # Workers of an action server do without numba, unless there are so many environments that they need its speed.
            at_once = (not self.gpu or calls.n >= MANY) and calls.n_ready is None and not waits
        else:
            at_once = finishes_at_once(self.TrajInfoCls, len(self.envs), self.batch_T)
        self._tracker = episode_tracker(self.TrajInfoCls, traj_infos, at_once, waits)
        self._at_once = isinstance(self._tracker, BatchTracker)
        if isinstance(calls, VectorCalls):
            calls.at_once = self._at_once

    def _look_up(self, batch: Samples) -> _Views:
        rows = [Row(batch, t) for t in range(self.batch_T)]
        return _Views(batch, rows, batch.env.observation[:1], self.make_actor(self._inputs), FloatLeaves(batch))

    @classmethod
    def records_ends(cls) -> bool:
        """Return whether `collect_batch` is that of this class. An override may replace the loop, or only extend it."""
        return cls.collect_batch is TrainingCollector.collect_batch

    def state_dict(self, agent_inputs: AgentInputs, traj_infos: list) -> dict:
        """Return the state of environments and statistics between two batches; see `ResumableCollector.state_dict`."""
        if self._tracker is not None:
            self._tracker.store()
        return super().state_dict(agent_inputs, traj_infos)

    def make_actor(self, agent_inputs: AgentInputs) -> BatchActor | RemoteActor | ReadyActors:
        """Return who chooses the actions: the agent in this process, or an action server."""
        space = self.envs[0].action_space
        actor: BatchActor | RemoteActor | ReadyActors
        if self.gpu:
            actor = RemoteActor(self.sync, [self.samples_np.agent.action[t] for t in range(self.batch_T)])
        else:
            inputs = agent_inputs.prev_action, agent_inputs.prev_reward
            first_env = self._calls.env_ranks[0]
            if isinstance(self._calls, VectorCalls) and self._calls.n_ready is not None:
                actor = ReadyActors(self.agent, self.samples_np, *inputs, space.null_value(), first_env)
            else:
                actor = BatchActor(self.agent, self.samples_np, *inputs, space.null_value(), self.mid_batch_reset, first_env)
        actor.for_envs = for_envs(space, action_form_of(self))
        return actor

    def collect_batch(self, agent_inputs: AgentInputs, traj_infos: list, itr: int) -> tuple[AgentInputs, list, list]:
        """Fill the batch with `batch_T` steps of every environment.

        `agent_inputs` and `traj_infos` are those that `start_envs` returned; this method updates them in place.
        """
        if self._inputs is not agent_inputs or self._traj_infos is not traj_infos:
            self._bind(agent_inputs, traj_infos)
        views = self._views.get(id(self.samples_np)) or self._views.setdefault(id(self.samples_np), self._look_up(self.samples_np))
        actor = views.actor
        completed: list = []
        self._start_batch(itr, views)
        if isinstance(actor, ReadyActors):
            fill_as_ready(self, views.rows, actor, completed)
        else:
            self._fill(views.rows, actor, completed)
        self._keep_last_observations(views.rows[-1])
        self._refuse(reward_fault(self.samples_np))
        self._refuse(timeout_fault(self.samples_np))
        self.check_observations()
        completed = self._tracker.end_batch(self.samples_np, completed)
        if not isinstance(self._calls, VectorCalls) or type(self).collect_batch is not TrainingCollector.collect_batch:
            self._tracker.store()  # They may be read. Those of a vector are too many, if nobody is likely to.
        return agent_inputs, traj_infos, completed

    def _fill(self, rows: list[Row], actor: BatchActor | RemoteActor, completed: list) -> None:
        """Fill the batch, all environments in lockstep; append the TrajInfos of the episodes that end to `completed`."""
        outcomes: list[Outcome] = []
        take = outcomes.append if self._tracker.reads_outcomes else None
        is_vector = isinstance(self._calls, VectorCalls)
        end_episodes: Any = partial(end_vector_episodes, self) if is_vector and self._at_once else self._end_episodes

        def when(b: int) -> str:
            return self._when(t)

        actor.request(0)
        for t, row in enumerate(rows):
            action = actor.receive(t)
            self.progress[0] += 1  # Odd: inside the environments.
            ended = self._calls.step(self._running, action, row, when, take)
            if outcomes:
                self._tracker.step(t, self.samples_np, outcomes)
                outcomes.clear()
            if len(ended):
                end_episodes(t, row, ended, completed)
            self.progress[0] += 1
            actor.request(t + 1)
        actor.finish()

    @property
    def completed_at(self) -> list[tuple[int, int]] | np.ndarray:
        """For each completed TrajInfo of the last batch, when and where its episode ended: ``(t, environment)``, or rows of an array."""
        if self._at_once and not self._ends:
            rows, columns = self._tracker.ends
            return np.array([rows, np.array(self._calls.env_ranks)[columns]]).T
        return self._ends

    @completed_at.setter
    def completed_at(self, ends: list[tuple[int, int]]) -> None:
        self._ends = ends

    def _start_batch(self, itr: int, views: _Views) -> None:
        """Write the first inputs, and clear what only some steps write."""
        self._itr = itr
        self._ends = []
        ends = self.samples_np.final_observation, self.samples_np.terminal_observation
        self._timeouts, self._terminals = (EndSlots(memory, self._calls.env_ranks) for memory in ends)
        views.first_observation[0] = self._inputs.observation
        self.samples_np.env.done[...] = False
        self.samples_np.env.timeout[...] = False
        self.samples_np.env.ends_recorded[...] = True
        views.actor.begin(itr)

    def check_observations(self) -> None:
        """Raise ValueError, naming field, environment and step, if an observation of this batch is NaN or infinite.

        This takes a pass over observations of floating point numbers, and no time for others. A collector overrides it if its environments
        and agents know what such values mean.
        """
        floats = self._views[id(self.samples_np)].floats
        self._refuse(floats.fault(self._timeouts.n, self._terminals.n))

    def _refuse(self, fault: Fault | None) -> None:
        """Raise ValueError, naming environment and step, for a fault."""
        if fault is not None:
            error = ValueError(fault.text)
            where = f"batch {self._itr}" if fault.t is None else self._when(fault.t)
            self._calls.explain(error, fault.b, fault.when.format(where))
            raise error

    def _end_episodes(self, t: int, row: Row, ended: list[int], completed: list) -> None:
        """Store the observations that end episodes, finish TrajInfos, and reset environments or stop them."""
        for b in ended:
            done, is_over = row.done[b], row.traj_done[b]
            is_cut = is_over and not done  # The environment is reset without having said done, which a time limit explains.
            if is_cut:
                row.done[b] = done = True
            if is_cut or (row.env_timeout is not None and row.env_timeout[b] and done):
                row.timeout[b] = True
                self._timeouts.keep(b, row.next_observation)
            else:
                self._terminals.keep(b, row.next_observation)
            if is_over and not self._at_once:
                completed.append(self._tracker.finish(b, t, self.samples_np, buffer_func(row.observations[b], np.copy)))
                self._ends.append((t, self._calls.env_ranks[b]))
            if done and not self.mid_batch_reset:
                self._stop(b, t, is_over)
            elif is_over:
                self._calls.reset(b, row.observations[b], f"after {self._when(t)}")

    def _stop(self, b: int, t: int, is_over: bool) -> None:
        """Let environment `b` be idle after step `t` of this batch, and fill the rest of its column."""
        env = self.samples_np.env
        self._idle.append((b, is_over))
        self._running = [running for running in self._running if running[0] != b]
        self._tracker.stand_still(b, t, self.samples_np)
        self._inputs.observation[b] = env.next_observation[t, b]
        env.next_observation[t:, b] = 0
        env.reward[t + 1 :, b] = 0
        env.done[t + 1 :, b] = True
        if env.env_info is not None:
            env.env_info[t + 1 :, b] = 0

    def _keep_last_observations(self, row: Row) -> None:
        """Store the observations from which the running environments continue in the next batch."""
        if not self._idle:
            self._inputs.observation[...] = row.next_observation
        for b, _ in self._running if self._idle else ():
            self._inputs.observation[b] = row.next_observation[b]

    def _when(self, t: int) -> str:
        return step_of_batch(t, self._itr, self.batch_T)


# ---------------------------------------------------------------------------------------------------------------------
# Evaluation
# ---------------------------------------------------------------------------------------------------------------------
class BaseEvalCollector:
    """Steps environments to measure the agent; records no samples.

    Args:
        rank: number of the worker process.
        envs: environments to evaluate in.
        TrajInfoCls: makes the statistics of an episode.
        traj_infos_queue: its method ``put`` takes each completed TrajInfo.
        max_T: most steps per environment.
        agent: chooses the actions, if that happens in this process.
        sync: signals shared with other processes, where there are any.
        step_buffer_np: memory shared with an action server, where there is one.
    """

    gpu: bool | None = None  # Whether an action server chooses the actions; the sampler's must be the same. None: for either.
    progress: np.ndarray = np.zeros(1)  # [1], counts time steps as a sign of life; set by samplers that watch it.
    stop: np.ndarray = np.zeros(1, bool)  # [1], set by the sampler to end an evaluation early.
    examples: dict = {}  # Of what the agent returns, where it is in this process; set by the sampler, or made by the first evaluation.
    max_episodes: list | None = None  # Per environment, set by the sampler; None: as many as fit into max_T steps.
    action_form: ActionForm | None = None  # How actions become those of environments, set by the sampler; None: as the agent says.
    env_ranks: Any = None  # Numbers of these environments among all evaluation environments, for messages.

    def __init__(
        self,
        rank: int,
        envs: list,
        TrajInfoCls: Any,
        traj_infos_queue: Any,
        max_T: int,
        agent: Agent | None = None,
        sync: Any = None,
        step_buffer_np: Any = None,
    ) -> None:
        self.rank = rank
        self.envs = envs
        self.TrajInfoCls = TrajInfoCls
        self.traj_infos_queue = traj_infos_queue
        self.max_T = max_T
        self.agent: Any = agent
        self.sync = sync
        self.step_buffer_np = step_buffer_np

    def collect_evaluation(self, itr: int) -> Any:
        """Play episodes, and put the TrajInfo of each completed one into the queue."""
        raise NotImplementedError


class EvalCollector(BaseEvalCollector):
    """The evaluation loop: fresh episodes in all environments, at most `max_T` steps each, only complete ones count."""

    gpu = False

    def collect_evaluation(self, itr: int) -> Any:
        """Play episodes, and put the TrajInfo of each completed one into the queue.

        An environment that has played its `max_episodes` is idle while the others finish theirs. Every episode that was begun counts, so
        that short ones are not preferred.
        """
        if not self.envs:
            return
        B = len(self.envs)
        calls, buffer_, row = self._start(B, itr)
        actor = self._make_actor(buffer_)
        traj_infos = [self.TrajInfoCls() for _ in range(B)]
        remaining = list(self.max_episodes or [self.max_T] * B)

        def when(b: int) -> str:
            return step_of_evaluation(t, itr)

        actor.begin(itr)
        for t in range(self.max_T):
            running = [(b, step_env) for b, step_env in enumerate(calls.steps) if remaining[b] > 0]
            if not running or self.stop[0]:
                break
            before = buffer_func(buffer_.observation, np.copy)
            actor.request(t)
            action = actor.receive(t)
            recorded, agent_info = (buffer_func(x, np.copy) for x in (buffer_.action, buffer_.agent_info))
            outcomes: list[Outcome] = []
            self.progress[0] += 1  # Odd: inside the environments.
            calls.step(running, action, row, when, outcomes.append)
            for b, reward, done, env_info in outcomes:
                buffer_.done[b] = done
                traj_infos[b].step(before[b], recorded[b], reward, done, None if agent_info is None else agent_info[b], env_info)
                if field_of(env_info, "traj_done", done):
                    self.traj_infos_queue.put(traj_infos[b].terminate(buffer_func(row.observations[b], np.copy)))
                    traj_infos[b] = self.TrajInfoCls()
                    remaining[b] -= 1
                    if remaining[b] > 0:
                        calls.reset(b, row.observations[b], f"after {when(b)}")
            self.progress[0] += 1
        actor.leave()

    def _agent_examples(self, observation: Any, itr: int) -> dict:
        """Return examples of what the agent returns in evaluations."""
        self.agent.eval_mode(itr)  # First, so that the state with which it samples is put aside.
        null_action = self.envs[0].action_space.null_value()
        return dict(zip(("action", "agent_info"), agent_example(self.agent, observation, null_action, np.float32(0))))

    def _start(self, B: int, itr: int) -> tuple[EnvCalls | VectorCalls, StepBuffer, StepRow]:
        """Reset all environments; return their calls, the step buffer, and its memory for outcomes."""
        calls = calls_of(self.envs, self.env_ranks)
        observations = [buffer_func(calls.first_observation(b, "at the start of an evaluation"), np.array) for b in range(B)]
        buffer_ = self.step_buffer_np
        if buffer_ is None:
            if "action" not in self.examples:
                self.examples = self._agent_examples(observations[0], itr)
            agent_info = self.examples["agent_info"] if has_own_step(self.TrajInfoCls) else None
            observation = self.examples.get("observation", observations[0])  # A reset may return another dtype than steps do.
            examples = dict(observation=observation, action=self.examples["action"], agent_info=agent_info)
            buffer_ = build_step_buffer_np(examples, B, share_memory=False)
        row = StepRow(env_rows(buffer_.observation, B), buffer_.reward, buffer_.done)
        for observation_out, observation in zip(row.observations, observations):
            write_observation(observation, observation_out)
        return calls, buffer_, row

    def _make_actor(self, buffer_: StepBuffer) -> EvalActor | RemoteActor:
        """Return who chooses the actions: the agent in this process, or an action server."""
        space = self.envs[0].action_space
        actor: EvalActor | RemoteActor
        if self.gpu:
            actor = RemoteActor(self.sync, EveryStep(buffer_.action))
        else:
            first_env = 0 if self.env_ranks is None else int(self.env_ranks[0])
            actor = EvalActor(self.agent, buffer_, space.null_value(), first_env)
        actor.for_envs = for_envs(space, action_form_of(self))
        return actor


class TrajInfoList(list):
    """A list of TrajInfos with the method `put` of a queue."""

    put = list.append


def episodes_per_env(max_trajectories: int | None, n_envs: int) -> list[int] | None:
    """Return the share of each of `n_envs` environments in `max_trajectories` episodes; None for no limit."""
    if max_trajectories is None:
        return None
    each, more = divmod(int(max_trajectories), n_envs)
    return [each + (i < more) for i in range(n_envs)]
