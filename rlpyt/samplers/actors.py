"""Actors, which choose the actions: a collector asks its actor and does not know of which kind it is.

::

    begin(itr)     once per batch or evaluation
    request(t)     observation `t`, and what the actions of step ``t - 1`` led to, are in place
    receive(t)     returns the actions for step `t`, which by then are recorded, as environments get them (see `rlpyt.envs.base.for_envs`)
    finish()       returns when the last request of a batch has been dealt with
    leave()        no further request will follow in this evaluation

A batch of T steps takes T + 1 requests: the last one is answered by the value to bootstrap from.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from rlpyt.envs.base import copied
from rlpyt.samplers.rows import step_of_batch, step_of_evaluation
from rlpyt.samplers.signals import WorkerSignals
from rlpyt.samplers.workers import Abandoned
from rlpyt.types import Agent, CompletedAgent
from rlpyt.utils.buffer import buffer_func, buffer_leaves, element, first_not_finite, float_leaves, numpify_buffer, torchify_buffer
from rlpyt.utils.lazy import LazyModule
from rlpyt.utils.structures import named_leaves

kernels: Any = LazyModule("rlpyt.samplers.kernels")
MANY = 256  # Environments for which a compiled loop is faster than some calls of numpy, and worth the import of numba.


class ActorRow(NamedTuple):
    """Inputs and outputs of an actor in one step: views, made once, of memory that it shares with the collector.

    The actor writes `action` and `agent_info`, the collector the rest.
    """

    observation: Any  # structure of tensors [B,...]
    action: Any = None  # structure of arrays [B,...]
    action_leaves: Sequence = ()  # the same, as a flat list of tensors [B,...]
    agent_info_leaves: Sequence | None = None  # the leaves of agent_info; None where it is not recorded
    reward: Any = None  # float32 [B]
    done: Any = None  # bool [B]
    timeout: Any = None  # bool [B], or None where values of final observations are not recorded


class EveryStep:
    """The same item for all steps."""

    def __init__(self, item: Any) -> None:
        self.item = item

    def __getitem__(self, t: int) -> Any:
        return self.item


def batch_rows(batch: Any) -> list[ActorRow]:
    """Return the T + 1 rows of a batch of numpy arrays [T,B,...]; the last row has only an observation."""
    T = len(batch.env.reward)
    observations = [batch.env.observation[0]] + [batch.env.next_observation[t] for t in range(T)]
    agent_info, has_value = batch.agent.agent_info, "bootstrap_value" in batch.agent
    rows = [
        ActorRow(
            observation=torchify_buffer(observations[t]),
            action=batch.agent.action[t],
            action_leaves=_leaves(batch.agent.action[t]),
            agent_info_leaves=[] if agent_info is None else _leaves(agent_info[t]),
            reward=batch.env.reward[t],
            done=batch.env.done[t],
            timeout=batch.env.timeout[t] if has_value else None,
        )
        for t in range(T)
    ]
    return [*rows, ActorRow(torchify_buffer(observations[T]))]


def step_buffer_row(step_buffer: Any) -> ActorRow:
    """Return the one row of a step buffer of numpy arrays [B,...], which serves all steps of an evaluation."""
    return ActorRow(
        observation=torchify_buffer(step_buffer.observation),
        action=step_buffer.action,
        action_leaves=_leaves(step_buffer.action),
        agent_info_leaves=None if step_buffer.agent_info is None else _leaves(step_buffer.agent_info),
        reward=step_buffer.reward,
        done=step_buffer.done,
    )


def _leaves(arrays: Any) -> list:
    """Return the leaves of a structure of numpy arrays as tensors in the same memory."""
    return [torchify_buffer(leaf) for leaf in buffer_leaves(arrays)]


class Share(NamedTuple):
    """Some of the environments for which an agent acts, see `Agent.acting_for`."""

    columns: Any  # int64 tensor [n]
    B: int  # environments in all


class LocalActor:
    """The agent, acting for some environments: for all of this process, or, in an action server, for a group of workers.

    It keeps what concerns the agent: the previous actions and rewards that it sees (null after an episode's end), resets of its recurrent
    state, what it returns.

    Args:
        agent: the agent.
        rows: one per step, and one more for the observations after the last.
        prev_action, prev_reward: arrays ``[B,...]`` with what the agent sees; this actor updates them at every step.
        null_action: previous action at the beginning of an episode.
        first_env: number of the environment of the first column, for messages.
        share: these environments, among all for which the agent acts; None if they are all.

    Attributes:
        for_envs: makes, of recorded actions, those that environments get.
    """

    for_envs: Callable[[Any], Any] = staticmethod(copied)

    def __init__(
        self,
        agent: Agent,
        rows: Sequence[ActorRow] | EveryStep,
        prev_action: Any,
        prev_reward: np.ndarray,
        null_action: Any,
        first_env: int = 0,
        share: Share | None = None,
    ) -> None:
        self.agent = agent
        self.first_env = first_env
        self.share = share
        self.rows = rows
        self.prev_action, self.prev_reward = prev_action, prev_reward
        self._itr = 0
        self.null_action = null_action
        self._prev = torchify_buffer(prev_action), torchify_buffer(prev_reward)
        self._leaves: Sequence = ()  # Of agent_info, between `act` and `record`.
        self._remembers = CompletedAgent(agent).remembers_envs
        is_number = isinstance(prev_action, np.ndarray) and prev_action.ndim == 1
        self._ended = np.zeros(len(prev_reward), np.int64) if is_number and len(prev_reward) >= MANY else None  # Memory.
        self._null = prev_action.dtype.type(null_action) if is_number else None

    def begin(self, itr: int) -> None:
        """Get ready for a batch, or an evaluation."""
        self.set_mode(itr)
        self.prepare(itr)

    def set_mode(self, itr: int) -> None:
        """Tell the agent whether a batch or an evaluation follows."""
        raise NotImplementedError

    def prepare_agent(self, n_steps: int | None = None) -> None:
        """Prepare the agent, if it can, for `n_steps` calls of its `step`; None for many."""
        CompletedAgent(self.agent).prepare_acting(len(self.prev_reward) if self.share is None else self.share.B, n_steps)

    def prepare(self, itr: int) -> None:
        """Write what the agent sees first."""
        self._itr = itr

    def when(self, t: int) -> str:
        """Return what messages call step `t`."""
        raise NotImplementedError

    def request(self, t: int) -> None:
        """Read what the actions of step ``t - 1`` led to."""
        if t == 0:
            return
        row = self.rows[t - 1]
        ended = self._see(row)
        if len(ended):
            self._end_episodes(t - 1, row, ended)

    def _see(self, row: ActorRow) -> np.ndarray:
        """Write what the agent sees after a row: null action and no reward where an episode ended, in environments [k], the result."""
        if self._ended is not None:
            args = row.action, row.reward, row.done, self.prev_action, self.prev_reward, self._null, self._ended
            return self._ended[: kernels.null_after_done(*args)]
        self.prev_action[...] = row.action  # As it is stored, whatever an environment did with its copy.
        self.prev_reward[...] = row.reward
        (ended,) = row.done.nonzero()
        if len(ended):
            self.prev_action[ended] = self.null_action
            self.prev_reward[ended] = 0
        return ended

    def receive(self, t: int) -> Any:
        """Choose the actions for step `t` and record them; return what environments get, a numpy structure ``[B,...]``."""
        self.act(t, agent_info_too=True)
        return self.for_envs(self.rows[t].action)

    def act(self, t: int, agent_info_too: bool) -> None:
        """Choose the actions for step `t` and write them into its row; also agent_info, or else `record` writes it later."""
        try:
            action, agent_info = self.agent.step(*self.agent_inputs(t))
        except Exception:
            self.blame_observation(t)
            raise
        self.take(t, action, agent_info)
        if agent_info_too:
            self.record(t)

    def agent_inputs(self, t: int) -> tuple:
        """Return what the agent sees before step `t`: observation, previous action and reward, tensors [B,...]."""
        return (self.rows[t].observation, *self._prev)

    def take(self, t: int, action: Any, agent_info: Any) -> None:
        """Write the actions for step `t` into its row, and keep agent_info for `record`; both are tensors [B,...], on any device."""
        row = self.rows[t]
        leaves = _checked_leaves("action", action, row.action_leaves)
        self._leaves = () if row.agent_info_leaves is None else _checked_leaves("agent_info", agent_info, row.agent_info_leaves)
        if not leaves[0].is_cpu:
            from rlpyt.utils.packing import to_cpu  # Here, because environment workers use this module without torch.

            leaves, self._leaves = to_cpu((tuple(leaves), tuple(self._leaves)))
        self._write(t, row.action_leaves, leaves)

    def record(self, t: int) -> None:
        """Write the agent_info of step `t` into its row."""
        if self._leaves:
            self._write(t, self.rows[t].agent_info_leaves or (), self._leaves)

    def blame_observation(self, t: int) -> None:
        """After an error of the agent: raise ValueError if its observation is not finite, which is then the cause."""
        for name, observation in float_leaves(numpify_buffer(self.rows[t].observation), "observation"):
            where = first_not_finite(observation)
            if where is not None:
                raise ValueError(
                    f"{element(name, where[1:])}: expected a finite number, got {observation[where]}. "
                    f"This was in environment {self.first_env + where[0]}, in what the agent was given for {self.when(t)}."
                ) from None

    def finish(self) -> None:
        """Nothing to wait for."""

    def leave(self) -> None:
        """Nothing to do."""

    def value(self, observation: Any, prev: tuple | None = None) -> np.ndarray:
        """Return the value of an observation that follows previous actions and rewards `prev`, float32 ``[B]``; no state advances.

        `prev` are tensors [B,...]; None for those that the agent sees.
        """
        with self.in_share():
            return self.agent.value(observation, *(prev or self._prev)).cpu().numpy()  # type: ignore[attr-defined]

    def in_share(self) -> AbstractContextManager[None]:
        """Return a context in which the agent is asked about these environments only."""
        return nullcontext() if self.share is None else self.agent.acting_for(*self.share)

    def _write(self, t: int, destinations: Sequence, leaves: Sequence) -> None:
        for destination, leaf in zip(destinations, leaves):
            destination.copy_(leaf)

    def _end_episodes(self, t: int, row: ActorRow, ended: np.ndarray) -> None:
        """After step `t`: reset what the agent remembers of the environments that are done, `ended` [k]."""
        if not self._remembers:
            return
        with self.in_share():
            for b in ended.tolist():
                self.agent.reset_one(idx=b)


class BatchActor(LocalActor):
    """Records what the agent does in a batch of samples.

    Args:
        agent: the agent.
        batch: the environments' columns of the batch, as numpy arrays.
        prev_action, prev_reward: arrays ``[B,...]`` with the agent's first previous action and reward; this actor updates them.
        null_action: previous action at the beginning of an episode.
        mid_batch_reset: False if environments whose episode has ended are idle: the actor records zeros for them.
        first_env: number of the environment of the first column, for messages.
        share: as in `LocalActor`.
    """

    def __init__(
        self,
        agent: Agent,
        batch: Any,
        prev_action: Any,
        prev_reward: np.ndarray,
        null_action: Any,
        mid_batch_reset: bool,
        first_env: int = 0,
        share: Share | None = None,
    ) -> None:
        super().__init__(agent, batch_rows(batch), prev_action, prev_reward, null_action, first_env, share)
        self.batch = batch
        self.mid_batch_reset = mid_batch_reset
        self.has_value = "bootstrap_value" in batch.agent
        self.batch_T = len(batch.env.reward)

    def set_mode(self, itr: int) -> None:
        """Set the agent to sampling."""
        self.agent.sample_mode(itr)
        self.prepare_agent(self.batch_T)

    def prepare(self, itr: int) -> None:
        """Write the first previous action and reward into the batch."""
        super().prepare(itr)
        self.batch.agent.prev_action[0] = self.prev_action
        self.batch.env.prev_reward[0] = self.prev_reward
        if self.has_value:
            self.batch.agent.timeout_value[...] = 0

    def when(self, t: int) -> str:
        """Return what messages call step `t`."""
        return step_of_batch(t, self._itr, self.batch_T)

    def request(self, t: int) -> None:
        """Read what the actions of step ``t - 1`` led to; after the last step, record the value to bootstrap from."""
        super().request(t)
        if t == self.batch_T and self.has_value:
            self.batch.agent.bootstrap_value[0] = self.value(self.rows[t].observation)

    def _write(self, t: int, destinations: Sequence, leaves: Sequence) -> None:
        if not self.mid_batch_reset and t > 0 and self.rows[t - 1].done.any():
            idle = torchify_buffer(self.rows[t - 1].done)
            leaves = [_without(leaf, idle) for leaf in leaves]
        super()._write(t, destinations, leaves)

    def _end_episodes(self, t: int, row: ActorRow, ended: np.ndarray) -> None:
        if row.timeout is not None:
            (truncated,) = row.timeout.nonzero()
            if len(truncated):  # Before the agent forgets the episode.
                self._record_timeout_values(t, truncated)
        super()._end_episodes(t, row, ended)

    def _record_timeout_values(self, t: int, truncated: np.ndarray) -> None:
        """Record the values of the observations that episodes of environments `truncated` [k] ended with."""
        observation = buffer_func(self.batch.env.next_observation[t], np.copy)
        n_before = np.count_nonzero(self.batch.env.timeout[:t, truncated], axis=0)
        observation[truncated] = self.batch.final_observation[n_before, truncated]
        row = self.rows[t]
        prev = torchify_buffer(row.action), torchify_buffer(row.reward)
        self.batch.agent.timeout_value[t, truncated] = self.value(torchify_buffer(observation), prev)[truncated]


class EvalActor(LocalActor):
    """Acts in an evaluation: from the beginning of episodes, and records its outputs in the step buffer only.

    Args:
        agent: the agent.
        step_buffer: numpy structure ``[B,...]`` with observation, action, reward, done of the current step.
        null_action: previous action at the beginning of an episode.
        first_env, share: as in `LocalActor`.
    """

    def __init__(self, agent: Agent, step_buffer: Any, null_action: Any, first_env: int = 0, share: Share | None = None) -> None:
        prev_action, prev_reward = buffer_func(step_buffer.action, np.zeros_like), np.zeros_like(step_buffer.reward)
        rows = EveryStep(step_buffer_row(step_buffer))
        super().__init__(agent, rows, prev_action, prev_reward, null_action, first_env, share)

    def set_mode(self, itr: int) -> None:
        """Set the agent to evaluation, and reset it."""
        self.agent.eval_mode(itr)
        self.prepare_agent()
        self.agent.reset()

    def prepare(self, itr: int) -> None:
        """Write null previous actions and zero previous rewards."""
        super().prepare(itr)
        self.prev_action[:] = self.null_action
        self.prev_reward[...] = 0

    def when(self, t: int) -> str:
        """Return what messages call step `t`."""
        return step_of_evaluation(t, self._itr)


class RemoteActor:
    """The agent in an action server, as its workers see it. The server records what the agent does.

    Args:
        signals: this worker's ends of the signals.
        actions: for each step, where the server writes its actions: numpy structures ``[B,...]``.

    Attributes:
        for_envs: makes, of recorded actions, those that environments get.
    """

    for_envs: Callable[[Any], Any] = staticmethod(copied)

    def __init__(self, signals: WorkerSignals, actions: Sequence | EveryStep) -> None:
        self.signals = signals
        self.actions = actions

    def begin(self, itr: int) -> None:
        """Take part."""
        self.signals.left[0] = False

    def request(self, t: int) -> None:
        """Tell the server that observation `t` is in place."""
        self.signals.to_server.release()

    def receive(self, t: int) -> Any:
        """Wait for the actions of step `t`, and return what environments get, a numpy structure ``[B,...]``."""
        self._acquire()
        return self.for_envs(self.actions[t])

    def _acquire(self) -> None:
        self.signals.from_server.acquire()
        if self.signals.abandoned[0]:
            raise Abandoned

    def finish(self) -> None:
        """Wait until the server has read what this worker wrote in the batch."""
        self._acquire()

    def leave(self) -> None:
        """Tell the server that this was the last step: it no longer waits for this worker, nor sends it actions."""
        self.signals.left[0] = True
        self.signals.to_server.release()


def _checked_leaves(name: str, structure: Any, destinations: Sequence) -> list:
    """Return the leaves of what the agent returned as `name`; raise ValueError if they do not fit their destinations."""
    if structure is None and not destinations:
        return []
    leaves = buffer_leaves(structure) if isinstance(structure, tuple) or structure is None else [structure]
    if len(leaves) != len(destinations):
        raise ValueError(
            f"The agent's step returned {len(leaves)} arrays as {name}, but {len(destinations)} when the batch was allocated: {name} must "
            "have the same fields at every step, None where they were None."
        )
    for i, (leaf, destination) in enumerate(zip(leaves, destinations)):
        if leaf.shape != destination.shape or leaf.dtype != destination.dtype:
            if leaf.dtype == destination.dtype and len(destination) == 1 and _squeezed(leaf) == _squeezed(destination):
                leaves[i] = leaf.reshape(destination.shape)  # [...], or [1,...,1], of the only environment
                continue
            path = next(path for path, part in named_leaves(structure, name) if part is leaf)
            raise ValueError(
                f"The agent's step returned {path} with shape {tuple(leaf.shape)} and dtype {leaf.dtype}, expected "
                f"were {tuple(destination.shape)} and {destination.dtype}, as when the batch was allocated."
            )
    return leaves


def _squeezed(leaf: Any) -> list[int]:
    """Return the dimensions of a tensor other than 1."""
    return [n for n in leaf.shape if n != 1]


def _without(leaf: Any, idle: Any) -> Any:
    """Return a copy of a tensor ``[B,...]`` with zeros where `idle` ``[B]``."""
    leaf = leaf.clone()
    leaf[idle] = 0
    return leaf


def can_act_for_some(agent: Any) -> bool:
    """Return whether an agent's memory of environments can be taken by column.

    The class with its `reset_one`, or a subclass of that, must have an `acting_for`.
    """
    from rlpyt.agents.base import BaseAgent  # Here, because environment workers use this module without torch.

    classes = type(agent).__mro__
    owner = next((cls for cls in classes if "reset_one" in vars(cls)), None)
    if owner is None or type(agent).reset_one is BaseAgent.reset_one:
        return CompletedAgent(agent).acting_for is not None
    return any("acting_for" in vars(cls) for cls in classes if issubclass(cls, owner))
