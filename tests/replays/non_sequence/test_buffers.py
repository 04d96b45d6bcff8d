"""All replay buffers of transitions against the list-based oracle, on random streams of experience."""

import numpy as np
import pytest
import torch
from oracles import NaiveReplay, Step
from streams import assert_close
from tiers import thinned

from rlpyt.algos.dqn.dqn import SamplesToBuffer
from rlpyt.replays.draws import UniformDraws
from rlpyt.replays.frame import BufferSamples
from rlpyt.replays.non_sequence.frame import UniformReplayFrameBuffer
from rlpyt.replays.non_sequence.uniform import UniformReplayBuffer
from rlpyt.replays.ring import Ring
from rlpyt.utils.buffer import torchify_buffer
from rlpyt.utils.collections import namedarraytuple

C, H, W = 4, 2, 3


class Stream:
    """Random experience of B environments, in batches like a sampler's; also told to a `NaiveReplay`."""

    def __init__(self, naive, B, seed, frames, p_done=0.15, p_timeout=0.5):
        self.naive, self.B, self.frames, self.p_done, self.p_timeout = naive, B, frames, p_done, p_timeout
        self.rng = np.random.default_rng(seed)
        self.observation = [self.next_observation(None) for _ in range(B)]

    def next_observation(self, previous):
        """What follows `previous`; the first of an episode if None."""
        if not self.frames:
            return self.rng.normal(size=5).astype(np.float32)
        stack = np.zeros((C, H, W), np.uint8)
        if previous is not None:
            stack[:-1] = previous[1:]
        stack[-1] = self.rng.integers(1, 256, size=(H, W))
        return stack

    def batch(self, T):
        rows = [[self.step(b) for b in range(self.B)] for _ in range(T)]

        def array(field, dtype=None):
            return np.array([[getattr(s, field) for s in row] for row in rows], dtype)

        timeout = array("timeout")
        final = np.zeros((max(1, timeout.sum(axis=0).max()), self.B, *self.observation[0].shape), self.observation[0].dtype)
        for b in range(self.B):
            ended = [row[b].final_observation for row in rows if row[b].timeout]
            final[: len(ended), b] = np.reshape(ended, (-1, *final.shape[2:]))
        samples = SamplesToBuffer(
            observation=array("observation"),
            action=array("action"),
            reward=array("reward", np.float32),
            done=array("done"),
            timeout=timeout,
            final_observation=final,
        )
        return torchify_buffer(samples)

    def step(self, b):
        observation = self.observation[b]
        done = self.rng.random() < self.p_done
        timeout = bool(done and self.rng.random() < self.p_timeout)
        following = self.next_observation(observation)
        step = Step(
            observation,
            int(self.rng.integers(1, 9)),
            float(np.float32(self.rng.normal())),
            bool(done),
            timeout,
            following if timeout else None,
        )
        self.observation[b] = self.next_observation(None) if done else following
        self.naive.append(b, step)
        return step


def make(T, B, n_step, seed, frames, discount=0.9, null_action=0, **stream):
    forward = C - 1 if frames else 1
    naive = NaiveReplay(T, B, discount, n_step, forward, null_action)
    stream = Stream(naive, B, seed, frames, **stream)
    example = SamplesToBuffer(
        observation=stream.observation[0],
        action=np.int64(0),
        reward=np.float32(0),
        done=np.bool_(False),
        timeout=np.bool_(False),
    )
    BufferCls = UniformReplayFrameBuffer if frames else UniformReplayBuffer
    buffer = BufferCls(example=example, size=T * B, B=B, discount=discount, n_step_return=n_step, null_action=null_action)
    return buffer, naive, stream


