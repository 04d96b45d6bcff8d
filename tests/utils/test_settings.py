"""Wrong settings are errors with the setting's name, when an object is made: one by one, and all of them as in `fuzz_settings`."""

import importlib
import inspect
import math
import pkgutil
from collections import Counter, OrderedDict
from fractions import Fraction

import fuzz_settings
import numpy as np
import pytest
import torch
from tiers import full

from rlpyt import agents, algos, models, runners, samplers
from rlpyt.agents.dqn.mlp_catdqn_agent import MlpCatDqnAgent
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.qpg.ddpg_agent import DdpgAgent
from rlpyt.agents.qpg.ensemble_sac_agent import EnsembleSacAgent
from rlpyt.agents.qpg.sac_agent import SacAgent
from rlpyt.agents.qpg.td3_agent import Td3Agent
from rlpyt.algos.dqn.cat_dqn import CategoricalDQN
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.dqn.r2d1 import R2D1
from rlpyt.algos.pg.a2c import A2C
from rlpyt.algos.pg.ppo import PPO
from rlpyt.algos.qpg.ensemble_sac import EnsembleSAC
from rlpyt.algos.qpg.sac import SAC
from rlpyt.algos.qpg.td3 import TD3
from rlpyt.envs.gym import make as make_gym
from rlpyt.envs.point_env import PointEnv
from rlpyt.models.dqn.mlp_dqn_model import MlpDqnModel
from rlpyt.models.pg.mlp_lstm_model import MlpLstmModel
from rlpyt.models.qpg.ensemble import QEnsembleModel
from rlpyt.models.qpg.mlp import PiMlpModel
from rlpyt.models.utils import Model
from rlpyt.replays.non_sequence.prioritized import PrioritizedReplayBuffer
from rlpyt.replays.non_sequence.uniform import UniformReplayBuffer
from rlpyt.replays.sequence.uniform import UniformSequenceReplayBuffer
from rlpyt.runners.async_rl import AsyncRl
from rlpyt.runners.minibatch_rl import MinibatchRl
from rlpyt.samplers.async_.serial_sampler import AsyncSerialSampler
from rlpyt.samplers.episodic.factory import WorkerFactory
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.utils.collections import namedarraytuple
from rlpyt.utils.launching.affinity import auto_affinity, encode_affinity
from rlpyt.utils.launching.exp_launcher import run_experiments
from rlpyt.utils.launching.variant import update_config
from rlpyt.utils.logging.context import logger_context
from rlpyt.utils.names_elsewhere import OWNERS
from rlpyt.utils.processors import AFFINITY_KEYS
from rlpyt.utils.quick_args import arguments_of, save__init__args
from rlpyt.utils.recipes import Recorded
from rlpyt.utils.settings import COUNT, FLAG, FRACTION, NAMES_ELSEWHERE, ArgumentsFor, Number, checked, or_array

SAMPLER = dict(EnvCls=PointEnv, env_kwargs=dict(arena_size=2.0), batch_T=2, batch_B=2)


Example = namedarraytuple("Example", ["observation", "action", "reward", "done"])
BUFFER = dict(example=Example(np.zeros(3, np.float32), np.int64(0), np.float32(0), np.bool_(False)), size=64, B=2)


def runner(**kwargs):
    return MinibatchRl(**{**dict(algo=DQN(), agent=MlpDqnAgent(), sampler=SerialSampler(**SAMPLER), n_steps=1), **kwargs})


