"""Who follows the advice about an action space that an agent refuses ends up with an agent that takes it."""

import importlib
import pickle
import pkgutil
import re
from functools import partial

import gymnasium.spaces
import numpy as np
import pytest
import torch
from tiers import thinned

import rlpyt.agents.dqn
from rlpyt.agents.dqn.atari.atari_catdqn_agent import AtariCatDqnAgent
from rlpyt.agents.dqn.atari.atari_dqn_agent import AtariDqnAgent
from rlpyt.agents.dqn.atari.atari_quantile_agents import AtariIqnAgent, AtariQrDqnAgent
from rlpyt.agents.dqn.atari.atari_r2d1_agent import AtariR2d1Agent
from rlpyt.agents.dqn.catdqn_agent import CatDqnAgent
from rlpyt.agents.dqn.dqn_agent import DqnAgent
from rlpyt.agents.dqn.mlp_catdqn_agent import MlpCatDqnAgent
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.dqn.mlp_quantile_agents import MlpIqnAgent, MlpQrDqnAgent
from rlpyt.agents.dqn.mlp_r2d1_agent import MlpR2d1Agent, MlpR2d1AlternatingAgent
from rlpyt.agents.dqn.quantile_agents import IqnAgent, QrDqnAgent
from rlpyt.agents.pg.atari import AtariFfAgent, AtariLstmAgent
from rlpyt.agents.pg.composite import AlternatingMlpCompositeLstmAgent, MlpCompositeFfAgent, MlpCompositeLstmAgent
from rlpyt.agents.pg.mlp import MlpFfAgent, MlpGaussianFfAgent, MlpLstmAgent
from rlpyt.agents.pg.mujoco import MujocoFfAgent, MujocoLstmAgent
from rlpyt.agents.pg.multi_input import AlternatingMultiInputLstmAgent, MultiInputFfAgent, MultiInputLstmAgent
from rlpyt.agents.qpg.ddpg_agent import DdpgAgent
from rlpyt.agents.qpg.ensemble_sac_agent import EnsembleSacAgent
from rlpyt.agents.qpg.iql_agent import IqlAgent
from rlpyt.agents.qpg.sac_agent import SacAgent
from rlpyt.agents.qpg.sac_v_agent import SacAgent as SacVAgent
from rlpyt.agents.qpg.td3_agent import Td3Agent
from rlpyt.envs.base import ActionForm, EnvSpaces, for_envs
from rlpyt.spaces.composite import Composite
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.gym_wrapper import GymSpaceWrapper
from rlpyt.spaces.int_box import IntBox
from rlpyt.utils.buffer import buffer_func, buffer_leaves, numpify_buffer
from rlpyt.utils.collections import dynamic_namedtuple

VECTORS, IMAGES = FloatBox(-1, 1, (4,)), IntBox(0, 256, (2, 36, 36), dtype="uint8")
FOR_ALL = [MultiInputFfAgent, MultiInputLstmAgent, AlternatingMultiInputLstmAgent]
FOR_VECTORS = [
    *FOR_ALL, MlpFfAgent, MlpLstmAgent, MlpGaussianFfAgent, MujocoFfAgent, MujocoLstmAgent, MlpCompositeFfAgent, MlpCompositeLstmAgent,
    AlternatingMlpCompositeLstmAgent, MlpDqnAgent, MlpCatDqnAgent, MlpR2d1Agent, MlpR2d1AlternatingAgent, DdpgAgent, Td3Agent, SacAgent,
    SacVAgent, MlpQrDqnAgent, MlpIqnAgent,
]  # fmt: skip
FOR_VECTORS_OF_DQN = [MlpDqnAgent, MlpCatDqnAgent, MlpQrDqnAgent, MlpIqnAgent, MlpR2d1Agent]
FOR_IMAGES = [*FOR_ALL, AtariFfAgent, AtariLstmAgent, AtariDqnAgent, AtariCatDqnAgent, AtariR2d1Agent, AtariQrDqnAgent, AtariIqnAgent]
NAMES = {name: getattr(gymnasium.spaces, name) for name in ("Box", "Dict", "Discrete", "MultiBinary", "MultiDiscrete", "Tuple")}
NAMES |= dict(IntBox=IntBox, FloatBox=FloatBox, array=np.array, inf=np.inf, float32=np.float32, uint8=np.uint8)

