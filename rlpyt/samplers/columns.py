"""The environments of a collector, one for each column of the batch: how they start, and what happens to them between batches.

`rlpyt.samplers.collectors` has the loops that step them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np

from rlpyt.envs.base import ActionForm, NotRestored, rescales
from rlpyt.envs.state import get_state, set_state
from rlpyt.samplers.base import as_steppable
from rlpyt.samplers.buffer import check_same_form, max_timeouts
from rlpyt.samplers.rows import StepRow, env_rows
from rlpyt.samplers.stepping import EnvCalls, Outcome
from rlpyt.samplers.vector import VectorCalls, VectorColumns
from rlpyt.spaces.masked import allowed_action
from rlpyt.types import Agent, AgentInputs, Samples, info_from_plain
from rlpyt.utils.buffer import buffer_func, buffer_leaves
from rlpyt.utils.collections import field_of, fields_of
from rlpyt.utils.plain import NotPlain, check_form, check_number, from_plain, shown, to_plain
from rlpyt.utils.seed import env_seed, rng, rng_states, seed_env, set_rng_states


def action_form_of(collector: Any) -> ActionForm:
    """Return how the agent's actions become those of environments."""
    return ActionForm.of(collector.agent) if collector.action_form is None else collector.action_form


class BaseCollector:
    """Steps environments, possibly in a worker process, and records what happens into the batch.

    Args:
        rank: number of the worker process.
        envs: environments to step, one per column of the batch.
        samples_np: this collector's columns of the batch, as numpy arrays.
        batch_T: time steps per batch.
        TrajInfoCls: makes the statistics of an episode.
        agent: chooses the actions, if that happens in this process.
        sync: signals shared with other processes, where there are any.
        step_buffer_np: memory shared with an action server, where there is one.
        global_B: environments of all processes together.
        env_ranks: numbers of these environments among all.
    """

    mid_batch_reset = True
    steps_vectors = False  # Whether `collect_batch` steps a vector of environments as a whole, by `VectorCalls`.
    gpu: bool | None = None  # Whether an action server chooses the actions; the sampler's must be the same. None: for either.
    _replaced: frozenset | set = frozenset()  # Environments that are not those which this was made with.
    _given: frozenset | set = frozenset()  # Those that came by an ExistingEnvUpdate.
    action_form: ActionForm | None = None  # How actions become those of environments, set by the sampler; None: as the agent says.
    seed: int | None = None  # Of the run, for decorrelation; set by the sampler. None draws from numpy's global state.
    progress: np.ndarray = np.zeros(1)  # [1], counts time steps as a sign of life; set by samplers that watch it.

    def __init__(
        self,
        rank: int,
        envs: list,
        samples_np: Samples,
        batch_T: int,
        TrajInfoCls: Any,
        agent: Agent | None = None,
        sync: Any = None,
        step_buffer_np: Any = None,
        global_B: int = 1,
        env_ranks: Any = None,
    ) -> None:
        self.rank = rank
        self.envs = envs
        self.samples_np = samples_np
        self.batch_T = batch_T
        self.TrajInfoCls = TrajInfoCls
        self.agent: Any = agent
        self.sync = sync
        self.step_buffer_np = step_buffer_np
        self.global_B = global_B
        self.env_ranks = env_ranks

    def start_envs(self) -> tuple[AgentInputs, list]:
        """Reset all environments; return the agent's first inputs, arrays ``[B,...]``, and the TrajInfos."""
        raise NotImplementedError

    def start_agent(self) -> None:
        """Prepare the agent for these environments, e.g. their own epsilons, and reset it."""
        if self.agent is not None:
            self.agent.collector_initialize(global_B=self.global_B, env_ranks=self.env_ranks)
            self.agent.reset()
            self.agent.sample_mode(itr=0)

    def collect_batch(self, agent_inputs: AgentInputs, traj_infos: list, itr: int) -> tuple[AgentInputs, list, list]:
        """Fill the batch; return the inputs of the next one, the running TrajInfos and those completed."""
        raise NotImplementedError

    def reset_if_needed(self, agent_inputs: AgentInputs) -> None:
        """Reset environments between batches, where the collector does not do so within them."""

    def state_dict(self, agent_inputs: AgentInputs, traj_infos: list) -> dict | None:
        """Return the state of environments and statistics between two batches, as plain data; None where it is unknown."""
        return None

    def load_state_dict(self, state: dict | None, agent_inputs: AgentInputs, traj_infos: list, itr: int) -> list[int]:
        """After `start_envs`: continue from what `state_dict` returned after batch `itr`; return the environments that begin a new episode.

        If the state is None, every environment begins a new episode.
        """
        return list(range(len(self.envs)))

    def update_envs(self, updates: list, all_envs: list, agent_inputs: AgentInputs, traj_infos: list, itr: int) -> list[int]:
        """Change environments after batch `itr`; NotImplementedError for a collector with another loop."""
        raise NotImplementedError(
            f"{type(self).__name__} has its own loop, so its environments cannot be changed: derive it from CpuResetCollector, or from "
            "another collector of rlpyt, and extend collect_batch."
        )

    @classmethod
    def records_ends(cls) -> bool:
        """Return whether every batch is certain to hold the fields about ends of episodes (see `as_recorded`), as with our loop."""
        return False