# --- Names ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "make,wrong,says",
    [
        (SerialSampler, dict(SAMPLER, batch_Tee=3), "SerialSampler has no setting 'batch_Tee'. Did you mean 'batch_T'"),
        (MlpDqnAgent, dict(eps_itr_mix=3), "MlpDqnAgent has no setting 'eps_itr_mix'. Did you mean 'eps_itr_min' or 'eps_itr_max'"),
        (DQN, dict(learning_rte=1), "DQN has no setting 'learning_rte'. Did you mean 'learning_rate'"),
        (MinibatchRl, dict(log_interval_step=1), "MinibatchRl has no setting 'log_interval_step'. Did you mean 'log_interval_steps'"),
        (run_experiments, dict(run_per_setting=1), "run_experiments() has no argument 'run_per_setting'. Did you mean 'runs_per_setting'"),
        (encode_affinity, dict(n_cpu_cores=1), "encode_affinity() has no argument 'n_cpu_cores'. Did you mean 'n_cpu_core'"),
        (logger_context, dict(snapshot_made="last"), "logger_context() has no argument 'snapshot_made'. Did you mean 'snapshot_mode'"),
        (WorkerFactory, dict(n_worker=1), "WorkerFactory has no setting 'n_worker'. Did you mean 'n_workers'"),
        (DQN, dict(eps_final=0.1), "DQN has no setting 'eps_final'. It belongs to the agent."),
        (MlpDqnAgent, dict(hidden_sizes=[64]), "MlpDqnAgent has no setting 'hidden_sizes'. It belongs to model_kwargs of the agent."),
        (DQN, dict(dueling=True), "DQN has no setting 'dueling'. It belongs to model_kwargs of a DQN agent."),
        (EnsembleSAC, dict(n_quantiles=25), "EnsembleSAC has no setting 'n_quantiles'. It belongs to the agent."),
        (EnsembleSAC, dict(dropout=0.01), "It belongs to q_model_kwargs of an agent with an ensemble of critics."),
        (EnsembleSacAgent, dict(batch_renorm=True), "It belongs to model_kwargs and q_model_kwargs of an agent with an ensemble"),
        (EnsembleSacAgent, dict(n_target_critics=2), "It belongs to the algorithm."),
        (SacAgent, dict(n_critics=5), "SacAgent has no setting 'n_critics'. Other agents have it."),
        (SAC, dict(n_target_critics=2), "SAC has no setting 'n_target_critics'. Other algorithms have it."),
    ],
)
def test_an_unknown_setting_is_an_error_with_the_nearest_one(make, wrong, says):
    with pytest.raises(TypeError) as error:
        make(**wrong)
    assert says in str(error.value)


@pytest.mark.parametrize(
    "make,wrong,says",
    [
        (PPO, dict(lr=1e-3), "PPO has no setting 'lr'. Here it is called 'learning_rate'."),
        (PPO, dict(clip_range=0.2), "Here it is called 'ratio_clip'."),
        (PPO, dict(ent_coef=0.0), "Here it is called 'entropy_loss_coeff'."),
        (SAC, dict(ent_coef=0.1), "Here it is called 'fixed_alpha'."),
        (PPO, dict(batch_size=64), "Here it is called 'minibatches', their number instead of their size."),
        (PPO, dict(n_steps=2048), "PPO has no setting 'n_steps'. Here that is 'batch_T' of the sampler."),
        (PPO, dict(n_envs=8), "Here that is 'batch_B' of the sampler."),
        (SerialSampler, dict(SAMPLER, n_envs=8), "SerialSampler has no setting 'n_envs'. Here it is called 'batch_B'."),
        (MinibatchRl, dict(total_timesteps=10), "Here it is called 'n_steps'."),
        (PPO, dict(seed=1), "Here that is 'seed' of the runner."),
        (R2D1, dict(batch_size=4), "R2D1 has no setting 'batch_size'. Here it is called 'batch_B', the number of sequences."),
        (SerialSampler, dict(SAMPLER, batch_size=4), "Here that is 'minibatches' of the algorithm, their number instead of their size."),
        (DQN, dict(n_steps=3), "Here it is called 'n_step_return'."),
        (R2D1, dict(target_update_tau=1), "R2D1 has no setting 'target_update_tau'. Other algorithms have it."),
        (DQN, dict(clip_range=0.2), "DQN has no setting 'clip_range'. Other algorithms have 'ratio_clip' for it."),
        (DQN, dict(discoumt=0.9), "Did you mean 'discount'?"),
        (MlpDqnAgent, dict(epochs=1), "It belongs to the algorithm."),
        (MinibatchRl, dict(eval_freq=10), "Here it is called 'log_interval_steps'."),
    ],
)
def test_a_name_that_other_frameworks_have_for_a_setting_is_translated(make, wrong, says):
    with pytest.raises(TypeError) as error:
        make(**wrong)
    assert str(error.value).endswith(says)


