"""All models for policy gradients can start from orthogonal matrices, with a small last layer of the policy."""

from collections import namedtuple

import pytest
import torch

from rlpyt.agents.pg.atari import AtariFfAgent, AtariLstmAgent
from rlpyt.agents.pg.composite import MlpCompositeFfAgent, MlpCompositeLstmAgent
from rlpyt.agents.pg.mlp import MlpFfAgent, MlpGaussianFfAgent, MlpLstmAgent
from rlpyt.agents.pg.mujoco import MujocoFfAgent, MujocoLstmAgent
from rlpyt.agents.pg.multi_input import MultiInputFfAgent, MultiInputLstmAgent
from rlpyt.envs.base import EnvSpaces
from rlpyt.spaces.composite import Composite
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox

Seen, Done = namedtuple("Seen", ["image", "vector"]), namedtuple("Done", ["choice", "force"])
IMAGE, VECTOR = IntBox(0, 256, (4, 36, 36), dtype="uint8"), FloatBox(-1, 1, (5,))
CHOICE, FORCE = IntBox(0, 3), FloatBox(-1, 1, (2,))
SPACES = {
    **dict.fromkeys([AtariFfAgent, AtariLstmAgent], (IMAGE, CHOICE)),
    **dict.fromkeys([MlpFfAgent, MlpLstmAgent], (VECTOR, CHOICE)),
    **dict.fromkeys([MujocoFfAgent, MujocoLstmAgent, MlpGaussianFfAgent], (VECTOR, FORCE)),
    **dict.fromkeys([MlpCompositeFfAgent, MlpCompositeLstmAgent], (VECTOR, Composite([CHOICE, FORCE], Done))),
    **dict.fromkeys([MultiInputFfAgent, MultiInputLstmAgent], (Composite([IMAGE, VECTOR], Seen), Composite([CHOICE, FORCE], Done))),
}


def gain_of(weight):
    """The factor of an orthogonal matrix [m,n]; the smaller dimension is orthogonal."""
    rows = weight if weight.shape[0] <= weight.shape[1] else weight.T
    gram = rows @ rows.T
    gain = gram.diagonal().mean()
    torch.testing.assert_close(gram, gain * torch.eye(len(rows)), rtol=1e-3, atol=1e-5 * max(1.0, float(gain)))
    return float(gain.sqrt())


@pytest.mark.parametrize("AgentCls", SPACES, ids=lambda cls: cls.__name__)
def test_layers_are_orthogonal_with_gains_of_what_follows(AgentCls):
    observation, action = SPACES[AgentCls]
    agent = AgentCls(model_kwargs=dict(orthogonal_init=True))
    agent.initialize(EnvSpaces(observation, action))
    found = {}
    for name, p in agent.model.named_parameters():
        if "bias" in name:
            assert not p.any(), name
        elif p.dim() > 1 and name == "head.weight":  # One layer for the policy and, in the last row, the value.
            found["policy"], found["value"] = gain_of(p[:-1].detach()), gain_of(p[-1:].detach())
        elif p.dim() > 1:
            found[name] = gain_of(p.detach().flatten(1))
    gains = {round(gain, 3) for gain in found.values()}
    assert gains == ({0.01, 1.0, 1.414} if found.keys() - {"policy", "value"} else {0.01, 1.0}), found
    assert sum(round(gain, 3) == 0.01 for gain in found.values()) == 1
