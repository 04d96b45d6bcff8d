"""Training on data sets that the tests record themselves."""

import copy
import csv
import dataclasses
import math

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from tiers import full, learning, thinned

from rlpyt.agents.dqn.atari.atari_dqn_agent import AtariDqnAgent
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.dqn.mlp_r2d1_agent import MlpR2d1Agent
from rlpyt.agents.dqn.multi_input import MultiInputDqnAgent
from rlpyt.agents.pg.mlp import MlpFfAgent
from rlpyt.agents.pg.mujoco import MujocoFfAgent
from rlpyt.agents.qpg.iql_agent import IqlAgent
from rlpyt.agents.qpg.td3_agent import Td3Agent
from rlpyt.algos.dqn.dqn import DQN
from rlpyt.algos.dqn.r2d1 import R2D1
from rlpyt.algos.offline.behavior_cloning import BehaviorCloning
from rlpyt.algos.offline.iql import IQL
from rlpyt.algos.pg.ppo import PPO
from rlpyt.algos.qpg.td3 import TD3
from rlpyt.envs.gym import GymEnvWrapper
from rlpyt.envs.gym import make as gym_make
from rlpyt.envs.specs import EnvSpec
from rlpyt.episodes import EpisodeBatch, StepType
from rlpyt.replays.base import CompletedReplay
from rlpyt.replays.episode import EpisodeReplayBuffer
from rlpyt.runners.offline_rl import OfflineRl, as_sampled, episodes_of
from rlpyt.samplers.serial.sampler import SerialSampler
from rlpyt.spaces.float_box import FloatBox
from rlpyt.spaces.gym_wrapper import GymSpaceWrapper
from rlpyt.utils.digests import FILE, in_common, n_compared, parting, read_rows
from rlpyt.utils.logging.context import logger_context

SMALL = dict(hidden_sizes=[32, 32])


def balance(observation, rng):
    """Keeps the pole of CartPole up, but for every fifth action."""
    return int(rng.integers(2)) if rng.random() < 0.2 else int(observation[2] + 0.3 * observation[3] + 0.02 * observation[1] > 0)


def swing(observation, rng):
    """Swings Pendulum up by energy, and holds it, with noise of half the largest torque."""
    cos, sin, speed = observation
    angle = math.atan2(sin, cos)
    missing = 5 - speed**2 / 6 - 5 * cos  # energy, of which the pendulum has 5 when it stands still at the top
    torque = -8 * angle - 2 * speed if abs(angle) < 0.6 and abs(speed) < 3 else 2 * np.sign((speed or 1.0) * missing)
    return np.clip(np.array([torque + rng.normal(0, 1)], np.float32), -2, 2)


def sloppy_swing(observation, rng):
    """The same, but every second action is random."""
    return swing(observation, rng) if rng.random() < 0.5 else rng.uniform(-2, 2, 1).astype(np.float32)


def record(id, policy, n_steps, seed=0):
    """Episodes of a policy, without any sampler."""
    env, rng, paths, n = gymnasium.make(id), np.random.default_rng(seed), [], 0
    while n < n_steps:
        observation, _ = env.reset(seed=seed + n)
        observations, actions, rewards, ended = [observation], [], [], False
        while not ended:
            actions.append(policy(observation, rng))
            observation, reward, terminated, truncated, _ = env.step(actions[-1])
            observations.append(observation)
            rewards.append(reward)
            ended = terminated or truncated
        T = len(rewards)
        types = StepType.from_flags(np.arange(T) == 0, np.arange(T) == T - 1 + (not terminated), np.arange(T) == T - 1 + bool(terminated))
        paths.append(dict(observations=np.stack(observations), actions=np.stack(actions), rewards=np.array(rewards), step_types=types))
        n += T
    return EpisodeBatch.from_list(EnvSpec(env.observation_space, env.action_space, env.spec.max_episode_steps), paths)


@pytest.fixture(scope="module")
def cartpole():
    return record("CartPole-v1", balance, 1500)


@pytest.fixture(scope="module")
def pendulum():
    return record("Pendulum-v1", swing, 1000)


