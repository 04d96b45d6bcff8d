"""Policy gradient agents for continuous control."""

from collections.abc import Sequence
from typing import Any

from rlpyt.agents.pg.gaussian import AlternatingRecurrentGaussianPgAgent, GaussianPgAgent, RecurrentGaussianPgAgent
from rlpyt.agents.spaces import arguments_of_model
from rlpyt.distributions.composite import leaves
from rlpyt.distributions.gaussian import Gaussian
from rlpyt.models.pg.mujoco_ff_model import MujocoFfModel
from rlpyt.models.pg.mujoco_lstm_model import MujocoLstmModel
from rlpyt.models.utils import unwrap_ddp
from rlpyt.spaces.masked import split
from rlpyt.utils.settings import checked


class MujocoMixin:
    """Gives the model observation_shape, action_size, and observations for its running statistics.

    Environments get actions rescaled and clipped to their bounds, see `rlpyt.agents.pg.gaussian.GaussianPgAgent`.

    Args:
        deterministic_eval: in evaluation take the mean of a Gaussian distribution as the action, instead of a sample.
    """

    model_arguments: Sequence[str] = ("observation_shape", "action_size")
    make_env_to_model_kwargs = arguments_of_model

    @checked()
    def __init__(self, *args: Any, deterministic_eval: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.deterministic_eval = deterministic_eval

    def update_obs_rms(self, observation: Any) -> None:
        """Add observations [T,B,...] or [B,...] to the model's running statistics; in data-parallel training all ranks together.

        Does nothing if a model of yours has no ``update_obs_rms``.
        """
        model = unwrap_ddp(self.model)
        if hasattr(model, "update_obs_rms"):
            model.update_obs_rms(self._to_device(split(observation)[0]))

    def _set_mode(self, mode: str, training: bool) -> None:
        if self.deterministic_eval and (mode == "eval") != (self._mode == "eval"):
            gaussians = [part for part in leaves(self.distribution) if isinstance(part, Gaussian)]
            if mode == "eval":
                self._stds = [gaussian.std for gaussian in gaussians]
            for gaussian, std in zip(gaussians, self._stds):
                gaussian.set_std(0.0 if mode == "eval" else std)
        super()._set_mode(mode, training)


class MujocoFfAgent(MujocoMixin, GaussianPgAgent):
    """Feedforward agent for actions in [-1,1]."""

    ModelCls = MujocoFfModel


class MujocoLstmAgent(MujocoMixin, RecurrentGaussianPgAgent):
    """Recurrent agent for continuous actions."""

    ModelCls = MujocoLstmModel


class AlternatingMujocoLstmAgent(MujocoMixin, AlternatingRecurrentGaussianPgAgent):
    """MujocoLstmAgent for alternating samplers."""

    ModelCls = MujocoLstmModel
