"""Workers play episodes, in the process of the sampler or in another one.

`DefaultWorker` plays in one environment. `VecWorker` plays in several at once, with one call of the policy for all of them.
`FragmentWorker` takes a fixed number of steps in each of several environments. All share one loop; subclasses override its hooks::

    def rollout(self):
        self.start_episode()
        while not self.step_episode():
            pass
        return self.collect_episode()
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from rlpyt.envs.adapters import InPlaceEnvironment, as_in_place, from_dict
from rlpyt.envs.base import NotRestored, close_env, flag_in
from rlpyt.envs.env_update import apply_env_update, copied_update
from rlpyt.envs.specs import EnvSpec, checked_action, form_of
from rlpyt.envs.state import get_state, set_state
from rlpyt.episodes.batch import EpisodeBatch
from rlpyt.episodes.segments import Episodes
from rlpyt.samplers.collectors import episodes_per_env
from rlpyt.samplers.episodic.policies import OptionalMethods
from rlpyt.samplers.episodic.recorder import TERMINAL, TIMEOUT, Recorder
from rlpyt.samplers.stepping import EnvCalls, Outcome
from rlpyt.utils.collections import is_namedtuple
from rlpyt.utils.plain import NotPlain, from_plain, to_plain
from rlpyt.utils.seed import RandomState, seed_env
from rlpyt.utils.settings import COUNT, SEED, STEPS, Number, checked, complete_signature
from rlpyt.utils.structures import as_array, as_dictionaries, from_objects, info_as_dictionaries, map_structure, tree_map

DEFAULT_N_ENVS = 8


class Worker:
    """The interface of workers to samplers. Extend `DefaultWorker`, or this class for an entirely different loop.

    Args:
        seed: seed of the run. Every worker, and each of its environments, draws from a separate stream of random numbers. With None the
            run cannot be repeated.
        max_episode_length: steps after which an episode is truncated, if the environment has not ended it (env steps; may be infinite).
        worker_number: number of this worker within its sampler.

    Attributes:
        progress: ``[1]``, counts half-steps as a sign of life; odd inside the environments. The array is set by samplers that watch it.
        episodes_go_on: class attribute: whether an episode may be in progress between two calls of an `unbiased` sampler.
    """

    episodes_go_on = False

    @checked(seed=SEED, max_episode_length=Number(1), worker_number=STEPS)
    def __init__(self, *, seed: int | None, max_episode_length: float, worker_number: int) -> None:
        self._seed = seed
        self._max_episode_length = max_episode_length
        self._worker_number = worker_number
        self.progress: np.ndarray = np.zeros(1, np.int64)
        self._seeds = np.random.SeedSequence(seed, spawn_key=(worker_number,))
        self._random_state = RandomState(self._seeds.spawn(1)[0])

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        complete_signature(cls)

    def update_agent(self, agent_update: Any) -> None:
        """Change the policy."""

    def update_env(self, env_update: Any) -> None:
        """Change the environment or environments."""

    def rollout(self) -> EpisodeBatch:
        """Play at least one episode; return all episodes that ended or were truncated."""
        raise NotImplementedError(f"{type(self).__name__} does not define rollout().")

    def start_episode(self) -> None:
        """Begin an episode."""

    def step_episode(self) -> bool:
        """Take a time step; return whether an episode ended or was truncated."""
        raise NotImplementedError(f"{type(self).__name__} does not define step_episode().")

    def collect_episode(self) -> EpisodeBatch:
        """Return the steps since the last call."""
        raise NotImplementedError(f"{type(self).__name__} does not define collect_episode().")

    def shutdown(self) -> None:
        """Close the environments."""

    # What samplers call ---------------------------------------------------------------------------------------------
    def play_steps(self, num_samples: int, unbiased: bool = True) -> Episodes:
        """Roll out until there are `num_samples` steps, and at least once.

        Args:
            unbiased: also finish every episode in progress. Otherwise short episodes are returned too often, while long ones are still
                in progress.
        """
        with self._playing():
            played = self._play()
            while played.n_steps < num_samples:
                played.extend(self._play())
            if unbiased:
                played.extend(self._finish())
            return played

    def play_episodes(self, n: int) -> Episodes:
        """Roll out until there are `n` episodes, and return the first `n`."""
        with self._playing():
            played = Episodes()
            while len(played.episodes) < n:
                played.extend(self._play())
            return played.first(n)

    @contextmanager
    def _playing(self) -> Iterator[None]:
        """Use this worker's random numbers in the block. On any exception, such as an interrupt, drop the episodes in progress."""
        try:
            with self._random_state:
                yield
        except BaseException:
            self._abandon()
            raise

    def _abandon(self) -> None:
        """Drop the episodes in progress."""

    def _play(self) -> Episodes:
        """Roll out; return the episodes as segments."""
        return Episodes.of_batch(self.rollout())

    def _finish(self) -> Episodes:
        """Finish the episodes in progress without starting others."""
        return Episodes()

    # Checkpoints ----------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict:
        """Return this worker's state between two calls of a sampler: plain data and arrays.

        A subclass with more state than random numbers and environments extends this method and `load_state_dict`.
        """
        seeds = self._seeds.entropy, self._seeds.n_children_spawned
        return dict(seeds=seeds, random=self._random_state.state_dict())

    def load_state_dict(self, state: dict) -> int:
        """Restore the result of `state_dict`; return how many environments begin a new episode instead."""
        entropy, n_spawned = state["seeds"]
        self._seeds = np.random.SeedSequence(entropy, spawn_key=(self._worker_number,), n_children_spawned=n_spawned)
        self._random_state.load_state_dict(state["random"])
        return 0

    def __getstate__(self) -> dict:
        raise ValueError("Workers hold environments and are not picklable: pickle the WorkerFactory that makes them.")