class FramesGymEnv(gymnasium.Env):
    """Stacks of frames that stay black; episodes have one step."""

    observation_space, action_space = gymnasium.spaces.Box(0, 255, (4, 36, 36), np.uint8), gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        return np.zeros((4, 36, 36), np.uint8), {}

    def step(self, action):
        return np.zeros((4, 36, 36), np.uint8), 0.0, True, False, {}


def make_frames():
    return GymEnvWrapper(FramesGymEnv())


def runner(algo, agent, dataset, id, n_steps=20, **settings):
    sampler = SerialSampler(
        gym_make, dict(id=id), batch_T=1, batch_B=1, eval_n_envs=2, eval_max_steps=2000, eval_max_trajectories=4, max_decorrelation_steps=0
    )
    settings = dict(dict(log_interval_steps=10, seed=0, affinity=dict(master_torch_threads=1)), **settings)
    return OfflineRl(dataset=dataset, algo=algo, agent=agent, sampler=sampler, n_steps=n_steps, **settings)


def run(parts, log_dir):
    n_threads = torch.get_num_threads()
    try:
        with logger_context(str(log_dir), 0, "offline"):
            parts.train()
    finally:
        torch.set_num_threads(n_threads)
    with open(log_dir / "run_0" / "progress.csv") as file:
        return list(csv.DictReader(file))


KINDS = {
    "bc": ("CartPole-v1", lambda: (BehaviorCloning(batch_size=32), MlpFfAgent(model_kwargs=SMALL))),
    "dqn": ("CartPole-v1", lambda: (DQN(n_step_return=3, prioritized_replay=True), MlpDqnAgent(model_kwargs=SMALL))),
    "prefetched": ("CartPole-v1", lambda: (DQN(prioritized_replay=True, prefetch_batches=True), MlpDqnAgent(model_kwargs=SMALL))),
    "td3_bc": ("Pendulum-v1", lambda: (TD3(behavior_cloning=2.5), Td3Agent(model_kwargs=SMALL, q_model_kwargs=SMALL))),
    "iql": ("Pendulum-v1", lambda: (IQL(), IqlAgent(model_kwargs=SMALL, q_model_kwargs=SMALL, v_model_kwargs=SMALL))),
}


@pytest.mark.parametrize("kind", thinned(KINDS, quick=["bc", "iql"]))
def test_any_algorithm_with_replay_trains_on_a_data_set_and_is_evaluated(kind, request, tmp_path):
    id, make = KINDS[kind]
    dataset = request.getfixturevalue("cartpole" if "Cart" in id else "pendulum")
    algo, agent = make()
    update, training = algo.update, []
    algo.update = lambda batch: training.append(agent.model.training) or update(batch)
    rows = run(runner(algo, agent, dataset, id), tmp_path)
    assert training == [True] * 20, "also after evaluations"
    assert [row["Diagnostics/CumSteps"] for row in rows] == ["0", "10", "20"]
    assert algo.update_counter == 20 and all(float(row["Diagnostics/TrajsInEval"]) == 4 for row in rows)


def test_the_replay_buffer_has_the_transitions_of_the_data_set(cartpole):
    algo, agent = KINDS["dqn"][1]()
    parts = runner(algo, agent, cartpole, "CartPole-v1")
    algo.n_step_return = 1
    parts.startup()
    try:
        batch = algo.replay_buffer.sample_batch(500)
        seen = {tuple(row): i for i, row in enumerate(np.asarray(cartpole.observations, np.float32).tolist())}
        following = np.asarray(cartpole.next_observations, np.float32)
        for b in range(500):
            i = seen[tuple(batch.agent_inputs.observation[b].tolist())]
            assert batch.action[b] == cartpole.actions[i] and batch.return_[b] == cartpole.rewards[i]
            assert batch.bootstrap_discount[b].item() == pytest.approx(0.0 if cartpole.terminals[i] else 0.99)
            if not cartpole.terminals[i]:
                assert batch.target_inputs.observation[b].tolist() == following[i].tolist()
        assert cartpole.terminals.any()
    finally:
        parts.shutdown()


