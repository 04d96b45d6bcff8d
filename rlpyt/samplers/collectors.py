"""The one training loop and the one evaluation loop.

A collector steps the environments of one process. Environments write their observation straight into the next row of the batch, which
is at once the stored sample and the agent's next input; everything the loop touches is bound before it starts, so that per environment
step it makes no array, no namedarraytuple and no tensor.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from rlpyt.envs.base import as_flag, as_number, fast_reset, fast_step, for_envs, write_observation
from rlpyt.envs.state import get_state, set_state
from rlpyt.samplers.actors import BatchActor, EvalActor, EveryStep, RemoteActor
from rlpyt.samplers.base import as_steppable
from rlpyt.samplers.buffer import agent_example, build_step_buffer_np, check_same_form, max_timeouts
from rlpyt.samplers.episodes import episode_tracker, has_own_step
from rlpyt.samplers.workers import describe_failure
from rlpyt.spaces.gym_wrapper import fits_losslessly
from rlpyt.types import AgentInputs, Samples, StepBuffer, info_from_plain
from rlpyt.utils.buffer import buffer_func, buffer_leaves, element, first_not_finite, float_leaves
from rlpyt.utils.plain import NotPlain, check_form, check_number, from_plain, shown, to_plain
from rlpyt.utils.seed import env_seed, rng, rng_states, seed_env, set_rng_states


def env_rows(buffer_: Any, B: int) -> list:
    """Return the `B` rows of a structure ``[B,...]`` as writable structures of views, also where a row is a single number."""
    return [buffer_func(buffer_, lambda x, b=b: x[b, ...]) for b in range(B)]


def _clips_actions(collector: BaseCollector | BaseEvalCollector) -> bool:
    """Return whether the agent wants environments to get its actions clipped to their space."""
    return collector.clip_actions or getattr(collector.agent, "clip_actions", False)


def _at(buffer_: Any, loc: Any) -> Any:
    """Index a structure, or None."""
    return None if buffer_ is None else buffer_[loc]


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
    gpu: bool | None = None  # Whether an action server chooses the actions; the sampler's must be the same. None: for either.
    _replaced: frozenset | set = frozenset()  # Environments that are not those which this was made with.
    _given: frozenset | set = frozenset()  # Those that came by an ExistingEnvUpdate.
    clip_actions = False  # Whether an agent in another process wants its actions clipped; set by the sampler.
    seed: int | None = None  # Of the run, for decorrelation; set by the sampler. None draws from numpy's global state.
    progress: np.ndarray = np.zeros(1)  # [1], counts time steps as a sign of life; set by samplers that watch it.

    def __init__(
        self,
        rank: int,
        envs: list,
        samples_np: Samples,
        batch_T: int,
        TrajInfoCls: Any,
        agent: Any = None,
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
        self.agent = agent
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
        """Return, between two batches, where environments and statistics are, as plain data; None where that cannot be told."""
        return None

    def load_state_dict(self, state: dict | None, agent_inputs: AgentInputs, traj_infos: list, itr: int) -> list[int]:
        """Go on from what `state_dict` returned after batch `itr`, after `start_envs`; return the environments that begin a new episode.

        Those are all environments where the state is None.
        """
        return list(range(len(self.envs)))

    def update_envs(self, updates: list, all_envs: list, agent_inputs: AgentInputs, traj_infos: list, itr: int) -> list[int]:
        """Change environments after batch `itr`; NotImplementedError for a collector with a loop of its own."""
        raise NotImplementedError(
            f"{type(self).__name__} has its own loop, so its environments cannot be changed: derive it from CpuResetCollector, or from "
            "another collector of rlpyt, and extend collect_batch."
        )

    @classmethod
    def records_ends(cls) -> bool:
        """Return whether every batch surely holds the fields that tell how episodes end (see `as_recorded`): so it does with our loop."""
        return False


class _EnvCalls:
    """The environments of a collector, with their fast calls looked up once, and errors that say which environment they are from."""

    def __init__(self, envs: list, env_ranks: Any = None) -> None:
        self.envs = envs
        self.steps = [fast_step(env) for env in envs]
        self.resets = [fast_reset(env) for env in envs]
        self.env_ranks = list(range(len(envs))) if env_ranks is None else [int(rank) for rank in env_ranks]

    def reset(self, b: int, observation: Any, when: str) -> None:
        """Reset environment `b`, writing into `observation`."""
        try:
            self.resets[b](observation)
        except (Exception, SystemExit) as error:
            self.explain(error, b, f"in reset, {when}")
            raise

    def first_observation(self, b: int) -> Any:
        """Reset environment `b` and return its observation, where there is no memory for it yet."""
        try:
            return self.envs[b].reset()
        except (Exception, SystemExit) as error:
            self.explain(error, b, "in reset, at the start of an evaluation")
            raise

    def explain(self, error: Exception, b: int, where: str) -> None:
        """Attach to an error which environment it is from."""
        describe_failure(error, f"This was in environment {self.env_ranks[b]}, {where}.")


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
        traj_infos = [self.TrajInfoCls() for _ in range(B)]
        calls = _EnvCalls(self.envs, self.env_ranks)
        for b, (env, observation) in enumerate(zip(self.envs, env_rows(inputs.observation, B))):
            inputs.prev_action[b] = null_action
            calls.reset(b, observation, "at the start")
            for step in range(self._n_decorrelation_steps(b, max_decorrelation_steps)):
                action = env.action_space.sample()
                before = buffer_func(observation, np.copy)
                try:
                    reward, done, env_info = calls.steps[b](action, observation)
                    reward, done = _checked(reward, done)
                except (Exception, SystemExit) as error:
                    calls.explain(error, b, f"in step {step} of decorrelation")
                    raise
                traj_infos[b].step(before, action, reward, done, None, env_info)
                if getattr(env_info, "traj_done", done):
                    calls.reset(b, observation, f"after step {step} of decorrelation")
                    traj_infos[b] = self.TrajInfoCls()
                inputs.prev_action[b] = null_action if done else action
                inputs.prev_reward[b] = 0 if done else reward
        return inputs, traj_infos

    def load_state_dict(self, state: dict | None, agent_inputs: AgentInputs, traj_infos: list, itr: int) -> list[int]:
        """Begin a new episode in every environment, since `state_dict` tells nothing; return their numbers."""
        every = range(len(self.envs))
        if hasattr(agent_inputs, "observation"):  # An overridden `start_envs` may return something else.
            self._begin_anew(every, agent_inputs, traj_infos, itr, "when the run was resumed")
        return list(every)

    def _begin_anew(self, columns: Iterable[int], agent_inputs: AgentInputs, traj_infos: list, itr: int, when: str) -> None:
        """Begin new episodes in environments `columns` after batch `itr`, with other random numbers than when the run began."""
        calls, observations = _EnvCalls(self.envs, self.env_ranks), env_rows(agent_inputs.observation, len(self.envs))
        for b in columns:
            env = self.envs[b]
            if self.seed is not None:
                seed_env(env, env_seed(env_seed(self.seed, "algo", itr + 1), "train_env", calls.env_ranks[b]))
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


class _Spaces:
    """The spaces of an environment, which may be gone."""

    def __init__(self, env: Any) -> None:
        self.action_space, self.observation_space, self.spaces = env.action_space, env.observation_space, env.spaces


def updated_env(old: Any, update: Any) -> Any:
    """Return the environment to step from now on: what `update` makes of `old`, which may be one of another kind inside."""
    from rlpyt.envs.adapters import original
    from rlpyt.envs.env_update import apply_env_update

    inside = original(old)
    new = apply_env_update(inside, update)
    return old if new is inside else as_steppable(new)


# Which numpy dtypes a memoryview can hold: it takes numbers only, where an array would take "1.0", None as NaN, and cut off what follows
# the point; and it is faster.
_CELL_TYPES = frozenset("?bBhHiIlLqQfd")
_FLAGS = frozenset([bool, np.bool_])


def _checked(reward: Any, done: Any) -> tuple[Any, Any]:
    """Return a number and a flag: as they are, if they are such, or those of arrays with one element; TypeError for anything else."""
    is_number, is_flag = isinstance(reward, (float, int, np.floating, np.integer)), type(done) in _FLAGS
    return reward if is_number else as_number(reward), done if is_flag else as_flag(done)


def _cells(array: Any) -> Any:
    """Return what writes single numbers into an array ``[B]``; structures, and arrays of other dimensions or dtypes, as they are."""
    is_plain = isinstance(array, np.ndarray) and array.ndim == 1 and array.dtype.isnative and array.dtype.char in _CELL_TYPES
    return memoryview(array) if is_plain else array


def _fit(b: int, value: Any, column: Any, name: str) -> None:
    """Write `value` into a column of env_info where it fits although it was refused, as an array with one element fits for a number.

    Raises:
        ValueError: it does not; with the name of the field.
    """
    if isinstance(column, _Unused):
        column[b] = value
    elif isinstance(column, tuple):
        fields = getattr(value, "_fields", None)
        if fields != column._fields:
            got = type(value).__name__ if fields is None else f"fields {list(fields)}"
            raise ValueError(f"{name}: expected the fields {list(column._fields)} at every step, got {got}.")
        for field, part, part_column in zip(fields, tuple(value), tuple(column)):
            _fit(b, part, part_column, f"{name}.{field}")
    elif column is not None:
        try:
            array = np.asarray(value)
        except ValueError:  # Lists of different lengths.
            array = np.asarray(None)
        dtype, shape = column.dtype, column.shape[1:]
        if not (array.shape == shape or array.size == 1 and shape == ()) or not fits_losslessly(array, dtype):
            raise ValueError(f"{name}: expected dtype {dtype} and shape {shape}, as at the first step, got {value!r}.")
        column[b] = array.reshape(shape)


def _plain_or_none(value: Any) -> Any:
    try:
        return to_plain(value)
    except NotPlain:
        return None


class _Unused:
    """In place of the memory of an env_info field that is None: takes None, and nothing else."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __setitem__(self, b: int, value: Any) -> None:
        if value is not None:
            raise ValueError(f"env_info.{self.name}: expected None at every step, as at the first one, got {value!r}.")


