"""Base classes of policy gradient algorithms: returns and advantages of a batch, and the agent's training inputs."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence
from typing import Any

import torch

from rlpyt.agents.base import AgentInputs, BaseAgent, null_after_done, uses_prev_action
from rlpyt.agents.pg.base import PgAgent
from rlpyt.algos.base import RlAlgorithm, check_graph_sees_rate, normalization_of, read_opt_info
from rlpyt.algos.hyperparameters import OF_OPTIMIZERS, Needs
from rlpyt.algos.optimizers import load_initial_state, make_optimizer, set_learning_rate
from rlpyt.algos.pg.rewards import RewardScale
from rlpyt.algos.schedules import SCHEDULE, Schedule, factor_at
from rlpyt.distributions.base import Distribution
from rlpyt.models.utils import unwrap_ddp
from rlpyt.returns import discount_return_tl, explained_variance, generalized_advantage_estimation_tl, v_trace, valid_steps
from rlpyt.types import AgentSamplesBsv, BatchSpec, Samples, as_recorded, check_estimates_values, with_zeros_in_blanks
from rlpyt.utils.buffer import buffer_method
from rlpyt.utils.misc import accepts
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import FRACTION, RATE, checked
from rlpyt.utils.tensor import mean_of_valid

# The fields of the original, and diagnostics, which an algorithm may leave out.
OptInfo = namedtuple(
    "OptInfo",
    ["loss", "gradNorm", "entropy", "perplexity", "piLoss", "valueLoss", "explainedVariance", "learningRate"],
    defaults=(None, None, None, None),
)

# What a loss leaves for the log, without gradient: its parts, likelihood ratios [n,...] and their mask, and the explained variance of the
# batch. All are None if a user's loss leaves nothing.
LossTerms = namedtuple(
    "LossTerms", ["pi_loss", "value_loss", "ratio", "valid", "explained_variance"], defaults=(None, None, None, None, None)
)

AgentTrain = namedtuple("AgentTrain", ["dist_info", "value"])

_MIN_ADVANTAGE_STD = 1e-6


class PolicyGradientAlgo(RlAlgorithm):
    """On-policy actor-critic; subclasses define the loss.

    Subclasses have the settings of `OnPolicyAlgorithm`, the base class of rlpyt's algorithms. Your class may also assign attributes with
    the names of these settings.

    Attributes:
        loss_terms: the parts of the latest loss, for the log. `loss` assigns them.
        explained_variance: of the values of the latest batch, see `rlpyt.returns.explained_variance`; None before the first.
            `process_returns` assigns it.
        policy_lag: updates of the parameters (in the runner's iterations) since those that acted in the batch to train on; 0 if the current
            ones did. The runner assigns it before each batch, if sampling is asynchronous or the sampler has a `policy_lag`.
        corrects_lag: whether the algorithm corrects for the age of the policy that acted.
    """

    bootstrap_value = True
    can_be_graphed = True
    opt_info_fields: tuple[str, ...] = OptInfo._fields
    linear_lr_schedule: bool = False
    entropy_coeff_schedule: Schedule | None = None
    normalize_reward = False
    loss_terms = LossTerms()
    explained_variance: float | torch.Tensor | None = None
    policy_lag = 0
    corrects_lag = False
    rho_clip = c_clip = 1.0  # See `rlpyt.returns.v_trace`.
    _entropy_loss_coeff: Any = None  # At the start of the run, if it follows a schedule.
    _reward_scale: RewardScale | None = None
    _rate = 0.0  # The learning rate, if it follows a schedule.

    agent: PgAgent
    discount: float
    learning_rate: float
    value_loss_coeff: float
    entropy_loss_coeff: Any  # A number, or with CUDA graphs a tensor of it.
    OptimCls: type
    optim_kwargs: dict
    initial_optim_state_dict: dict | None
    gae_lambda: float
    normalize_advantage: bool

    def check_parts(self, agent: Any, batch_spec: BatchSpec | None) -> None:
        """Extend the base class: the agent must estimate values, if the sampler is to record them."""
        super().check_parts(agent, batch_spec)
        if self.bootstrap_value:
            check_estimates_values(agent, type(self).__name__)

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
            ValueError: the agent has no distribution with likelihoods and entropies, which rlpyt's losses need; the learning rate follows
                a schedule that a CUDA graph with this optimizer would ignore; or a subclass of an algorithm that corrects for the age of
                the policy has a `process_returns` that does not take what the current one gives.
        """
        if self.corrects_lag and self.trains_by("loss_inputs") and not accepts(self.process_returns, 3):
            raise ValueError(
                f"{type(self).__name__}.process_returns must take the current policy's ratios and values of batches that an older one "
                "sampled: define it as process_returns(self, samples, ratio=None, value=None)."
            )
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
        self.policy_lag = self.update_counter = 0
        self._batch_size = batch_spec.size
        self.prepare_models()
        parameters = agent.parameters()
        self.optimizer = make_optimizer(self.OptimCls, parameters, self.learning_rate, self.optim_kwargs, capturable=self.cuda_graphs)
        self.schedule_rates((self.optimizer, self.learning_rate))
        if self.cuda_graphs and self.linear_lr_schedule and self.lr_schedule is None:
            check_graph_sees_rate(self.optimizer, "linear_lr_schedule=False")
        if self.entropy_coeff_schedule is not None:
            if self._entropy_loss_coeff is None:
                self._entropy_loss_coeff = self.entropy_loss_coeff
            self._coeff_of_graph = torch.full((), self._entropy_loss_coeff, device=agent.device)  # Always in the same memory.
        if self.normalize_reward:
            self._reward_scale = RewardScale(self.discount, batch_spec.B, agent.device)
        is_scheduled = self.linear_lr_schedule or self.lr_schedule is not None
        load_initial_state(self, is_scheduled and self.trains_by("optimize_agent"))

    def remaining(self, itr: int) -> float:
        """Return the fraction of the run that remains at iteration `itr`."""
        return max(1 - itr / max(self.n_itr, 1), 0.0)

    def rate_factor(self, itr: int) -> float:
        """Return the factor of the initial learning rate at iteration `itr`."""
        return self.remaining(itr) if self.lr_schedule is None else factor_at(self.lr_schedule, self.progress_at(itr), "lr_schedule")

    def set_schedules(self, itr: int) -> None:
        """Set the learning rate and the weight of the entropy to their values at iteration `itr`, if they follow schedules."""
        if self.linear_lr_schedule or self.lr_schedule is not None:
            self._rate = self.learning_rate * self.rate_factor(itr)
            set_learning_rate(self.optimizer, self._rate)
        if self.entropy_coeff_schedule is not None:
            factor = factor_at(self.entropy_coeff_schedule, self.progress_at(itr), "entropy_coeff_schedule")
            coeff = self._entropy_loss_coeff * factor
            self.entropy_loss_coeff = self._coeff_of_graph.fill_(coeff) if self.cuda_graphs else coeff

    def scaled(self, samples: Any) -> Any:
        """Return a batch [T,B] with normalized rewards, if `normalize_reward`; other batches are returned as they are.

        Call this once for each batch: its rewards are added to the statistics first.
        """
        if self._reward_scale is None:
            return samples
        samples = with_zeros_in_blanks(as_recorded(samples))
        env = samples.env
        valid = valid_steps(env.done, env.valid, until_done=not self.mid_batch_reset)
        reward = self._reward_scale.scaled(env.reward, env.done, None if valid is None else valid.bool())
        return samples._replace(env=env._replace(reward=reward))

    def restarted(self, columns: list[int]) -> None:
        """Record that the next steps of these environments do not follow the previous ones. Called by the runner."""
        if self._reward_scale is not None:
            self._reward_scale.restarted(columns)

    def weighted_loss(self, pi_loss: torch.Tensor, value_loss: torch.Tensor, entropy: torch.Tensor) -> torch.Tensor:
        """Return ``L_π + c_V L_V - c_H H``. An entropy of weight 0 costs no gradient."""
        loss, coeff = pi_loss + self.value_loss_coeff * value_loss, self.entropy_loss_coeff
        return loss - coeff * entropy if isinstance(coeff, torch.Tensor) or coeff else loss

    def read(self, OptInfoCls: type, updates: Sequence[Any]) -> Any:
        """Return the results of an iteration's updates as lists of floats, with diagnostics of the iteration; reads the device once."""
        opt_info = read_opt_info(OptInfoCls, updates)
        self.loss_terms = LossTerms()
        rate = self.optimizer.param_groups[0]["lr"]
        if isinstance(rate, torch.Tensor):  # On the device, where reading it would be one more wait.
            rate = self._rate if self.linear_lr_schedule or self.lr_schedule is not None else self.learning_rate
        explained = opt_info.explainedVariance
        if not explained and self.explained_variance is not None:
            explained = [float(self.explained_variance)]
        return opt_info._replace(explainedVariance=explained, learningRate=[rate])

    def training_state(self) -> dict[str, Any]:
        """Add the statistics of rewards, if they are normalized."""
        state = super().training_state()
        return state if self._reward_scale is None else dict(state, reward_scale=self._reward_scale.state_dict())

    def load_training_state(self, state: dict[str, Any]) -> None:
        """Restore what `training_state` returned."""
        super().load_training_state(state)
        if self._reward_scale is not None:
            self._reward_scale.load_state_dict(state.get("reward_scale"))

    def process_returns(
        self, samples: Any, ratio: torch.Tensor | None = None, value: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Compute returns and advantages.

        Uses discounted returns if ``gae_lambda == 1``, otherwise generalized advantage estimation; if another policy acted, V-trace with
        λ = `gae_lambda`. Truncated episodes bootstrap from the value of their final observation. If `normalize_advantage`, advantages are
        normalized over the valid steps.

        Args:
            samples: batch [T,B]. With `ratio` it has only the fields that `for_returns` keeps.
            ratio: [T,B], likelihood ratios of the actions, of the current policy to the one that acted; None if these are the same.
                Weighting advantages by them is left to the loss.
            value: [T,B], values by the current parameters; None for those recorded while sampling.

        Returns:
            return_ [T,B], advantage [T,B], and valid [T,B] (1 or 0). valid is None if all steps are valid, that is, with a feed-forward
            agent and environments that are reset inside the batch without blank rows. A recurrent agent learns from a column only up to
            the first `done`: recurrent layers run through the whole sequence, so their state cannot be reset in the middle.
        """
        if ratio is None:  # Otherwise `for_returns` has done this, without waiting for the device.
            samples = with_zeros_in_blanks(as_recorded(samples))
        env, recorded = samples.env, samples.agent.agent_info.value
        value = recorded if value is None else value.detach().to(recorded.dtype)
        inputs = dict(
            reward=env.reward,
            value=value,
            done=env.done,
            bootstrap_value=samples.agent.bootstrap_value,
            discount=self.discount,
            timeout=env.timeout,
            timeout_value=samples.agent.timeout_value,
        )
        valid = valid_steps(env.done, env.valid, until_done=not self.mid_batch_reset or self.agent.recurrent)
        if ratio is not None:
            if valid is not None:  # Ratios of invalid steps are meaningless; they could be infinite.
                ratio = torch.where(valid.bool(), ratio.detach(), 1)
            clips = dict(rho_clip=self.rho_clip, c_clip=self.c_clip)
            advantage, return_ = v_trace(**inputs, ratio=ratio, lambda_=self.gae_lambda, **clips)
        elif self.gae_lambda == 1:  # The same numbers with less arithmetic.
            return_ = discount_return_tl(**inputs)
            advantage = return_ - value
        else:
            advantage, return_ = generalized_advantage_estimation_tl(**inputs, gae_lambda=self.gae_lambda)
        self.explained_variance = explained_variance(value, return_, valid)
        if self.normalize_advantage:
            advantage = normalize(advantage, valid)
        return return_, advantage, valid

    def for_returns(self, samples: Any) -> Samples:
        """Return the fields of a batch that `process_returns` needs, with `ratio` or without: to compute returns on another device."""
        samples = with_zeros_in_blanks(as_recorded(samples))
        env, agent = samples.env, samples.agent
        nothing = dict.fromkeys(env._fields)
        agent_info = agent.agent_info._replace(prev_rnn_state=None) if self.agent.recurrent else agent.agent_info
        return Samples(
            agent=AgentSamplesBsv(None, None, agent_info, agent.bootstrap_value, agent.timeout_value),
            env=env._replace(**{**nothing, "reward": env.reward, "done": env.done, "timeout": env.timeout, "valid": env.valid}),
        )

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

    def init_rnn_state(self, samples: Any) -> Any:
        """Return the recurrent states [B,N,H] before the first step of a batch; None if the agent is not recurrent."""
        return samples.agent.agent_info.prev_rnn_state[0] if self.agent.recurrent else None

    def update_obs_rms(self, samples: Any) -> None:
        """Add the observations of this batch to the statistics of an agent that normalizes them.

        Called after the gradient updates. They then see observations normalized as during action selection, so the likelihood ratios
        of a policy that acted a moment ago start at exactly one. Blank rows, and those of environments that wait for a reset, are left
        out, since they hold no observations. A recurrent agent also adds observations that it does not learn from.
        """
        update_obs_rms = normalization_of(self.agent)
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
        initial_optim_state_dict: optimizer state to start from. It contains the settings of the optimizer, which count.
        gae_lambda: λ of generalized advantage estimation; 1 means plain discounted returns.
        normalize_advantage: shift and scale the advantages of a batch to mean 0 and standard deviation 1.
        linear_lr_schedule: let the learning rate fall linearly to 0 over the run. The rate is a function of `itr` of `optimize_agent`, so
            a resumed run continues the schedule.
        lr_schedule: another schedule in place of it: "constant", "linear" (to 0), "cosine" (to 0), or a function of the progress (0 to 1,
            in iterations) that returns the factor of the initial rate.
        entropy_coeff_schedule: the same for `entropy_loss_coeff`; None leaves it constant.
        normalize_reward: divide rewards by the standard deviation of the discounted return, see `rlpyt.algos.pg.rewards.RewardScale`.
            Losses and values are then in units of that. Logged returns are of the rewards themselves.

    Attributes:
        entropy_loss_coeff: the current value.

    Raises:
        ValueError: a setting is not possible.
    """

    settings_need: tuple[Needs, ...] = (
        Needs(("entropy_coeff_schedule",), "an entropy_loss_coeff other than 0", lambda algo: algo.entropy_loss_coeff != 0),
    )

    @checked(
        OF_OPTIMIZERS,
        discount=FRACTION,
        value_loss_coeff=RATE,
        entropy_loss_coeff=RATE,
        gae_lambda=FRACTION,
        entropy_coeff_schedule=SCHEDULE,
    )
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
        *,
        lr_schedule: Schedule | None = None,
        entropy_coeff_schedule: Schedule | None = None,
        normalize_reward: bool = False,
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
    centered = x - mean_of_valid(x, mask)
    variance = (centered.square() * mask).sum() / (mask.sum() - 1).clamp(min=1)
    return centered / variance.sqrt().clamp(min=_MIN_ADVANTAGE_STD)


def batch_first_to_layer_first(rnn_state: Any) -> Any:
    """Transpose stored recurrent states [B,N,H] to [N,B,H] for recurrent layers."""
    return buffer_method(buffer_method(rnn_state, "transpose", 0, 1), "contiguous")
