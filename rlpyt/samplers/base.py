"""What every sampler has in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from rlpyt.envs.base import CompletedEnv, check_makes_envs, checked_spaces, close_env, is_rlpyt
from rlpyt.envs.vector import VectorEnv, VectorEnvs, is_gym_vector
from rlpyt.samplers.actors import can_act_for_some
from rlpyt.samplers.buffer import build_samples_buffer, check_same_form, max_timeouts
from rlpyt.samplers.traj_infos import has_own_step
from rlpyt.samplers.vector import vector_columns
from rlpyt.samplers.workers import describe_failure
from rlpyt.types import Agent, BatchSpec, Samples, TrajInfo
from rlpyt.utils.buffer import np_mp_array
from rlpyt.utils.collections import fields_of
from rlpyt.utils.completed import Completed
from rlpyt.utils.logging import logger
from rlpyt.utils.recipes import Recorded
from rlpyt.utils.seed import env_seed, seed_env
from rlpyt.utils.settings import COUNT, POSITIVE, START_METHOD, STEPS, ArgumentsFor, Kind, checked

COLLECTOR = Kind("a class of collectors", lambda value: callable(value) and CompletedCollector(value).mid_batch_reset is not None)


class CompletedCollector(Completed):
    """A collector or its class, which need not be one of ours, or None, with the attributes that all of ours have.

    Attributes:
        mid_batch_reset: whether environments are reset inside a batch; None for something that is no collector.
        gpu: whether it is for samplers with an action server; None if it is for any sampler.
        envs: its environments.
        steps_vectors: whether its loop steps a vector of environments as a whole.
        completed_at: for each TrajInfo that `collect_batch` returned, the row and column where the episode ended, as pairs or as an int
            array [k,2]; None if not recorded.
    """

    mid_batch_reset: bool | None = None
    gpu: bool | None = None
    envs: Sequence[Any] = ()
    steps_vectors: bool = False
    completed_at: Any = None

    def records_ends(self) -> bool:
        """Return whether it records the fields listed in `rlpyt.types.as_recorded`."""
        return False


class BaseSampler(Recorded):
    """Runs agent and environments for a fixed number of steps at a time. The runner calls it in the master process.

    Args:
        EnvCls: class or function that makes an environment: of rlpyt, of Gymnasium, or an `rlpyt.episodes.Environment`. Or a list of
            `batch_B` of them, one for each column of the batch, such as different tasks; their spaces must be alike.
        env_kwargs: its keyword arguments, by default none; or a list of `batch_B` dictionaries.
        batch_T: time steps per batch; has to be given.
        batch_B: environments, and columns of the batch; has to be given.
        CollectorCls: makes the collector, which runs the loop of agent and environments.
        max_decorrelation_steps: each environment first takes up to this many random actions (env steps; 0 for none).
        TrajInfoCls: makes the statistics of an episode.
        eval_n_envs: environments for evaluation; 0 for no evaluation.
        eval_CollectorCls: makes the evaluation collector.
        eval_env_kwargs: keyword arguments for evaluation, or a list of `eval_n_envs` dictionaries; None uses `env_kwargs`.
        eval_max_steps: most env steps of one evaluation, of all environments together.
        eval_max_trajectories: most episodes of one evaluation. Environments share them evenly, and finish each episode that they begin
            (if `eval_max_steps` allows), so that short episodes are not preferred.
        start_method: how samplers with worker processes start them: "fork", "spawn" or "forkserver"; None is fork on Linux.
        worker_timeout: seconds without a sign of life after which a worker process is reported as hung, with its stack; None only warns.
        keep_terminal_observations: store the observations that end terminated episodes, as `terminal_observation`: whole episodes
            need them. Those of truncated episodes are always stored.
        eval_EnvCls: makes the evaluation environments, or a list of `eval_n_envs`; None uses `EnvCls`, and the entries of a list in turn.

    Attributes:
        batch_spec: ``BatchSpec(T, B)``.
        mid_batch_reset: whether environments are reset within a batch; from the collector.

    Raises:
        TypeError: EnvCls cannot be called, or an argument is missing. ValueError: an argument is out of range or does not fit another.
    """

    alternating = False  # Whether two halves of the environments take turns.
    gpu = False  # Whether an action server acts for worker processes.
    async_ = False  # Whether it runs beside the process that trains.
    itr = -1  # Number of the newest batch.
    _db_idx = 0  # Which of the batches is being filled.
    agent_in_workers = False  # Whether worker processes use the agent's parameters.
    _n_ready: int | None = None  # For how many environments of a vector the agent acts at a time.
    _restarted: frozenset | set = frozenset()  # Columns whose environments were changed since the last batch.
    _has_said_so = False  # Whether the log says that a resumed run begins new episodes.
    stop: Any = None  # Array [1] bool, written by `stop_evaluation`, read by evaluation collectors.

    @checked(
        env_kwargs=ArgumentsFor("EnvCls", several=True, optional=True),
        batch_T=COUNT,
        batch_B=COUNT,
        CollectorCls=COLLECTOR,
        max_decorrelation_steps=STEPS,
        eval_n_envs=STEPS,
        eval_env_kwargs=ArgumentsFor("eval_EnvCls", otherwise="EnvCls", several=True),
        eval_max_steps=STEPS,
        eval_max_trajectories=STEPS,
        start_method=START_METHOD,
        worker_timeout=POSITIVE,
    )
    def __init__(
        self,
        EnvCls: Callable | Sequence[Callable],
        env_kwargs: dict | Sequence[dict] | None = None,
        batch_T: int = None,  # type: ignore[assignment]
        batch_B: int = None,  # type: ignore[assignment]
        CollectorCls: Callable = None,  # type: ignore[assignment]
        max_decorrelation_steps: int = 100,
        TrajInfoCls: Callable = TrajInfo,
        eval_n_envs: int = 0,
        eval_CollectorCls: Callable | None = None,
        eval_env_kwargs: dict | Sequence[dict] | None = None,
        eval_max_steps: int | None = None,
        eval_max_trajectories: int | None = None,
        start_method: str | None = None,
        worker_timeout: float | None = None,
        keep_terminal_observations: bool = False,
        eval_EnvCls: Callable | Sequence[Callable] | None = None,
    ) -> None:
        # They follow `env_kwargs`, which has a default, so the signature cannot require them.
        required = dict(batch_T=batch_T, batch_B=batch_B, CollectorCls=CollectorCls)
        missing = [name for name, value in required.items() if value is None]
        if missing:
            raise TypeError(f"{type(self).__name__} needs {' and '.join(missing)}.")
        if eval_n_envs:
            if eval_max_steps is None:
                raise ValueError(f"eval_n_envs={eval_n_envs} needs eval_max_steps: env steps of one evaluation at the most.")
            if eval_max_steps < eval_n_envs:
                raise ValueError(f"eval_max_steps={eval_max_steps} must be at least eval_n_envs={eval_n_envs}: one step for each.")
            if eval_max_trajectories == 0:
                raise ValueError("eval_max_trajectories=0 must be at least 1, or None for no limit.")
        for name, value, n, size in (
            ("EnvCls", EnvCls, "batch_B", batch_B),
            ("env_kwargs", env_kwargs, "batch_B", batch_B),
            ("eval_EnvCls", eval_EnvCls, "eval_n_envs", eval_n_envs),
            ("eval_env_kwargs", eval_env_kwargs, "eval_n_envs", eval_n_envs),
        ):
            if isinstance(value, (list, tuple)) and len(value) != size:
                raise ValueError(f"{name} is a list of {len(value)}: it must have {n}={size} entries, one for each environment.")
        for name, value in (("EnvCls", EnvCls), ("eval_EnvCls", EnvCls if eval_EnvCls is None else eval_EnvCls)):
            for cls in value if isinstance(value, (list, tuple)) else [value]:
                check_makes_envs(name, cls, ", or a list of them (TaskOnehotWrapper.wrap_env_cons_list for tasks)")
        for name, value, kwargs in (("EnvCls", EnvCls, env_kwargs), ("eval_EnvCls", eval_EnvCls, eval_env_kwargs)):
            _check_vectors(name, value, kwargs)
        if isinstance(EnvCls, VectorEnvs) and not CompletedCollector(CollectorCls).steps_vectors:
            raise ValueError(
                f"CollectorCls={CollectorCls.__name__} steps environments one by one, but those of a vector step together: derive it from "
                "CpuResetCollector, or from another collector of rlpyt, and extend collect_batch; or give single environments as EnvCls."
            )
        collectors: tuple[tuple[str, Any], ...] = (
            ("CollectorCls", CollectorCls),
            ("eval_CollectorCls", eval_CollectorCls if eval_n_envs else None),
        )
        for name, cls in collectors:
            if CompletedCollector(cls).gpu not in (None, self.gpu):
                theirs, ours = "with" if cls.gpu else "without", "gpu" if self.gpu else "cpu"
                raise ValueError(
                    f"{name}={cls.__name__} is for samplers {theirs} an action server: {type(self).__name__} takes collectors from "
                    f"rlpyt.samplers.parallel.{ours}.collectors."
                )
        self.EnvCls = EnvCls
        self.env_kwargs = {} if env_kwargs is None else env_kwargs
        self.batch_T = batch_T
        self.batch_B = batch_B
        self.CollectorCls: Any = CollectorCls
        self.max_decorrelation_steps = max_decorrelation_steps
        self.TrajInfoCls = TrajInfoCls
        self.eval_n_envs = eval_n_envs
        self.eval_CollectorCls: Any = eval_CollectorCls
        self.eval_EnvCls = EnvCls if eval_EnvCls is None else eval_EnvCls
        self.eval_env_kwargs = self.env_kwargs if eval_env_kwargs is None else eval_env_kwargs
        self.eval_max_steps = eval_max_steps
        self.eval_max_trajectories = eval_max_trajectories
        self.start_method = start_method
        self.worker_timeout = worker_timeout
        self.keep_terminal_observations = bool(keep_terminal_observations)
        self.batch_spec = BatchSpec(batch_T, batch_B)
        self.mid_batch_reset: bool = self.CollectorCls.mid_batch_reset  # type: ignore[attr-defined]

    def initialize(self, *args: Any, **kwargs: Any) -> dict:
        """Make everything the sampler needs, worker processes included, and return examples of what it samples."""
        raise NotImplementedError

    def acting(self, affinity: dict | None) -> tuple[list[int], int | None]:
        """Return for how many environments the agent acts at once, and with how many torch threads; only speed depends on it.

        Args:
            affinity: the argument of `initialize`, which is called later.

        Returns:
            Sizes, and the number of threads; None for the number of the process that trains.
        """
        return [self.batch_spec.B], None

    def _check_initialize(self, agent: Agent, world_size: int, rank: int) -> None:
        """Raise ValueError for arguments of `initialize` that do not fit."""
        if not 0 <= rank < world_size:
            raise ValueError(f"rank={rank} must be from 0 to world_size - 1, and world_size={world_size}.")
        if not agent.recurrent:  # Such an agent goes with any sampler.
            agent.alternating = self.alternating
        elif agent.alternating != self.alternating:
            kinds = "with a pair of recurrent states (an Alternating... class)", "with one recurrent state (not an Alternating... class)"
            needed = kinds[0 if self.alternating else 1]
            raise ValueError(f"{type(self).__name__} needs a recurrent agent {needed}, which {type(agent).__name__} is not.")

    def _check_acts_as_ready(self, n_columns: int) -> None:
        """Raise ValueError if the agent has to act for the environments of a vector that are ready, while others step, and cannot.

        `n_columns` is the largest number of columns of a process. If no more than these are to be ready at a time, they step together.
        """
        if self._n_ready is None or self._n_ready >= n_columns:
            return
        agent = self.agent
        vector = "The vector that EnvCls makes steps some of its environments at a time (batch_size of EnvPool, n_ready)"
        if self.gpu:
            raise ValueError(
                f"{vector}, for an agent in the same process: take SerialSampler or CpuSampler. For the action server of "
                f"{type(self).__name__}, leave that number, {self._n_ready}, out: a process has {n_columns} environments."
            )
        if not self.mid_batch_reset:
            raise ValueError(
                f"{vector}, and {self.CollectorCls.__name__} lets environments wait for the end of the batch: take a collector that resets "
                "them within batches, such as CpuResetCollector."
            )
        if not can_act_for_some(agent):
            raise ValueError(
                f"{vector}, but {type(agent).__name__} defines reset_one and not acting_for: it is asked about some of the environments at "
                "a time. Extend acting_for (see BaseAgent), or leave that number out."
            )

    def _allocate(
        self,
        agent: Agent,
        seed: int | None,
        bootstrap_value: bool,
        traj_info_kwargs: dict | None,
        world_size: int = 1,
        rank: int = 0,
        share_agent: bool = False,
        share_batch: bool = True,
        n_batches: int = 1,
    ) -> dict:
        """Allocate what `initialize` needs in the master process; return examples of the batch's fields.

        Args:
            share_agent, share_batch: allocate the agent's parameters, and the batches, in shared memory.
            n_batches: batches to fill in turn.
        """
        self._check_initialize(agent, world_size, rank)
        B = self.batch_spec.B
        self.agent, self.seed, self.rank = agent, seed, rank
        self._global_B, self._env_ranks = B * world_size, np.arange(rank * B, (rank + 1) * B)
        self._first_eval_env = rank * self.eval_n_envs
        self._traj_info_kwargs = traj_info_kwargs
        self.stop = np_mp_array(1, bool)
        examples: dict = {}
        envs: list = []
        try:
            env = self._example_env(envs)
            if not self.mid_batch_reset and not CompletedEnv(env).resets_some:
                raise ValueError(
                    f"{self.CollectorCls.__name__} resets environments between batches, but the vector that EnvCls makes cannot reset some "
                    "of its environments: take a collector that resets environments within batches, such as CpuResetCollector."
                )
            self._n_ready = CompletedEnv(env).n_ready
            agent.initialize(checked_spaces(env), share_memory=share_agent, global_B=self._global_B, env_ranks=self._env_ranks)
            self._null_action = env.action_space.null_value()
            self._batches = [
                build_samples_buffer(
                    agent,
                    env,
                    self.batch_spec,
                    bootstrap_value,
                    agent_shared=share_batch,
                    env_shared=share_batch,
                    subprocess=False,
                    examples=examples,
                    keep_terminal_observations=self.keep_terminal_observations,
                )[:2]
                for _ in range(n_batches)
            ]
            _check_env_info_sums(self.TrajInfoCls, examples["env_info"])
        finally:
            close_envs(envs)
        if self._batches[0][1].env.valid is not None:
            examples["valid"] = np.bool_(True)
        examples["ends_recorded"] = np.bool_(CompletedCollector(self.CollectorCls).records_ends())
        self._examples = examples
        self._use_batch(0)
        set_traj_info_attributes(self.TrajInfoCls, traj_info_kwargs)
        return examples

    def _example_env(self, all_envs: list) -> Any:
        """Make one environment of each kind, appending them to `all_envs`; return the one that needs the most memory.

        Raises:
            ValueError: their observations or actions differ in shape or dtype, which are the same for all columns of a batch.
        """
        made: list[tuple] = []
        chosen = None
        for is_column, EnvCls, env_kwargs, n in (
            (True, self.EnvCls, self.env_kwargs, self.batch_spec.B),
            (False, self.eval_EnvCls, self.eval_env_kwargs, self.eval_n_envs),
        ):
            differ = any(isinstance(value, (list, tuple)) for value in (EnvCls, env_kwargs))
            for b in range(n if differ else min(n, 1)):
                index = self.rank * n + b
                kind = entry(EnvCls, index), entry(env_kwargs, index)
                if any(_is_equal(kind, other) for other in made):
                    continue
                env = make_envs(EnvCls, env_kwargs, self.seed, "example", [index], all_envs)[0]
                if made:
                    check_same_form(env, chosen, f"The environment of {'column' if is_column else 'evaluation environment'} {b}")
                if chosen is None or is_column and max_timeouts(env, self.batch_spec.T) > max_timeouts(chosen, self.batch_spec.T):
                    chosen = env
                made.append(kind)
        return chosen

    def _use_batch(self, db_idx: int) -> None:
        """Fill this batch from now on."""
        self._db_idx = db_idx
        self.samples_pyt, self.samples_np = self._batches[db_idx]

    def obtain_samples(self, itr: int) -> tuple[Samples, list]:
        """Run one batch; return it, in memory that the next batch overwrites, and the TrajInfos of the episodes that ended in it."""
        raise NotImplementedError

    def evaluate_agent(self, itr: int) -> list:
        """Play evaluation episodes; return their TrajInfos."""
        raise NotImplementedError

    def update_envs(self, updates: Any) -> list[int]:
        """Change environments, between two batches: other tasks, other levels, other environments with like spaces.

        A changed column starts a new episode in an environment with a new seed; the running episode is dropped. The runner marks its end in
        the replay buffer when it appends the next batch. Evaluation environments stay as they are.

        Args:
            updates: one for all columns, or a list of `batch_B`: None for no change, an `EnvUpdate`, a constructor, or an environment (see
                `rlpyt.envs.env_update`). cloudpickle sends them to worker processes.

        Returns:
            The columns that begin a new episode.

        Raises:
            ValueError: a list of another length, or an environment whose spaces are not like those of the batch. TypeError: no update.

        A list of a wrong length, or an entry that is no update, changes nothing. Any other error, as of an environment that does not fit or
        cannot be made, ends the sampler as `shutdown` does, since other environments are replaced by then.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot change its environments.")

    def _env_updates(self, updates: Any) -> list:
        """Return one update per column."""
        if isinstance(self.EnvCls, VectorEnvs):
            raise ValueError("update_envs is for single environments: those of a vector cannot be exchanged one by one.")
        from rlpyt.envs.env_update import env_updates

        return env_updates(updates, self.batch_spec.B, "columns of the batch")

    def _add_restarted(self, columns: list[int]) -> list[int]:
        self._restarted = {*self._restarted, *columns}
        return columns

    def take_restarted(self) -> list[int]:
        """Return the columns whose environments have changed since the last call: their next step does not follow the previous one."""
        columns, self._restarted = sorted(self._restarted), set()
        return columns

    def stop_evaluation(self) -> None:
        """End a running evaluation, and all later ones, after the current step. A signal handler may call this."""
        if self.stop is not None:
            self.stop[0] = True

    def state_dict(self) -> dict | None:
        """Return the state of sampling between two batches: plain data and tensors, None where it is unknown.

        A sampler that does not define it begins new episodes when a run is resumed, and logs so once.
        """
        self._warn_of_new_episodes(type(self).__name__)
        return None

    def load_state_dict(self, state: dict | None) -> list[int]:
        """After `initialize`: continue from what `state_dict` returned; return the columns whose environments begin a new episode.

        Where sampling was abandoned, `state` holds only ``itr``, the number of the batch before: then all columns do.
        """
        return list(range(self.batch_spec.B))

    def _warn_of_new_episodes(self, who: str) -> None:
        """Log, at the first call only, that `who` has no state of its environments to save."""
        if not self._has_said_so:
            logger.log(f"{who} has no state_dict, so snapshots do not hold its environments: a resumed run begins new episodes.")
            self._has_said_so = True

    def shutdown(self) -> None:
        """Close environments and end worker processes. May be called twice."""

    @property
    def waiting_seconds(self) -> float:
        """Seconds spent so far waiting for worker processes, in sampling and evaluation."""
        return 0.0

    @property
    def batch_size(self) -> int:
        """Environment steps per batch."""
        return self.batch_spec.size

    @property
    def eval_max_T(self) -> int:
        """Most steps of each environment in one evaluation."""
        return 0 if self.eval_max_steps is None else self.eval_max_steps // self.eval_n_envs


