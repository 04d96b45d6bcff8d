"""Replay buffers that programs written for the original rlpyt derive from ours, or bring along."""

import multiprocessing as mp

import numpy as np
import pytest
import torch
from experience import N_ACTIONS, OBSERVATION_SIZE, start
from streams import KINDS, Game
from tiers import thinned

from rlpyt.agents.base import AgentInputs
from rlpyt.agents.dqn.mlp_dqn_agent import MlpDqnAgent
from rlpyt.agents.dqn.mlp_r2d1_agent import MlpR2d1Agent
from rlpyt.agents.dqn.r2d1_agent import AgentInfo
from rlpyt.algos.dqn.dqn import DQN, SamplesToBuffer
from rlpyt.algos.dqn.r2d1 import R2D1
from rlpyt.envs.gym import make as gym_make
from rlpyt.models.lstm import RnnState
from rlpyt.replays.async_ import AsyncReplayBufferMixin
from rlpyt.replays.base import BaseReplayBuffer
from rlpyt.replays.non_sequence.n_step import SamplesFromReplay
from rlpyt.replays.non_sequence.prioritized import PrioritizedReplayBuffer, SamplesFromReplayPri
from rlpyt.replays.non_sequence.uniform import UniformReplayBuffer
from rlpyt.replays.prefetch import PrefetchedReplay
from rlpyt.replays.sequence.n_step import SamplesToBuffer as SequenceSamplesToBuffer
from rlpyt.replays.sequence.n_step import SequenceNStepReturnBuffer
from rlpyt.replays.sequence.prioritized import PrioritizedSequenceReplayBuffer
from rlpyt.replays.sequence.prioritized import SamplesFromReplayPri as SequenceSamplesFromReplayPri
from rlpyt.replays.sum_tree import AsyncSumTree, SumTree
from rlpyt.runners.async_rl import AsyncRl
from rlpyt.samplers.async_.serial_sampler import AsyncSerialSampler
from rlpyt.samplers.collections import AgentSamples, EnvSamples, Samples
from rlpyt.utils.buffer import buffer_from_example, get_leading_dims, numpify_buffer, torchify_buffer
from rlpyt.utils.collections import namedarraytuple
from rlpyt.utils.seed import set_seed

T, B = 4, 2
EXAMPLES = dict(
    observation=np.zeros(OBSERVATION_SIZE), action=np.int64(0), reward=np.float64(0), done=np.bool_(False), env_info=None, agent_info=None
)
OwnSamples = namedarraytuple("OwnSamples", SamplesToBuffer._fields + ("value",))


def batch(seed=0, n_rows=T):
    """A batch of a sampler, with an episode that ends in row 1 of column 0, and one that is truncated in row 2 of column 1."""
    rng = np.random.default_rng(seed)
    observation = torch.from_numpy(rng.normal(size=(n_rows + 1, B, OBSERVATION_SIZE)))
    action = torch.from_numpy(rng.integers(0, N_ACTIONS, size=(n_rows + 1, B)))
    reward, done = torch.from_numpy(rng.normal(size=(n_rows + 1, B))), torch.zeros(n_rows, B, dtype=torch.bool)
    timeout = torch.zeros_like(done)
    done[1, 0] = done[2, 1] = timeout[2, 1] = True
    final_observation = torch.from_numpy(rng.normal(size=(1, B, OBSERVATION_SIZE)))
    env = EnvSamples(observation[:-1], reward[1:], reward[:-1], done, None, timeout, observation[1:])
    return Samples(AgentSamples(action[1:], action[:-1], None), env, final_observation)


def train(AlgoCls=DQN, mid_batch_reset=True, n_itr=5, **settings):
    """Train on such batches, which fill 20 of 24 rows, and return the algorithm."""
    settings = dict(dict(replay_size=24 * B, min_steps_learn=2 * T * B, batch_size=8, n_step_return=2), **settings)
    algo = start(AlgoCls(**settings), MlpDqnAgent(), T, B, mid_batch_reset=mid_batch_reset, examples=EXAMPLES)
    losses = [loss for itr in range(n_itr) for loss in algo.optimize_agent(itr, batch(itr)).loss]
    assert losses and np.isfinite(losses).all()
    return algo


