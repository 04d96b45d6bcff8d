"""Base classes of policy gradient algorithms: returns and advantages of a batch, and the agent's training inputs."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable
from typing import Any

import torch

from rlpyt.agents.base import AgentInputs, BaseAgent, null_after_done, uses_prev_action
from rlpyt.agents.pg.base import PgAgent
from rlpyt.algos.base import RlAlgorithm
from rlpyt.algos.hyperparameters import OF_OPTIMIZERS
from rlpyt.algos.optimizers import make_optimizer, rate_may_change, set_learning_rate
from rlpyt.distributions.base import Distribution
from rlpyt.models.utils import unwrap_ddp
from rlpyt.returns import discount_return_tl, generalized_advantage_estimation_tl, valid_steps
from rlpyt.types import BatchSpec, as_recorded, with_zeros_in_blanks
from rlpyt.utils.buffer import buffer_method
from rlpyt.utils.completed import Completed
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import FRACTION, RATE, checked
from rlpyt.utils.tensor import valid_mean

OptInfo = namedtuple("OptInfo", ["loss", "gradNorm", "entropy", "perplexity"])

AgentTrain = namedtuple("AgentTrain", ["dist_info", "value"])

_MIN_ADVANTAGE_STD = 1e-6


class CompletedPgAgent(Completed):
    """An agent for `PolicyGradientAlgo`, which need not be one of ours, with its optional method.

    Attributes:
        update_obs_rms: adds observations to the statistics by which the agent normalizes them; None if it does not.
    """

    update_obs_rms: Callable[[Any], None] | None = None


class PolicyGradientAlgo(RlAlgorithm):
    """On-policy actor-critic; subclasses define the loss.

    Subclasses have the settings of `OnPolicyAlgorithm`, the base class of rlpyt's algorithms. Your class may also assign attributes with
    the names of these settings.
    """

    bootstrap_value = True
    can_be_graphed = True
    opt_info_fields: tuple[str, ...] = OptInfo._fields

    agent: PgAgent
    discount: float
    learning_rate: float
    value_loss_coeff: float
    entropy_loss_coeff: float
    OptimCls: type
    optim_kwargs: dict
    initial_optim_state_dict: dict | None
    gae_lambda: float
    normalize_advantage: bool
    linear_lr_schedule: bool

    def initialize(
        self,
        agent: BaseAgent,
        n_itr: int,
        batch_spec: BatchSpec,
        mid_batch_reset: bool = False,
        examples: dict[str, Any] | None = None,
        world_size: int = 1,
        rank: int = 0,
    ) -> None:
        """Build the optimizer and store the other arguments. `examples` is not used.

        Raises:
            ValueError: the agent has no distribution with likelihoods and entropies, which rlpyt's losses need; or the learning rate
                follows a schedule that a CUDA graph with this optimizer would ignore.
        """
        distribution = agent.distribution
        is_suitable = all(_defines(distribution, name) for name in ("log_likelihood", "entropy"))
        if not is_suitable and self.trains_by("optimize_agent", "loss"):
            raise ValueError(
                f"{type(self).__name__} needs an agent for policy gradients, whose distribution has likelihoods and entropies, such as "
                f"AtariFfAgent, MlpFfAgent or MujocoFfAgent of rlpyt.agents.pg; {type(agent).__name__} has "
                f"{'none' if distribution is None else type(distribution).__name__}."
            )
        self.agent = agent  # type: ignore[assignment]
        self.n_itr = n_itr
        self.batch_spec = batch_spec
        self.mid_batch_reset = mid_batch_reset
        self.world_size, self.rank = world_size, rank
        self._batch_size = batch_spec.size
        self.prepare_models()
        parameters = agent.parameters()
        self.optimizer = make_optimizer(self.OptimCls, parameters, self.learning_rate, self.optim_kwargs, capturable=self.cuda_graphs)
        if self.cuda_graphs and self.linear_lr_schedule and not rate_may_change(self.optimizer):
            raise ValueError(
                f"cuda_graphs=True would always repeat the first learning rate of {type(self.optimizer).__name__}: set "
                "linear_lr_schedule=False, or choose an optimizer of torch that has the argument fused or capturable."
            )
        if self.initial_optim_state_dict is not None:
            self.load_optim_state_dict(self.initial_optim_state_dict)

    def remaining(self, itr: int) -> float:
        """Return the fraction of the run that remains at iteration `itr`."""
        return max(1 - itr / max(self.n_itr, 1), 0.0)

    def set_schedules(self, itr: int) -> None:
        """Set the learning rate to its value at iteration `itr`, if it follows a schedule."""
        if self.linear_lr_schedule:
            set_learning_rate(self.optimizer, self.learning_rate * self.remaining(itr))

    def process_returns(self, samples: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Compute returns and advantages from the values recorded while sampling.

        Uses discounted returns if ``gae_lambda == 1``, otherwise generalized advantage estimation. Truncated episodes bootstrap from the
        value of their final observation. If `normalize_advantage`, advantages are normalized over the valid steps.

        Args:
            samples: batch [T,B].

        Returns:
            return_ [T,B], advantage [T,B], and valid [T,B] (1 or 0). valid is None if all steps are valid, that is, with a feed-forward
            agent and environments that are reset inside the batch without blank rows. A recurrent agent learns from a column only up to
            the first `done`: recurrent layers run through the whole sequence, so their state cannot be reset in the middle.
        """
        samples = with_zeros_in_blanks(as_recorded(samples))
        env, value = samples.env, samples.agent.agent_info.value
        inputs = dict(
            reward=env.reward,
            value=value,
            done=env.done,
            bootstrap_value=samples.agent.bootstrap_value,
            discount=self.discount,
            timeout=env.timeout,
            timeout_value=samples.agent.timeout_value,
        )
        if self.gae_lambda == 1:  # The same numbers with less arithmetic.
            return_ = discount_return_tl(**inputs)
            advantage = return_ - value
        else:
            advantage, return_ = generalized_advantage_estimation_tl(**inputs, gae_lambda=self.gae_lambda)
        valid = valid_steps(env.done, env.valid, until_done=not self.mid_batch_reset or self.agent.recurrent)
        if self.normalize_advantage:
            advantage = normalize(advantage, valid)
        return return_, advantage, valid

    def agent_inputs(self, samples: Any) -> AgentInputs:
        """Return the inputs [T,B,...] of the agent while sampling. After the end of an episode, previous action and reward are null.

        For a model that declares ``uses_prev_action = False``, they are neither copied nor set to null, since the model ignores them.
        """
        samples = with_zeros_in_blanks(samples)
        env, agent = samples.env, samples.agent
        prev_action, prev_reward = agent.prev_action, env.prev_reward
        if uses_prev_action(type(unwrap_ddp(self.agent.model))):  # type: ignore[arg-type]
            prev_action = null_after_done(prev_action, env.done, self.agent.env_spaces.action.null_value())
            prev_reward = null_after_done(prev_reward, env.done)
        return AgentInputs(env.observation, prev_action, prev_reward)

    def update_obs_rms(self, samples: Any) -> None:
        """Add the observations of this batch to the statistics of an agent that normalizes them.

        Called after the gradient updates. They then see observations normalized as during action selection, so PPO's likelihood ratios
        start at exactly one. Blank rows, and those of environments that wait for a reset, are left out, since they hold no observations.
        A recurrent agent also adds observations that it does not learn from.
        """
        update_obs_rms = CompletedPgAgent(self.agent).update_obs_rms
        if update_obs_rms is not None:
            observation = samples.env.observation
            valid = valid_steps(samples.env.done, samples.env.valid, until_done=not self.mid_batch_reset)
            if valid is not None:
                observation = observation[valid.bool()]  # [n,...]
            update_obs_rms(observation)


