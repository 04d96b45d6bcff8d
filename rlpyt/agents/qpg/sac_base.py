"""What SAC agents share: a policy of squashed Gaussian actions, and, in both forms of SAC, two Q-functions."""

from __future__ import annotations

import math
from collections import namedtuple
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any

import torch

from rlpyt.agents.base import AgentStep
from rlpyt.agents.qpg.base import QpgAgent, largest_action
from rlpyt.distributions.gaussian import DistInfoStd, Gaussian
from rlpyt.models.qpg.mlp import PiMlpModel, after_targets
from rlpyt.models.utils import parameters_of
from rlpyt.utils.collections import namedarraytuple
from rlpyt.utils.logging import logger
from rlpyt.utils.misc import is_of_rlpyt
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import RATE, Kind, Number, checked, or_array, shown

MIN_LOG_STD = -20
MAX_LOG_STD = 2
AUTO = "auto"  # As `action_squash`: the bounds of the action space.
_NUMBER = Number(0, above=True, finite=True)
SQUASH = Kind(f"{_NUMBER}, or {AUTO!r}", lambda value: _NUMBER.allows(value) or isinstance(value, str) and value == AUTO)

AgentInfo = namedarraytuple("AgentInfo", ["dist_info"])
Models = namedtuple("Models", ["pi", "q1", "q2", "v"], defaults=(None,))