# Of Gymnasium by the code that declares them; and of rlpyt, where a list is a Composite.
SPACES = [
    "Discrete(3)", "Discrete(3, start=1)", "MultiDiscrete([3, 2])", "MultiDiscrete([3, 2], start=[1, 0])",
    "MultiDiscrete([[2, 3], [4, 5]])", "MultiDiscrete([5])",
    "MultiDiscrete([2, 3, 2, 3, 2, 3])", "MultiBinary(2)", "MultiBinary(8)", "MultiBinary((2, 3))",
    "MultiBinary(1000)", "MultiBinary(5001)", "Box(3, 6, (2,), int)",
    "Box(-2, 2, (2,))", "Box(0, 1, (2,))", "Box(-1, 1, (2, 2))", "Box(-2, 1, (2, 2))", "Box(-1, 1, ())",
    "Box(-inf, inf, (2,))", "Box(0, inf, (2,))", "Box(0, 4, (2,), int)", "Box(0, 255, (84, 84), uint8)",
    "Tuple((Discrete(3), Box(-1, 1, (2,))))", "Tuple((MultiDiscrete([3, 2]), Discrete(2)))",
    "Tuple((Box(0, 1, (2,)), Box(0, 10**4, (), int)))",
    "Dict(speed=Box(0, 1, (2,)), hand=Dict(fingers=MultiBinary(5), turn=Box(-inf, inf, (1,))))",
    "IntBox(0, 3)", "IntBox(1, 4)", "IntBox(0, 3, (2,))", "IntBox(1, 4, (2,))", "FloatBox(-1, 1, (2,))", "FloatBox(-1, 1, ())",
    "FloatBox(0, 1, (2,))", "[IntBox(0, 3), FloatBox(-1, 1, (1,))]", "[IntBox(1, 4), FloatBox(0, 1, (2,))]",
]  # fmt: skip
WITHOUT_ADVICE = {"Box(0, 255, (84, 84), uint8)", "Tuple((Box(0, 1, (2,)), Box(0, 10**4, (), int)))"}


def declared(code):
    """The action space that a piece of code declares, as an environment of rlpyt has it."""
    several = re.fullmatch(r"a Composite of (\d+) spaces (.*)", code)
    space = [eval(several[2], NAMES)] * int(several[1]) if several else eval(code, NAMES)
    if isinstance(space, list):
        return Composite(space, dynamic_namedtuple("Action", [f"item_{i}" for i in range(len(space))]))
    return GymSpaceWrapper(space, name="action") if isinstance(space, gymnasium.Space) else space


REFUSALS = {}


def refusal(AgentCls, observation, action):
    """What an agent says about an action space, or None if it takes it."""
    key = AgentCls, pickle.dumps((observation, action))
    if key not in REFUSALS:
        REFUSALS[key] = None
        try:
            AgentCls().initialize(EnvSpaces(observation, action))
        except ValueError as error:
            REFUSALS[key] = str(error)
    return REFUSALS[key]


def changed(space, advice, message, path=""):
    """The action space after the environment has been changed as the advice says, which names a part by its path or by its repr."""
    parts = getattr(getattr(space, "space", space), "spaces", None)
    if parts is not None:
        of_parts = [changed(part, advice, message, f"{path}[Ii]n its part '{name}' ") for name, part in zip(space.names, parts)]
        return Composite(of_parts, dynamic_namedtuple("Action", space.names))
    if f" {' '.join(repr(space).split())}" in message:
        path = ""
    code = re.search(path + r"[Dd]eclare (.*?) in the environment", advice)
    return declared(code[1]) if code else space