def check_all(buffer, naive):
    """Compare everything that can be replayed now."""
    valid = naive.valid_steps()
    assert list(range(*buffer.ring.window(buffer.off_backward, buffer.off_forward))) == valid
    if not valid:
        return
    pairs = [(i, b) for i in valid for b in range(buffer.B)]
    batch = buffer.extract_batch(np.array([i % buffer.T for i, _ in pairs]), np.array([b for _, b in pairs]))
    expected = [naive.transition(i, b) for i, b in pairs]
    bootstraps = [j for j, transition in enumerate(expected) if transition["bootstrap_discount"]]  # Where the target inputs matter.

    def compare(got, name, at=None, **tolerance):
        """Compare all transitions at once (or those `at` these places), since one at a time takes ten times longer."""
        at = range(len(pairs)) if at is None else at
        if at:
            assert_close(got.numpy()[at], np.stack([expected[j][name] for j in at]), name=name, **tolerance)

    compare(batch.agent_inputs.observation, "observation")
    compare(batch.agent_inputs.prev_action, "prev_action")
    compare(batch.agent_inputs.prev_reward, "prev_reward", rtol=1e-6)
    compare(batch.action, "action")
    compare(batch.return_, "return_", atol=1e-5)
    compare(batch.done, "done")
    compare(batch.done_n, "done_n")
    compare(batch.bootstrap_discount, "bootstrap_discount", rtol=1e-6)
    compare(batch.target_inputs.observation, "target_observation", at=bootstraps)
    compare(batch.target_inputs.prev_action, "target_prev_action", at=bootstraps)
    compare(batch.target_inputs.prev_reward, "target_prev_reward", at=bootstraps, rtol=1e-6)


@pytest.mark.parametrize("frames", [False, True])
@pytest.mark.parametrize("n_step", thinned([1, 2, 5], quick=[1, 5]))
@pytest.mark.parametrize("B", thinned([1, 3], quick=[3]))
def test_every_transition_is_the_oracles_through_random_chunks_and_wraps(frames, n_step, B):
    for seed, T in enumerate((11, 17)):
        buffer, naive, stream = make(T, B, n_step, seed, frames)
        rng = np.random.default_rng(seed)
        for _ in range(14):
            buffer.append_samples(stream.batch(int(rng.integers(1, 9))))
            check_all(buffer, naive)


@pytest.mark.parametrize("frames", [False, True])
def test_one_row_at_a_time(frames):
    buffer, naive, stream = make(9, 2, 3, 0, frames)
    for _ in range(40):
        buffer.append_samples(stream.batch(1))
        check_all(buffer, naive)


@pytest.mark.parametrize("frames", [False, True])
def test_chunks_as_long_as_the_ring(frames):
    buffer, naive, stream = make(12, 2, 3, 0, frames)
    for T in (12, 5, 12, 11, 12):
        buffer.append_samples(stream.batch(T))
        check_all(buffer, naive)


@pytest.mark.parametrize("frames", [False, True])
def test_every_step_ends_an_episode(frames):
    buffer, naive, stream = make(10, 2, 3, 0, frames, p_done=1.0)
    for _ in range(6):
        buffer.append_samples(stream.batch(4))
        check_all(buffer, naive)


def test_only_as_many_final_observations_are_kept_as_there_are_truncated_steps():
    buffer, _, stream = make(10, 3, 2, 0, False, p_done=0.5)
    for _ in range(50):
        buffer.append_samples(stream.batch(3))
        assert len(buffer.ends.store) == np.count_nonzero(buffer.samples.timeout)


def test_the_null_action_starts_episodes():
    buffer, naive, stream = make(10, 2, 1, 0, False, null_action=7)
    for _ in range(5):
        buffer.append_samples(stream.batch(4))
        check_all(buffer, naive)


def test_samples_without_timeout_end_with_termination():
    Documented = namedarraytuple("Documented", ["observation", "action", "reward", "done"])
    example = Documented(np.zeros(2, np.float32), np.int64(0), np.float32(0), np.bool_(False))
    buffer = UniformReplayBuffer(example, size=20, B=1, discount=0.5, n_step_return=2)
    done = torch.tensor([[False], [False], [True], [False], [False], [False]])
    buffer.append_samples(Documented(torch.rand(6, 1, 2), torch.zeros(6, 1, dtype=torch.long), torch.ones(6, 1), done))
    batch = buffer.extract_batch(np.array([1, 2, 3]), np.zeros(3, int))
    assert batch.return_.tolist() == [1.5, 1.0, 1.5]
    assert batch.bootstrap_discount.tolist() == [0.0, 0.0, 0.25]
    assert batch.done_n.tolist() == [True, True, False]