class SquashedGaussianAgent(QpgAgent):
    """Samples actions from a squashed Gaussian, with a fixed standard deviation before learning begins; evaluation takes the most likely.

    Its settings are those of `rlpyt.agents.qpg.base.QpgAgent`, and:

    Args:
        ModelCls: class of the policy, which returns mean and log_std, both [*lead,A].
        v_model_kwargs: keyword arguments of the value function, if the agent has one.
        action_squash: largest absolute action: actions are ``action_squash * tanh(x)``, x Gaussian; "auto" takes the bounds of
            the environment's action space, None does not squash.
        pretrain_std: standard deviation of x before learning begins; None means the policy's.
    """

    hidden_sizes = (256, 256)

    action_squash: Any  # A number, None or AUTO.
    pretrain_std: float | None
    q1_model: torch.nn.Module
    q2_model: torch.nn.Module
    distribution: Gaussian

    @checked(action_squash=SQUASH, pretrain_std=or_array(RATE))
    def __init__(
        self,
        *,
        ModelCls: type[torch.nn.Module] = PiMlpModel,
        v_model_kwargs: dict[str, Any] | None = None,
        initial_model_state_dict: Mapping[str, Any] | None = None,
        action_squash: float | str | None = 1.0,
        pretrain_std: float | None = 0.75,
        **settings: Any,
    ) -> None:
        save__init__args(locals())
        super().__init__(**settings)
        if v_model_kwargs and "v_model" not in self.model_names and is_of_rlpyt(type(self)):
            logger.warn(f"{type(self).__name__} has no value function: v_model_kwargs={shown(v_model_kwargs)} has no effect, leave it out.")

    def make_distribution(self, action_space: Any) -> None:
        """A Gaussian, squashed to `action_squash`."""
        self.distribution = Gaussian(
            dim=action_space.shape[0],
            squash=largest_action(action_space) if self.action_squash == AUTO else self.action_squash,
            min_std=math.exp(MIN_LOG_STD),
            max_std=math.exp(MAX_LOG_STD),
        )

    def check_bounds(self) -> None:
        """Log a warning if actions do not reach the bounds of the action space, or exceed them.

        Algorithms call this. `initialize` does not, because a subclass may assign another distribution after it.
        """
        if not isinstance(self.distribution, Gaussian) or self.distribution.clip is not None:
            return
        squash, largest = self.distribution.squash, largest_action(self.env_spaces.action)
        if squash is None:
            # A subclass may bound actions in another way.
            is_unbounded = self.action_squash is None and is_of_rlpyt(self.make_distribution, self.pi, self.step) and not self.clip_actions
            if is_unbounded and math.isfinite(largest):
                logger.warn(
                    f"{type(self).__name__} takes actions of any size (action_squash=None), but those of the environment are between "
                    f"-{largest} and {largest}: action_squash={AUTO!r} keeps them there."
                )
        elif not math.isclose(squash, largest, rel_tol=1e-5):
            logger.warn(
                f"{type(self).__name__} takes actions between -{squash} and {squash} (its action_squash), but those of the "
                f"environment go to {largest}: action_squash={AUTO!r} takes as many as there are."
            )

    def pi(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, DistInfoStd]:
        """Return a new action [*lead,A], the log of its density [*lead], and dist_info, all with gradient to the policy."""
        dist_info = DistInfoStd(*self.model(*self._model_inputs(observation, prev_action, prev_reward)))
        return *self.distribution.sample_loglikelihood(dist_info), dist_info

    def joint_pi(self, inputs: Any, target_inputs: Any) -> tuple[tuple, tuple] | None:
        """Return `pi` of `inputs` [B], and, without gradient, action [n,A] and log of its density [n] for `target_inputs`, in one pass.

        None if there is no such pass: `pi` is overridden, or the policy is no plain perceptron, or wrapped, or not in full precision.
        """
        if not is_of_rlpyt(self.pi) or type(self.distribution) is not Gaussian or not self.distribution.samples_in_one_node:
            return None
        outputs = after_targets(self.model, self._model_inputs(*inputs)[0], self._model_inputs(*target_inputs)[0])
        if outputs is None:
            return None
        joined, dist_info = (DistInfoStd(*each) for each in outputs)
        action, log_pi, *of_targets = self.distribution.sample_loglikelihood_after(dist_info, joined)
        return (action, log_pi, dist_info), tuple(of_targets)

    @torch.no_grad()
    def step(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor) -> AgentStep:
        """Choose actions: AgentStep(action [*lead,A], AgentInfo(dist_info [*lead,A])) on the CPU, without gradient."""
        mean, log_std = self._to_cpu(self._outputs(*self._model_inputs(observation, prev_action, prev_reward)))
        dist_info = DistInfoStd(mean, log_std)
        return AgentStep(self.distribution.sample(dist_info), AgentInfo(dist_info))

    def pi_parameters(self) -> Iterator[torch.nn.Parameter]:
        """Return the parameters of the policy."""
        return self.model.parameters()

    def train_mode(self, itr: int) -> None:
        """Extend the base class: the standard deviation is the policy's."""
        super().train_mode(itr)
        self.distribution.set_std(None)

    def sample_mode(self, itr: int) -> None:
        """Extend the base class: the standard deviation is `pretrain_std` before learning begins."""
        super().sample_mode(itr)
        self.distribution.set_std(self.pretrain_std if itr < self.min_itr_learn else None)

    def eval_mode(self, itr: int) -> None:
        """Extend the base class: the standard deviation is 0."""
        super().eval_mode(itr)
        self.distribution.set_std(0.0)


class BaseSacAgent(SquashedGaussianAgent):
    """Has two Q-functions.

    Its settings are those of `SquashedGaussianAgent`.
    """

    q_names = ("q1_model", "q2_model")

    def q(self, observation: Any, prev_action: Any, prev_reward: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return both Q [*lead] of an action, with gradient."""
        return self._q_values(self.q_names, observation, prev_action, prev_reward, action)

    def q1_parameters(self) -> Iterator[torch.nn.Parameter]:
        """Return the parameters of the first Q-function."""
        return parameters_of(self.q1_model)

    def q2_parameters(self) -> Iterator[torch.nn.Parameter]:
        """Return the parameters of the second Q-function."""
        return parameters_of(self.q2_model)

    def q_parameters(self) -> Iterator[torch.nn.Parameter]:
        """Return the parameters of both Q-functions."""
        return chain(self.q1_parameters(), self.q2_parameters())