class _Row:
    """Where the outcomes of step `t` go: views into the batch, made once.

    Attributes:
        next_observation: structure ``[B,...]``, row ``t + 1`` of the observations.
        observations: the same as one writable structure per environment.
        reward, done, timeout, traj_done: arrays ``[B]``; `traj_done` is what resets an environment.
        reward_cells, done_cells: what writes into the first two.
        columns: the fields of env_info, structures ``[B,...]``.
        column_cells: what writes into them.
        env_timeout: the field of that name, or None.
    """

    def __init__(self, batch: Samples, t: int, B: int) -> None:
        self.next_observation = batch.env.next_observation[t]
        self.observations = env_rows(self.next_observation, B)
        self.reward, self.done, self.timeout = batch.env.reward[t], batch.env.done[t], batch.env.timeout[t]
        self.reward_cells, self.done_cells = _cells(self.reward), _cells(self.done)
        env_info = _at(batch.env.env_info, t)
        columns = () if env_info is None else tuple(env_info)
        self.columns = tuple(_Unused(env_info._fields[i]) if column is None else column for i, column in enumerate(columns))
        self.column_cells = tuple(map(_cells, self.columns))
        self.env_timeout = getattr(env_info, "timeout", None)
        self.traj_done = getattr(env_info, "traj_done", self.done)