def named(path):
    """The class at a dotted path."""
    module, name = path.rsplit(".", 1)
    return getattr(importlib.import_module(module), name)


def proposed(advice, observation):
    """The agents that the advice names for such observations."""
    for clause in advice.split("; "):
        if not clause.startswith("for vectors" if observation is IMAGES else "for images"):
            for path in re.findall(r"rlpyt\.agents[\w.]*\w", clause):
                yield named(path)


@pytest.mark.parametrize("code", thinned(SPACES, quick=SPACES[::3]))
def test_following_the_advice_leads_to_an_agent_that_takes_the_actions(code):
    for AgentCls, observation in [*((each, VECTORS) for each in FOR_VECTORS), *((each, IMAGES) for each in FOR_IMAGES)]:
        action, said = declared(code), []
        while (message := refusal(AgentCls, observation, action)) is not None:
            assert message.startswith(f"{AgentCls.__name__} ") and message not in said
            said.append(message)
            advice = re.search(r"\. ((?:Declare|Use|In its part) .*)$", message)
            if advice is None:
                assert code in WITHOUT_ADVICE
                break
            preferred, _, other = advice[1].partition(" Or ")
            if other:
                assert refusal(AgentCls, observation, changed(action, other, message)) is None, message
            action = changed(action, preferred, message)
            agents = list(proposed(preferred, observation))
            for ProposedCls in agents:
                assert refusal(ProposedCls, observation, action) is None, f"{message} -> {ProposedCls.__name__}"
            if agents:
                break
        assert said or code not in WITHOUT_ADVICE


@pytest.mark.parametrize("code", ["Discrete(3)", "Box(-1, 1, (2,))", "Tuple((Discrete(3), Discrete(2)))"])
@pytest.mark.parametrize("AgentCls", FOR_IMAGES[len(FOR_ALL) :], ids=lambda AgentCls: AgentCls.__name__)
def test_agents_for_images_name_one_for_vectors_that_takes_the_actions(AgentCls, code):
    action = declared(code)
    agents = list(proposed(refusal(AgentCls, VECTORS, action).partition(". ")[2], VECTORS))
    assert agents and all(refusal(ProposedCls, VECTORS, action) is None for ProposedCls in agents)


@pytest.mark.parametrize("code", thinned(SPACES, quick=SPACES[::2]))
def test_every_agent_that_takes_actions_samples_some_of_the_space(code):
    action = declared(code)
    takes = [AgentCls for AgentCls in FOR_VECTORS if refusal(AgentCls, VECTORS, action) is None]
    for AgentCls in takes:
        agent = AgentCls()
        agent.initialize(EnvSpaces(VECTORS, action))
        agent.sample_mode(0)
        null = buffer_func(action.null_value(), lambda x: torch.as_tensor(np.asarray(x)[None]))
        sampled, _ = agent.step(torch.zeros(1, 4), null, torch.zeros(1))
        assert [leaf.shape[1:] for leaf in buffer_leaves(sampled)] == [np.shape(leaf) for leaf in buffer_leaves(action.null_value())]
        assert action.contains(for_envs(action, ActionForm.of(agent))(buffer_func(numpify_buffer(sampled), lambda x: x[0])))