def make_envs(
    EnvCls: Callable | Sequence[Callable],
    env_kwargs: dict | Sequence[dict],
    seed: int | None,
    purpose: str,
    env_ranks: Iterable[int],
    all_envs: list | None = None,
) -> list:
    """Make environments. Each is seeded by the run's seed, its purpose, and its number among all, whichever process it is in.

    Args:
        EnvCls, env_kwargs: make all of them; or lists, whose entry i, modulo their lengths, makes number i.
        all_envs: list to which each is appended as soon as it exists, so that the caller can close it after any error.
    """
    envs: list = []
    all_envs = [] if all_envs is None else all_envs
    if isinstance(EnvCls, VectorEnvs):
        ranks = [int(env_rank) for env_rank in env_ranks]
        if ranks:
            envs = vector_columns(EnvCls, env_kwargs, ranks, all_envs, is_example=purpose == "example")
            if seed is not None:
                envs.vector.seed([env_seed(seed, purpose, rank) for rank in envs.calls.env_ranks])
        return envs
    made: dict[int, int] = {}  # Numbers of the environments that were made, by the id of what EnvCls returned.
    for env_rank in map(int, env_ranks):
        try:
            all_envs.append(entry(EnvCls, env_rank)(**entry(env_kwargs, env_rank)))
        except SystemExit as error:
            describe_failure(error, f"This was when environment {env_rank} was made.")
            raise
        if (earlier := made.setdefault(id(all_envs[-1]), env_rank)) != env_rank:
            all_envs.pop()
            raise ValueError(
                f"EnvCls returned the same environment for {earlier} and for {env_rank}, so steps of one would change the other: let it "
                "make a new environment at each call."
            )
        env = all_envs[-1] = as_steppable(all_envs[-1])
        envs.append(env)
        if seed is not None:
            seed_env(env, env_seed(seed, purpose, env_rank))
    return envs