@pytest.mark.parametrize("settings", [dict(), dict(n_step_return=3), dict(n_step_return=3, prioritized_replay=True)], ids=str)
def test_every_step_of_the_data_set_is_drawn_and_nothing_else(settings):
    T, paths = 5, []
    types = StepType.from_flags(np.arange(T) == 0, np.arange(T) == T, np.arange(T) == T - 1)
    for k in range(2):
        observations = np.repeat(np.arange(1, T + 2, dtype=np.float32)[:, None] + 100 * k, 4, axis=1)
        rewards = np.where(np.arange(T) == T - 1, 1.0 + k, 0)
        paths.append(dict(observations=observations, actions=np.ones(T, np.int64), rewards=rewards, step_types=types))
    spec = EnvSpec(gymnasium.spaces.Box(-1e3, 1e3, (4,), np.float32), gymnasium.spaces.Discrete(2), T)
    algo = DQN(**settings)
    parts = runner(algo, MlpDqnAgent(model_kwargs=SMALL), EpisodeBatch.from_list(spec, paths), "CartPole-v1")
    parts.startup()
    try:
        batch, n = algo.replay_buffer.sample_batch(1000), algo.n_step_return
        drawn = batch.agent_inputs.observation[:, 0].numpy()
        assert set(drawn) == {100 * k + t + 1 for k in range(2) for t in range(T)}
        k, t = np.divmod(drawn.astype(int) - 1, 100)
        assert (batch.action == 1).all()
        assert (batch.agent_inputs.prev_action.numpy() == (t > 0)).all() and (batch.agent_inputs.prev_reward == 0).all()
        ends = t + n >= T
        assert (batch.done_n.numpy() == ends).all()
        np.testing.assert_allclose(batch.return_.numpy(), np.where(ends, (1 + k) * algo.discount ** (T - 1.0 - t), 0), rtol=1e-5)
    finally:
        parts.shutdown()


def test_every_stack_of_frames_is_drawn_and_nothing_else():
    T = 6
    types = StepType.from_flags(np.arange(T) == 0, np.arange(T) == T, np.arange(T) == T - 1)
    frames = np.arange(1, T + 2, dtype=np.uint8)
    stacks = np.stack([np.pad(frames, (3, 0))[t : t + 4] for t in range(T + 1)])  # [T+1,C]
    observations = np.broadcast_to(stacks[..., None, None], (T + 1, 4, 36, 36)).copy()
    path = dict(observations=observations, actions=np.zeros(T, np.int64), rewards=np.zeros(T), step_types=types)
    spec = EnvSpec(gymnasium.spaces.Box(0, 255, (4, 36, 36), np.uint8), gymnasium.spaces.Discrete(3), T)
    algo = DQN()
    sampler = SerialSampler(make_frames, {}, batch_T=1, batch_B=1, eval_n_envs=1, eval_max_steps=10, max_decorrelation_steps=0)
    agent = AtariDqnAgent()
    parts = OfflineRl(dataset=EpisodeBatch.from_list(spec, [path]), algo=algo, agent=agent, sampler=sampler, n_steps=2, seed=0)
    parts.startup()
    try:
        drawn = algo.replay_buffer.sample_batch(300).agent_inputs.observation[:, :, 0, 0].numpy()
        assert {tuple(stack) for stack in drawn.tolist()} == {tuple(stack) for stack in stacks[:-1].tolist()}
    finally:
        parts.shutdown()


@pytest.mark.parametrize(
    "name, where",
    [*((name, "in step 3 of episode 1, both counted from 0") for name in ("observations", "actions", "rewards")),
     ("last_observations", "at the end of episode 2")],
)  # fmt: skip
def test_numbers_that_are_none_are_refused_by_episode_and_step(name, where, pendulum):
    array = np.array(getattr(pendulum, name), dtype=np.float32)
    array[2 if name == "last_observations" else int(pendulum.lengths[0]) + 3] = np.nan
    spoilt = copy.copy(pendulum)
    object.__setattr__(spoilt, name, array)
    parts = runner(TD3(batch_size=8), Td3Agent(), spoilt, "Pendulum-v1", n_steps=2)
    with pytest.raises(
        ValueError, match=f"The {name} of the data set have a number that is NaN or infinite, {where}. Leave that episode out"
    ):
        parts.startup()