class DefaultWorker(Worker):
    """Plays in one environment.

    The policy has ``get_action(observation)``, which returns an action and a dictionary, and ``reset()``. `rlpyt.agents.policy.AgentPolicy`
    turns an agent of rlpyt into a policy.

    Attributes:
        agent: the policy.
        env: the environment.
    """

    _n_envs = 1
    _acts_by = "get_action"  # Method of the policy.
    _calls: EnvCalls  # As soon as all environments are there.

    @checked()
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.agent: Any = None
        self._optional_methods = OptionalMethods(None)
        self._envs: list = [None] * self._n_envs
        self._in_place: list = [None] * self._n_envs  # The environments, in the form in which they are stepped.
        self._recorder = Recorder(self._n_envs)
        self._columns: Sequence[int] = range(self._n_envs)  # the columns to play in now
        self._needs_reset = [True] * self._n_envs
        self._is_given = [False] * self._n_envs  # Whether an update has brought an environment; the first one is the constructor's.
        self._is_replaced = [False] * self._n_envs  # Whether a later update has put another one in its place.
        self._is_new = True  # The environment or policy is new; observations and infos may have another form.
        self.worker_init()

    def worker_init(self) -> None:
        """Prepare the worker. The constructor calls this hook last, after seeding the random numbers; a subclass extends it."""

    @property
    def env(self) -> Any:
        """The (first) environment. A worker that overrides `update_env` may assign it."""
        return self._envs[0]

    @env.setter
    def env(self, env: Any) -> None:
        self._set_env(0, env)

    @property
    def _lacks_envs(self) -> bool:
        return any(env is None for env in self._in_place)

    @property
    def _optional(self) -> OptionalMethods:
        """The optional methods of `agent`, which subclasses and samplers may assign."""
        if self._optional_methods.policy is not self.agent:
            self._optional_methods = OptionalMethods(self.agent)
        return self._optional_methods

    # Updates --------------------------------------------------------------------------------------------------------
    def update_agent(self, agent_update: Any) -> None:
        """Change the policy.

        Args:
            agent_update: parameters in the form of the policy's ``get_param_values()`` (a dictionary, tuple or array); another policy; or
                an agent of rlpyt. None changes nothing.

        Raises:
            TypeError: the update is no policy, or the current policy does not accept parameters.
        """
        if agent_update is None:
            return
        if is_parameters(agent_update):
            check_has(self.agent, ["set_param_values"], f"an update of worker {self._worker_number} by parameters")
            self.agent.set_param_values(agent_update)
            return
        policy = as_policy(agent_update)
        if not self._overrides("start_episode", "step_episode"):
            check_has(policy, [self._acts_by, "reset"], f"a policy of a {type(self).__name__}")
        self.agent, self._is_new = policy, True

    def update_env(self, env_update: Any) -> None:
        """Change the environment; an episode in progress is dropped.

        Args:
            env_update: an `EnvUpdate`; an environment, which replaces the old one (the old one is closed); or a function that makes one.
                None changes nothing.

        Raises:
            TypeError: `env_update` is something else.
        """
        self._update_env(0, env_update)

    def _update_env(self, b: int, env_update: Any) -> None:
        if env_update is None:
            return
        with self._random_state:
            env = apply_env_update(self._envs[b], env_update)
        if env is not self._envs[b]:
            self._is_replaced[b] = self._is_given[b]
            self._is_given[b] = True
        self._set_env(b, env)

    def _set_env(self, b: int, env: Any) -> None:
        self._drop(b)
        if env is not self._envs[b]:
            self._envs[b], self._in_place[b], self._is_new = env, as_in_place(env), True
            if isinstance(self._in_place[b], InPlaceEnvironment):
                self._in_place[b].widened = partial(self._recorder.widen, b)
            if not self._lacks_envs:
                self._calls = EnvCalls(self._in_place, of=f" of worker {self._worker_number}")
            # Not `env`: an environment of gymnasium is seeded through its wrapper.
            seed_env(_inside(self._in_place[b]), int(self._seeds.spawn(1)[0].generate_state(1)[0]))
        if b == 0:
            self._recorder.env_spec = EnvSpec.from_env(_inside(self._in_place[0]))

    # The hooks ------------------------------------------------------------------------------------------------------
    def rollout(self) -> EpisodeBatch:
        """Play until an episode ends (a `FragmentWorker`: `timesteps_per_call` steps); return the result of `collect_episode`."""
        with self._random_state:
            self._run()
            return self.collect_episode()

    def start_episode(self) -> None:
        """Start a new episode. If one is in progress, `collect_episode` will also return its steps so far."""
        if self._recorder.running:
            self._recorder.cut(0)
            self._drop(0)
        self._begin([0])

    def step_episode(self) -> bool:
        """Take one time step in each environment with an episode in progress.

        Returns:
            Whether at least one episode has ended.

        Raises:
            RuntimeError: no episode is in progress.
        """
        recorder = self._recorder
        running = [b for b in recorder.running if b in self._columns]
        if not running:
            raise RuntimeError("No episode is in progress: call start_episode() before step_episode().")
        actions, agent_infos = self._act(recorder.observation)
        recorder.act(actions, agent_infos)
        actions = self._optional.for_envs(actions)
        actions = actions.copy() if isinstance(actions, np.ndarray) else actions  # Environments may change their actions.
        n_open = len(recorder.open)
        self.progress[0] += 1
        try:
            self._calls.step([(b, self._calls.steps[b]) for b in running], actions, recorder.row, self._when, self._record)
        except BaseException:
            self._abandon()
            raise
        self.progress[0] += 1
        self._optional.take_rewards(recorder.chunk.reward[recorder.t])
        recorder.advance(running)
        return len(recorder.open) < n_open

    def collect_episode(self) -> EpisodeBatch:
        """Return the episodes that ended since the last call.

        If none ended, a `DefaultWorker` returns the steps so far of the episode in progress. A `FragmentWorker` always adds these steps.

        Raises:
            RuntimeError: no step was taken since the last call, or no episode of a `VecWorker` ended.
        """
        return self._take().to_batch()

    def shutdown(self) -> None:
        """Close the environments."""
        envs, self._envs = self._envs, [None] * self._n_envs
        for env in envs:
            close_env(env)

    # Checkpoints ----------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict:
        """Add the environments, and their positions in their episodes, to the state.

        An episode in progress can be resumed from it, except if some of its steps have not been returned yet. An environment that an update
        has put in the place of another one has no state, because a worker that resumes does not have it.
        """
        has_state = [env is not None and not replaced for env, replaced in zip(self._in_place, self._is_replaced)]
        envs = [get_state(_inside(env)) if has else None for env, has in zip(self._in_place, has_state)]
        columns = [self._column_state(b) for b in range(self._n_envs)]
        is_in_progress = any(column is not None and column["length"] is not None for column in columns)
        policy = self._optional.sampling_state() if is_in_progress else None
        goes_on = [b in self._recorder.open or not self._needs_reset[b] for b in range(self._n_envs)]
        left_out = [b for b, column in enumerate(columns) if column is None and goes_on[b]]
        are_replaced = any(self._is_replaced)
        return dict(super().state_dict(), envs=envs, columns=columns, left_out=left_out, policy=policy, are_replaced=are_replaced)

    def _column_state(self, b: int) -> dict | None:
        """Return, as plain data, the position in the episode of column `b`, or the start of the next one if without a reset; else None."""
        recorder, open_ = self._recorder, self._recorder.open.get(b)
        if self._needs_reset[b] if open_ is None else not recorder.is_cut(b):
            return None
        observation = recorder.last[b] if open_ is None else recorder.inputs[b]
        length, info = (None, {}) if open_ is None else (open_.length, open_.episode_info)
        observation = map_structure(lambda x: from_objects(np.array(x)), observation)
        observation = as_dictionaries(observation) if hasattr(observation, "_fields") else observation
        try:
            return dict(observation=to_plain(observation), length=length, episode_info=to_plain(info))
        except NotPlain:
            return None

    def load_state_dict(self, state: dict) -> int:
        """Also restore the environments. Episodes in progress are dropped, and those of `state` are resumed."""
        super().load_state_dict(state)
        self._abandon()
        self._recorder.has_memory = False
        lost = set(state["left_out"])
        for b, (env, env_state, column) in enumerate(zip(self._in_place, state["envs"], state["columns"], strict=True)):
            if env is None or env_state is None:
                lost.add(b)
                continue
            try:
                set_state(_inside(env), env_state)
            except NotRestored:
                lost.add(b)
                continue
            if column is not None:
                self._set_column_state(b, column)
        if state["policy"] is not None and self._recorder.running:
            self._optional.prepare(self.env)
            self._optional.set_sampling_state(state["policy"])
        return len(lost)

    def _set_column_state(self, b: int, column: dict) -> None:
        recorder = self._recorder
        space = _inside(self._in_place[b]).observation_space
        observation = from_dict(from_plain(column["observation"]), space.null_value() if hasattr(space, "null_value") else None)
        if column["length"] is None:
            recorder.last[b], self._needs_reset[b] = observation, False
            return
        if not recorder.has_memory:
            self._allocate(b, observation)
            self._is_new = False
        recorder.resume(b, observation, column["length"], from_plain(column["episode_info"]))

    # Parts of the hooks -------------------------------------------------------------------------------------
    def _act(self, observation: Any) -> tuple[Any, Any]:
        """Return actions and agent_infos for observations ``[B,...]``."""
        result = self.agent.get_action(map_structure(lambda x: x[0], observation))
        if type(result) is not tuple or len(result) != 2 or type(result[1]) is not dict:
            checked_action(result, self.agent, "get_action")
        action, agent_info = result
        return [action] if isinstance(action, (dict, tuple)) else np.asarray(action)[None], tree_map(
            lambda x: as_array("agent_info", x)[None], info_as_dictionaries(agent_info)
        )

    def _reset_agent(self, columns: list[int]) -> None:
        """Reset the policy in these columns, where episodes start."""
        self.agent.reset()

    def _begin(self, columns: list[int]) -> None:
        """Start episodes in these columns."""
        recorder = self._recorder
        if self._is_new and not recorder.running:
            recorder.has_memory = self._is_new = False
        if self._lacks_envs or self.agent is None:
            missing = "an environment: call update_env()" if self._lacks_envs else "a policy: call update_agent()"
            raise RuntimeError(f"Worker {self._worker_number} does not have {missing} first.")
        for b in columns:
            env = self._in_place[b]
            needs_reset, self._needs_reset[b] = self._needs_reset[b], True
            try:
                if needs_reset and recorder.has_memory:
                    self._calls.reset(b, recorder.inputs[b], "at the start of an episode")
                else:
                    observation = self._calls.first_observation(b, "at the start of an episode") if needs_reset else recorder.last[b]
                    if not recorder.has_memory:
                        self._allocate(b, observation)
                    recorder.set_input(b, observation)
            except BaseException:
                self._abandon()
                raise
            recorder.begin(b, env.episode_info if isinstance(env, InPlaceEnvironment) else {})
        self._optional.prepare(self.env)  # Each time, because the policy may be replaced in the middle of episodes.
        recorder.env_spec = recorder.env_spec.of_agent(self.agent)
        if columns:
            self._reset_agent(columns)

    def _allocate(self, b: int, observation: Any) -> None:
        """Let the recorder have memory for observations and rewards of environment `b`."""
        self._recorder.allocate(observation, np.float64 if isinstance(self._in_place[b], InPlaceEnvironment) else np.float32)

    def _record(self, outcome: Outcome) -> None:
        """Record the step of an environment, and its episode if that has ended or is too long."""
        b, _, done, env_info = outcome
        env = self._in_place[b]
        if isinstance(env, InPlaceEnvironment):
            is_over, timed_out = done, env.timed_out
        else:  # Its infos may have these fields.
            is_over = flag_in(env_info, "traj_done", done)
            timed_out = is_over if not done else flag_in(env_info, "timeout", False)
        n_steps = self._recorder.record(b, env_info)
        if done or is_over:
            self._needs_reset[b] = bool(is_over)
            self._recorder.end(b, TIMEOUT if timed_out else TERMINAL)
        elif n_steps >= self._max_episode_length:
            self._recorder.end(b, TIMEOUT)

    def _when(self, b: int) -> str:
        return f"in step {self._recorder.open[b].length} of an episode"

    def _drop(self, b: int) -> None:
        """Drop the episode in progress in column `b`."""
        self._recorder.discard(b)
        self._needs_reset[b] = True

    def _run(self) -> None:
        self.start_episode()
        while not self.step_episode():
            pass

    def _take(self) -> Episodes:
        if not self._recorder.n_finished:
            self._cut()
        return self._recorder.take()

    def _cut(self) -> None:
        """Let the recorder return the steps so far of the episodes in progress."""
        for b in self._recorder.running:
            self._recorder.cut(b)

    # What samplers call ---------------------------------------------------------------------------------------------
    def play_episodes(self, n: int) -> Episodes:
        """Play exactly `n` episodes.

        Each environment plays an equal share and finishes every episode it starts, so that short episodes are not preferred.
        """
        if self._overrides("rollout", "collect_episode"):
            return super().play_episodes(n)
        played, remaining = Episodes(), episodes_per_env(n, self._n_envs) or []
        for b in (b for b, more in enumerate(remaining) if not more):
            self._drop(b)  # The policy acts for all environments, and its memory of an episode that stands still would change.
        with self._playing():
            while any(remaining):
                self._columns = [b for b, more in enumerate(remaining) if more]
                some = self._play()
                for episode in some.episodes:
                    remaining[episode.column] -= 1
                played.extend(some)
            self._columns = range(self._n_envs)
        return played

    def _abandon(self) -> None:
        self._columns = range(self._n_envs)
        for b in self._columns:
            self._drop(b)
        self._recorder.take()

    def _play(self) -> Episodes:
        if self._overrides("rollout"):
            return super()._play()
        self._run()
        return self._collected()

    def _finish(self) -> Episodes:
        if not self.episodes_go_on and self._overrides("step_episode"):  # It decides when an episode ends, and has ended the last one.
            for b in self._recorder.running:
                self._drop(b)
        if not self._recorder.running:
            return Episodes()
        while self._recorder.running:
            self.step_episode()
        return self._collected()

    def _collected(self) -> Episodes:
        return Episodes.of_batch(self.collect_episode()) if self._overrides("collect_episode") else self._take()

    def _overrides(self, *names: str) -> bool:
        """Return whether a subclass in another module overrides one of these methods."""
        return any(getattr(type(self), name).__module__ != __name__ for name in names)


