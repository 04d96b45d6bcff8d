"""The results of a sampler: a batch of experience with leading dimensions ``[T,B]``, and a `TrajInfo` per finished episode."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from rlpyt.utils.buffer import buffer_func, buffer_leaves
from rlpyt.utils.collections import AttrDict, field_of, namedarraytuple
from rlpyt.utils.completed import Completed
from rlpyt.utils.plain import check_form, from_plain, shown, to_plain
from rlpyt.utils.structures import is_tensor

if TYPE_CHECKING:
    import torch

# Inputs of an agent for one step. They are defined here, and not with the agents, so that environment workers need not import torch.
AgentInputs = namedarraytuple("AgentInputs", ["observation", "prev_action", "prev_reward"])

# The data that environments and agent exchange in one step. With an action server, it is in shared memory.
#   observation  [B,...]  of the next step
#   action       [B,...]  in an evaluation, the current action; in training, the previous one, as the agent sees it
#   reward, done [B]      results of the action; in training, the previous reward, as the agent sees it
#   agent_info   [B,...]  in an evaluation whose TrajInfo class overrides `step`, otherwise None
StepBuffer = namedarraytuple("StepBuffer", ["observation", "action", "reward", "done", "agent_info"], defaults=(None,))

# The batch. Optional fields are None if the collector does not record them.
#   final_observation     [K,B,...]  entry [k,b] is the observation that ended the k-th truncated episode of column b in this batch
#   terminal_observation  [T,B,...]  the same for other ends (done or traj_done); only with the sampler's keep_terminal_observations=True.
#                         Batches of episodes need these observations; algorithms do not
Samples = namedarraytuple("Samples", ["agent", "env", "final_observation", "terminal_observation"], defaults=(None, None))

#   action       [T,B,...]
#   prev_action  [T,B,...]  view of the same [T+1,B] memory as action, one row earlier
#   agent_info   [T,B,...]  the agent's other outputs
AgentSamples = namedarraytuple("AgentSamples", ["action", "prev_action", "agent_info"])

#   bootstrap_value  [1,B]  float32, V(next_observation[T-1]); meaningless where the last step is done
#   timeout_value    [T,B]  float32, V(final observation of the episode) where env.timeout, else 0
AgentSamplesBsv = namedarraytuple(
    "AgentSamplesBsv", ["action", "prev_action", "agent_info", "bootstrap_value", "timeout_value"], defaults=(None,)
)

#   observation       [T,B,...]
#   reward            [T,B]  float32
#   prev_reward       [T,B]  view of the same [T+1,B] memory as reward, one row earlier
#   done              [T,B]  bool, this step ended the episode (as the agent sees it): terminated or truncated
#   env_info          [T,B,...]
#   timeout           [T,B]  bool, this step truncated the episode; terminated = done & ~timeout
#   next_observation  [T,B,...]  view of the same [T+1,B] memory as observation, one row later: the agent's next input. After the end of
#                     an episode, this is the first observation of the next episode
#   ends_recorded     [T,B]  bool, written by the collector: True if it records the fields listed in `as_recorded`. Custom collectors
#                     may not record them. None if all fields that are not None are recorded
#   valid             [T,B]  bool, False where the row is blank: no step, but the reset of a vector that resets itself by its next step. It
#                     holds zeros, with done True. None if no row is blank. (Rows of environments that wait for the end of the batch are
#                     found by `done`.)
EnvSamples = namedarraytuple(
    "EnvSamples",
    ["observation", "reward", "prev_reward", "done", "env_info", "timeout", "next_observation", "ends_recorded", "valid"],
    defaults=(None, None, None, None),
)


def timeout_of(env: Any) -> Any:
    """Return `timeout` [T,B] of a batch's `EnvSamples`, or else of its env_info; None if neither has this field."""
    return field_of(env.env_info, "timeout") if env.timeout is None else env.timeout