def test_numbers_that_mean_something_or_are_not_used_are_taken(pendulum, monkeypatch, tmp_path):
    spoilt = copy.copy(pendulum)
    observations, types = np.array(pendulum.last_observations), np.array(pendulum.step_types)
    observations[1] = np.nan
    types[int(sum(pendulum.lengths[:2])) - 1] = StepType.TERMINAL  # So no target uses what follows.
    object.__setattr__(spoilt, "last_observations", observations)
    object.__setattr__(spoilt, "step_types", types)
    run(runner(TD3(batch_size=8), Td3Agent(), spoilt, "Pendulum-v1", n_steps=2), tmp_path)
    infinite = copy.copy(pendulum)
    object.__setattr__(infinite, "rewards", np.where(np.arange(len(pendulum)) == 5, np.inf, pendulum.rewards))
    parts = runner(TD3(batch_size=8), Td3Agent(), infinite, "Pendulum-v1", n_steps=2)
    monkeypatch.setattr(type(parts), "check_numbers", lambda self, episodes: None)
    try:
        parts.startup()
    finally:
        parts.shutdown()


def test_observations_of_another_shape_are_refused_by_both_shapes(pendulum):
    parts = runner(TD3(batch_size=8), Td3Agent(), pendulum, "MountainCarContinuous-v0", n_steps=2)
    with pytest.raises(ValueError, match=r"observations of the data set have the shape \(3,\), and those of the environment have \(2,\)"):
        parts.startup()


NORMALIZED = dict(normalize_observation=True, hidden_sizes=[8])


@pytest.mark.parametrize(
    "make_algo, make_agent",
    [
        pytest.param(BehaviorCloning, lambda: MujocoFfAgent(model_kwargs=NORMALIZED), marks=full),
        pytest.param(
            lambda **settings: TD3(behavior_cloning=2.5, **settings),
            lambda: Td3Agent(model_kwargs=NORMALIZED, q_model_kwargs=NORMALIZED),
            marks=full,
        ),
        (IQL, lambda: IqlAgent(model_kwargs=NORMALIZED, q_model_kwargs=NORMALIZED, v_model_kwargs=NORMALIZED)),
    ],
    ids=["BC", "TD3+BC", "IQL"],
)
def test_observations_are_normalized_by_the_statistics_of_the_data_set_once(make_algo, make_agent, pendulum, tmp_path):
    """In all models, also target networks."""
    for n_steps, settings in ((10, {}), (20, dict(resume_from=tmp_path / "run_0"))):
        agent = make_agent()
        run(runner(make_algo(batch_size=8), agent, pendulum, "Pendulum-v1", n_steps=n_steps, **settings), tmp_path)
        observations = torch.as_tensor(pendulum.observations, dtype=torch.float32)
        models = list(agent.named_models().values())
        assert all(hasattr(model, "obs_rms") for model in models)
        for rms in (model.obs_rms for model in models):
            assert len(observations) == 1000
            torch.testing.assert_close(float(rms.count), 1000.0)
            torch.testing.assert_close(rms.mean, observations.mean(0), rtol=1e-4, atol=1e-5)
            torch.testing.assert_close(rms.var, observations.var(0, correction=0), rtol=1e-3, atol=1e-5)


def test_data_sets_come_in_several_forms(cartpole, tmp_path, monkeypatch):
    buffer = EpisodeReplayBuffer(5000)
    buffer.append_episodes(cartpole)
    results = []
    for i, dataset in enumerate([cartpole, buffer]):
        algo, agent = KINDS["bc"][1]()
        run(runner(algo, agent, dataset, "CartPole-v1"), tmp_path / str(i))
        results.append(torch.cat([p.detach().flatten() for p in agent.parameters()]))
    assert torch.equal(*results)