@pytest.mark.parametrize(
    "AgentCls, code, sentence",
    [
        (MlpFfAgent, "MultiDiscrete([3, 2])", "…MlpCompositeFfAgent with A2C or PPO; for images … Or declare Discrete(6) …"),
        (MlpDqnAgent, "MultiBinary(8)", "Or declare Discrete(256) in the environment, a number for each …"),
        (MlpDqnAgent, "IntBox(0, 3, (2,))", "Or declare IntBox(0, 9) in the environment, a number …"),
        (MlpCompositeFfAgent, "Box(3, 6, (2,), int)", "Declare MultiDiscrete([4, 4], start=[3, 3]) in the environment."),
        (
            MlpCompositeFfAgent,
            "IntBox(1, 4, (2,))",
            "… IntBox(0, 3, (2,)) in the environment and add 1, as …FromZero does, since it starts at 1.",
        ),
        (MlpLstmAgent, "Dict(a=Discrete(3), b=Box(-1, 1, (2,)))", "Use …MlpCompositeLstmAgent with A2C or PPO; for images …"),
        (MlpGaussianFfAgent, "Tuple((Discrete(3), Box(-1, 1, (2,))))", "Use …MlpCompositeFfAgent with A2C or PPO; for images …"),
        (SacAgent, "Box(-inf, inf, (2,))", "Use …MlpGaussianFfAgent … Or declare Box(-1, 1, (2,)) in the environment …"),
        (SacAgent, "Box(0, 1, (2,))", "… rescale actions, as gymnasium.wrappers.RescaleAction does for a Box."),
        (SacAgent, "FloatBox(0, 1, (2,))", "is FloatBox(shape=(2,) dtype=float32) with bounds [0. 0.] to [1. 1.]. Use …"),
        (SacAgent, "Box(0, inf, (2,))", "Or declare Box(-1, 1, (2,)) in the environment and rescale actions."),
        (SacAgent, "Box(-1, 1, (2, 2))", "Or declare Box(-1, 1, (4,)) in the environment and reshape actions."),
        (MlpDqnAgent, "Dict(a=Discrete(3), b=MultiBinary(2))", "Use …MlpCompositeFfAgent with A2C or PPO; for images …"),
    ],
)
def test_the_advice_is_for_the_kind_of_space(AgentCls, code, sentence):
    assert re.search(re.escape(sentence).replace("…", ".*"), refusal(AgentCls, VECTORS, declared(code)))


@pytest.mark.parametrize("AgentCls", [MlpCompositeFfAgent, MlpDqnAgent, SacAgent])
@pytest.mark.parametrize(
    "code, n",
    [
        ("Box(0, 255, (84, 84), uint8)", "1,806,336"),
        ("Tuple((Discrete(20000), Box(0, 10000, (1,), int)))", "10,001"),
        ("Box(-(2**63), 2**63 - 1, (2,), int)", "36,893,488,147,419,103,232"),
        ("Box(array([0] * 5), array([2**62 - 1] * 4 + [2]), dtype=int)", "18,446,744,073,709,551,619"),  # An int64 would count 3.
    ],
)
def test_a_box_of_integers_has_a_limit_that_the_message_names(AgentCls, code, n):
    message = refusal(AgentCls, VECTORS, declared(code))
    assert "takes a Box of integers with up to 10,000 values, those" in message and f". Here are {n}: let" in message


@pytest.mark.parametrize("code", ["Discrete(11259)", "Discrete(11259, start=1)", "IntBox(0, 11259)"])
def test_one_of_any_number_of_values_is_taken(code):
    assert all(refusal(AgentCls, VECTORS, declared(code)) is None for AgentCls in (MlpFfAgent, MlpDqnAgent, MlpCompositeFfAgent))


@pytest.mark.parametrize("code", ["MultiBinary(6000)", "MultiDiscrete([100] * 101)", "IntBox(0, 100, (101,))"])
def test_several_with_any_number_of_values_are_taken(code):
    assert refusal(MlpCompositeFfAgent, VECTORS, declared(code)) is None
    message = refusal(MlpDqnAgent, VECTORS, declared(code))
    assert "Use rlpyt.agents.pg.composite.MlpCompositeFfAgent" in message and "a number for each combination" not in message


# --- Images for perceptrons -------------------------------------------------------------------------------------------
def warning(AgentCls, observation, capsys, code="Discrete(3)"):
    capsys.readouterr()
    AgentCls().initialize(EnvSpaces(observation, declared(code)))
    return capsys.readouterr().out