def test_structured_observations_and_actions_are_replayed():
    Obs, Act = namedarraytuple("Obs", ["a", "b"]), namedarraytuple("Act", ["x", "y"])
    example = SamplesToBuffer(
        Obs(np.zeros(2, np.float32), np.int64(0)), Act(np.float32(0), np.int64(0)), np.float32(0), np.bool_(False), np.bool_(False)
    )
    buffer = UniformReplayBuffer(example, size=10, B=1, discount=0.5)
    steps = np.arange(6).reshape(6, 1)
    observation = Obs(np.stack([steps, steps], -1).astype(np.float32), steps)
    final = Obs(np.full((1, 1, 2), 99, np.float32), np.full((1, 1), 99))
    ended = steps == 2
    buffer.append_samples(SamplesToBuffer(observation, Act(steps.astype(np.float32), steps), steps.astype(np.float32), ended, ended, final))
    batch = buffer.extract_batch(np.array([2, 3]), np.array([0, 0]))
    assert batch.agent_inputs.observation.b.tolist() == [2, 3]
    assert batch.agent_inputs.prev_action.y.tolist() == [1, 0]  # Null at the start of the second episode.
    assert batch.target_inputs.observation.b.tolist() == [99, 4]
    assert batch.target_inputs.observation.a.tolist() == [[99, 99], [4, 4]]
    assert batch.target_inputs.prev_action.y.tolist() == [2, 3]


@pytest.mark.parametrize("frames", [False, True])
def test_random_indexes_are_valid_and_reach_everything(frames):
    buffer, naive, stream = make(11, 2, 2, 0, frames)
    for T in (6, 4, 7, 3):
        buffer.append_samples(stream.batch(T))
        T_idxs, B_idxs = buffer.sample_idxs(3000)
        assert set(zip(T_idxs, B_idxs)) == {(i % buffer.T, b) for i in naive.valid_steps() for b in range(2)}
    counts = np.bincount(T_idxs, minlength=11)
    n_valid = len(naive.valid_steps())
    assert np.all(np.abs(counts[counts > 0] - 3000 / n_valid) < 5 * np.sqrt(3000 / n_valid))


def test_a_batch_is_not_changed_by_what_comes_after():
    buffer, _, stream = make(10, 2, 1, 0, True)
    buffer.append_samples(stream.batch(10))
    batch = buffer.sample_batch(8)
    copy = batch.agent_inputs.observation.clone()
    buffer.append_samples(stream.batch(10))
    buffer.sample_batch(8)
    assert torch.equal(batch.agent_inputs.observation, copy)
    assert batch.agent_inputs.observation.is_contiguous() and batch.target_inputs.observation.is_contiguous()


def test_the_same_global_seed_draws_the_same_indexes():
    drawn = []
    for _ in range(2):
        np.random.seed(3)
        buffer, _, stream = make(10, 2, 1, 0, False)
        buffer.append_samples(stream.batch(10))
        drawn.append(np.stack(buffer.sample_idxs(20)))
    assert np.array_equal(*drawn)


def test_documented_methods_can_be_overridden():
    class Mine(UniformReplayBuffer):
        def sample_idxs(self, batch_B):
            return np.arange(2, 2 + batch_B), np.zeros(batch_B, int)

        def extract_observation(self, T_idxs, B_idxs):
            return super().extract_observation(T_idxs, B_idxs) * 0 + 5

        def compute_returns(self, T):
            self.samples_return_[:] = 3

    stream = make(20, 1, 2, 0, False)[2]
    example = SamplesToBuffer(np.zeros(5, np.float32), np.int64(0), np.float32(0), np.bool_(False), np.bool_(False))
    buffer = Mine(example=example, size=20, B=1, n_step_return=2)
    buffer.append_samples(stream.batch(15))
    batch = buffer.sample_batch(4)
    assert (batch.agent_inputs.observation == 5).all() and (batch.return_ == 3).all()
    assert batch.action.tolist() == buffer.samples.action[2:6, 0].tolist()


def test_the_size_is_rounded_up_to_whole_rows():
    example = SamplesToBuffer(np.zeros(5, np.float32), np.int64(0), np.float32(0), np.bool_(False))
    buffer = UniformReplayBuffer(example, size=21, B=4)
    assert (buffer.T, buffer.size) == (6, 24)


def test_what_cannot_work_is_refused_in_a_sentence():
    example = SamplesToBuffer(np.zeros(5, np.float32), np.int64(0), np.float32(0), np.bool_(False), np.bool_(False))
    with pytest.raises(ValueError, match="raise the size"):
        UniformReplayBuffer(example, size=8, B=4)
    buffer = UniformReplayBuffer(example, size=20, B=1)
    with pytest.raises(ValueError, match="Nothing to replay yet"):
        buffer.sample_batch(4)
    stream = make(20, 1, 1, 0, False)[2]
    with pytest.raises(ValueError, match="21 time steps"):
        buffer.append_samples(stream.batch(21))
    ended = torch.ones(1, 1, dtype=torch.bool)
    with pytest.raises(ValueError, match="no final_observation"):
        buffer.append_samples(SamplesToBuffer(torch.zeros(1, 1, 5), torch.zeros(1, 1).long(), torch.zeros(1, 1), ended, ended))
    with pytest.raises(MemoryError, match="replay buffer"):
        UniformReplayBuffer(example, size=10**15, B=1)
    with pytest.raises(ValueError, match="without 'Frame'"):
        UniformReplayFrameBuffer(example, size=20, B=1)