@full
def test_a_data_set_of_minari_is_read_by_its_id(cartpole, tmp_path, monkeypatch):
    pytest.importorskip("minari")
    from rlpyt.episodes.minari import to_minari

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "datasets"))
    to_minari(cartpole, "cartpole/balance-v0")
    algo, agent = KINDS["bc"][1]()
    run(runner(algo, agent, "cartpole/balance-v0", "CartPole-v1"), tmp_path)
    assert algo.update_counter == 20


@pytest.mark.parametrize("kind", thinned(["bc", "dqn", "prefetched"], quick=["prefetched"]))  # The latter two with priorities.
def test_a_resumed_run_is_the_uninterrupted_one(kind, cartpole, tmp_path):
    def final(n_steps, directory, **settings):
        algo, agent = KINDS[kind][1]()
        run(runner(algo, agent, cartpole, "CartPole-v1", n_steps=n_steps, **settings), directory)
        return agent.state_dict(), algo.optim_state_dict()

    expected = final(40, tmp_path / "whole")
    final(20, tmp_path / "parts")
    resumed = final(40, tmp_path / "parts", resume_from=tmp_path / "parts" / "run_0")
    torch.testing.assert_close(resumed, expected, rtol=0, atol=0)


@full
def test_the_command_line_resumes_a_run_with_the_data_set_of_its_script(cartpole, tmp_path):
    from rlpyt.cli import main

    algo, agent = KINDS["dqn"][1]()
    run(runner(algo, agent, cartpole, "CartPole-v1", n_steps=40), tmp_path / "whole")
    expected = agent.state_dict()
    algo, agent = KINDS["dqn"][1]()
    run(runner(algo, agent, cartpole, "CartPole-v1", n_steps=20), tmp_path / "parts")
    (tmp_path / "script.py").write_text("""
from runners.test_offline_rl import KINDS, balance, record, runner

def build():
    return runner(*KINDS["dqn"][1](), record("CartPole-v1", balance, 1500), "CartPole-v1")
""")
    directory = tmp_path / "parts" / "run_0"
    assert main(["resume", str(directory), "--script", f"{tmp_path / 'script.py'}:build", "--n_steps", "40"]) == 0
    resumed = torch.load(directory / "params.pkl", weights_only=True)
    assert resumed["cum_steps"] == 40
    torch.testing.assert_close(resumed["agent_state_dict"], expected, rtol=0, atol=0)


def test_a_run_on_episodes_in_memory_can_be_evaluated(cartpole, tmp_path, capsys):
    from rlpyt.cli import main

    algo, agent = KINDS["dqn"][1]()
    run(runner(algo, agent, cartpole, "CartPole-v1"), tmp_path)
    assert "params.json cannot hold runner.dataset (an object of rlpyt.episodes.batch.EpisodeBatch)" in capsys.readouterr().out
    assert main(["eval", str(tmp_path / "run_0"), "--episodes", "2"]) == 0


def test_digests_of_samples_are_those_of_the_data_set(cartpole, tmp_path):
    def rows(name, dataset, n_steps=20, **settings):
        run(runner(BehaviorCloning(batch_size=8), MlpFfAgent(), dataset, "CartPole-v1", n_steps, digest=True, **settings), tmp_path / name)
        return read_rows(tmp_path / name / "run_0" / FILE)

    other = copy.deepcopy(cartpole)
    other.rewards[-1] += 1  # Behavior cloning does not look at rewards.
    a, b = rows("a", cartpole), rows("b", other)
    assert n_compared(in_common(a, a))["Samples"] == 3
    found = parting(in_common(a, b))
    assert (found.a.steps, found.names["Samples"], found.names["Parameters"]) == (0, ["data.rewards"], [])
    resumed = rows("a", cartpole, 40, resume_from=tmp_path / "a" / "run_0")
    assert [row.steps for row in resumed] == [0, 10, 20, 30, 40] and resumed[-1].digests["Samples"] == a[0].digests["Samples"]


@pytest.mark.parametrize("dataset", [None, [1, 2], {"rewards": [1]}])
def test_what_is_no_data_set_is_said_to_be_none(dataset):
    with pytest.raises(TypeError, match="is no dataset of Minari: give one, or the id of one on this machine"):
        episodes_of(dataset)