# ------------------------------------------------------------------------------------------------------------------
# Buffers that are no class of ours
# ------------------------------------------------------------------------------------------------------------------
class OwnReplay(BaseReplayBuffer):
    """A ring of all that is appended, from which single steps are replayed."""

    def __init__(self, example, size, B, discount=1, n_step_return=1):
        self.T, self.B = size // B, B
        self.t, self._buffer_full = 0, False
        self.samples = buffer_from_example(example, (self.T, self.B), share_memory=self.async_)

    def append_samples(self, samples):
        T, B = get_leading_dims(samples, n_dim=2)
        assert B == self.B
        idxs = np.arange(self.t, self.t + T) % self.T
        self.samples[idxs] = samples
        self._buffer_full = self._buffer_full or self.t + T >= self.T
        self.t = (self.t + T) % self.T
        return T, idxs

    def sample_batch(self, batch_B):
        oldest = self.t if self._buffer_full else 0
        n = self.T if self._buffer_full else self.t
        T_idxs = (oldest + np.random.randint(1, n - 1, size=batch_B)) % self.T
        return self.extract_batch(T_idxs, np.random.randint(self.B, size=batch_B))

    def extract_batch(self, T_idxs, B_idxs):
        def inputs(t):
            now, before = self.samples[t % self.T, B_idxs], self.samples[(t - 1) % self.T, B_idxs]
            return AgentInputs(now.observation, before.action, before.reward)

        s = self.samples[T_idxs, B_idxs]
        return torchify_buffer(SamplesFromReplay(inputs(T_idxs), s.action, s.reward, s.done, s.done, inputs(T_idxs + 1)))


class KeepsWhatItIsGiven(OwnReplay):
    """The same, with a list of what it was given."""

    def append_samples(self, samples):
        self.given = [*getattr(self, "given", []), samples]
        return super().append_samples(samples)


class AppendsByItself(DQN):
    """Has a loop of its own."""

    def optimize_agent(self, itr, samples=None, sampler_itr=None):
        if samples is not None:
            self.replay_buffer.append_samples(self.samples_to_buffer(samples))
        return super().optimize_agent(itr, None, sampler_itr)


@pytest.mark.parametrize("mid_batch_reset", [True, False])
@pytest.mark.parametrize("AlgoCls", [DQN, AppendsByItself])
def test_a_buffer_of_ones_own_is_given_steps_alone(AlgoCls, mid_batch_reset):
    replay = train(AlgoCls, ReplayBufferCls=KeepsWhatItIsGiven, n_step_return=1, mid_batch_reset=mid_batch_reset).replay_buffer
    for samples in replay.given:
        assert get_leading_dims(samples, n_dim=2) == (T, B)
        assert samples.final_observation is samples.observation_after is None
    assert replay.samples.timeout[:4].tolist() == batch().env.timeout.tolist() and (replay.samples.valid is None) == mid_batch_reset


class OwnExampleDqn(DQN):
    """Makes the replay buffer by itself, for the fields that the original has."""

    def initialize_replay_buffer(self, examples, batch_spec, async_=False):
        example = SamplesToBuffer(*(examples[name] for name in ("observation", "action", "reward", "done")))
        self.replay_buffer = self.ReplayBufferCls(example=example, size=self.replay_size, B=batch_spec.B)
        return self.replay_buffer


@pytest.mark.parametrize("ReplayCls", [OwnReplay, UniformReplayBuffer])
def test_a_buffer_that_an_algorithm_makes_by_itself_is_given_what_it_has_memory_for(ReplayCls):
    replay = train(OwnExampleDqn, ReplayBufferCls=ReplayCls, n_step_return=1, mid_batch_reset=False).replay_buffer
    assert replay.samples.timeout is replay.samples.valid is None
    assert replay.samples.done[:4].tolist() == batch().env.done.tolist()


class ValueDqn(DQN):
    """Stores a number more of each step, and fills only the fields that the original has."""

    def examples_to_buffer(self, examples):
        return OwnSamples(*(examples[name] for name in ("observation", "action", "reward", "done")), value=np.float32(0))

    def samples_to_buffer(self, samples):
        env = samples.env
        return OwnSamples(
            observation=env.observation, action=samples.agent.action, reward=env.reward, done=env.done, value=env.reward.float() * 2
        )