class _Views(NamedTuple):
    """What the training loop needs of one batch."""

    batch: Samples
    rows: list[_Row]
    first_observation: Any  # structure [1,B,...]
    actor: BatchActor | RemoteActor
    # Observations of floating point numbers, with their names: [1,B,...], [T,B,...], and two kinds of slots [K,B,...].
    first_floats: list[tuple[str, np.ndarray]]
    next_floats: list[tuple[str, np.ndarray]]
    final_floats: list[tuple[str, np.ndarray]]
    terminal_floats: list[tuple[str, np.ndarray]]


class TrainingCollector(DecorrelatingStartCollector):
    """The training loop.

    `samples_np` may be another batch each time, such as the other one of two; what is looked up in one is kept.

    An episode as the agent sees it ends with ``done``; the environment is reset, and its TrajInfo finished, with
    ``env_info.traj_done`` (with ``done`` where there is no such field).

    If `mid_batch_reset`, an environment is reset as soon as its trajectory ends. Otherwise it stands still after ``done`` until the batch
    is full: the rest of its column holds zeros, with ``done`` True. Between batches it is then reset; or, if its trajectory has not ended,
    it goes on from the observation it stood still at.

    Attributes:
        completed_at: for each completed TrajInfo of the last batch, when and where its episode ended: ``(t, environment)``.
    """

    gpu = False

    def _bind(self, agent_inputs: AgentInputs, traj_infos: list) -> None:
        """Look up everything the loop needs."""
        self._inputs, self._traj_infos = agent_inputs, traj_infos
        self._calls = _EnvCalls(self.envs, self.env_ranks)
        self._views: dict[int, _Views] = {}  # By the id of the batch.
        self._all_running = list(enumerate(self._calls.steps))
        self._running, self._standing = self._all_running, []
        self._tracker = episode_tracker(self.TrajInfoCls, traj_infos)
        self._env_info_type = None  # The last type of env_info seen that fits.

    def _look_up(self, batch: Samples) -> _Views:
        rows = [_Row(batch, t, len(self.envs)) for t in range(self.batch_T)]
        first, observations = batch.env.observation[0:1], batch.env.next_observation
        floats = [float_leaves(x, "observation") for x in (first, observations, batch.final_observation, batch.terminal_observation)]
        return _Views(batch, rows, first, self.make_actor(self._inputs), *floats)

    @classmethod
    def records_ends(cls) -> bool:
        """Return whether `collect_batch` is this class's own; one that extends it does, too, but cannot be told from one that does not."""
        return cls.collect_batch is TrainingCollector.collect_batch

    def make_actor(self, agent_inputs: AgentInputs) -> BatchActor | RemoteActor:
        """Return who chooses the actions: the agent in this process, or an action server."""
        space = self.envs[0].action_space
        if self.gpu:
            actor = RemoteActor(self.sync, [self.samples_np.agent.action[t] for t in range(self.batch_T)])
        else:
            inputs = agent_inputs.prev_action, agent_inputs.prev_reward
            actor = BatchActor(self.agent, self.samples_np, *inputs, space.null_value(), self.mid_batch_reset)
            actor.first_env = self._calls.env_ranks[0]
        actor.for_envs = for_envs(space, _clips_actions(self))
        return actor

    def collect_batch(self, agent_inputs: AgentInputs, traj_infos: list, itr: int) -> tuple[AgentInputs, list, list]:
        """Fill the batch with `batch_T` steps of every environment.

        `agent_inputs` and `traj_infos` are those that `start_envs` returned; they are kept up to date in place.
        """
        if getattr(self, "_inputs", None) is not agent_inputs or self._traj_infos is not traj_infos:
            self._bind(agent_inputs, traj_infos)
        views = self._views.get(id(self.samples_np)) or self._views.setdefault(id(self.samples_np), self._look_up(self.samples_np))
        actor, completed = views.actor, []
        self._start_batch(itr, views)
        actor.request(0)
        for t, row in enumerate(views.rows):
            action = actor.receive(t)
            self.progress[0] += 1  # Odd: inside the environments.
            outcomes, ended = self._step_envs(t, row, action)
            self._tracker.step(t, self.samples_np, outcomes)
            if ended:
                self._end_episodes(t, row, ended, completed)
            self.progress[0] += 1
            actor.request(t + 1)
        actor.finish()
        self._keep_last_observations(row)
        self._check_rewards()
        self._check_timeouts(row)
        self.check_observations()
        self._tracker.end_batch(self.samples_np)
        return agent_inputs, traj_infos, completed

    # Checkpoints ----------------------------------------------------------------------------------------------------
    def state_dict(self, agent_inputs: AgentInputs, traj_infos: list) -> dict:
        """Return, between two batches, where environments and statistics are, as plain data.

        An environment, or a TrajInfo, that cannot be written as such is None.
        """
        return dict(
            inputs=[to_plain(leaf) for leaf in buffer_leaves(agent_inputs)],
            envs=[None if b in self._replaced else get_state(env) for b, env in enumerate(self.envs)],
            traj_infos=[_plain_or_none(dict(info)) for info in traj_infos],
            standing=[(b, bool(is_over)) for b, is_over in getattr(self, "_standing", ())],
            rng=rng_states(),
        )

    def load_state_dict(self, state: dict | None, agent_inputs: AgentInputs, traj_infos: list, itr: int) -> list[int]:
        """Go on from what `state_dict` returned after batch `itr`, changing the inputs and TrajInfos that `start_envs` returned in place.

        Returns:
            The environments whose state is not known (all, if `state` is None), which begin a new episode, with other random numbers than
            when the run began.
        """
        nothing = [None] * len(self.envs)
        unknown = dict(inputs=[], envs=nothing, traj_infos=nothing, standing=[], rng=None)
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
        begun_anew = []
        for b, (env, env_state, info) in enumerate(zip(self.envs, state["envs"], state["traj_infos"], strict=True)):
            if env_state is None or info is None:
                begun_anew.append(b)
            else:
                traj_infos[b] = info_from_plain(info, self.TrajInfoCls, f"collector['traj_infos'][{b}]")
                self._set_env_state(b, env, env_state)
        self._begin_anew(begun_anew, agent_inputs, traj_infos, itr, "when the run was resumed")
        self._standing = [(b, is_over) for b, is_over in state["standing"] if b not in begun_anew]
        standing = [b for b, _ in self._standing]
        self._running = [running for running in self._all_running if running[0] not in standing]
        if state["rng"] is not None:
            set_rng_states(state["rng"], "collector['rng']")
        return begun_anew

    def _set_env_state(self, b: int, env: Any, state: Any) -> None:
        try:
            set_state(env, state)
        except Exception as error:
            _EnvCalls(self.envs, self.env_ranks).explain(error, b, "in set_state, when the run was resumed")
            raise

    # Other environments ---------------------------------------------------------------------------------------------
    def update_envs(self, updates: list, all_envs: list, agent_inputs: AgentInputs, traj_infos: list, itr: int) -> list[int]:
        """Change environments after batch `itr`; see `BaseSampler.update_envs`.

        Args:
            updates: one per environment, None for no change.
            all_envs: those to be closed at the end, where each new environment takes the place of the old one. One that was made here, and
                that the update leaves open, stays.
            agent_inputs, traj_infos: those that `start_envs` returned, changed in place.

        Returns:
            The environments that were changed, which begin a new episode.
        """
        from rlpyt.envs.env_update import ExistingEnvUpdate

        self.reset_if_needed(agent_inputs)
        columns = [b for b, update in enumerate(updates) if update is not None]
        for b in columns:
            old = self.envs[b]
            example = _Spaces(old)
            name = f"The new environment {b if self.env_ranks is None else int(self.env_ranks[b])}"
            position = next((i for i, env in enumerate(all_envs) if env is old), None)
            new = updated_env(old, updates[b])
            was_given, is_given = b in self._given, isinstance(updates[b], ExistingEnvUpdate)
            if new is not old:
                self._replaced = {*self._replaced, b}
                self._given = {*self._given, b} if is_given else {*self._given} - {b}
            self.envs[b] = new
            if position is None or (new is not old and is_given and not was_given):
                all_envs.append(new)  # The old one stays, too: it is still open, and nobody else can close it.
            else:
                all_envs[position] = new
            check_same_form(new, example, name)
            slots = self.samples_np.final_observation
            if slots is not None and max_timeouts(new, self.batch_T) > len(buffer_leaves(slots)[0]):
                raise ValueError(
                    f"{name} may be truncated more often within a batch than any that the sampler was made with, for whose final "
                    "observations there is memory: have one like it in the list EnvCls from the beginning."
                )
        self._bind(agent_inputs, traj_infos)
        self._begin_anew(columns, agent_inputs, traj_infos, itr, f"after batch {itr}, when it was changed")
        return columns

    def reset_if_needed(self, agent_inputs: AgentInputs) -> None:
        """Let the environments that stand still go on: reset those whose trajectory has ended."""
        if not getattr(self, "_standing", None):
            return
        observations = env_rows(agent_inputs.observation, len(self.envs))
        for b, is_over in self._standing:
            if is_over:
                self._calls.reset(b, observations[b], f"after batch {self._itr}")
        self._running, self._standing = self._all_running, []

    def _start_batch(self, itr: int, views: _Views) -> None:
        """Put the first inputs in place and clear what is written only now and then."""
        self._itr, self.completed_at = itr, []
        self._n_timeouts, self._n_terminals = [0] * len(self.envs), [0] * len(self.envs)
        views.first_observation[0] = self._inputs.observation
        self.samples_np.env.timeout[...] = False
        self.samples_np.env.ends_recorded[...] = True
        views.actor.begin(itr)

    def _step_envs(self, t: int, row: _Row, action: Any) -> tuple[list, list[int]]:
        """Step the running environments, writing what they return into `row`.

        Returns:
            The outcomes ``(b, reward, done, env_info)``, and the environments whose episode or trajectory ended.
        """
        observations, rewards, dones, columns = row.observations, row.reward_cells, row.done_cells, row.column_cells
        outcomes: list = []
        ended: list[int] = []
        b, has_traj_done = 0, row.traj_done is not row.done
        try:
            for b, step_env in self._running:
                reward, done, env_info = step_env(action[b], observations[b])
                if type(done) not in _FLAGS:
                    done = as_flag(done)
                try:
                    rewards[b] = reward
                except (TypeError, ValueError):
                    rewards[b] = reward = as_number(reward)
                dones[b] = done
                if columns:
                    if type(env_info) is not self._env_info_type:
                        self._check_env_info(env_info)
                    try:
                        for column, value in zip(columns, env_info):
                            column[b] = value
                    except (TypeError, ValueError, OverflowError):
                        for column, value, name in zip(row.columns, env_info, env_info._fields):
                            _fit(b, value, column, f"env_info.{name}")
                if done or (has_traj_done and env_info.traj_done):
                    ended.append(b)
                outcomes.append((b, reward, done, env_info))
        except (Exception, SystemExit) as error:
            self._calls.explain(error, b, self._when(t))
            raise
        return outcomes, ended

    def _check_env_info(self, env_info: Any) -> None:
        """Accept another type of env_info only if it has the fields there is memory for."""
        expected, got = self.samples_np.env.env_info._fields, getattr(env_info, "_fields", None)
        if got != expected:
            got = type(env_info).__name__ if got is None else f"fields {list(got)}"
            raise ValueError(f"env_info: expected the fields {list(expected)} at every step, got {got}.")
        for name in {"timeout", "traj_done"}.intersection(got):
            as_flag(getattr(env_info, name), f"env_info.{name}")
        self._env_info_type = type(env_info)

    def _check_rewards(self) -> None:
        """Raise, naming environment and step, if a reward of this batch is not a finite number."""
        reward = self.samples_np.env.reward
        where = first_not_finite(reward)
        if where is not None:
            t, b = where
            self._refuse(b, self._when(t), f"reward: expected a finite number, got {reward[t, b]}.")

    def _check_timeouts(self, row: _Row) -> None:
        """Raise, naming environment and step, if env_info says of a step that time ran out, but not that the episode ended."""
        if row.env_timeout is None:
            return
        env = self.samples_np.env
        wrong = env.env_info.timeout > env.done
        if wrong.any():
            t, b = np.argwhere(wrong)[0]
            self._refuse(b, self._when(t), "env_info.timeout: expected False where done is False, got True: a timeout ends the episode.")

    def check_observations(self) -> None:
        """Raise ValueError, naming field, environment and step, if an observation of this batch is NaN or infinite.

        It costs a pass over those of floating point numbers, and nothing for others. A collector for environments in which such values mean
        something, and agents that know what, overrides it.
        """
        views, env = self._views[id(self.samples_np)], self.samples_np.env
        for name, observation in views.first_floats:
            where = first_not_finite(observation)
            if where is not None:
                self._refuse_observation(name, observation, where, f"before {self._when(0)}")
        for name, observation in views.next_floats:
            where = first_not_finite(observation)
            if where is not None:
                t, b = where[:2]
                when = "after a reset" if env.done[t, b] else "observed"
                self._refuse_observation(name, observation, where, f"{when} at the end of {self._when(t)}")
        for floats, counts in ((views.final_floats, self._n_timeouts), (views.terminal_floats, self._n_terminals)):
            for name, observation in floats if any(counts) else ():
                where = first_not_finite(observation[: max(counts)])
                if where is not None:
                    self._refuse_observation(name, observation, where, f"at the end of an episode, in batch {self._itr}")

    def _refuse_observation(self, name: str, observation: np.ndarray, where: tuple[int, ...], when: str) -> None:
        text = f"{element(name, where[2:])}: expected a finite number, got {observation[where]}."
        self._refuse(where[1], when, text)

    def _refuse(self, b: int, when: str, text: str) -> None:
        error = ValueError(text)
        self._calls.explain(error, b, when)
        raise error

    def _end_episodes(self, t: int, row: _Row, ended: list[int], completed: list) -> None:
        """Keep what truncated episodes end with, finish TrajInfos, reset environments or let them stand still."""
        for b in ended:
            done, is_over = row.done[b], row.traj_done[b]
            if row.env_timeout is not None and row.env_timeout[b] and done:
                row.timeout[b] = True
                self._keep_observation(b, row, self.samples_np.final_observation, self._n_timeouts)
            else:
                self._keep_observation(b, row, self.samples_np.terminal_observation, self._n_terminals)
            if is_over:
                completed.append(self._tracker.finish(b, t, self.samples_np, buffer_func(row.observations[b], np.copy)))
                self.completed_at.append((t, self._calls.env_ranks[b]))
            if done and not self.mid_batch_reset:
                self._stand_still(b, t, is_over)
            elif is_over:
                self._calls.reset(b, row.observations[b], f"after {self._when(t)}")

    def _keep_observation(self, b: int, row: _Row, slots: Any, counts: list[int]) -> None:
        """Copy what an episode of environment `b` ended with to its next slot, of which `counts` are used, where there are slots."""
        if slots is not None:
            slots[counts[b], b] = row.next_observation[b]
        counts[b] += 1

    def _stand_still(self, b: int, t: int, is_over: bool) -> None:
        """Do not step environment `b` after step `t` of this batch, and fill the rest of its column."""
        env = self.samples_np.env
        self._standing.append((b, is_over))
        self._running = [running for running in self._running if running[0] != b]
        self._tracker.stand_still(b, t, self.samples_np)
        self._inputs.observation[b] = env.next_observation[t, b]
        env.next_observation[t:, b] = 0
        env.reward[t + 1 :, b] = 0
        env.done[t + 1 :, b] = True
        if env.env_info is not None:
            env.env_info[t + 1 :, b] = 0

    def _keep_last_observations(self, row: _Row) -> None:
        """Keep what the running environments go on from in the next batch."""
        if not self._standing:
            self._inputs.observation[...] = row.next_observation
        for b, _ in self._running if self._standing else ():
            self._inputs.observation[b] = row.next_observation[b]

    def _when(self, t: int) -> str:
        return f"step {t} of batch {self._itr} (environment step {self._itr * self.batch_T + t})"