def test_what_cannot_be_trained_on_a_data_set_is_refused(cartpole):
    with pytest.raises(ValueError, match="OfflineRl needs an algorithm that learns from replay; PPO is not one"):
        runner(PPO(), MlpFfAgent(), cartpole, "CartPole-v1")
    parts = dict(algo=BehaviorCloning(), agent=MlpFfAgent(), n_steps=10)
    sampler = SerialSampler(gym_make, dict(id="CartPole-v1"), batch_T=4, batch_B=1, eval_n_envs=1, eval_max_steps=100)
    with pytest.raises(ValueError, match="give the sampler batch_T=1 and batch_B=1"):
        OfflineRl(dataset=cartpole, sampler=sampler, **parts)
    with pytest.raises(ValueError, match="leave save_replay out"):
        runner(BehaviorCloning(), MlpFfAgent(), cartpole, "CartPole-v1", save_replay=True)


def test_the_algorithm_has_its_own_settings_again_after_the_run(cartpole, pendulum, tmp_path):
    algo, agent = DQN(min_steps_learn=70, replay_size=12345), MlpDqnAgent(model_kwargs=SMALL)
    parts = runner(algo, agent, cartpole, "CartPole-v1", n_steps=10)
    for _ in range(2):
        run(parts, tmp_path)
        assert (algo.min_steps_learn, algo.replay_size, algo.learns_statistics) == (70, 12345, True) and algo.update_counter == 10
    parts = runner(algo, agent, pendulum, "CartPole-v1")
    with pytest.raises(ValueError):
        run(parts, tmp_path / "other")
    assert (algo.min_steps_learn, algo.replay_size, algo.learns_statistics) == (70, 12345, True)


def test_a_data_set_of_another_environment_is_refused(cartpole, tmp_path):
    algo, agent = KINDS["iql"][1]()
    with pytest.raises(ValueError, match="observation|action"):
        run(runner(algo, agent, cartpole, "Pendulum-v1"), tmp_path)


def with_fields(episodes, **changes):
    """The same episodes with other fields."""
    names = ("env_spec", *EpisodeBatch._PER_STEP, "last_observations", "lengths")
    return EpisodeBatch(**{**{name: getattr(episodes, name) for name in names}, **changes})


def with_actions(episodes, actions, space):
    """The same episodes with other actions; `space` None leaves out the `env_spec`."""
    spec = None if space is None else dataclasses.replace(episodes.env_spec, action_space=space)
    return with_fields(episodes, actions=actions, env_spec=spec)


def started(dataset, id, kind=None, **settings):
    """An algorithm that has the data set in its replay buffer."""
    algo, agent = KINDS[kind or ("dqn" if "Cart" in id else "iql")][1]()
    parts = runner(algo, agent, dataset, id, **settings)
    try:
        parts.startup()
        return algo
    finally:
        parts.shutdown()


@pytest.mark.parametrize("space", [spaces.Box(0, 100, (1,), np.float32), None], ids=["its own space", "no space"])
def test_actions_in_other_units_are_refused(space, pendulum):
    dataset = with_actions(pendulum, 25 * (pendulum.actions + 2), space)
    with pytest.raises(ValueError, match=r"actions? .* from 0.0 to .*100.*, but those of the environment from -2.0 to 2.0: convert"):
        started(dataset, "Pendulum-v1")


def test_the_same_bounds_in_another_precision_are_the_same(pendulum):
    for space in (spaces.Box(-2, 2, (1,), np.float64), spaces.Box(np.float32(-2 + 1e-6), 2, (1,), np.float32), FloatBox(-2, 2, (1,)), None):
        started(with_actions(pendulum, pendulum.actions, space), "Pendulum-v1")


@pytest.mark.parametrize("space", [spaces.Discrete(2), spaces.Discrete(3), None], ids=str)
def test_discrete_actions_that_the_environment_does_not_have_are_refused(space, cartpole):
    with pytest.raises(ValueError, match="actions? .* but those of the environment from 0 to 1: convert"):
        started(with_actions(cartpole, cartpole.actions + 1, space), "CartPole-v1")