class VecWorker(DefaultWorker):
    """Plays in several environments at once, with one call of the policy per time step.

    The policy has ``get_actions(observations)``, which returns actions ``[B,...]`` and a dictionary of arrays ``[B,...]``, and
    ``reset(do_resets)``, which gets a list of bools when episodes begin. It returns structured actions (dictionaries, tuples) as a list of
    B actions.

    `rollout` returns as soon as an episode ends, with all episodes that ended in the same time step. The next `rollout` continues the
    other episodes. If the policy changes, they are dropped, because no single policy would have played them.

    Args:
        n_envs: number of environments.
    """

    DEFAULT_N_ENVS = DEFAULT_N_ENVS
    _acts_by = "get_actions"

    @checked(n_envs=COUNT)
    def __init__(self, *, n_envs: int = DEFAULT_N_ENVS, **settings: Any) -> None:
        self._n_envs = n_envs
        super().__init__(**settings)

    def update_agent(self, agent_update: Any) -> None:
        """Change the policy; episodes in progress are dropped. See `DefaultWorker.update_agent`."""
        super().update_agent(agent_update)
        if agent_update is not None:
            for b in self._recorder.running:
                self._drop(b)

    def update_env(self, env_update: Any) -> None:
        """Change the environments; their episodes in progress are dropped.

        Args:
            env_update: a list with one update for each environment (see `DefaultWorker.update_env`), or one update for all, which is
                copied for each.

        Raises:
            TypeError: an entry is no update. ValueError: the list has another length.
        """
        if env_update is None:
            return
        if not isinstance(env_update, list):
            env_update = [env_update, *(copied_update(env_update) for _ in range(self._n_envs - 1))]
        if len(env_update) != self._n_envs:
            raise ValueError(f"A list of {len(env_update)} environment updates was passed to a worker with n_envs={self._n_envs}.")
        for b, update in enumerate(env_update):
            self._update_env(b, update)

    def start_episode(self) -> None:
        """Start an episode in each idle environment."""
        self._begin([b for b in self._columns if b not in self._recorder.open])

    def _take(self) -> Episodes:
        return self._recorder.take()

    def _act(self, observation: Any) -> tuple[Any, Any]:
        result = self.agent.get_actions(observation)
        if type(result) is not tuple or len(result) != 2 or type(result[1]) is not dict:
            checked_action(result, self.agent, "get_actions")
        actions, agent_infos = result
        if isinstance(actions, dict) or is_namedtuple(actions):
            raise TypeError(
                f"{type(self.agent).__name__}.get_actions() returned one {type(actions).__name__} for all environments: return a list "
                "with the action of each."
            )
        try:
            n = len(actions)
        except TypeError:  # `actions` is a single number.
            n = None
        if n != self._n_envs:
            raise ValueError(
                f"{type(self.agent).__name__}.get_actions() must return an action for each of the {self._n_envs} environments, got "
                f"{form_of(actions)}."
            )
        return actions, agent_infos

    def _reset_agent(self, columns: list[int]) -> None:
        self.agent.reset([b in columns for b in range(self._n_envs)])