def as_recorded(samples: Any) -> Any:
    """Return a batch with None for the fields that its collector has not recorded.

    A sampler allocates all fields of a batch. A custom collector may not write the fields about the ends of episodes: `timeout`,
    `timeout_value`, `final_observation`, `terminal_observation`, `valid`, and the last row of `next_observation`.
    """
    recorded = field_of(samples.env, "ends_recorded")
    if recorded is None:
        return samples
    env = samples.env._replace(ends_recorded=None)
    if recorded.all():
        return samples._replace(env=env)
    agent = samples.agent._replace(timeout_value=None) if "timeout_value" in samples.agent else samples.agent
    env = env._replace(timeout=None, next_observation=None)
    env = env._replace(valid=None) if "valid" in env else env
    return samples._replace(agent=agent, env=env, final_observation=None, terminal_observation=None)


def with_zeros_in_blanks(samples: Any) -> Any:
    """Return a batch whose blank rows (`valid` False) hold zeros, as our loop writes them: no loss may depend on what another left there.

    Observations and rewards are copied only if that is not so already.
    """
    env = samples.env
    valid = field_of(env, "valid")
    if valid is None or valid.all():
        return samples
    blank = ~valid

    def zeroed(x: Any) -> Any:
        if not (x[blank] != 0).any():
            return x
        x = x.clone() if is_tensor(x) else x.copy()
        x[blank] = 0
        return x

    observation, reward = buffer_func(env.observation, zeroed), zeroed(env.reward)
    unchanged = reward is env.reward and all(a is b for a, b in zip(buffer_leaves(observation), buffer_leaves(env.observation)))
    return samples if unchanged else samples._replace(env=env._replace(observation=observation, reward=reward))


class BatchSpec(namedtuple("BatchSpec", "T B")):
    """Dimensions of a batch: `T` time steps of `B` environments, `size` environment steps in total."""

    __slots__ = ()

    @property
    def size(self) -> int:
        return self.T * self.B


class TrajInfo(AttrDict):
    """Statistics of one episode; fields whose names do not start with an underscore are logged.

    Subclass it to log more. To log the sum of an entry of ``env_info``, list the entry in `env_info_sums`. This is fast, because collectors
    sum over the batch when an episode or the batch ends. For anything else, override `step`, which is called after every environment step.

    Attributes:
        env_info_sums: pairs ``(field, name of the env_info entry)``.
        _discount: factor of `DiscountedReturn`; set on the class by the sampler.
    """

    _discount = 1.0
    env_info_sums: tuple[tuple[str, str], ...] = ()

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.Length = 0
        self.Return = 0.0
        self.NonzeroRewards = 0
        self.DiscountedReturn = 0.0
        self._cur_discount = 1.0
        for field, _ in self.env_info_sums:
            self[field] = 0.0

    def step(self, observation: Any, action: Any, reward: float, done: bool, agent_info: Any, env_info: Any) -> None:
        """Record one environment step: `observation` and `action` are its inputs, the other arguments its results.

        `agent_info` is None while environments are decorrelated.
        """
        self.Length += 1
        self.Return += reward
        self.NonzeroRewards += int(reward != 0)
        self.DiscountedReturn += self._cur_discount * reward
        self._cur_discount *= self._discount
        for field, name in self.env_info_sums:
            self[field] += getattr(env_info, name)

    def terminate(self, observation: Any) -> TrajInfo:
        """Return the finished object; `observation` is the final one of the episode."""
        return self