def test_parts_of_actions_are_compared_as_well(cartpole):
    space = spaces.Dict({"turn.it": spaces.Box(-1, 1, (2,)), "n": spaces.Discrete(3, start=4)})
    actions = {"turn.it": np.array([[-1, 0], [0.5, 1]], np.float32), "n": np.array([4, 6])}  # A Dict sorts its parts.
    types, lengths = np.array([StepType.FIRST, StepType.TERMINAL], np.uint8), np.array([2])
    zeros = dict(observations=np.zeros((2, 4), np.float32), last_observations=np.zeros((1, 4), np.float32), rewards=np.zeros(2))
    spec = EnvSpec(cartpole.env_spec.observation_space, space)
    env_spaces = GymSpaceWrapper(spec.observation_space), GymSpaceWrapper(space)
    episodes = EpisodeBatch(spec, actions=actions, step_types=types, lengths=lengths, **zeros)
    fitted = as_sampled(episodes, *env_spaces)
    assert list(fitted.actions) == ["n", "turn_it"] and fitted.actions["n"].tolist() == [0, 2]
    np.testing.assert_array_equal(fitted.actions["turn_it"], actions["turn.it"])
    other = spaces.Dict({"turn.it": spaces.Box(-1, 2, (2,)), "n": spaces.Discrete(3, start=4)})
    with pytest.raises(ValueError, match=r"actions\.turn_it of the data set are from -1.0 to 2.0, .* from -1.0 to 1.0"):
        as_sampled(with_fields(episodes, env_spec=dataclasses.replace(spec, action_space=other)), *env_spaces)


def test_actions_of_gymnasium_that_start_elsewhere_are_counted_from_0(cartpole):
    algo = started(with_actions(cartpole, cartpole.actions + 7, spaces.Discrete(2, start=7)), "CartPole-v1")
    stored = CompletedReplay(algo.replay_buffer).samples
    assert set(stored.action[stored.reward != 0].tolist()) == {0, 1}


ITEMS = spaces.Dict(b=spaces.Box(-1, 1, (2,)), a=spaces.Dict(y=spaces.Box(-9, 9, (1,)), x=spaces.Box(-9, 9, (3,))))


class ItemsGymEnv(gymnasium.Env):
    """Observations with parts; episodes have one step."""

    observation_space, action_space = ITEMS, spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        return self.observation_space.sample(), {}

    def step(self, action):
        return self.observation_space.sample(), 0.0, True, False, {}


def make_items():
    return GymEnvWrapper(ItemsGymEnv())


def on_items(change):
    """A runner on observations with the parts of `ITEMS` that `change` has changed, and its algorithm."""
    n = 6
    whole = {"b": np.zeros((n, 2), np.float32), "a": {"y": np.ones((n, 1), np.float32), "x": np.full((n, 3), 2, np.float32)}}
    observations = change(whole)
    types = np.where(np.arange(n - 1) == n - 2, StepType.TERMINAL, StepType.MID)
    path = dict(observations=observations, actions=np.arange(n - 1) % 2, rewards=np.zeros(n - 1), step_types=types)
    algo, agent = DQN(), MultiInputDqnAgent()
    sampler = SerialSampler(make_items, {}, batch_T=1, batch_B=1, eval_n_envs=1, eval_max_steps=10, max_decorrelation_steps=0)
    dataset = EpisodeBatch.from_list(None, [path])
    return OfflineRl(dataset=dataset, algo=algo, agent=agent, sampler=sampler, n_steps=2, seed=0), algo


