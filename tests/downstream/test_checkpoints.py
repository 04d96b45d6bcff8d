"""State dictionaries that the original rlpyt saved, made by hand under its names, load into our models, agents and optimizers."""

import copy
import re

import pytest
import torch
from transitions import SIZES, N, assert_same_parameters, start, transitions

from rlpyt.agents.dqn.atari.atari_r2d1_agent import AtariR2d1Agent
from rlpyt.agents.pg.mujoco import MujocoFfAgent
from rlpyt.agents.qpg.ddpg_agent import DdpgAgent
from rlpyt.agents.qpg.sac_agent import SacAgent
from rlpyt.agents.qpg.td3_agent import Td3Agent
from rlpyt.algos.qpg.ddpg import DDPG
from rlpyt.algos.qpg.sac import SAC
from rlpyt.algos.qpg.td3 import TD3
from rlpyt.envs.base import EnvSpaces
from rlpyt.models.dqn.atari_r2d1_model import AtariR2d1Model
from rlpyt.models.pg.atari_lstm_model import AtariLstmModel
from rlpyt.models.pg.mujoco_ff_model import MujocoFfModel
from rlpyt.models.pg.mujoco_lstm_model import MujocoLstmModel
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.int_box import IntBox

IMAGE, N_ACTIONS, A, H = (2, 24, 20), 3, 2, 5
CONV = dict(channels=[3, 4], kernel_sizes=[4, 3], strides=[2, 1], paddings=[0, 1])
IMAGES, ONEHOT = torch.randint(0, 256, (4, 2, *IMAGE), dtype=torch.uint8), torch.eye(N_ACTIONS)[torch.randint(N_ACTIONS, (4, 2))]


def original_lstm(names):
    """Names of recurrent layers, which were attributes of the model itself."""
    return {re.sub(r"^lstm\.lstm\.", "lstm.", name): value for name, value in names.items()}


def original_r2d1(names):
    """Convolutions and the layer behind them, which were one module."""
    heads = {re.sub(r"^fc\.", "conv.head.", name): value for name, value in original_lstm(names).items()}
    return {re.sub(r"^conv\.conv\.", "conv.conv.conv.", name): value for name, value in heads.items()}


LSTMS = {
    "atari": (lambda: AtariLstmModel(IMAGE, N_ACTIONS, fc_sizes=6, lstm_size=H, **CONV), original_lstm, (IMAGES, ONEHOT)),
    "r2d1": (lambda: AtariR2d1Model(IMAGE, N_ACTIONS, 6, H, 7, **CONV), original_r2d1, (IMAGES, ONEHOT)),
    "r2d1_dueling": (lambda: AtariR2d1Model(IMAGE, N_ACTIONS, 6, H, 7, dueling=True, **CONV), original_r2d1, (IMAGES, ONEHOT)),
    "mujoco": (lambda: MujocoLstmModel((4,), A, [6], H), original_lstm, (torch.randn(4, 2, 4), torch.randn(4, 2, A))),
}


@pytest.mark.parametrize("name", LSTMS)
@pytest.mark.parametrize("ddp", [False, True])
def test_recurrent_models_load_what_the_original_saved_and_give_the_same(name, ddp):
    make, to_original, inputs = LSTMS[name]
    saved, loaded = make(), make()
    state = to_original(saved.state_dict())
    assert "lstm.weight_ih_l0" in state and not any("lstm.lstm" in key for key in state)
    if "r2d1" in name:
        assert {"conv.conv.conv.0.weight", "conv.head.model.0.weight"} <= state.keys()
    before = dict(state)
    loaded.load_state_dict(state)
    assert state.keys() == before.keys()  # The caller's is left alone.
    inputs = (*inputs, torch.randn(4, 2), None)
    for out, expected in zip(loaded(*inputs), saved(*inputs)):
        torch.testing.assert_close(tuple(out) if isinstance(out, tuple) else out, tuple(expected) if isinstance(out, tuple) else expected)
    loaded.load_state_dict(loaded.state_dict())  # Ours as before.
    if ddp and name == "r2d1":
        agent = AtariR2d1Agent(model_kwargs=dict(fc_size=6, lstm_size=H, head_size=7, **CONV))
        agent.initialize(EnvSpaces(IntBox(0, 256, shape=IMAGE, dtype="uint8"), IntBox(0, N_ACTIONS)))
        with_prefix = {f"module.{key}": value for key, value in state.items()}
        agent.load_state_dict(dict(model=with_prefix, target=state))
        assert all(torch.equal(value, saved.state_dict()[key]) for key, value in agent.model.state_dict().items())


def test_names_that_no_version_has_are_still_refused():
    model = AtariLstmModel(IMAGE, N_ACTIONS, 6, H, **CONV)
    state = original_lstm(model.state_dict())
    state["lstm.width"] = torch.zeros(1)
    with pytest.raises(RuntimeError, match="Unexpected key.*lstm.width"):
        model.load_state_dict(state)
    del state["lstm.width"], state["lstm.bias_hh_l0"]
    with pytest.raises(RuntimeError, match="Missing key.*lstm.lstm.bias_hh_l0"):
        model.load_state_dict(state)