def test_every_owner_of_a_setting_has_it():
    settings = {
        "the algorithm": (PPO, DQN, R2D1, TD3, SAC, EnsembleSAC),
        "the agent": (MlpDqnAgent, Td3Agent, SacAgent, EnsembleSacAgent),
        "the sampler": (SerialSampler,),
        "the runner": (MinibatchRl,),
        "model_kwargs of the agent": (MlpDqnModel, PiMlpModel),
        "model_kwargs of a DQN agent": (MlpDqnModel,),
        "the models of a recurrent agent, which get it by model_kwargs": (MlpLstmModel,),
        "q_model_kwargs of an agent with an ensemble of critics": (QEnsembleModel,),
        "model_kwargs and q_model_kwargs of an agent with an ensemble of critics": (PiMlpModel, QEnsembleModel),
    }
    known = {of: {name for make in makes for name in arguments_of(make)} for of, makes in settings.items()}
    assert not {name: of for name, of in OWNERS.items() if of in known and name not in known[of]}
    elsewhere = {"logger_context", "the affinity of the runner"}
    assert set(OWNERS.values()) - known.keys() == elsewhere


def test_every_translation_is_the_name_of_a_setting_and_no_setting_has_one():
    makes = (PPO, DQN, TD3, SAC, SerialSampler, MinibatchRl, MlpDqnAgent, Td3Agent, MlpDqnModel)
    known = [list(arguments_of(make)) for make in makes] + [AFFINITY_KEYS, list(inspect.signature(logger_context).parameters)]
    for name, ours in NAMES_ELSEWHERE.items():
        assert {each.name for each in (ours, ours.or_else) if each} <= {each for names in known for each in names}
        assert not [names for names in known if name in names and ours.name in names and name != ours.name]


@pytest.mark.parametrize(
    "make,given,says",
    [
        (SerialSampler, dict(EnvCls=PointEnv, batch_B=1), "SerialSampler needs batch_T."),
        (SerialSampler, dict(batch_T=1, batch_B=1), "SerialSampler needs EnvCls."),
        (MinibatchRl, dict(sampler=None, agent=None), "MinibatchRl needs algo and n_steps."),
    ],
)
def test_a_missing_setting_is_an_error_of_the_class_that_was_called(make, given, says):
    with pytest.raises(TypeError) as error:
        make(**given)
    assert str(error.value) == says


@pytest.mark.parametrize(
    "given,hint",
    [
        (dict(agent=MlpDqnAgent), "Make an object of it: MlpDqnAgent()."),
        (dict(algo=PPO), "Make an object of it: PPO()."),
        (dict(sampler=SerialSampler), "Make an object of it: SerialSampler(...)."),
    ],
)
def test_a_class_in_the_place_of_an_object_is_an_error_that_makes_one_of_it(given, hint):
    with pytest.raises(ValueError) as error:
        runner(**given)
    assert str(error.value).endswith(f", or None. {hint}")


def test_environments_need_no_keyword_arguments():
    assert SerialSampler(EnvCls=PointEnv, batch_T=2, batch_B=2).env_kwargs == {}


class MyDqn(DQN):
    def __init__(self, mine=3, *, learning_rate=0.5):
        super().__init__(learning_rate=learning_rate)
        self.mine = mine


def test_so_it_is_for_a_class_of_a_user():
    with pytest.raises(TypeError, match="MyDqn has no setting 'learning_rat'. Did you mean 'learning_rate'"):
        MyDqn(learning_rat=1)
    assert MyDqn(4).mine == 4


def test_what_a_class_of_a_user_hands_on_by_mistake_is_said_of_the_class_that_lacks_it():
    class Mine(A2C):
        def __init__(self, temperature=1.0, **kwargs):
            super().__init__(temperature=temperature, **kwargs)

    with pytest.raises(TypeError, match="A2C has no setting 'temperature'"):
        Mine()


# --- Settings of base classes -----------------------------------------------------------------------------------------
class Part(Recorded):
    @checked(size=COUNT, rate=FRACTION)
    def __init__(self, size: int = 3, rate: float = 0.5, name: str = "part") -> None:
        save__init__args(locals())


class Larger(Part):
    @checked(extra=COUNT, without=["name"])
    def __init__(self, *, size: int = 30, extra: int = 1, **settings) -> None:
        save__init__args(locals())
        super().__init__(**settings)