class TaskTrajInfo(TrajInfo):
    """Also logs the return of each task as ``Task0Return``, ... for environments with ``env_info.task_id``.

    In `rlpyt.envs.multitask`, `TaskOnehotWrapper` and `MultiEnvWrapper` add this entry; `TaskNameWrapper` adds it if given a `task_id`.

    Subclass it to use names instead of numbers::

        class MyTrajInfo(TaskTrajInfo):
            task_names = ("reach", "push")  # TaskreachReturn, TaskpushReturn

    Attributes:
        task_names: names of tasks, indexed by task number; other tasks keep their number.
    """

    task_names: tuple[str, ...] = ()
    env_info_sums = (("_task_ids", "task_id"),)  # The same at every step of an episode.
    _task_ids: float

    @property
    def task_id(self) -> int:
        """Number of the task."""
        return round(self._task_ids / self.Length)

    def terminate(self, observation: Any) -> TaskTrajInfo:
        """Return the finished object, with the field of its task."""
        task = self.task_id
        name = self.task_names[task] if task < len(self.task_names) else task
        self[f"Task{name}Return"] = self.Return
        return self


def info_from_plain(plain: Any, TrajInfoCls: Any, name: str) -> TrajInfo:
    """Return a TrajInfo with the fields that `to_plain` saved; ValueError if `plain` is something else."""
    fields = from_plain(plain, name)
    if not isinstance(fields, dict):
        raise ValueError(f"{name} is {shown(fields)}, and not the fields of a TrajInfo.")
    for field in fields:
        if not isinstance(field, str) or callable(getattr(TrajInfoCls, field, None)):
            raise ValueError(f"{name} has {shown(field)}, which is no field of a TrajInfo.")  # For example a method.
    info = TrajInfoCls()
    info.update(fields)
    return info


def plain_infos(infos: Iterable[TrajInfo]) -> list:
    """Return TrajInfos as plain data, without values that are neither numbers nor strings."""
    return [to_plain({name: value for name, value in info.items() if isinstance(value, (int, float, str))}) for info in infos]


def infos_from_plain(plain: Any, TrajInfoCls: Any) -> list[TrajInfo]:
    """Invert `plain_infos`; ValueError if `plain` is something else."""
    check_form(plain, list, "traj_infos")
    return [info_from_plain(saved, TrajInfoCls, f"traj_infos[{i}]") for i, saved in enumerate(plain)]


class Agent(Protocol):
    """The agent's interface for samplers. `rlpyt.agents.base.BaseAgent` implements it.

    The sampler first calls `initialize`, before worker processes start, and `collector_initialize` in each process that acts. Batches and
    evaluations follow. Each begins with `sample_mode` or `eval_mode`, and calls `step` for all environments of the process, and
    `reset_one` for each environment whose episode has ended. Only policy gradient agents have `value`, which is called only for them.

    Attributes:
        recurrent: whether the agent remembers earlier steps of an episode.
        alternating: whether a recurrent agent has two recurrent states, one for each half of the environments (`toggle_alt`). A sampler
            sets it for agents that are not recurrent.
        clip_actions: whether actions for the environments are clipped to the bounds of their space.
        rescale_actions: whether they are first rescaled from [-1,1] to these bounds. Optional, see `rlpyt.agents.base.BaseAgent`.
        acts_on_device: whether `step` and `value` return tensors on the agent's device. The action server sets it, and copies them.
        device: device on which the agent acts and is trained.
    """

    recurrent: bool
    alternating: bool
    clip_actions: bool
    acts_on_device: bool
    device: torch.device

    def initialize(self, env_spaces: Any, share_memory: bool = False, **kwargs: Any) -> None:
        """Build the models for the environment's spaces; with `share_memory`, worker processes see changes of their parameters."""

    def collector_initialize(self, global_B: int = 1, env_ranks: Any = None) -> None:
        """Prepare to act for the environments `env_ranks` out of `global_B` in the run."""

    def sync_shared_memory(self) -> None:
        """Copy the trained parameters to the memory from which worker processes read them, if it is separate."""

    def sample_mode(self, itr: int) -> None:
        """From now on, act for batch `itr`, and continue its episodes."""

    def eval_mode(self, itr: int) -> None:
        """From now on, act for an evaluation at iteration `itr`."""

    def prepare_acting(self, B: int, n_steps: int | None = None) -> None:
        """Prepare for `n_steps` calls of `step` (None: for many), with at most `B` environments and the same parameters. Optional."""

    def step(self, observation: Any, prev_action: Any, prev_reward: Any) -> Any:
        """Return ``(action, agent_info)`` for tensors ``[B,...]``, as tensors without gradient."""

    def reset(self) -> None:
        """Forget the past of all environments."""

    def reset_one(self, idx: int) -> None:
        """Forget the past of environment `idx` of this process."""

    def acting_for(self, columns: torch.Tensor, B: int) -> AbstractContextManager[None]:
        """Inside this context `step`, `value` and `reset_one` are about `columns` [n] of the `B` environments of this process only."""

    def sampling_state(self) -> Any:
        """Return the agent's memory of its environments for a checkpoint, as plain data and tensors."""

    def set_sampling_state(self, state: Any, example: Any) -> None:
        """Continue from what `sampling_state` returned; `example` is a structure like agent_info."""