def calls_of(envs: list, env_ranks: Any = None) -> EnvCalls | VectorCalls:
    """Return the calls of a collector's environments, which are single ones, or those of a vector."""
    return envs.calls if isinstance(envs, VectorColumns) else EnvCalls(envs, env_ranks)


class DecorrelatingStartCollector(BaseCollector):
    """Takes a random number of random actions in each environment at the start, so that their states are not all alike."""

    def start_envs(self, max_decorrelation_steps: int = 0) -> tuple[AgentInputs, list]:
        """Reset every environment, then take 1 to `max_decorrelation_steps` random actions in it (none if that is 0).

        Returns:
            The inputs of the agent's first step, arrays ``[B,...]``, and one running TrajInfo per environment. An action server reads the
            inputs from this very memory, so whoever extends this method should change them in place.
        """
        B = len(self.envs)
        batch = self.samples_np
        if self.step_buffer_np is None:
            inputs = AgentInputs(
                observation=buffer_func(batch.env.observation, lambda x: np.zeros_like(x[0])),
                prev_action=buffer_func(batch.agent.prev_action, lambda x: np.zeros_like(x[0])),
                prev_reward=np.zeros(B, np.float32),
            )
        else:  # Where the action server finds them.
            inputs = AgentInputs(self.step_buffer_np.observation, self.step_buffer_np.action, self.step_buffer_np.reward)
        null_action = self.envs[0].action_space.null_value()
        is_rescaled = rescales(self.envs[0].action_space, action_form_of(self))
        traj_infos = [self.TrajInfoCls() for _ in range(B)]
        calls, row = calls_of(self.envs, self.env_ranks), StepRow(env_rows(inputs.observation, B), inputs.prev_reward, np.zeros(B, bool))
        if isinstance(calls, VectorCalls):
            calls.waits = not self.mid_batch_reset
            traj_infos = calls.start(inputs, self.TrajInfoCls, self._n_decorrelation_steps(0, max_decorrelation_steps))
            if is_rescaled:
                inputs.prev_action[:] = null_action
            return inputs, traj_infos
        outcomes: list[Outcome] = []

        def when(b: int) -> str:
            return f"in step {step} of decorrelation"

        for b, (env, observation) in enumerate(zip(self.envs, row.observations)):
            inputs.prev_action[b] = null_action
            calls.reset(b, observation, "at the start")
            for step in range(self._n_decorrelation_steps(b, max_decorrelation_steps)):
                action = allowed_action(env.action_space, env.action_space.sample(), observation)
                before = buffer_func(observation, np.copy)
                calls.step([(b, calls.steps[b])], {b: buffer_func(action, copy.copy)}, row, when, outcomes.append)
                _, reward, done, env_info = outcomes.pop()
                traj_infos[b].step(before, action, reward, done, None, env_info)
                if field_of(env_info, "traj_done", done):
                    calls.reset(b, observation, f"after step {step} of decorrelation")
                    traj_infos[b] = self.TrajInfoCls()
                inputs.prev_action[b] = null_action if done or is_rescaled else action
                inputs.prev_reward[b] = 0 if done else reward
        return inputs, traj_infos

    def load_state_dict(self, state: dict | None, agent_inputs: AgentInputs, traj_infos: list, itr: int) -> list[int]:
        """Begin a new episode in every environment, since `state_dict` tells nothing; return their numbers."""
        every = range(len(self.envs))
        if "observation" in (fields_of(agent_inputs) or ()):  # An overridden `start_envs` may return something else.
            self._restart(every, agent_inputs, traj_infos, itr, "when sampling was resumed")
        return list(every)

    def _restart(self, columns: Iterable[int], agent_inputs: AgentInputs, traj_infos: list, itr: int, when: str) -> None:
        """Begin new episodes in environments `columns` after batch `itr`, with other random numbers than when the run began."""
        calls, observations = calls_of(self.envs, self.env_ranks), env_rows(agent_inputs.observation, len(self.envs))
        seeds = None
        if self.seed is not None:
            seeds = [env_seed(env_seed(self.seed, "algo", itr + 1), "train_env", rank) for rank in calls.env_ranks]
        if isinstance(calls, VectorCalls) and columns:
            calls.reset_all(when, seeds)  # The state of a vector is known, or unknown, as a whole.
        for b in columns:
            env = self.envs[b]
            if seeds is not None and isinstance(calls, EnvCalls):
                seed_env(env, seeds[b])
            calls.reset(b, observations[b], when)
            agent_inputs.prev_action[b] = env.action_space.null_value()
            agent_inputs.prev_reward[b] = 0
            traj_infos[b] = self.TrajInfoCls()
            if self.agent is not None:
                self.agent.reset_one(idx=b)

    def _n_decorrelation_steps(self, b: int, max_steps: int) -> int:
        if not max_steps:
            return 0
        env_rank = b if self.env_ranks is None else int(self.env_ranks[b])
        generator = np.random if self.seed is None else rng(self.seed, "decorrelation", env_rank)
        return 1 + int(generator.random() * max_steps)