@pytest.mark.parametrize("ReplayCls", [OwnReplay, UniformReplayBuffer, PrioritizedReplayBuffer])
def test_samples_of_a_type_that_extends_ours_are_stored_with_the_fields_their_author_knows(ReplayCls):
    replay = train(ValueDqn, ReplayBufferCls=ReplayCls, prioritized_replay=ReplayCls is PrioritizedReplayBuffer).replay_buffer
    np.testing.assert_allclose(replay.samples.value[4:8], 2 * batch(1).env.reward.numpy(), rtol=1e-6)
    assert replay.samples.timeout is None


class ScaledRewardDqn(DQN):
    """Changes what is stored, but not the example."""

    def samples_to_buffer(self, samples):
        env = samples.env
        return SamplesToBuffer(observation=env.observation, action=samples.agent.action, reward=env.reward / 10, done=env.done)


@pytest.mark.parametrize("mid_batch_reset", [True, False])
def test_what_an_override_leaves_out_of_how_episodes_end_is_stored_all_the_same(mid_batch_reset):
    ours, theirs = (train(AlgoCls, mid_batch_reset=mid_batch_reset).replay_buffer for AlgoCls in (DQN, ScaledRewardDqn))
    for name, stored in theirs.samples.items():
        if stored is not None:
            np.testing.assert_allclose(stored, getattr(ours.samples, name) / (10 if name == "reward" else 1))
    assert len(theirs.ends.store) == len(ours.ends.store) > 0


# ------------------------------------------------------------------------------------------------------------------
# Classes derived from ours, with an append_samples of their own
# ------------------------------------------------------------------------------------------------------------------
class PoisonedReplay(UniformReplayBuffer):
    """Changes rewards on their way into memory."""

    def append_samples(self, samples):
        T, B = get_leading_dims(samples, n_dim=2)
        assert (T, B) == samples.reward.shape
        return super().append_samples(samples._replace(reward=samples.reward + 100))


def test_an_append_samples_that_looks_at_leading_dimensions_need_not_know_our_fields():
    ours, theirs = (train(ReplayBufferCls=cls).replay_buffer for cls in (UniformReplayBuffer, PoisonedReplay))
    T_idxs, B_idxs = np.array([1, 2, 4, 6, 13]), np.array([0, 1, 0, 1, 0])
    expected, got = (numpify_buffer(replay.extract_batch(T_idxs, B_idxs)) for replay in (ours, theirs))
    np.testing.assert_allclose(got.target_inputs.observation, expected.target_inputs.observation)
    np.testing.assert_array_equal(got.bootstrap_discount, expected.bootstrap_discount)
    np.testing.assert_allclose(got.return_, expected.return_ + np.where(expected.done, 100, 100 + 99))  # One step, or two.
    assert expected.bootstrap_discount[1] > 0  # The truncated episode.