class CompletedAgent(Completed):
    """Any agent, with the attributes that samplers and algorithms do without.

    Attributes:
        clip_actions: as in `Agent`.
        rescale_actions: as `rescale` of `rlpyt.envs.base.ActionForm`.
        acting_for: as in `Agent`; None if the agent cannot act for some columns alone.
        remembers_envs: whether `reset_one` has anything to forget; if not, samplers do not call it.
        value: method that returns the value estimates of policy gradient agents; None for others.
        update_obs_rms: adds observations to the statistics by which the agent normalizes them; None if it has none.
        normalizes_observations: whether it has such statistics now, if it has the method.
        update_target: moves target networks towards the models, or copies the models without an argument; None if the agent has none.
        initial_model_state_dict: parameters that the agent began with, those of target networks included; None for new ones.
        ModelCls: class of its model, or a function that makes it; None if unknown.
    """

    clip_actions: bool = False
    rescale_actions: bool | str = False
    acting_for: Callable[..., AbstractContextManager[None]] | None = None
    remembers_envs: bool = True
    value: Callable[..., Any] | None = None
    update_obs_rms: Callable[[Any], None] | None = None
    normalizes_observations: bool = True
    update_target: Callable[..., None] | None = None
    initial_model_state_dict: Mapping[str, Any] | None = None
    ModelCls: Callable[..., Any] | None = None

    def prepare_acting(self, B: int, n_steps: int | None = None) -> None:
        """Prepare to act. The default does nothing."""

    def blame_model(self, observation: Any, prev_action: Any, prev_reward: Any) -> None:
        """After an error of `step`: raise ValueError if the model's outputs are the cause. The default does nothing."""


def check_estimates_values(agent: Any, algorithm: str = "The algorithm") -> None:
    """Raise ValueError if an agent estimates no values, which an algorithm of this name needs."""
    if CompletedAgent(agent).value is None:
        raise ValueError(
            f"{algorithm} needs an agent that estimates values, such as MlpFfAgent, AtariFfAgent or MujocoFfAgent of "
            f"rlpyt.agents.pg: {type(agent).__name__} has no method `value`."
        )


class AsyncAgent(Agent, Protocol):
    """The agent's interface for asynchronous samplers. One process trains the agent; others act with copies of its parameters.

    Attributes:
        parameters_version: how often parameters had been published when these were.
    """

    parameters_version: int

    def async_initialize(self) -> None:
        """In the training process, after `initialize`: prepare to send parameters."""

    def async_cpu(self, share_memory: bool = True) -> None:
        """In a sampling process: act with a copy of the model; with `share_memory`, worker processes see changes of its parameters."""

    def to_device(self, cuda_idx: int | None = None) -> None:
        """Act on this GPU, or on the CPU if it is None."""

    def send_shared_memory(self) -> None:
        """In the training process: publish the trained parameters."""

    def recv_shared_memory(self) -> None:
        """In a sampling process: load the latest published parameters, if they are new."""

    def acting_tensors(self) -> list[Any]:
        """Return parameters and buffers of the models that act."""