class FragmentWorker(VecWorker):
    """Plays a fixed number of steps in each of several environments: parts of episodes, for off-policy algorithms.

    `rollout` returns ``timesteps_per_call * n_envs`` steps: first the episodes (or last parts of episodes) that ended, then the new steps
    of episodes in progress, in the order of the environments. The next `rollout` continues these episodes, even with another policy.

    Args:
        n_envs: number of environments.
        timesteps_per_call: steps of each environment per rollout (env steps).
    """

    episodes_go_on = True

    @checked(timesteps_per_call=COUNT)
    def __init__(self, *, timesteps_per_call: int = 1, **settings: Any) -> None:
        self._timesteps_per_call = timesteps_per_call
        super().__init__(**settings)

    def update_agent(self, agent_update: Any) -> None:
        """Change the policy; episodes in progress continue. See `DefaultWorker.update_agent`."""
        DefaultWorker.update_agent(self, agent_update)
        if agent_update is not None and not is_parameters(agent_update):
            self._recorder.forget_actions()

    def play_episodes(self, n: int) -> Episodes:
        """Roll out until there are `n` episodes or parts of episodes, and return the first `n`."""
        return Worker.play_episodes(self, n)

    def _run(self) -> None:
        for _ in range(self._timesteps_per_call):
            self.start_episode()
            self.step_episode()

    def _take(self) -> Episodes:
        self._cut()
        return self._recorder.take()

    def _finish(self) -> Episodes:
        return Episodes()  # Every step has been returned.