def test_a_subclass_names_only_settings_that_are_new_or_have_another_default():
    assert str(inspect.signature(Larger)) == "(size: int = 30, rate: float = 0.5, extra: int = 1)"
    assert str(inspect.signature(Larger.__init__)) == "(self, size: int = 30, rate: float = 0.5, extra: int = 1) -> None"
    assert vars(Larger(5, 0.1, 2)).items() >= dict(size=5, rate=0.1, extra=2, name="part").items()
    assert (Larger(rate=0).size, Larger(size=2.0).size) == (30, 2)


def test_too_many_arguments_by_position_are_an_error_that_says_what_to_do():
    with pytest.raises(TypeError) as error:
        MinibatchRl(DQN(), MlpDqnAgent(), SerialSampler(**SAMPLER), n_steps=1)
    says = "MinibatchRl takes only 1 argument (log_traj_window) by position. Give the others by name: algo=, agent=, sampler=, n_steps=, "
    assert str(error.value).startswith(says)


@pytest.mark.parametrize(
    "args,kwargs,error,says",
    [
        ((), dict(size=0), ValueError, "Larger: size=0 is not possible; it must be a whole number at least 1."),
        ((), dict(rate=2), ValueError, "Larger: rate=2 is not possible"),
        ((3, 2), {}, ValueError, "Larger: rate=2 is not possible"),
        ((), dict(name="large"), TypeError, "Larger has no setting 'name'"),
        ((), dict(self=1), TypeError, "Larger has no setting 'self'"),
        ((1, 0.5, 1, "large"), {}, TypeError, "Larger takes only 3 arguments (size, rate, extra) by position."),
        ((1, 0.5), dict(rate=0.5), TypeError, "multiple values for argument 'rate'"),
    ],
)
def test_what_the_base_class_declares_of_a_setting_holds(args, kwargs, error, says):
    with pytest.raises(error) as raised:
        Larger(*args, **kwargs)
    assert says in str(raised.value)


def test_a_subclass_of_a_user_has_the_signature_of_its_own_constructor():
    class Mine(Larger):
        def __init__(self, mine, *, size=300, **kwargs):
            super().__init__(size=size, **kwargs)
            self.mine = mine

    class Plain(Larger):
        def __init__(self, *names):
            super().__init__(len(names))

    assert str(inspect.signature(Mine)) == "(mine, *, size=300, rate: float = 0.5, extra: int = 1, **kwargs)"
    assert (Mine(1).size, Mine(1, size=2, extra=5).extra, Plain("a", "b").size) == (300, 5, 2)
    assert str(inspect.signature(Plain)) == "(*names)"


def test_every_algorithm_takes_its_settings_by_position_in_the_documented_order():
    algo = R2D1(0.9, 8, 4, 2, 2, 100, None, 5000, 1, 10)
    assert (algo.discount, algo.batch_T, algo.min_steps_learn, algo.replay_size, algo.target_update_interval) == (0.9, 8, 100, 5000, 10)
    assert algo.batch_size == (8 + 2) * 4 and algo.optim_kwargs == dict(eps=1e-3)
    for cls, n_before in ((DQN, 23), (R2D1, 29)):
        before = list(inspect.signature(cls).parameters.values())[:n_before]
        algo = cls(*(p.default for p in before), 3)
        assert before[-1].name == "ReplayBufferCls" and algo.updates_per_sync == 3 and algo.lr_schedule is None
    assert PPO(0.9, 1e-3, 0.7, 0.02).entropy_loss_coeff == 0.02 and PPO(0.9).value_loss_coeff == 1.0
    assert TD3(50, 20).replay_ratio == 20 and CategoricalDQN(-5, 5, 0.9).discount == 0.9
    for wrong in ("batch_size", "target_update_tau"):
        with pytest.raises(TypeError, match=f"R2D1 has no setting '{wrong}'"):
            R2D1(**{wrong: 1})