@pytest.mark.parametrize("chunk", [1, 5])
def test_images_that_are_not_stacks_of_frames_are_refused_by_frame_buffers(chunk):
    example = SamplesToBuffer(np.zeros((3, 4, 4), np.uint8), np.int64(0), np.float32(0), np.bool_(False))
    buffer = UniformReplayFrameBuffer(example=example, size=40, B=2)
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="not stacks of the 3 latest frames"):
        for _ in range(3):
            rgb = rng.integers(0, 256, size=(chunk, 2, 3, 4, 4), dtype=np.uint8)
            zeros = np.zeros((chunk, 2))
            buffer.append_samples(SamplesToBuffer(rgb, zeros.astype(int), zeros, zeros.astype(bool)))


def stacks_of_frames(frames, done, blank):
    """Observations [T,1,C,H,W] of frames [T,H,W] that begin, after each done [T], with zeros or copies of the first frame."""
    stacks = []
    for t, frame in enumerate(frames):
        if t == 0 or done[t - 1]:
            stacks.append(np.stack([frame * (not blank)] * (C - 1) + [frame]))
        else:
            stacks.append(np.concatenate([stacks[-1][1:], frame[None]]))
    return np.stack(stacks)[:, None]


@pytest.mark.parametrize("chunk", [1, 4, 5, 20])
@pytest.mark.parametrize("settled", [False, True])
def test_stacks_padded_with_copies_of_the_first_frame_are_refused_by_frame_buffers(chunk, settled):
    rng = np.random.default_rng(0)
    frames = rng.integers(1, 256, size=(20, H, W), dtype=np.uint8)
    if not settled:  # Nothing moves in the first episode, so the padding is all there is to see.
        frames[:10] = frames[0]
    done = np.arange(20) % 10 == 9
    zeros = np.zeros((20, 1))

    def append(observation):
        buffer = UniformReplayFrameBuffer(BufferSamples(observation[0, 0], np.int64(0), np.float32(0), np.bool_(False)), size=40, B=1)
        samples = BufferSamples(observation, zeros.astype(int), zeros, done[:, None])
        for start in range(0, 20, chunk):
            buffer.append_samples(samples[start : start + chunk])

    append(stacks_of_frames(frames, done, blank=True))
    with pytest.raises(ValueError, match="copies of the first frame as padding.*ReplayBufferCls=UniformReplayBuffer"):
        append(stacks_of_frames(frames, done, blank=False))


def test_the_padding_is_checked_in_every_append():
    buffer, naive, stream = make(40, 2, 1, 0, True, p_done=0)
    buffer.append_samples(stream.batch(5))
    samples = stream.batch(5)
    samples.done[-1, 1] = True
    buffer.append_samples(samples)
    with pytest.raises(ValueError, match="padding"):
        buffer.append_samples(stream.batch(1))


def test_the_first_observation_of_all_need_not_start_an_episode():
    _, _, stream = make(40, 2, 1, 0, True, p_done=0)
    stream.batch(7)
    buffer, naive, _ = make(40, 2, 1, 0, True)
    first = stream.batch(7)
    assert first.observation[0].all()
    buffer.append_samples(first)