# ---------------------------------------------------------------------------------------------------------------------
# Evaluation
# ---------------------------------------------------------------------------------------------------------------------
class BaseEvalCollector:
    """Steps environments to measure the agent; records no samples.

    Args:
        rank: number of the worker process.
        envs: environments to evaluate in.
        TrajInfoCls: makes the statistics of an episode.
        traj_infos_queue: has a method ``put`` that takes each completed TrajInfo.
        max_T: steps per environment at the most.
        agent: chooses the actions, if that happens in this process.
        sync: signals shared with other processes, where there are any.
        step_buffer_np: memory shared with an action server, where there is one.
    """

    gpu: bool | None = None  # Whether an action server chooses the actions; the sampler's must be the same. None: for either.
    progress: np.ndarray = np.zeros(1)  # [1], counts time steps as a sign of life; set by samplers that watch it.
    stop: np.ndarray = np.zeros(1, bool)  # [1], set by the sampler to end an evaluation early.
    examples: dict = {}  # Of what the agent returns, where it is in this process; set by the sampler, or made by the first evaluation.
    max_episodes: list | None = None  # Per environment, set by the sampler; None: as many as fit into max_T steps.
    clip_actions = False  # Whether an agent in another process wants its actions clipped; set by the sampler.
    env_ranks: Any = None  # Numbers of these environments among all evaluation environments, for messages.

    def __init__(
        self,
        rank: int,
        envs: list,
        TrajInfoCls: Any,
        traj_infos_queue: Any,
        max_T: int,
        agent: Any = None,
        sync: Any = None,
        step_buffer_np: Any = None,
    ) -> None:
        self.rank = rank
        self.envs = envs
        self.TrajInfoCls = TrajInfoCls
        self.traj_infos_queue = traj_infos_queue
        self.max_T = max_T
        self.agent = agent
        self.sync = sync
        self.step_buffer_np = step_buffer_np

    def collect_evaluation(self, itr: int) -> None:
        """Play episodes, handing over the TrajInfo of each one completed."""
        raise NotImplementedError