def every_class_of(package):
    modules = [importlib.import_module(module.name) for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    return {cls for module in modules for cls in vars(module).values() if isinstance(cls, type) and cls.__module__ == module.__name__}


def test_signatures_of_algorithms_agents_models_samplers_and_runners_have_all_arguments():
    classes = set().union(*map(every_class_of, (algos, agents, models, samplers, runners)))
    classes = {cls for cls in classes if issubclass(cls, (Recorded, Model)) and cls is not Model}
    assert {DQN, PPO, MlpDqnAgent, MlpDqnModel, SerialSampler, MinibatchRl} < classes
    for cls in classes:
        named = [p for p in inspect.signature(cls).parameters.values() if p.kind is not p.VAR_POSITIONAL]
        assert not [p for p in named if p.kind is p.VAR_KEYWORD], cls
        assert [p.name for p in named] == list(arguments_of(cls)), cls


# --- Keyword arguments for others -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "make,wrong,says",
    [
        (
            MlpDqnAgent,
            dict(model_kwargs=dict(hidden_size=[3])),
            "model_kwargs has 'hidden_size', which is no argument of MlpDqnModel, its ModelCls. Did you mean 'hidden_sizes'?",
        ),
        (DdpgAgent, dict(q_model_kwargs=dict(hiden_sizes=[3])), "q_model_kwargs has 'hiden_sizes', which is no argument of QofMuMlpModel"),
        (PPO, dict(optim_kwargs=dict(epss=1)), "optim_kwargs has 'epss', which is no argument of Adam, its OptimCls. Did you mean 'eps'"),
        (PPO, dict(optim_kwargs=dict(lr=1e-5)), "optim_kwargs has 'lr', which learning_rate determines: leave it out"),
        (
            lambda **kw: SerialSampler(**{**SAMPLER, **kw}),
            dict(env_kwargs=dict(arena=2)),
            "env_kwargs has 'arena', which is no argument of PointEnv, its EnvCls. Did you mean 'arena_size'",
        ),
        (
            lambda **kw: SerialSampler(**{**SAMPLER, **kw}),
            dict(env_kwargs=[dict(arena_size=2), dict(arena=2)]),
            "env_kwargs has 'arena', which is no argument of PointEnv",
        ),
        (lambda **kw: SerialSampler(**{**SAMPLER, **kw}), dict(eval_env_kwargs=dict(gaol=2)), "eval_env_kwargs has 'gaol'"),
        (lambda **kw: WorkerFactory(max_episode_length=3, **kw), dict(worker_args=dict(n_envs=3)), "worker_args has 'n_envs'"),
    ],
)
def test_an_unknown_key_of_arguments_for_others_is_an_error_with_the_nearest_one(make, wrong, says):
    with pytest.raises(ValueError) as error:
        make(**wrong)
    assert says in str(error.value)


class MyModel(MlpDqnModel):
    def __init__(self, *args, **kwargs):
        kwargs.pop("mine")
        super().__init__(*args, **kwargs)


class AgentThatKnowsBetter(MlpDqnAgent):
    def make_policy(self, **kwargs):
        self.model_kwargs.pop("mine")
        return super().make_policy(**kwargs)


def test_where_the_signature_does_not_tell_nothing_is_said():
    MlpDqnAgent(ModelCls=MyModel, model_kwargs=dict(mine=3))
    AgentThatKnowsBetter(model_kwargs=dict(mine=3))
    SerialSampler(**{**SAMPLER, "EnvCls": make_gym, "env_kwargs": dict(id="CartPole-v1", anything=3)})
    SerialSampler(**{**SAMPLER, "EnvCls": lambda **kwargs: PointEnv()})
    A2C(OptimCls=lambda params, lr, **kwargs: None, optim_kwargs=dict(anything=3))