class AppendsHalves(UniformReplayBuffer):
    def append_samples(self, samples):
        super().append_samples(samples[: T // 2])
        return super().append_samples(samples[T // 2 :])


def test_final_observations_are_not_given_to_other_steps_by_an_append_samples_that_passes_on_a_part():
    with pytest.raises(ValueError, match="passed on 2 of 4 time steps of a batch, .*pass on the whole batch at once"):
        train(ReplayBufferCls=AppendsHalves)


class HalvedObservationDqn(DQN):
    def samples_to_buffer(self, samples):
        return super().samples_to_buffer(samples)._replace(observation=samples.env.observation / 2)


class HalvedEndsDqn(HalvedObservationDqn):
    def samples_to_buffer(self, samples):
        ends = dict(final_observation=samples.final_observation / 2, observation_after=samples.env.next_observation[-1:] / 2)
        return super().samples_to_buffer(samples)._replace(**ends)


def test_observations_that_are_changed_are_not_replayed_beside_those_that_were_sampled(capsys):
    assert batch().env.timeout[2, 1]
    halved, whole = (train(AlgoCls, n_step_return=1).replay_buffer for AlgoCls in (HalvedObservationDqn, HalvedEndsDqn))
    assert capsys.readouterr().out.count("HalvedObservationDqn changes observations, so time limits count as terminations") == 1
    halved, whole = (buffer.extract_batch(np.array([2]), np.array([1])) for buffer in (halved, whole))
    assert halved.bootstrap_discount == 0 and whole.bootstrap_discount > 0
    torch.testing.assert_close(whole.target_inputs.observation[0], torch.as_tensor(batch(0).final_observation[0, 1] / 2))


class AppendsBatches:
    """A buffer that is appended to as algorithms do."""

    def __init__(self, buffer):
        self.buffer, self.append_samples = buffer, buffer.append_batch

    def __getattr__(self, name):
        return getattr(self.buffer, name)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_what_an_append_samples_need_not_know_is_in_every_buffer_all_the_same(kind):
    class Mine(kind.cls):
        def append_samples(self, samples):
            T, B = get_leading_dims(samples, n_dim=2)
            assert (T, B) == samples.done.shape
            return super().append_samples(samples)

    game = Game(kind, Cls=Mine, n_step=2, interval=2, timeouts=True, tells_after=True, p_done=0.4)
    game.buffer = AppendsBatches(game.buffer)
    for n in (game.T, 3, 1, 4):
        game.append(n)
        game.check()
    game.end_episodes()
    game.append(4)
    game.check()


class WritesByItself(UniformReplayBuffer):
    """Has the body of an append_samples from a changed copy of the original's file."""

    def append_samples(self, samples):
        T, B = get_leading_dims(samples, n_dim=2)
        assert B == self.B
        t = self.t
        idxs = np.arange(t, t + T) % self.T if t + T > self.T else slice(t, t + T)
        self.samples[idxs] = samples
        self.compute_returns(T)
        if not self._buffer_full and t + T >= self.T:
            self._buffer_full = True
        self.t = (t + T) % self.T
        return T, idxs


def test_a_class_may_write_rows_and_move_the_cursor_by_itself():
    ours, theirs = (train(OwnExampleDqn, n_itr=4, ReplayBufferCls=cls).replay_buffer for cls in (UniformReplayBuffer, WritesByItself))
    for itr in range(4, 16):  # 24 rows wrap around every 6 batches.
        for replay in (ours, theirs):
            np.random.seed(itr)
            replay.append_samples(SamplesToBuffer(*(torch.from_numpy(x) for x in numpify_buffer(stored_steps(batch(itr))))))
        assert (theirs.t, theirs._buffer_full) == (ours.t, ours._buffer_full) == (4 * (itr + 1) % 24, itr >= 5)
        T_idxs = (ours.t + 1 + np.arange(3)) % ours.T if ours._buffer_full else np.arange(1, 4)
        for expected, got in zip(*(replay.extract_batch(T_idxs, np.array([0, 1, 0])) for replay in (ours, theirs))):
            np.testing.assert_equal(tuple(numpify_buffer(got)), tuple(numpify_buffer(expected)))
    assert set(theirs.sample_idxs(500)[0]) == set(ours.sample_idxs(500)[0]) == set(range(24)) - {ours.t, (ours.t - 1) % 24}


class WritesPrioritizedByItself(PrioritizedReplayBuffer):
    """The same, and advances the tree, as the original's prioritized buffers do."""

    def append_samples(self, samples):
        T, idxs = WritesByItself.append_samples(self, samples)
        self.priority_tree.advance(T)
        return T, idxs


def test_a_class_with_priorities_may_write_rows_and_advance_its_tree_by_itself():
    ours, theirs = (cls(example=example_of_steps(), size=24 * B, B=B) for cls in (PrioritizedReplayBuffer, WritesPrioritizedByItself))
    for itr in range(16):
        for replay in (ours, theirs):
            replay.append_samples(SamplesToBuffer(*(torch.from_numpy(x) for x in numpify_buffer(stored_steps(batch(itr))))))
        assert theirs.priority_tree.window() == ours.priority_tree.window()
        assert theirs.priority_tree.priorities.tolist() == ours.priority_tree.priorities.tolist()


def stored_steps(samples):
    return samples.env.observation, samples.agent.action, samples.env.reward, samples.env.done


def test_a_buffer_may_be_emptied_by_setting_its_cursor():
    replay = train(n_itr=8).replay_buffer
    for reset in (["t", "_buffer_full"], ["_buffer_full", "t"]):
        for name in reset:
            setattr(replay, name, 0 if name == "t" else False)
        assert (replay.t, replay._buffer_full) == (0, False)
        with pytest.raises(ValueError, match="Nothing to replay yet: 0 time steps"):
            replay.sample_batch(1)
        for itr in range(6):
            replay.append_samples(SamplesToBuffer(*stored_steps(batch(itr)), timeout=torch.zeros(T, B, dtype=torch.bool)))
        assert (replay.t, replay._buffer_full) == (0, True)
    replay.t = 20
    assert (replay.t, replay._buffer_full) == (20, True)


@pytest.mark.parametrize("prefetched", [False, True])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_append_samples_returns_how_many_rows_it_wrote_and_where(kind, prefetched):
    class Mine(kind.cls):
        """Keeps a number more of each step."""

        def append_samples(self, samples):
            T, idxs = super().append_samples(samples)
            self.extra[idxs] = samples.action
            self.lengths.append(T)
            return T, idxs

    game = Game(kind, Cls=Mine, interval=2)
    game.buffer.extra, game.buffer.lengths = np.zeros((game.T, game.B)), []
    if prefetched:
        game.buffer = PrefetchedReplay(game.buffer, 4)
    chunks = [3, game.T - 3, 1, 4, 3]  # Up to the end, then over it.
    for chunk in chunks:
        game.append(chunk)
    assert game.buffer.lengths == chunks
    np.testing.assert_array_equal(game.buffer.extra, game.buffer.samples.action)


class OwnPrioritizedSequences(SequenceNStepReturnBuffer):
    """Has priorities and a tree of its own in front of our sequences."""

    def __init__(self, alpha, beta, default_priority, input_priorities, input_priority_shift, **kwargs):
        super().__init__(**kwargs)
        self.alpha, self.beta, self.given = alpha, beta, []
        interval = self.rnn_state_interval
        self.priority_tree = SumTree(
            T=self.T // interval,
            B=self.B,
            off_backward=-(-(1 + self.off_backward + self.batch_T) // interval),
            off_forward=-(-self.off_forward // interval),
            default_value=default_priority**alpha,
            enable_input_priorities=input_priorities,
            input_priority_shift=input_priority_shift,
        )

    def append_samples(self, samples):
        priorities = None
        if hasattr(samples, "priorities"):
            priorities, samples = numpify_buffer(samples.priorities) ** self.alpha, samples.samples
        assert get_leading_dims(samples, n_dim=2)[1] == self.B
        T, idxs = super().append_samples(samples)
        self.given.append(priorities)
        self.priority_tree.advance(np.count_nonzero(np.arange(self.T)[idxs] % self.rnn_state_interval == 0), priorities)
        return T, idxs

    def sample_batch(self, batch_B):
        (T_idxs, B_idxs), priorities = self.priority_tree.sample(batch_B)
        batch = self.extract_batch(T_idxs * self.rnn_state_interval, B_idxs, self.batch_T)
        is_weights = (1 / priorities) ** self.beta
        return SequenceSamplesFromReplayPri(*batch, is_weights=torchify_buffer(is_weights / is_weights.max()))

    def update_batch_priorities(self, priorities):
        self.priority_tree.update_batch_priorities(numpify_buffer(priorities) ** self.alpha)

    def set_beta(self, beta):
        self.beta = beta


def test_priorities_of_ones_own_in_front_of_our_sequences_train_a_recurrent_agent():
    state = RnnState(np.zeros((1, 5)), np.zeros((1, 5)))
    examples = dict(EXAMPLES, agent_info=AgentInfo(q=np.zeros(N_ACTIONS), prev_rnn_state=state))
    settings = dict(batch_T=4, warmup_T=4, batch_B=4, store_rnn_state_interval=4, n_step_return=2, replay_size=40 * B, min_steps_learn=24)
    algo = R2D1(ReplayBufferCls=OwnPrioritizedSequences, replay_ratio=8, **settings)
    start(algo, MlpR2d1Agent(model_kwargs=dict(lstm_size=5, hidden_sizes=[6], head_size=6)), T, B, examples=examples)
    losses = []
    for itr in range(8):
        samples = batch(itr)
        states = RnnState(torch.zeros(T, B, 1, 5).double(), torch.zeros(T, B, 1, 5).double())
        agent_info = AgentInfo(q=torch.randn(T, B, N_ACTIONS).double(), prev_rnn_state=states)
        losses += algo.optimize_agent(itr, samples._replace(agent=samples.agent._replace(agent_info=agent_info))).loss
    assert losses and np.isfinite(losses).all()
    assert all(priorities.shape == (B,) for priorities in algo.replay_buffer.given)


# ------------------------------------------------------------------------------------------------------------------
# Asynchronous buffers
# ------------------------------------------------------------------------------------------------------------------
class AsyncOwnReplay(AsyncReplayBufferMixin, OwnReplay):
    pass


class OwnPrioritizedReplay(OwnReplay):
    """Draws by a tree of ours; appends and updates as the original's prioritized buffers do."""

    def __init__(self, *args, alpha=0.6, beta=0.4, default_priority=1, **kwargs):
        super().__init__(*args, **kwargs)
        TreeCls = AsyncSumTree if self.async_ else SumTree
        self.alpha, self.beta = alpha, beta
        self.priority_tree = TreeCls(T=self.T, B=self.B, off_backward=1, off_forward=1, default_value=default_priority)

    def append_samples(self, samples):
        T, idxs = super().append_samples(samples)
        self.priority_tree.advance(T)
        return T, idxs

    def sample_batch(self, batch_B):
        (T_idxs, B_idxs), priorities = self.priority_tree.sample(batch_B)
        return SamplesFromReplayPri(*self.extract_batch(T_idxs, B_idxs), is_weights=torch.from_numpy(priorities))

    def update_batch_priorities(self, priorities):
        self.priority_tree.update_batch_priorities(numpify_buffer(priorities) ** self.alpha)

    def set_beta(self, beta):
        self.beta = beta


class AsyncOwnPrioritizedReplay(AsyncReplayBufferMixin, OwnPrioritizedReplay):
    pass


def example_of_steps():
    return SamplesToBuffer(*(EXAMPLES[name] for name in ("observation", "action", "reward", "done")))


def append_all(replay, n):
    for itr in range(n):
        replay.append_samples(SamplesToBuffer(*stored_steps(batch(itr))))


@pytest.mark.processes
@pytest.mark.parametrize(
    "ReplayCls,method", thinned([(AsyncOwnReplay, "fork"), (AsyncOwnPrioritizedReplay, "spawn")], quick=[(AsyncOwnReplay, "fork")])
)
def test_processes_share_a_buffer_of_ones_own_behind_the_mixin(ReplayCls, method):
    replay = ReplayCls(example=example_of_steps(), size=10 * B, B=B)
    process = mp.get_context(method).Process(target=append_all, args=(replay, 3))
    process.start()
    process.join(60)
    assert process.exitcode == 0
    assert replay.sample_batch(5).action.shape == (5,)
    assert (replay.t, replay._buffer_full) == (2, True)
    assert replay.samples.reward[2:4].tolist() == batch(0).env.reward[2:4].tolist() != replay.samples.reward[4:6].tolist()
    replay.append_samples(SamplesToBuffer(*stored_steps(batch(3))))
    assert replay.t == 6 and replay.samples.reward[2:6].tolist() == batch(3).env.reward.tolist()


@pytest.mark.processes
@pytest.mark.timeout(120)
@pytest.mark.parametrize("ReplayCls", [AsyncOwnReplay, AsyncOwnPrioritizedReplay])
def test_asynchronous_training_runs_on_a_buffer_of_ones_own_behind_the_mixin(ReplayCls):
    prioritized = ReplayCls is AsyncOwnPrioritizedReplay
    AsyncRl(
        algo=DQN(min_steps_learn=40, replay_size=400, batch_size=16, ReplayBufferCls=ReplayCls, prioritized_replay=prioritized),
        agent=MlpDqnAgent(),
        sampler=AsyncSerialSampler(gym_make, dict(id="CartPole-v1"), batch_T=5, batch_B=2, max_decorrelation_steps=0),
        n_steps=200,
        log_interval_steps=100,
        affinity=dict(optimizer=[dict(torch_threads=1, set_affinity=False)], sampler=dict(set_affinity=False)),
    ).train()


def test_a_buffer_without_priorities_is_refused_where_they_are_needed_behind_the_mixin_too():
    algo = DQN(prioritized_replay=True, ReplayBufferCls=AsyncOwnReplay, replay_size=100)
    with pytest.raises(ValueError, match="needs a replay buffer with priorities, which AsyncOwnReplay is not"):
        start(algo, MlpDqnAgent(), T, B, examples=EXAMPLES)


class LocksByItself(PrioritizedReplayBuffer):
    """Draws by itself, and excludes writers as the original's mixin does."""

    def sample_batch(self, batch_B):
        with self.rw_lock:
            self._async_pull()
            (T_idxs, B_idxs), priorities = self.priority_tree.sample(batch_B, unique=self.unique)
            return SamplesFromReplayPri(*self.extract_batch(T_idxs, B_idxs), is_weights=torch.from_numpy(priorities))


class AsyncLocksByItself(AsyncReplayBufferMixin, LocksByItself):
    def append_samples(self, samples):
        with self.rw_lock.write_lock:
            self._async_pull()
            T, idxs = super().append_samples(samples)
            self._async_push()
            return T, idxs


def test_a_buffer_may_lock_pull_and_push_as_in_the_original():
    replay = AsyncLocksByItself(example=example_of_steps(), size=20 * B, B=B)
    append_all(replay, 3)
    drawn = replay.sample_batch(6)
    replay.update_batch_priorities(torch.full((6,), 5.0))
    assert replay.t == 12 and drawn.action.shape == (6,)
    assert np.count_nonzero(np.isclose(replay.priority_tree.priorities, 5**0.6)) == len(set(replay.priority_tree.drawn_ids.tolist()))
    assert replay.writer_lock.acquire(blocking=False)
    replay.writer_lock.release()


def test_prefetching_is_refused_where_a_class_behind_the_mixin_draws_by_itself():
    with pytest.raises(ValueError, match="AsyncLocksByItself cannot be prefetched, because it defines sample_batch"):
        PrefetchedReplay(AsyncLocksByItself(example=example_of_steps(), size=20 * B, B=B), 4)


# ------------------------------------------------------------------------------------------------------------------
# Numbers of the original
# ------------------------------------------------------------------------------------------------------------------
def sequence_replay(interval, shift=0, T=24, **settings):
    example = SequenceSamplesToBuffer(np.float32(0), np.int64(0), np.float32(0), np.bool_(False), np.zeros((1, 2), np.float32))
    settings = dict(batch_T=2, input_priorities=True, input_priority_shift=shift, alpha=1, **settings)
    return PrioritizedSequenceReplayBuffer(example=example, size=T * B, B=B, rnn_state_interval=interval, **settings)


def sequence_samples(n, priorities=None):
    zeros = torch.zeros(n, B)
    return SequenceSamplesToBuffer(zeros, zeros.long(), zeros, zeros.bool(), torch.zeros(n, B, 1, 2), priorities=priorities)


@pytest.mark.parametrize("chunks", [[12, 12], [4, 8, 5, 7], [1] * 24, [3] * 8])
@pytest.mark.parametrize("interval", [1, 2, 4])
def test_of_priorities_for_every_row_those_of_rows_with_a_recurrent_state_count(interval, chunks):
    given = torch.arange(1.0, 49).reshape(24, B)
    replay, expected = sequence_replay(interval), np.zeros((24 // interval, B))
    for chunk, rows in zip(chunks, torch.split(given, chunks)):
        replay.append_samples(sequence_samples(chunk, rows))
    first, end = replay.priority_tree.window()
    expected[first:end] = given[::interval][first:end]
    assert expected.any() and replay.priority_tree.priorities.tolist() == expected.tolist()


def test_of_two_priorities_for_one_sample_of_a_batch_the_first_one_counts():
    replay = PrioritizedReplayBuffer(example=example_of_steps(), size=20 * B, B=B, alpha=1)
    append_all(replay, 3)
    replay.update_batch_priorities(torch.tensor([3.0, 4.0, 5.0]), ids=np.array([8, 9, 8]))
    assert replay.priority_tree.priorities[4].tolist() == [3, 4]


def test_importance_weights_of_sequences_are_those_of_their_very_priorities():
    set_seed(0)
    replay = sequence_replay(4, beta=1.0)
    replay.append_samples(sequence_samples(20, torch.linspace(1e-7, 1e-5, 20)[:, None].repeat(1, B)))
    drawn = replay.sample_batch(40)
    p = replay.priority_tree.priorities.reshape(-1)[drawn.ids]
    np.testing.assert_allclose(drawn.is_weights, p.min() / p, rtol=1e-6)
    assert drawn.is_weights.min() < 0.5