def _inside(env: Any) -> Any:
    """Return the environment itself, given the form in which it is stepped."""
    return env.env if isinstance(env, InPlaceEnvironment) else env


def as_policy(agent: Any) -> Any:
    """Return a policy: an `AgentPolicy` for an agent of rlpyt; otherwise `agent` itself."""
    if hasattr(agent, "get_actions") or hasattr(agent, "get_action") or not hasattr(agent, "sample_mode"):
        return agent
    from rlpyt.agents.policy import AgentPolicy

    return AgentPolicy(agent)


def check_has(policy: Any, methods: list[str], what: str) -> None:
    """Raise TypeError if a policy lacks one of the `methods` that `what` needs."""
    missing = [f"{name}()" for name in methods if not callable(getattr(policy, name, None))]
    if missing:
        raise TypeError(f"{type(policy).__name__} has no {' and no '.join(missing)}, which {what} needs: see rlpyt.agents.policy.")


def is_parameters(agent_update: Any) -> bool:
    """Return whether an update is parameters for the current policy instead of another policy."""
    return isinstance(agent_update, (dict, tuple, np.ndarray))


def for_worker(agent_update: Any, cpu: bool = False) -> Any:
    """Return an update of the policy for one of several workers. The copy of an agent shares the models, but not the recurrent state.

    Args:
        cpu: if the agent's models are on another device, copy them to the CPU.
    """
    return OptionalMethods(as_policy(agent_update)).copy_for_worker(cpu)
