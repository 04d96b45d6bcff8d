"""Any agent as a policy of episodic samplers, and any policy as an agent of the others.

A *policy* has ``get_action(observation)`` and ``get_actions(observations)``, which return the action and a dictionary of further
information. The results of ``get_actions`` have leading dimension B; actions that are structures, such as dictionaries, are a list of B.
A policy also has ``reset(do_resets=None)`` with a list of B bools, ``get_param_values()`` and ``set_param_values(params)``. It may have
``for_envs(actions)``, which turns its actions, which are recorded, into the actions that environments get. Attributes ``clip_actions`` and
``rescale_actions`` then say, as those of agents do, how it does that; the `EnvSpec` of its episodes records it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from rlpyt.agents.base import AgentStep, BaseAgent
from rlpyt.distributions.composite import gaussians
from rlpyt.envs.adapters import from_dict
from rlpyt.envs.base import ActionForm, EnvSpaces, copied, for_envs, is_space, write_observation
from rlpyt.spaces.gym_wrapper import GymSpaceWrapper
from rlpyt.utils.buffer import buffer_func, buffer_leaves, numpify_buffer, torchify_buffer
from rlpyt.utils.completed import Completed
from rlpyt.utils.settings import checked
from rlpyt.utils.structures import as_dictionaries, from_structure, leaves, map_structure, numeric, stack, to_structure, tree_map


class CompletedPolicy(Completed):
    """Any policy, with its optional methods; it needs one of the first two.

    Attributes:
        get_actions: method that returns actions and infos ``[B,...]`` for observations ``[B,...]``.
        get_action: method that returns the action and the info for one observation.
        get_param_values: method that returns the parameters as plain data and tensors.
    """

    get_actions: Callable[[Any], tuple[Any, dict]] | None = None
    get_action: Callable[[Any], tuple[Any, dict]] | None = None
    get_param_values: Callable[[], Any] | None = None


class AgentPolicy:
    """An agent of rlpyt as a policy.

    It keeps the agent's other inputs: previous actions, previous rewards (workers pass them to `take_rewards`), and the recurrent state.
    Its infos are the fields of agent_info.

    Args:
        agent: the agent. `prepare` makes its models if necessary.

    Attributes:
        agent: the agent.
    """

    def __init__(self, agent: BaseAgent) -> None:
        if agent.recurrent and agent.alternating:
            raise ValueError(f"{type(agent).__name__} is for alternating samplers: take the agent without Alternating... in its name.")
        self.agent = agent
        self._spaces: EnvSpaces = None  # type: ignore[assignment]  # until `prepare`
        self._itr = agent.sampling_itr
        self._form = ActionForm()  # Of the actions that environments get,
        self._change: Callable[[Any], Any] = copied  # and the function that makes them.
        self._prev_action: Any = None  # [B,...], numpy; None before the first step.
        self._prev_reward = np.zeros(0, np.float32)  # [B]

    @property
    def clip_actions(self) -> bool:
        """Whether `for_envs` clips actions, as the agent says."""
        return ActionForm.of(self.agent).clip

    @property
    def rescale_actions(self) -> bool | str:
        """Whether `for_envs` rescales actions, as the agent says."""
        return ActionForm.of(self.agent).rescale

    def prepare(self, env: Any) -> None:
        """Prepare for an environment, and initialize the agent if necessary. Call it before the first action; further calls do nothing."""
        if self._spaces is None:
            self.take_spaces(env)
            self.agent.sample_mode(self._itr)

    def take_spaces(self, env: Any) -> None:
        """Take the spaces of an environment, and initialize the agent with them if necessary. An initialized agent stays in its mode."""
        self._spaces = _rlpyt_spaces(env)
        if self.agent.env_spaces is None:
            self.agent.initialize(self._spaces)

    def sample_mode(self, itr: int) -> None:
        """Let the agent explore as in iteration `itr`, immediately or as soon as it is prepared."""
        self._itr = itr
        if self.agent.env_spaces is not None:
            self.agent.sample_mode(itr)

    def exploration_itr(self) -> int:
        """Return the iteration whose exploration the agent uses; at first the last one in which it has sampled."""
        return self._itr

    def eval_mode(self, itr: int) -> None:
        """Let the agent act as in an evaluation at iteration `itr`."""
        self.agent.eval_mode(itr)

    @contextmanager
    def acting_deterministically(self) -> Iterator[None]:
        """Inside this context the agent acts as in an evaluation, with the means of Gaussian distributions.

        Discrete actions are chosen as in evaluation: policy gradient agents draw them. Afterwards the agent is in sampling mode.
        """
        self.agent.eval_mode(1)  # In iteration 0 some agents act at random.
        parts = gaussians(self.agent.distribution)
        stds = [gaussian.std for gaussian in parts]
        for gaussian in parts:
            gaussian.set_std(0.0)
        try:
            yield
        finally:
            for gaussian, std in zip(parts, stds):
                gaussian.std = std
            self.agent.sample_mode(self._itr)

    def get_action(self, observation: Any) -> tuple[Any, dict]:
        """Return the action for one observation, and a dictionary of agent_info."""
        actions, infos = self.get_actions(map_structure(lambda x: np.asarray(x)[None], observation))
        return actions[0], tree_map(lambda x: x[0], infos)

    def get_actions(self, observations: Any) -> tuple[Any, dict]:
        """Return actions for observations ``[B,...]``, and a dictionary of agent_info ``[B,...]``.

        Actions are an array ``[B,...]``, or a list of B where each is a structure (a namedtuple, dictionary or tuple).
        """
        if self._spaces is None:
            raise RuntimeError("The agent does not know its environment: call prepare(env) of the AgentPolicy first.")
        observations = self._converted(observations)
        B = len(buffer_leaves(observations)[0])
        if len(self._prev_reward) != B:
            self._start(B)
        inputs = torchify_buffer((observations, self._prev_action, self._prev_reward))
        action, agent_info = numpify_buffer(tuple(self.agent.step(*inputs)))
        self._prev_action = buffer_func(action, np.array)
        return self._reverted(action), from_structure(agent_info)

    def checked_observation(self, observation: Any) -> Any:
        """Return one observation in a form that `get_action` takes.

        Raises:
            ValueError: it is none of the environment's space, such as a batch, or the pair that `reset` of Gymnasium returns.
            TypeError: its dtype cannot be cast safely.
        """
        space = self._spaces.observation
        try:
            if isinstance(space, _GymObservations):
                converted = space.convert(observation)
                return observation if space.is_structured else converted  # `get_actions` converts structures.
            checked = buffer_func(space.null_value(), np.array)
            write_observation(observation, checked)
            return checked
        except (TypeError, ValueError) as error:
            if isinstance(observation, tuple) and len(observation) == 2 and isinstance(observation[1], dict):
                raise ValueError(
                    "This is an observation and its info: give the observation alone: observation, info = env.reset()."
                ) from error
            raise

    def for_envs(self, actions: Any) -> Any:
        """Return the actions for environments, given those that `get_actions` or `get_action` returned: the same, or changed copies."""
        form = ActionForm.of(self.agent)
        if not any(form):
            return actions
        if form != self._form:
            self._form, self._change = form, for_envs(self._spaces.action, form)
        change = self._change
        return [change(action) for action in actions] if isinstance(actions, list) else change(actions)

    def take_rewards(self, rewards: np.ndarray) -> None:
        """Store the rewards ``[B]`` of the last actions, for the next step."""
        if len(rewards) == len(self._prev_reward):
            self._prev_reward[:] = rewards

    def reset(self, do_resets: Any = None) -> None:
        """Reset the agent's memory of environments whose episodes begin: all, or those where `do_resets`, B bools, is True."""
        if do_resets is None or all(do_resets):
            self.agent.reset()
            self._start(len(self._prev_reward))
            return
        for b in np.flatnonzero(do_resets):
            self.agent.reset_one(idx=int(b))
            if b < len(self._prev_reward):
                for leaf, null in zip(buffer_leaves(self._prev_action), buffer_leaves(self._spaces.action.null_value())):
                    leaf[b] = null
                self._prev_reward[b] = 0

    def get_param_values(self) -> dict:
        """Return the agent's state dict on the CPU; tensors on the CPU are not copied."""
        return map_structure(lambda x: x.detach().cpu() if isinstance(x, torch.Tensor) else x, dict(self.agent.state_dict()))

    def set_param_values(self, params: Mapping) -> None:
        """Load what `get_param_values` returned."""
        self.agent.load_state_dict(params)

    def sampling_state(self) -> dict:
        """Return the memory of the episodes in progress: arrays, and plain data and tensors of the agent."""
        memory = dict(prev_action=[leaf.copy() for leaf in buffer_leaves(self._prev_action)], prev_reward=self._prev_reward.copy())
        return dict(memory, agent=self.agent.sampling_state())

    def set_sampling_state(self, state: dict) -> None:
        """Continue from a `sampling_state`. Call it after `prepare`."""
        self._start(len(state["prev_reward"]))
        arrays = iter(state["prev_action"])
        self._prev_action = buffer_func(self._prev_action, lambda _: np.array(next(arrays)))
        self._prev_reward[:] = state["prev_reward"]
        if state["agent"] is not None:
            observation, action = (buffer_func(space.null_value(), lambda x: np.asarray(x)[None]) for space in self._spaces)
            self.agent.reset()
            with torch.random.fork_rng(devices=[]):
                example = self.agent.step(*torchify_buffer((observation, action, np.zeros(1, np.float32))))
            self.agent.set_sampling_state(state["agent"], example.agent_info)

    def copy_for_worker(self, cpu: bool = False) -> AgentPolicy:
        """Return a policy with the same models, and a separate memory of episodes.

        Args:
            cpu: copy the models to the CPU, if they are on another device or in memory shared with other processes.
        """
        agent = copy.copy(self.agent)
        agent._forget_everything()
        if cpu and (agent.device.type != "cpu" or _is_shared(agent)):
            agent.replace_by_copies(agent.model_names.values())
            for model in agent.named_models().values():
                model.cpu()
            agent.device, agent.shared_model, agent._shared_models = torch.device("cpu"), None, {}
        policy = AgentPolicy(agent)
        policy._spaces, policy._itr = self._spaces, self._itr
        return policy

    def _start(self, B: int) -> None:
        null = self._spaces.action.null_value() if self._spaces is not None and B else None
        self._prev_action = buffer_func(null, lambda x: np.repeat(np.asarray(x)[None], B, axis=0))
        self._prev_reward = np.zeros(B, np.float32)

    def _converted(self, observations: Any) -> Any:
        """Return observations of the environment in the form of rlpyt's space: float64 as float32, dictionaries as namedtuples."""
        space = self._spaces.observation
        if isinstance(space, _GymObservations) and space.is_structured:
            B = len(next(leaf for _, leaf in leaves(as_dictionaries(observations))))
            values = [buffer_leaves(space.convert(map_structure(lambda x, b=b: x[b], observations))) for b in range(B)]
            columns = iter([np.stack(column) for column in zip(*values)])
            return buffer_func(space.null_value(), lambda _: next(columns))
        if isinstance(observations, np.ndarray) and isinstance(space, GymSpaceWrapper) and observations.dtype != space.dtype:
            return observations.astype(space.dtype)
        return observations

    def _reverted(self, action: Any) -> Any:
        """Return actions of rlpyt's space in the form that the environment takes: an array ``[B,...]``, or a list of B structures."""
        space = self._spaces.action
        if isinstance(action, tuple):
            action = [buffer_func(action, lambda x, b=b: x[b]) for b in range(len(buffer_leaves(action)[0]))]
        if not isinstance(space, _GymActions) or space.is_same_in_gym:
            return action
        return [space.revert(each) for each in action] if isinstance(action, list) else space.revert(action)