# --- Values -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "make,wrong",
    [
        *[(MlpDqnAgent, dict(eps_init=value)) for value in (5, -1, math.nan)],
        (MlpDqnAgent, dict(eps_eval="abc")),
        *[(MlpDqnAgent, dict(eps_itr_min=value)) for value in ("5", -1, 0.5)],
        *[(Td3Agent, {name: -1}) for name in ("action_std", "target_noise_std", "pretrain_std", "action_noise_clip")],
        *[(lambda **kw: SerialSampler(**SAMPLER, **kw), dict(worker_timeout=value)) for value in ("abc", -1)],
        *[(lambda **kw: SerialSampler(**SAMPLER, **kw), dict(eval_max_steps=value)) for value in (2.9, "5", math.nan, [])],
        *[(lambda **kw: SerialSampler(**SAMPLER, **kw), dict(CollectorCls=value)) for value in (None, 5, "abc")],
        (lambda **kw: SerialSampler(**SAMPLER, **kw), dict(TrajInfoCls=5)),
        *[(lambda **kw: SerialSampler(**{**SAMPLER, **kw}), dict(batch_T=value)) for value in (math.nan, True, 2.5, 10**400)],
        (lambda **kw: SerialSampler(**{**SAMPLER, **kw}), dict(env_kwargs=5)),
        *[(runner, dict(algo=value)) for value in (5, DQN)],
        (DQN, dict(ReplayBufferCls="abc")),
        *[(DQN, dict(learning_rate=value)) for value in (math.inf, 10**400)],
        (DQN, dict(prefetch_batches="no")),
        (update_config, dict(default={}, variant=5)),
        (SAC, dict(reparameterize="abc")),
        *[(MlpCatDqnAgent, dict(n_atoms=value)) for value in (2.5, math.inf)],
        (MlpCatDqnAgent, dict(model_kwargs=[1])),
        *[(lambda **kw: UniformReplayBuffer(**{**BUFFER, **kw}), dict(size=value)) for value in ("abc", math.inf)],
        *[(lambda **kw: UniformReplayBuffer(**{**BUFFER, **kw}), {name: value}) for name, value in (("B", True), ("discount", 1e6))],
        (lambda **kw: UniformReplayBuffer(**{**BUFFER, **kw}), dict(example=5)),
        (lambda **kw: PrioritizedReplayBuffer(**BUFFER, **kw), dict(unique="abc")),
        *[(lambda **kw: UniformSequenceReplayBuffer(**BUFFER, rnn_state_interval=0, **kw), dict(batch_T=v)) for v in (math.nan, 2.5)],
        (lambda **kw: UniformSequenceReplayBuffer(**BUFFER, **kw), dict(rnn_state_interval=-math.inf)),
        *[(auto_affinity, dict(max_parallel=value)) for value in (-1, math.nan)],
        (auto_affinity, dict(use_gpu="abc")),
        *[(runner, {name: value}) for name, value in (("resume_from", 5), ("save_replay", "no"))],
        *[(lambda **kw: logger_context("a", 0, "b", **kw), dict(snapshot_gap=value)) for value in (math.nan, math.inf)],
        (lambda **kw: logger_context("a", 0, "b", **kw), dict(log_params="abc")),
        (lambda **kw: run_experiments("script.py", "1cpu", "title", 1, log_dirs=["one"], **kw), dict(variants=["abc"])),
    ],
)
def test_a_value_that_is_not_possible_is_an_error_with_name_and_value(make, wrong):
    ((name, value), *_) = list(wrong.items())[::-1]
    with pytest.raises(ValueError) as error:
        make(**wrong)
    assert f"{name}={value!r}"[:100] in str(error.value) and "it must be" in str(error.value)


def test_an_absurd_number_of_runs_is_refused_at_once(tmp_path):
    with pytest.raises(ValueError, match="runs_per_setting=1000000000000"):
        run_experiments("script.py", "1cpu", tmp_path, 10**12, [{}], ["one"])


@checked(whole=COUNT, part=FRACTION, std=or_array(Number(0)), kwargs=ArgumentsFor("make"))
def function(whole=1, part: float | None = 0.5, flag: bool = False, std=1.0, make=None, kwargs: dict | None = None, other: int | str = 3):
    return whole, part, flag, std, kwargs


@pytest.mark.parametrize("value", [2, 2.0, np.int32(2), np.float64(2), np.array(2), torch.tensor(2), torch.tensor(2.0), Fraction(2)])
def test_whole_numbers_of_all_kinds_become_int(value):
    for whole in (function(value)[0], function(whole=value)[0]):
        assert whole == 2 and type(whole) is int


@pytest.mark.parametrize("value", [0, 1, 0.5, np.float32(0.5), torch.tensor(0.5), Fraction(1, 2), None])
def test_numbers_stay_what_they_are(value):
    assert function(part=value)[1] is value


@pytest.mark.parametrize("value", [True, False, 0, 1, np.bool_(True), torch.tensor(True)])
def test_flags_may_be_of_numpy_and_numbers(value):
    assert FLAG.allows(value) and function(flag=value)[2] is value