def original_statistics(state, shape):
    """Statistics of observations in their shape, float32, no exact ones."""
    state = {name: value for name, value in state.items() if "exact" not in name}
    for name in ("obs_rms.mean", "obs_rms.var"):
        state[name] = state[name].reshape(shape)
    state["obs_rms.count"] = state["obs_rms.count"].float()
    return state


@pytest.mark.parametrize("shape", [(4,), (2, 3)])
@pytest.mark.parametrize("ModelCls", [MujocoFfModel, MujocoLstmModel])
def test_statistics_of_observations_are_loaded_and_go_on(ModelCls, shape):
    torch.manual_seed(0)
    saved, loaded = (ModelCls(shape, A, [6], normalize_observation=True) for _ in range(2))
    saved.update_obs_rms(3 + 2 * torch.randn(50, *shape))
    state = original_lstm(original_statistics(saved.state_dict(), shape))
    loaded.load_state_dict(state)
    inputs = (torch.randn(3, 2, *shape), torch.zeros(3, 2, A), torch.zeros(3, 2))
    inputs = inputs if ModelCls is MujocoFfModel else (*inputs, None)
    for _ in range(2):
        torch.testing.assert_close([*loaded(*inputs)[:3]], [*saved(*inputs)[:3]])
        more = torch.randn(20, *shape)
        saved.update_obs_rms(more)
        loaded.update_obs_rms(more)
    assert loaded.obs_rms.count == 90


def test_an_agent_begins_with_a_policy_that_the_original_trained():
    spaces = EnvSpaces(FloatBox(-1, 1, (2, 3)), FloatBox(-1, 1, (A,)))
    kwargs = dict(normalize_observation=True, hidden_sizes=[6])
    trained = MujocoFfModel((2, 3), A, **kwargs)
    trained.update_obs_rms(torch.randn(9, 2, 3))
    agent = MujocoFfAgent(model_kwargs=kwargs, initial_model_state_dict=original_statistics(trained.state_dict(), (2, 3)))
    agent.initialize(spaces)
    observation = torch.randn(5, 2, 3)
    torch.testing.assert_close(agent.model(observation, None, None), trained(observation, None, None))


# --- Optimizers -------------------------------------------------------------------------------------------------------


def original_adam(state):
    """Adam's state as versions of torch of that time had it: steps are numbers, settings of implementations are not there."""
    state = copy.deepcopy(state)
    for of_parameter in state["state"].values():
        of_parameter["step"] = int(of_parameter["step"])
    kept = ("lr", "betas", "eps", "weight_decay", "amsgrad", "params")
    return dict(state, param_groups=[{name: group[name] for name in kept} for group in state["param_groups"]])


def original_ddpg(state):
    """DDPG and TD3 called their optimizers after what they train."""
    return dict(q=original_adam(state["q_optimizer"]), mu=original_adam(state["mu_optimizer"]))


def original_sac(state):
    """SAC kept the logarithm of alpha as an array of one number."""
    state = {name: value if name == "log_alpha" else original_adam(value) for name, value in state.items()}
    for name in ("exp_avg", "exp_avg_sq"):
        state["alpha_optimizer"]["state"][0][name] = state["alpha_optimizer"]["state"][0][name].reshape(1)
    return dict(state, log_alpha=state["log_alpha"].reshape(1))


OPTIMIZERS = [(DDPG, DdpgAgent, original_ddpg), (TD3, Td3Agent, original_ddpg), (SAC, SacAgent, original_sac)]


@pytest.mark.parametrize("AlgoCls, AgentCls, to_original", OPTIMIZERS)
def test_training_goes_on_with_optimizers_that_the_original_saved(AlgoCls, AgentCls, to_original):
    def make(**settings):
        agent = AgentCls(model_kwargs=SIZES, q_model_kwargs=SIZES)
        return start(AlgoCls(batch_size=N, learning_rate=0.1, **settings), agent)

    algo = make()
    for seed in range(3):
        torch.manual_seed(seed)
        algo.update(transitions(seed))
        algo.update_counter += 1
    agent_state, state = copy.deepcopy(algo.agent.state_dict()), to_original(algo.optim_state_dict())
    resumed = make(initial_optim_state_dict=state)
    resumed.agent.load_state_dict(agent_state)
    resumed.update_counter = algo.update_counter
    for seed in range(3, 6):
        for each in (algo, resumed):
            torch.manual_seed(seed)
            each.update(transitions(seed))
            each.update_counter += 1
    assert_same_parameters(resumed.agent, algo.agent)
    if AlgoCls is SAC:
        torch.testing.assert_close(resumed._log_alpha, algo._log_alpha)


def test_a_sac_without_target_entropy_takes_the_state_of_one_whose_optimizer_of_alpha_never_made_a_step():
    state = start(SAC(batch_size=N), SacAgent(model_kwargs=SIZES, q_model_kwargs=SIZES)).optim_state_dict()
    assert state["alpha_optimizer"] is not None
    algo = SAC(batch_size=N, target_entropy=None, initial_optim_state_dict=state)
    start(algo, SacAgent(model_kwargs=SIZES, q_model_kwargs=SIZES))
    algo.update(transitions())
    assert algo._log_alpha == 0