def entry(value: Any, i: int) -> Any:
    """Return entry `i` of a list, modulo its length; anything else as it is."""
    return value[i % len(value)] if isinstance(value, (list, tuple)) else value


def as_steppable(env: Any) -> Any:
    """Return `env` as an environment that collectors can step; it may be of Gymnasium, or an `rlpyt.episodes.Environment`."""
    if isinstance(env, VectorEnv) or is_gym_vector(env):
        raise ValueError(
            f"EnvCls made {env}, a vector of environments: give EnvCls=VectorEnvs(make), of rlpyt.envs.vector, where make is the function "
            "that makes the vector."
        )
    if is_rlpyt(env):
        return env
    import gymnasium  # Here, so that only processes with such environments pay for the import.

    from rlpyt.envs.adapters import as_rlpyt
    from rlpyt.envs.environment import Environment

    return as_rlpyt(env) if isinstance(env, (Environment, gymnasium.Env)) else env


def set_traj_info_attributes(TrajInfoCls: Any, traj_info_kwargs: dict | None) -> None:
    """Set class attributes of `TrajInfoCls`: ``discount=0.99`` becomes ``_discount``."""
    for name, value in (traj_info_kwargs or {}).items():
        setattr(TrajInfoCls, f"_{name}", value)


def _check_env_info_sums(TrajInfoCls: Any, env_info: Any) -> None:
    """Raise ValueError if `env_info`, an example, lacks a field that `TrajInfoCls` sums."""
    for _, name in () if has_own_step(TrajInfoCls) else TrajInfoCls.env_info_sums:
        if name not in (fields_of(env_info) or ()):
            raise ValueError(
                f"{TrajInfoCls.__name__} needs {name!r} in env_info, which has the fields {list(fields_of(env_info) or ())}: give "
                "another TrajInfoCls, or wrap the environment so that it tells it (which task it is: by TaskOnehotWrapper, or by "
                "TaskNameWrapper with a task_id, of rlpyt.envs.multitask)."
            )


def _check_vectors(name: str, EnvCls: Any, env_kwargs: Any) -> None:
    """Raise ValueError if vectors of environments come in lists."""
    if isinstance(EnvCls, (list, tuple)) and any(isinstance(each, VectorEnvs) for each in EnvCls):
        raise ValueError(f"{name} is a list with VectorEnvs, which make one vector for many columns: give one instead of a list.")
    if isinstance(EnvCls, VectorEnvs) and isinstance(env_kwargs, (list, tuple)):
        raise ValueError(f"{name} makes one vector for many columns, so its keyword arguments must be one dictionary, not a list.")


def close_envs(envs: Iterable) -> None:
    """Close all environments that have a method `close`; then raise the first error, if any."""
    errors = []
    for env in envs:
        try:
            close_env(env)
        except (Exception, SystemExit) as error:
            errors.append(error)
    if errors:
        describe_failure(errors[0], "This was when an environment was closed.")
        raise errors[0]


def _is_equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except (ValueError, RuntimeError):  # Arrays or tensors among the keyword arguments.
        return False