class OnPolicyAlgorithm(PolicyGradientAlgo):
    """A `PolicyGradientAlgo` with the settings that all of rlpyt's have.

    Args:
        discount: γ.
        learning_rate: step size of the optimizer.
        value_loss_coeff: weight of the value loss.
        entropy_loss_coeff: weight of the entropy bonus.
        OptimCls: class of the optimizer.
        optim_kwargs: further arguments of the optimizer.
        clip_grad_norm: largest norm of the gradient.
        initial_optim_state_dict: optimizer state to start from.
        gae_lambda: λ of generalized advantage estimation; 1 means plain discounted returns.
        normalize_advantage: shift and scale the advantages of a batch to mean 0 and standard deviation 1.
        linear_lr_schedule: let the learning rate fall linearly to 0 over the run. The rate is a function of `itr` of `optimize_agent`, so
            a resumed run continues the schedule.

    Raises:
        ValueError: a setting is not possible.
    """

    @checked(OF_OPTIMIZERS, discount=FRACTION, value_loss_coeff=RATE, entropy_loss_coeff=RATE, gae_lambda=FRACTION)
    def __init__(
        self,
        discount: float = 0.99,
        learning_rate: float = 0.001,
        value_loss_coeff: float = 0.5,
        entropy_loss_coeff: float = 0.01,
        OptimCls: type = torch.optim.Adam,
        optim_kwargs: dict | None = None,
        clip_grad_norm: float = 1.0,
        initial_optim_state_dict: dict | None = None,
        gae_lambda: float = 1,
        normalize_advantage: bool = False,
        linear_lr_schedule: bool = False,
    ) -> None:
        optim_kwargs = {} if optim_kwargs is None else optim_kwargs
        save__init__args(locals())
        self.check_settings()


def _defines(distribution: Any, name: str) -> bool:
    """Return whether a distribution defines a method that `Distribution` only declares."""
    return any(name in vars(cls) for cls in type(distribution).__mro__ if cls is not Distribution)


def normalize(x: torch.Tensor, valid: torch.Tensor | None = None) -> torch.Tensor:
    """Shift and scale `x` to mean 0 and unbiased standard deviation 1 over its valid entries (all if `valid` is None)."""
    mask = torch.ones_like(x) if valid is None else valid.to(x.dtype)
    centered = x - valid_mean(x, mask)
    variance = (centered.square() * mask).sum() / (mask.sum() - 1).clamp(min=1)
    return centered / variance.sqrt().clamp(min=_MIN_ADVANTAGE_STD)


def batch_first_to_layer_first(rnn_state: Any) -> Any:
    """Transpose stored recurrent states [B,N,H] to [N,B,H] for recurrent layers."""
    return buffer_method(buffer_method(rnn_state, "transpose", 0, 1), "contiguous")