@pytest.mark.parametrize("value", [0, 0.5, [0.1, 0.2], np.ones(2), np.ones((1, 2)), torch.ones(2)])
def test_what_may_be_an_array_may_be_a_list_or_tensor(value):
    assert function(std=value)[3] is value


@pytest.mark.parametrize("value", [[-1], [], ["a"], np.array([math.nan]), torch.tensor([-1.0])])
def test_all_numbers_of_an_array_must_be_possible(value):
    with pytest.raises(ValueError, match="std="):
        function(std=value)


def test_defaults_and_what_no_annotation_tells_are_not_checked():
    assert function() == (1, 0.5, False, 1.0, None)
    assert function(other=object(), kwargs=OrderedDict(any=3))[4] == dict(any=3)


def test_what_is_handed_on_may_be_none_where_its_taker_says_so():
    made = AsyncRl(DQN(), MlpDqnAgent(), AsyncSerialSampler(**SAMPLER), 100, seed=None, stop_return=None, resume_from=None)
    assert made.seed is None
    with pytest.raises(ValueError, match="seed=-1"):
        AsyncRl(DQN(), MlpDqnAgent(), AsyncSerialSampler(**SAMPLER), 100, seed=-1)


# --- Classes of users -------------------------------------------------------------------------------------------------
class AsInTheOriginal(DQN):
    """Assigns its arguments before the base class does: they win."""

    def __init__(self, replay_size=1000, learning_rate=1e-3, OptimCls=torch.optim.SGD, optim_kwargs=None, mine=None):
        optim_kwargs = dict(momentum=0.9) if optim_kwargs is None else optim_kwargs
        save__init__args(locals())
        super().__init__()


def test_an_algorithm_as_in_the_original_is_as_it_was():
    algo = AsInTheOriginal(replay_size=800.0, mine="anything")
    assert (algo.replay_size, algo.optim_kwargs, algo.mine) == (800, dict(momentum=0.9), "anything") and type(algo.replay_size) is int
    for wrong in (dict(replay_size=0), dict(learning_rate=-1)):
        with pytest.raises(ValueError, match=f"AsInTheOriginal: {next(iter(wrong))}="):
            AsInTheOriginal(**wrong)
    with pytest.raises(ValueError, match="optim_kwargs has 'momentun', which is no argument of SGD, its OptimCls. Did you mean 'momentum'"):
        AsInTheOriginal(optim_kwargs=dict(momentun=1))


def test_a_class_of_a_user_may_use_a_name_otherwise():
    class Mine(DQN):
        def __init__(self, discount="high", **kwargs):
            super().__init__(discount=dict(high=0.99)[discount], **kwargs)

    assert Mine().discount == 0.99


def test_an_agent_that_assigns_its_model_before_is_checked_with_that():
    class Mine(DdpgAgent):
        def __init__(self, **kwargs):
            self.ModelCls = MyModel
            super().__init__(**kwargs)

    assert Mine(model_kwargs=dict(mine=3)).model_kwargs == dict(mine=3)


# --- All of them ------------------------------------------------------------------------------------------------------
def figures(results):
    wrong = {case: (what, error) for case, (what, error, _) in results.items() if what not in ("named", "accepted")}
    return Counter(what for what, *_ in results.values()), wrong


def check(results):
    counts, wrong = figures(results)
    assert counts["named"] > len(results) / 2  # Otherwise they are not called with what is wrong alone.
    assert counts["hang"] == counts["silent"] == 0, wrong
    assert counts["unnamed"] + counts["obscure"] <= len(results) / 200, wrong


def test_a_twentieth_of_all_wrong_settings():
    check(fuzz_settings.run(quick=True))


@full
@pytest.mark.timeout(400)
def test_all_wrong_settings():
    results = fuzz_settings.run()
    check(results)
    assert len(results) > 20_000


@full
def test_subjects_work_without_anything_wrong_and_all_families_are_there():
    with fuzz_settings.elsewhere():
        subjects = fuzz_settings.subjects()
        for subject in subjects:
            subject.call(**subject.arguments)
    names = [subject.name for subject in subjects]
    assert len(names) == len(set(names))
    for family, at_least in (("agents.", 20), ("algos.", 9), ("replays.", 20), ("samplers.", 10)):
        assert sum(name.startswith(family) for name in names) >= at_least