class ResumableCollector(DecorrelatingStartCollector):
    """Saves, restores and exchanges its environments between batches.

    An environment is running, or idle: its episode has ended, and `reset_if_needed` lets it continue.
    """

    _inputs: AgentInputs = None  # Those that `_bind` was given last.
    _itr = -1  # The newest batch.
    _idle: list[tuple[int, bool]] = []  # The idle environments, and whether their trajectory has ended as well.

    def _bind(self, agent_inputs: AgentInputs, traj_infos: list) -> None:
        """Look up the attributes of these environments, inputs and TrajInfos that the loop uses."""
        self._inputs, self._traj_infos = agent_inputs, traj_infos
        self._calls = calls_of(self.envs, self.env_ranks)
        self._all_running = list(enumerate(self._calls.steps))
        if isinstance(self._calls, VectorCalls):
            self._calls.waits = not self.mid_batch_reset
        self._running, self._idle = self._all_running, []

    # Checkpoints ----------------------------------------------------------------------------------------------------
    def state_dict(self, agent_inputs: AgentInputs, traj_infos: list) -> dict:
        """Return the state of environments and statistics between two batches, as plain data.

        It is None for an environment, or a TrajInfo, that cannot be written as such.
        """
        return dict(
            inputs=[to_plain(leaf) for leaf in buffer_leaves(agent_inputs)],
            envs=[None if b in self._replaced else get_state(env) for b, env in enumerate(self.envs)],
            traj_infos=[_plain_or_none(dict(info)) for info in traj_infos],
            standing=[(b, bool(is_over)) for b, is_over in self._idle],
            rng=rng_states(),
        )

    def load_state_dict(self, state: dict | None, agent_inputs: AgentInputs, traj_infos: list, itr: int) -> list[int]:
        """Continue from what `state_dict` returned after batch `itr`, changing inputs and TrajInfos of `start_envs` in place.

        Returns:
            The environments whose state is unknown (all, if `state` is None), or that cannot return to it. They begin a new episode, with
            other random numbers than at the start of the run.
        """
        nothing = [None] * len(self.envs)
        unknown: dict[str, Any] = dict(inputs=[], envs=nothing, traj_infos=nothing, standing=[], rng=None)
        state = unknown if state is None else state
        check_form(state, dict(inputs=list, envs=list, traj_infos=list, standing=[tuple], rng=object), "collector")
        for name, n in (("inputs", len(buffer_leaves(agent_inputs))), ("envs", len(self.envs)), ("traj_infos", len(self.envs))):
            if state is not unknown and len(state[name]) != n:
                raise ValueError(f"collector[{name!r}] has {len(state[name])} entries, and not {n}.")
        for i, (leaf, saved) in enumerate(zip(buffer_leaves(agent_inputs), state["inputs"])):
            array = from_plain(saved, f"collector['inputs'][{i}]")
            if not isinstance(array, np.ndarray) or (array.shape, array.dtype) != (leaf.shape, leaf.dtype):
                raise ValueError(f"collector['inputs'][{i}] is {shown(array)}, and not an array {list(leaf.shape)} of {leaf.dtype}.")
            leaf[...] = array
        for b, _ in state["standing"]:
            check_number(b, len(self.envs) - 1, "The number of an environment in collector['standing']")
        self._bind(agent_inputs, traj_infos)
        restarted = []
        for b, (env, env_state, info) in enumerate(zip(self.envs, state["envs"], state["traj_infos"], strict=True)):
            if env_state is not None and info is not None:
                traj_infos[b] = info_from_plain(info, self.TrajInfoCls, f"collector['traj_infos'][{b}]")
                if self._returns_to(b, env, env_state):
                    continue
            restarted.append(b)
        if restarted and isinstance(self._calls, VectorCalls):
            restarted = list(range(len(self.envs)))  # A vector is reset as a whole.
        self._restart(restarted, agent_inputs, traj_infos, itr, "when sampling was resumed")
        self._idle = [(b, is_over) for b, is_over in state["standing"] if b not in restarted]
        idle = [b for b, _ in self._idle]
        self._running = [running for running in self._all_running if running[0] not in idle]
        if state["rng"] is not None:
            set_rng_states(state["rng"], "collector['rng']")
        return restarted

    def _returns_to(self, b: int, env: Any, state: Any) -> bool:
        """Restore the state of environment `b`; return whether it can return to it."""
        try:
            set_state(env, state)
            return True
        except NotRestored:
            return False
        except Exception as error:
            calls_of(self.envs, self.env_ranks).explain(error, b, "in set_state, when sampling was resumed")
            raise

    # Other environments ---------------------------------------------------------------------------------------------
    def update_envs(self, updates: list, all_envs: list, agent_inputs: AgentInputs, traj_infos: list, itr: int) -> list[int]:
        """Change environments after batch `itr`; see `BaseSampler.update_envs`.

        Args:
            updates: one per environment, None for no change.
            all_envs: those that the sampler closes in the end. A new environment takes the place of the old one there. But if the sampler
                made the old one, and the update leaves it open (an ExistingEnvUpdate), both are there: nobody else closes the old one.
            agent_inputs, traj_infos: those that `start_envs` returned, changed in place.

        Returns:
            The changed environments, which begin a new episode.
        """
        from rlpyt.envs.env_update import ExistingEnvUpdate

        self.reset_if_needed(agent_inputs)
        columns = [b for b, update in enumerate(updates) if update is not None]
        for b in columns:
            old = self.envs[b]
            example = _Spaces(old)
            name = f"The new environment {b if self.env_ranks is None else int(self.env_ranks[b])}"
            position = next((i for i, env in enumerate(all_envs) if env is old), None)
            self.envs[b] = new = updated_env(old, updates[b])
            leaves_open = isinstance(updates[b], ExistingEnvUpdate) and new is not old
            if position is None or (leaves_open and b not in self._given):
                all_envs.append(new)
            else:
                all_envs[position] = new
            if new is not old:
                self._replaced = {*self._replaced, b}
                self._given = {*self._given, b} if leaves_open else {*self._given} - {b}
            check_same_form(new, example, name)
            slots = self.samples_np.final_observation
            if slots is not None and max_timeouts(new, self.batch_T) > len(buffer_leaves(slots)[0]):
                raise ValueError(
                    f"{name} may be truncated more often within a batch than any that the sampler was made with, and there is no "
                    "memory for its final observations: put one like it into the list EnvCls from the beginning."
                )
        self._bind(agent_inputs, traj_infos)
        self._restart(columns, agent_inputs, traj_infos, itr, f"after batch {itr}, when it was changed")
        return columns

    def reset_if_needed(self, agent_inputs: AgentInputs) -> None:
        """Let idle environments continue: reset those whose trajectory has ended."""
        if not self._idle:
            return
        observations = env_rows(agent_inputs.observation, len(self.envs))
        for b, is_over in self._idle:
            if is_over:
                self._calls.reset(b, observations[b], f"after batch {self._itr}")
        self._running, self._idle = self._all_running, []


class _Spaces:
    """Copies of an environment's spaces, kept after it is closed."""

    def __init__(self, env: Any) -> None:
        self.action_space, self.observation_space, self.spaces = env.action_space, env.observation_space, env.spaces


def updated_env(old: Any, update: Any) -> Any:
    """Return the environment that `update` makes of `old`, in the form that collectors step."""
    from rlpyt.envs.adapters import original
    from rlpyt.envs.env_update import apply_env_update

    inside = original(old)
    new = apply_env_update(inside, update)
    return old if new is inside else as_steppable(new)


def _plain_or_none(value: Any) -> Any:
    try:
        return to_plain(value)
    except NotPlain:
        return None