@pytest.mark.parametrize("kwargs", thinned([dict(), dict(episodic_lives=False), dict(horizon=30)], quick=[dict(horizon=30)]))
def test_a_frame_buffer_gives_back_what_an_atari_game_showed(kwargs):
    """Through lost lives, ends of games and time limits."""
    atari_env = pytest.importorskip("rlpyt.envs.atari.atari_env")
    env = atari_env.AtariEnv("breakout", fire_on_reset=True, **kwargs)
    env.seed(3)
    observation, rng = env.reset(), np.random.default_rng(0)
    rows, ends, n_life_lost = [], {}, 0
    for t in range(300):
        step = env.step(rng.integers(env.action_space.n))
        rows.append((observation, 0, step.reward, step.done, step.env_info.timeout))
        n_life_lost += step.done and not step.env_info.traj_done
        if step.env_info.timeout:
            ends[t] = step.observation
        observation = env.reset() if step.env_info.traj_done else step.observation
    columns = [np.stack([row[i] for row in rows])[:, None] for i in range(5)]
    assert columns[3].any() and bool(n_life_lost) == kwargs.get("episodic_lives", True) and bool(ends) == ("horizon" in kwargs)
    buffer = UniformReplayFrameBuffer(BufferSamples(rows[0][0], np.int64(0), np.float32(0), np.bool_(0), np.bool_(0)), size=300, B=1)
    for start in range(0, 300, 20):
        final = [ends[t] for t in range(start, start + 20) if t in ends]
        samples = BufferSamples(*(column[start : start + 20] for column in columns), np.stack(final)[:, None] if final else None)
        buffer.append_samples(samples)
    T_idxs = np.arange(3, 300)
    assert np.array_equal(buffer.extract_observation(T_idxs, np.zeros_like(T_idxs)), columns[0][3:, 0])
    for t, final in ends.items():
        assert np.array_equal(buffer.extract_final_observation(np.array([t]), np.array([0]))[0], final)


@pytest.mark.parametrize("frames,n_step,least", [(False, 1, 3), (False, 3, 5), (True, 1, 5), (True, 3, 7)])
def test_the_least_size_leaves_something_to_replay(frames, n_step, least):
    with pytest.raises(ValueError, match=f"holds {least - 1} time steps.* needs more than {least - 1}: raise the size"):
        make(least - 1, 2, n_step, 0, frames)
    buffer, naive, stream = make(least, 2, n_step, 0, frames)
    buffer.append_samples(stream.batch(least))
    assert len(buffer.sample_batch(3).action) == 3


def test_draws_without_a_valid_step_say_how_many_are_stored_and_what_to_raise():
    ring = Ring(5)
    draws = UniformDraws(ring, B=2, off_backward=1, off_forward=4, valid=np.empty(0, np.bool_))
    ring.advance(3)
    with pytest.raises(ValueError, match="3 time steps are stored, and more than 5 are needed: raise min_steps_learn"):
        draws.select(1)
    ring.advance(4)
    with pytest.raises(ValueError, match="5 time steps are stored, and more than 5 are needed: raise replay_size"):
        draws.select(1)


def test_an_observation_is_a_slice_of_the_frames_in_the_documented_order_of_rows():
    buffer, _, stream = make(50, 2, 1, 0, True, p_done=0.0)
    for n_rows in (50, 20):  # The second batch overwrites the first rows.
        buffer.append_samples(stream.batch(n_rows))
    frames, n = buffer.samples_frames, buffer.n_frames
    assert frames.shape == (50 + n - 1, 2, H, W) and len(frames) == 50 + n - 1
    rows, columns = np.array([0, 1, 10, 19, 30, 49]), np.array([0, 1, 1, 0, 0, 1])
    observations = buffer.extract_observation(rows, columns)
    for t, b, observation in zip(rows, columns, observations):
        if not 19 < t < 20 + n - 1:  # Their older frames are overwritten.
            assert np.array_equal(frames[t : t + n, b], observation)
            assert np.array_equal(frames[t : t + n, columns][:, columns == b][:, 0], observation)
    assert np.array_equal(frames[rows + n - 1, columns], observations[:, -1])
    assert np.array_equal(frames[-1], frames[49 + n - 1])
    memory = buffer.samples.observation
    whole = np.concatenate([memory[50 - (n - 1) :], memory])
    spans = [slice(start, stop) for start in (None, 0, 1, n - 1, n, -2) for stop in (None, 0, 1, n - 1, n, n + 2, -1, 99)]
    for rows in [*spans, slice(None, None, 2), 3, -3, whole[:, 0, 0, 0] > 100]:
        for key in (rows, (rows, 1), (rows, slice(None), 0), (rows, [1, 0])):
            if not (isinstance(rows, np.ndarray) and isinstance(key, tuple) and key[1] == [1, 0]):  # Two lists of different lengths.
                assert np.array_equal(frames[key], whole[key]), key
    assert frames.dtype == memory.dtype and not np.shares_memory(frames[n : n + 2], memory)


def test_frame_buffers_store_one_frame_per_step():
    buffer, _, stream = make(50, 2, 1, 0, True, p_done=0.5)
    assert buffer.samples.observation.shape == (50, 2, H, W)
    buffer.append_samples(stream.batch(20))
    assert buffer.ends.store[np.arange(1)].shape == (1, H, W)