def words(AgentCls, observation, action, capsys):
    """What an agent says about an environment's spaces: why it refuses them, or its warning, or ""."""
    capsys.readouterr()
    try:
        AgentCls().initialize(EnvSpaces(observation, action))
    except ValueError as error:
        return str(error)
    return capsys.readouterr().out


@pytest.mark.parametrize("AgentCls", [MlpFfAgent, MlpLstmAgent, *FOR_VECTORS_OF_DQN], ids=lambda AgentCls: AgentCls.__name__)
def test_an_agent_that_flattens_images_names_one_that_takes_them(AgentCls, capsys):
    says = warning(AgentCls, IMAGES, capsys)
    assert f"WARNING: {AgentCls.__name__} flattens images of shape (2, 36, 36) into a vector" in says
    better = named(re.search(r"Use ([\w.]+), which has convolutions\.$", says.strip())[1])
    assert better.recurrent == AgentCls.recurrent and warning(better, IMAGES, capsys) == ""
    assert warning(AgentCls, VECTORS, capsys) == ""


def test_channels_that_are_last_and_images_in_a_structure_are_told_of(capsys):
    last = IntBox(0, 256, (36, 36, 3), dtype="uint8")
    assert warning(MlpFfAgent, last, capsys).strip().endswith("let the environment put channels first: [C,H,W].")
    of_gym = GymSpaceWrapper(gymnasium.spaces.Dict(eye=NAMES["Box"](0, 255, (36, 36, 3), np.uint8), v=NAMES["Box"](-1, 1, (2,))))
    says = warning(MlpFfAgent, of_gym, capsys)
    assert "images of shape (36, 36, 3)" in says
    assert says.strip().endswith("Use rlpyt.agents.pg.multi_input.MultiInputFfAgent, which has convolutions, and let the environment put "
                                 "channels first: [C,H,W].")  # fmt: skip
    assert "Use rlpyt.agents.pg.multi_input.MultiInputFfAgent" in warning(MlpGaussianFfAgent, IMAGES, capsys, "Box(-1, 1, (2,))")


class OwnPolicy(torch.nn.Module):
    """A policy for structured observations; what it computes does not matter."""

    def __init__(self, observation_shape, action_size):
        super().__init__()
        self.mean = torch.nn.Linear(1, action_size)


def test_advice_about_images_names_each_class_of_models_that_flattens_them(capsys):
    action = "Box(-1, 1, (2,))"
    assert "as ModelCls and QModelCls." in warning(SacAgent, IMAGE_AND_VECTOR, capsys, action)
    assert "as QModelCls." in warning(partial(SacAgent, ModelCls=OwnPolicy), IMAGE_AND_VECTOR, capsys, action)
    assert "as QModelCls and VModelCls." in warning(partial(IqlAgent, ModelCls=OwnPolicy), IMAGE_AND_VECTOR, capsys, action)
    assert "EnsembleSacAgent flattens images" in warning(partial(EnsembleSacAgent, ModelCls=OwnPolicy), IMAGES, capsys, action)


@pytest.mark.parametrize(
    "space, is_warned_of",
    [
        (NAMES["Box"](0, 1, (6,), np.uint8), True),
        (NAMES["Box"](0, 255, (6,), np.uint8), False),
        (NAMES["Box"](0, 1, (6,), np.int8), False),
        (NAMES["Box"](0, 100, (6,), np.uint8), False),
        (NAMES["MultiBinary"](6), False),
        (gymnasium.spaces.Dict(nothing=NAMES["Box"](0, 1, (0,), np.uint8), flags=NAMES["Box"](0, 1, (6,), np.uint8)), True),
        (gymnasium.spaces.Dict(flags=NAMES["Box"](0, 1, (6,), np.uint8), v=NAMES["Box"](-1, 1, (2,))), True),
    ],
)
def test_small_numbers_that_are_divided_by_255_are_told_of(space, is_warned_of, capsys):
    says = warning(MlpFfAgent, GymSpaceWrapper(space), capsys)
    assert ("divides observations of uint8 by 255, also those of shape (6,), whose numbers are small" in says) == is_warned_of