class EvalCollector(BaseEvalCollector):
    """The evaluation loop: fresh episodes in all environments, at most `max_T` steps each, only complete ones count."""

    gpu = False

    def collect_evaluation(self, itr: int) -> None:
        """Play episodes, handing over the TrajInfo of each one completed.

        An environment that has played its `max_episodes` stands still while the others finish theirs: every episode that was begun
        counts, so that short ones are not preferred.
        """
        if not self.envs:
            return
        B = len(self.envs)
        calls, buffer_, rows = self._start(B, itr)
        actor = self._make_actor(buffer_)
        traj_infos = [self.TrajInfoCls() for _ in range(B)]
        remaining = list(self.max_episodes or [self.max_T] * B)
        actor.begin(itr)
        for t in range(self.max_T):
            running = [b for b in range(B) if remaining[b] > 0]
            if not running or self.stop[0]:
                break
            before = buffer_func(buffer_.observation, np.copy)
            actor.request(t)
            action = actor.receive(t)
            recorded, agent_info = (buffer_func(x, np.copy) for x in (buffer_.action, buffer_.agent_info))
            self.progress[0] += 1  # Odd: inside the environments.
            for b in running:
                try:
                    reward, done, env_info = calls.steps[b](action[b], rows[b])
                    reward, done = _checked(reward, done)
                except (Exception, SystemExit) as error:
                    calls.explain(error, b, f"step {t} of the evaluation at iteration {itr}")
                    raise
                buffer_.reward[b], buffer_.done[b] = reward, done
                traj_infos[b].step(before[b], recorded[b], reward, done, _at(agent_info, b), env_info)
                if getattr(env_info, "traj_done", done):
                    self.traj_infos_queue.put(traj_infos[b].terminate(buffer_func(rows[b], np.copy)))
                    traj_infos[b] = self.TrajInfoCls()
                    remaining[b] -= 1
                    if remaining[b] > 0:
                        calls.reset(b, rows[b], f"after step {t} of the evaluation at iteration {itr}")
            self.progress[0] += 1
        actor.leave()

    def _agent_examples(self, observation: Any, itr: int) -> dict:
        """Return examples of what the agent returns, which steps for that as it does in evaluations."""
        self.agent.eval_mode(itr)  # First, so that the state with which it samples is put aside.
        null_action = self.envs[0].action_space.null_value()
        return dict(zip(("action", "agent_info"), agent_example(self.agent, observation, null_action, np.float32(0))))

    def _start(self, B: int, itr: int) -> tuple[_EnvCalls, StepBuffer, list]:
        """Reset all environments; return their calls, the step buffer, and its observations as one structure per environment."""
        calls = _EnvCalls(self.envs, self.env_ranks)
        observations = [buffer_func(calls.first_observation(b), np.array) for b in range(B)]
        buffer_ = self.step_buffer_np
        if buffer_ is None:
            if "action" not in self.examples:
                self.examples = self._agent_examples(observations[0], itr)
            agent_info = self.examples["agent_info"] if has_own_step(self.TrajInfoCls) else None
            examples = dict(observation=observations[0], action=self.examples["action"], agent_info=agent_info)
            buffer_ = build_step_buffer_np(examples, B, share_memory=False)
        rows = env_rows(buffer_.observation, B)
        for row, observation in zip(rows, observations):
            write_observation(observation, row)
        return calls, buffer_, rows

    def _make_actor(self, buffer_: StepBuffer) -> EvalActor | RemoteActor:
        """Return who chooses the actions: the agent in this process, or an action server."""
        space = self.envs[0].action_space
        if self.gpu:
            actor = RemoteActor(self.sync, EveryStep(buffer_.action))
        else:
            actor = EvalActor(self.agent, buffer_, space.null_value())
            actor.first_env = 0 if self.env_ranks is None else int(self.env_ranks[0])
        actor.for_envs = for_envs(space, _clips_actions(self))
        return actor


class TrajInfoList(list):
    """A list of TrajInfos that an evaluation collector can put into like into a queue."""

    put = list.append


def episodes_per_env(max_trajectories: int | None, n_envs: int) -> list[int] | None:
    """Share `max_trajectories` episodes out among `n_envs` environments; None for no limit."""
    if max_trajectories is None:
        return None
    each, more = divmod(int(max_trajectories), n_envs)
    return [each + (i < more) for i in range(n_envs)]