class _GymActions(GymSpaceWrapper):
    """The action space of an environment of another library, which gets actions in its form."""


class _GymObservations(GymSpaceWrapper):
    """The observation space of an environment of another library."""


def _rlpyt_spaces(env: Any) -> EnvSpaces:
    """Return the spaces of any environment as rlpyt spaces."""
    if is_space(env.action_space):
        return env.spaces
    return EnvSpaces(
        observation=_GymObservations(env.observation_space, name="observation"), action=_GymActions(env.action_space, name="action")
    )


def _is_shared(agent: BaseAgent) -> bool:
    models = agent.named_models().values() if agent.env_spaces is not None else ()
    return any(parameter.is_shared() for model in models for parameter in model.parameters())


class PolicyAgent(BaseAgent):
    """A policy as an agent of rlpyt, for sampling; subclasses define the methods that an algorithm needs for training.

    Parameters reach sampler processes if the policy is a ``torch.nn.Module`` on the CPU. Otherwise each process keeps the copy that it was
    started with.

    Args:
        policy: has ``get_actions`` or at least ``get_action``; TypeError otherwise.

    Attributes:
        policy: the policy.
        model: the policy if it is a module, otherwise None.
    """

    @checked()
    def __init__(self, policy: Any) -> None:
        super().__init__()
        completed = CompletedPolicy(policy)
        if completed.get_actions is None and completed.get_action is None:
            raise TypeError(f"{type(policy).__name__} is no policy: it has neither get_actions() nor get_action().")
        self.policy = policy
        self._B: int | None = None
        self._is_module = isinstance(policy, torch.nn.Module)
        self.model_names = {"model": "model"} if self._is_module else {}

    def make_models(self) -> None:
        """Use the policy as the model, if it is a module."""
        self.model = self.policy if self._is_module else None  # type: ignore[assignment]

    def initialize(self, env_spaces: Any, share_memory: bool = False, **kwargs: Any) -> None:
        """Extend the base class: only a module is shared."""
        super().initialize(env_spaces, share_memory and self._is_module, **kwargs)

    def step(self, observation: Any, prev_action: Any, prev_reward: Any) -> AgentStep:
        """Choose actions; leading dims [B] or []."""
        has_lead = prev_reward.dim() > 0
        observations = numpify_buffer(observation if has_lead else buffer_func(observation, lambda x: x[None]))
        actions, infos = self._get_actions(from_structure(observations))
        step = actions, to_structure(numeric(tree_map(np.asarray, infos)), "agent_info")
        return AgentStep(*torchify_buffer(step if has_lead else buffer_func(step, lambda x: x[0])))

    def _get_actions(self, observations: Any) -> tuple[Any, dict]:
        """Return actions of the form of the environment's space, and infos, both ``[B,...]``, for observations in dictionaries."""
        self._B = len(next(leaf for _, leaf in leaves(observations)))
        policy = CompletedPolicy(self.policy)
        if policy.get_actions is not None:
            actions, infos = policy.get_actions(observations)
        else:
            steps = [self.policy.get_action(tree_map(lambda x, b=b: x[b], observations)) for b in range(self._B)]
            actions, infos = [action for action, _ in steps], stack([info for _, info in steps])
        actions = stack(actions, self.env_spaces.action) if isinstance(actions, list) else np.asarray(actions)
        return from_dict(actions, self.env_spaces.action.null_value()), infos

    def value(self, observation: Any, prev_action: Any, prev_reward: Any) -> torch.Tensor:
        """Raise an error: policies do not estimate values."""
        raise NotImplementedError("A policy estimates no values: sample without bootstrap_value, or define value() in a subclass.")

    def reset(self) -> None:
        """Tell the policy that the episodes of all environments begin."""
        self.policy.reset()

    def reset_one(self, idx: int) -> None:
        """Tell the policy that an episode begins in environment `idx`."""
        if self._B is None or self._B == 1:
            self.policy.reset()
        else:
            self.policy.reset([b == idx for b in range(self._B)])

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """Return the parameters to optimize: none if the policy is not a module."""
        return self.model.parameters() if self._is_module else iter(())

    def state_dict(self) -> dict:
        """Return the policy's parameters, or an empty dictionary if it does not offer them."""
        if self._is_module:
            return super().state_dict()
        get_param_values = CompletedPolicy(self.policy).get_param_values
        return {} if get_param_values is None else {"params": get_param_values()}

    def load_state_dict(self, state_dict: Mapping) -> None:
        """Load the policy's parameters."""
        if self._is_module:
            super().load_state_dict(state_dict)
        elif "params" in state_dict:
            self.policy.set_param_values(state_dict["params"])