def test_parts_of_observations_may_be_in_any_order():
    parts, algo = on_items(lambda o: {"a": dict(reversed(o["a"].items())), "b": o["b"]})
    parts.startup()
    try:
        observation = algo.replay_buffer.sample_batch(50).agent_inputs.observation
        assert (observation.b == 0).all() and (observation.a.y == 1).all() and (observation.a.x == 2).all()
    finally:
        parts.shutdown()


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda o: {"a": o["a"]}, r"observations of the data set lack \['b'\]"),
        (lambda o: {**o, "c": o["b"], "d": o["b"]}, r"observations of the data set have \['c', 'd'\] in excess"),
        (lambda o: {**o, "a": {"x": o["a"]["x"], "z": o["b"]}}, r"observations.a of the data set lack \['y'\], and have \['z'\] in excess"),
        (lambda o: o["b"], r"observations of the data set have no parts, and those of the environment have the parts \['b', 'a'\]"),
        (lambda o: {**o, "b": {"x": o["b"]}}, r"observations.b of the data set have the parts \['x'\], and .* have no parts"),
    ],
    ids=["missing", "superfluous", "both", "array", "parts"],
)
def test_parts_that_differ_are_named(change, message):
    parts, _ = on_items(change)
    with pytest.raises(ValueError, match=message):
        try:
            parts.startup()
        finally:
            parts.shutdown()


@pytest.mark.parametrize("interval", [0, 8])
def test_algorithms_that_replay_sequences_are_refused(interval, cartpole):
    algo = R2D1(batch_T=4, batch_B=2, warmup_T=0, store_rnn_state_interval=interval)
    with pytest.raises(ValueError, match="R2D1 replays sequences .*: take an algorithm that replays transitions, such as DQN"):
        runner(algo, MlpR2d1Agent(), cartpole, "CartPole-v1")


def test_a_run_is_not_resumed_with_other_data(cartpole, tmp_path):
    algo, agent = KINDS["bc"][1]()
    run(runner(algo, agent, cartpole, "CartPole-v1", n_steps=10), tmp_path)
    rewards = cartpole.rewards.copy()
    rewards[3] += 1
    algo, agent = KINDS["bc"][1]()
    resumed = dict(n_steps=20, resume_from=tmp_path / "run_0")
    message = (
        rf"dataset, EpisodeBatch with .*{len(cartpole)}, 'episodes': {cartpole.n_episodes}, .*, is not the one .*: give that one again"
    )
    with pytest.raises(ValueError, match=message):
        run(runner(algo, agent, with_fields(cartpole, rewards=rewards), "CartPole-v1", **resumed), tmp_path / "other")
    algo, agent = KINDS["bc"][1]()
    run(runner(algo, agent, with_fields(cartpole), "CartPole-v1", **resumed), tmp_path / "same")


def test_a_snapshot_of_an_earlier_version_is_resumed(cartpole, tmp_path, monkeypatch):
    def counters(self):
        return dict(super(OfflineRl, self).counters(), draws=self.algo.replay_buffer.draws.state())

    def final(n_steps, directory, **settings):
        algo, agent = KINDS["dqn"][1]()
        run(runner(algo, agent, cartpole, "CartPole-v1", n_steps=n_steps, **settings), directory)
        return agent.state_dict()

    with monkeypatch.context() as earlier:
        earlier.setattr(OfflineRl, "counters", counters)
        final(10, tmp_path / "parts")
    resumed = final(20, tmp_path / "parts", resume_from=tmp_path / "parts" / "run_0")
    torch.testing.assert_close(resumed, final(20, tmp_path / "whole"), rtol=0, atol=0)


@learning
@full
@pytest.mark.parametrize("kind, n_steps, goal", [("bc", 2000, 300), ("td3_bc", 6000, -500), ("iql", 4000, -350)])
def test_it_learns_from_a_noisy_controller(kind, n_steps, goal, request, tmp_path):
    """IQL gets data whose every second action is random. They have a mean return of -619, and cloning them reached -559, IQL -126."""
    id, make = KINDS[kind]
    policy = sloppy_swing if kind == "iql" else swing
    dataset = request.getfixturevalue("cartpole") if "Cart" in id else record("Pendulum-v1", policy, 10_000)
    algo, agent = make()
    rows = run(runner(algo, agent, dataset, id, n_steps=n_steps, log_interval_steps=n_steps), tmp_path)
    assert float(rows[-1]["ReturnAverage"]) > goal