class WithOwnCritic(SacAgent):
    """Makes other models than its base class."""

    model_names, q_names, target_names = {"model": "model", "value": "value"}, ("value",), {}

    def make_models(self):
        self.model, self.value = self.make_policy(), torch.nn.Linear(1, 1)


def test_observations_of_bytes_that_nothing_divides_are_not_told_of(capsys):
    assert warning(MlpFfAgent, IntBox(0, 5, (), "uint8"), capsys) == ""  # One-hot.
    WithOwnCritic().initialize(EnvSpaces(GymSpaceWrapper(NAMES["Box"](0, 255, (6,), np.uint8)), declared("Box(-1, 1, (2,))")))
    assert capsys.readouterr().out == ""


IMAGE_AND_VECTOR = GymSpaceWrapper(gymnasium.spaces.Dict(eye=NAMES["Box"](0, 255, (1, 36, 36), np.uint8), v=NAMES["Box"](-1, 1, (2,))))
FOR_BOTH = [
    MlpFfAgent, MlpLstmAgent, MlpGaussianFfAgent, MujocoLstmAgent, MlpCompositeFfAgent, MlpCompositeLstmAgent, MlpDqnAgent, MlpCatDqnAgent,
    MlpR2d1Agent, MlpR2d1AlternatingAgent, AtariFfAgent, AtariLstmAgent, AtariDqnAgent, AtariCatDqnAgent, AtariR2d1Agent,
    MlpQrDqnAgent, MlpIqnAgent, AtariQrDqnAgent, AtariIqnAgent,
]  # fmt: skip


@pytest.mark.parametrize("AgentCls", FOR_BOTH, ids=lambda AgentCls: AgentCls.__name__)
def test_for_images_and_vectors_together_agents_name_one_that_takes_them(AgentCls, capsys):
    observation = IMAGE_AND_VECTOR
    is_continuous = issubclass(AgentCls, (MlpGaussianFfAgent, MujocoLstmAgent))
    action = declared("Box(-1, 1, (2,))" if is_continuous else "Discrete(3)")
    says = words(AgentCls, observation, action, capsys)
    better = named(re.search(r"Use ([\w.]+), which", says)[1])
    assert better.recurrent == AgentCls.recurrent and better.alternating == AgentCls.alternating
    assert words(better, observation, action, capsys) == ""


# --- All agents of deep Q-learning ------------------------------------------------------------------------------------
OF_DQN = sorted(
    {
        each
        for module in pkgutil.walk_packages(rlpyt.agents.dqn.__path__, "rlpyt.agents.dqn.")
        for each in vars(importlib.import_module(module.name)).values()
        if isinstance(each, type) and issubclass(each, DqnAgent) and "ModelCls" in vars(each)
    },
    key=lambda AgentCls: AgentCls.__name__,
)


def kind_of(AgentCls):
    """What an agent shares with its counterparts for other observations."""
    learns = [Cls for Cls in (CatDqnAgent, QrDqnAgent, IqnAgent) if issubclass(AgentCls, Cls)]
    return AgentCls.recurrent, AgentCls.alternating, learns


@pytest.mark.parametrize("AgentCls", OF_DQN, ids=lambda AgentCls: AgentCls.__name__)
@pytest.mark.parametrize("observation", [IMAGES, IMAGE_AND_VECTOR], ids=["images", "both"])
def test_an_agent_of_deep_q_learning_names_its_counterpart(AgentCls, observation, capsys):
    says = words(AgentCls, observation, declared("Discrete(3)"), capsys)
    takes_them = "MultiInput" in AgentCls.__name__ or (observation is IMAGES and "Atari" in AgentCls.__name__)
    assert (says == "") == takes_them
    if says:
        better = named(re.search(r"Use ([\w.]+), which", says)[1])
        assert kind_of(better) == kind_of(AgentCls)
        assert words(better, observation, declared("Discrete(3)"), capsys) == ""
