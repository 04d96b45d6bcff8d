"""Random experience for replay buffers, and the table of all buffers, each played against the oracle on such experience."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from importlib import import_module

import numpy as np
import torch
from hypothesis import strategies as st
from oracles import NaivePriorities, NaiveReplay, NaiveSequenceReplay, Step, is_weights

from rlpyt.utils.buffer import buffer_leaves
from rlpyt.utils.collections import namedarraytuple

C, H, W = 3, 2, 2  # Frames per observation, and their size.
RnnState = namedarraytuple("RnnState", ["h", "c"])


# ------------------------------------------------------------------------------------------------------------------
# Experience
# ------------------------------------------------------------------------------------------------------------------
class Stream:
    """Experience of B environments in chunks, like a sampler's batches; also told to a `NaiveReplay`.

    Args:
        naive: is told every step.
        frames: whether observations are stacks of frames.
        timeouts: whether some episodes are truncated, and steps say so.
        finals: probability that a chunk brings the observations that ended its truncated episodes.
        wait_reset: whether an environment stands still after the end of an episode until the chunk ends, and steps say so.
        rnn: whether steps have the agent's recurrent state.
        p_done: probability that an episode ends with a step; p_timeout: that it is then a timeout.
        tells_after: whether a chunk brings the observation that follows it.
        script: what happens at every step instead, again and again: 0 nothing, 1 termination, 2 timeout. Environment b is b steps ahead.

    Every action is a number of its own, from 1 on, except that it is 0 where an environment stands still.
    """

    def __init__(
        self, naive, seed=0, frames=False, timeouts=False, finals=1.0, wait_reset=False, rnn=False, p_done=0.15, p_timeout=0.5, script=None,
        tells_after=False,
    ):  # fmt: skip
        self.naive, self.B, self.frames, self.timeouts, self.finals = naive, naive.B, frames, timeouts, finals
        self.wait_reset, self.rnn, self.p_done, self.p_timeout, self.script = wait_reset, rnn, p_done, p_timeout, script
        self.tells_after = tells_after
        self.rng = np.random.default_rng(seed)
        self.observation = [self.next_observation(None) for _ in range(self.B)]
        self.starting = [True] * self.B
        self.waiting = [False] * self.B
        fields = ["observation", "action", "reward", "done"]
        fields += timeouts * ["timeout", "final_observation"] + wait_reset * ["valid"] + rnn * ["prev_rnn_state"]
        fields += tells_after * ["observation_after"]
        self.fields = fields

    def samples_type(self, *more):
        return _samples_type(*self.fields, *more)

    def example(self, **more):
        """One step, as a buffer wants it."""
        of = dict(
            observation=self.observation[0],
            action=np.int64(0),
            reward=np.float32(0),
            done=np.bool_(False),
            timeout=np.bool_(False),
            final_observation=None,
            valid=np.bool_(True),
            prev_rnn_state=self.rnn_state(0),
            observation_after=None,
            **more,
        )
        samples_type = self.samples_type(*more)
        return samples_type(*(of[name] for name in samples_type._fields))

    def next_observation(self, previous):
        """What follows `previous`; the first of an episode if None."""
        if not self.frames:
            return self.rng.normal(size=3).astype(np.float32)
        stack = np.zeros((C, H, W), np.uint8)
        if previous is not None:
            stack[:-1] = previous[1:]
        stack[-1] = self.rng.integers(1, 256, size=(H, W))
        return stack

    def rnn_state(self, value):
        return RnnState(np.full((1, 2), value, np.float32), np.full((1, 1), 10 * value, np.float32))

    def end(self, b):
        """Whether the next step of environment b ends its episode, and by a timeout."""
        if self.script is not None:
            event = self.script[(self.naive.written + b) % len(self.script)]
            return event > 0, event == 2 and self.timeouts
        done = bool(self.rng.random() < self.p_done)
        return done, done and self.timeouts and bool(self.rng.random() < self.p_timeout)

    def batch(self, T, **more):
        """The next T steps of all environments, as torch tensors; `more` are further fields as they are."""
        with_finals = self.rng.random() < self.finals
        rows = [[self.step(b, with_finals) for b in range(self.B)] for _ in range(T)]
        self.waiting = [False] * self.B

        def tensor(name, dtype):
            return torch.from_numpy(np.array([[getattr(step, name) for step in row] for row in rows], dtype))

        of = dict(
            observation=tensor("observation", self.observation[0].dtype),
            action=tensor("action", np.int64),
            reward=tensor("reward", np.float32),
            done=tensor("done", bool),
            timeout=tensor("timeout", bool),
            valid=tensor("valid", bool),
            final_observation=self.final_observations(rows) if with_finals else None,
            observation_after=torch.from_numpy(np.stack(self.observation)[None]),
            **more,
        )
        if self.rnn:
            states = [[getattr(step.prev_rnn_state, name) for row in rows for step in row] for name in ("h", "c")]
            of.update(prev_rnn_state=RnnState(*(torch.from_numpy(np.reshape(x, (T, self.B, 1, -1))) for x in states)))
        samples_type = self.samples_type(*more)
        return samples_type(*(of[name] for name in samples_type._fields))

    def final_observations(self, rows):
        """Those of the chunk, [K,B,...]: slot [k,b] for the k-th truncated episode of environment b."""
        ended = [[row[b].final_observation for row in rows if row[b].timeout] for b in range(self.B)]
        final = np.zeros((max(1, *map(len, ended), 0), self.B, *self.observation[0].shape), self.observation[0].dtype)
        for b, observations in enumerate(ended):
            for k, observation in enumerate(observations):
                final[k, b] = observation
        return torch.from_numpy(final)

    def end_episodes(self, environments, as_timeouts, with_finals):
        """Have the last step be the last one of its episode, if it is not; what follows is another one."""
        for b in environments:
            last = self.naive.history[b][-1]
            if not last.done:
                final = self.observation[b] if as_timeouts and with_finals else None
                last.done, last.timeout, last.final_observation = True, as_timeouts, final
                self.observation[b], self.starting[b] = self.next_observation(None), True

    def step(self, b, with_finals):
        observation, state = self.observation[b], None
        if self.waiting[b]:
            nothing = np.zeros_like(observation)
            step = Step(nothing, 0, 0.0, True, False, None, valid=False, prev_rnn_state=self.rnn_state(0))
            self.naive.append(b, step)
            return step
        done, timeout = self.end(b)
        following = self.next_observation(observation)
        action = len(self.naive.history[b]) * self.B + b + 1
        state = self.rnn_state(0 if self.starting[b] else action)
        reward = float(np.float32(self.rng.normal()))
        step = Step(observation, action, reward, done, timeout, following if timeout and with_finals else None, prev_rnn_state=state)
        self.observation[b] = self.next_observation(None) if done else following
        self.starting[b], self.waiting[b] = done, done and self.wait_reset
        self.naive.append(b, step)
        return step


@functools.cache  # A new type takes longer than the chunk that it is for.
def _samples_type(*fields):
    return namedarraytuple("SamplesToBuffer", fields)


def all_windows(n):
    """Cyclic list of events 0, 1, 2 in which every sequence of n of them occurs: the de Bruijn sequence."""
    events, seen = [0] * n, {(0,) * n}
    while True:
        for event in (2, 1, 0):
            window = (*events[len(events) - n + 1 :], event)
            if window not in seen:
                seen.add(window)
                events.append(event)
                break
        else:
            return events[: 3**n]


# ------------------------------------------------------------------------------------------------------------------
# Buffers
# ------------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Kind:
    """A documented class, with its documented bases; how to play it follows from its name."""

    path: str  # From rlpyt.replays on.
    bases: tuple = field(default=(), compare=False)

    @property
    def name(self):
        return self.path.rsplit(".", 1)[1]

    @property
    def cls(self):
        return find(self.path)

    @property
    def async_(self):
        return self.name.startswith("Async")

    @property
    def sequence(self):
        return "Sequence" in self.name

    @property
    def prioritized(self):
        return "Prioritized" in self.name

    @property
    def frames(self):
        return "Frame" in self.name

    @property
    def time_limit(self):
        return "Tl" in self.name


def find(path):
    """The thing at a path from rlpyt.replays on."""
    module, name = path.rsplit(".", 1)
    return getattr(import_module(f"rlpyt.replays.{module}"), name)


MIXIN = "async_.AsyncReplayBufferMixin"
KINDS = [
    Kind("non_sequence.uniform.UniformReplayBuffer", ("non_sequence.uniform.UniformReplay", "non_sequence.n_step.NStepReturnBuffer")),
    Kind("non_sequence.uniform.AsyncUniformReplayBuffer", (MIXIN, "non_sequence.uniform.UniformReplayBuffer")),
    Kind(
        "non_sequence.prioritized.PrioritizedReplayBuffer",
        ("non_sequence.prioritized.PrioritizedReplay", "non_sequence.n_step.NStepReturnBuffer"),
    ),
    Kind("non_sequence.prioritized.AsyncPrioritizedReplayBuffer", (MIXIN, "non_sequence.prioritized.PrioritizedReplayBuffer")),
    Kind("non_sequence.frame.UniformReplayFrameBuffer", ("non_sequence.uniform.UniformReplay", "non_sequence.frame.NStepFrameBuffer")),
    Kind(
        "non_sequence.frame.PrioritizedReplayFrameBuffer",
        ("non_sequence.prioritized.PrioritizedReplay", "non_sequence.frame.NStepFrameBuffer"),
    ),
    Kind("non_sequence.frame.AsyncUniformReplayFrameBuffer", (MIXIN, "non_sequence.frame.UniformReplayFrameBuffer")),
    Kind("non_sequence.frame.AsyncPrioritizedReplayFrameBuffer", (MIXIN, "non_sequence.frame.PrioritizedReplayFrameBuffer")),
    Kind(
        "non_sequence.time_limit.TlUniformReplayBuffer",
        ("non_sequence.uniform.UniformReplay", "non_sequence.time_limit.NStepTimeLimitBuffer"),
    ),
    Kind(
        "non_sequence.time_limit.TlPrioritizedReplayBuffer",
        ("non_sequence.prioritized.PrioritizedReplay", "non_sequence.time_limit.NStepTimeLimitBuffer"),
    ),
    Kind("non_sequence.time_limit.AsyncTlUniformReplayBuffer", (MIXIN, "non_sequence.time_limit.TlUniformReplayBuffer")),
    Kind("non_sequence.time_limit.AsyncTlPrioritizedReplayBuffer", (MIXIN, "non_sequence.time_limit.TlPrioritizedReplayBuffer")),
    Kind(
        "non_sequence.time_limit.TlUniformReplayFrameBuffer",
        ("non_sequence.uniform.UniformReplay", "non_sequence.time_limit.NStepTimeLimitBuffer", "non_sequence.frame.NStepFrameBuffer"),
    ),
    Kind("non_sequence.time_limit.AsyncTlUniformReplayFrameBuffer", (MIXIN, "non_sequence.time_limit.TlUniformReplayFrameBuffer")),
    Kind(
        "sequence.uniform.UniformSequenceReplayBuffer",
        ("sequence.uniform.UniformSequenceReplay", "sequence.n_step.SequenceNStepReturnBuffer"),
    ),
    Kind("sequence.uniform.AsyncUniformSequenceReplayBuffer", (MIXIN, "sequence.uniform.UniformSequenceReplayBuffer")),
    Kind(
        "sequence.prioritized.PrioritizedSequenceReplayBuffer",
        ("sequence.prioritized.PrioritizedSequenceReplay", "sequence.n_step.SequenceNStepReturnBuffer"),
    ),
    Kind("sequence.prioritized.AsyncPrioritizedSequenceReplayBuffer", (MIXIN, "sequence.prioritized.PrioritizedSequenceReplayBuffer")),
    Kind(
        "sequence.frame.UniformSequenceReplayFrameBuffer",
        ("sequence.uniform.UniformSequenceReplay", "sequence.frame.SequenceNStepFrameBuffer"),
    ),
    Kind(
        "sequence.frame.PrioritizedSequenceReplayFrameBuffer",
        ("sequence.prioritized.PrioritizedSequenceReplay", "sequence.frame.SequenceNStepFrameBuffer"),
    ),
    Kind("sequence.frame.AsyncUniformSequenceReplayFrameBuffer", (MIXIN, "sequence.frame.UniformSequenceReplayFrameBuffer")),
    Kind("sequence.frame.AsyncPrioritizedSequenceReplayFrameBuffer", (MIXIN, "sequence.frame.PrioritizedSequenceReplayFrameBuffer")),
]


class Game:
    """A buffer, the oracle, and the experience that both are told.

    Args:
        kind: which buffer.
        spare: how many starts the full memory has room for, beyond those that cannot be replayed.
        batch_T, interval: of sequences.
        shift, given: with `given`, samples bring priorities, meant for `shift` starts before.
        Cls: a subclass to play instead.
        stream: arguments of `Stream`.
    """

    def __init__(
        self,
        kind,
        *,
        spare=6,
        B=2,
        n_step=1,
        discount=0.9,
        null_action=0,
        batch_T=3,
        interval=0,
        alpha=0.6,
        beta=0.4,
        default_priority=1.0,
        unique=False,
        given=False,
        shift=0,
        seed=0,
        Cls=None,
        timeouts=False,
        **stream,
    ):
        self.kind, self.B, self.beta, self.given = kind, B, beta, given and kind.prioritized
        self.rng = np.random.default_rng(seed)
        forward = max(1, C - 1) if kind.frames else 1
        shared = dict(B=B, discount=discount, n_step=n_step, forward=forward, null_action=null_action)
        self.kwargs = dict(B=B, discount=discount, n_step_return=n_step, null_action=null_action)
        self.interval = max(interval, 1) if kind.sequence else 1
        if kind.sequence:
            naive = NaiveSequenceReplay(0, batch_T=batch_T, interval=interval, **shared)
            naive.T = (spare + naive.blocks(forward) + naive.blocks(batch_T + n_step - 1)) * naive.interval
            self.kwargs.update(rnn_state_interval=interval, batch_T=batch_T)
        else:
            naive = NaiveReplay(spare + forward + n_step, **shared)
        self.naive, self.T = naive, naive.T
        timeouts = timeouts or kind.time_limit
        self.stream = Stream(naive, seed, kind.frames, timeouts, rnn=kind.sequence and interval > 0, **stream)
        more = {}
        if kind.prioritized:
            self.priorities = NaivePriorities(alpha, default_priority, shift)
            self.kwargs.update(alpha=alpha, beta=beta, default_priority=default_priority, unique=unique)
            self.kwargs.update(input_priorities=self.given, input_priority_shift=shift)
            more = dict(priorities=np.float32(0)) if self.given else {}
        self.kwargs.update(example=self.stream.example(**more), size=self.T * B)
        self.Cls = Cls or kind.cls
        self.buffer = self.new_buffer()

    def new_buffer(self):
        return self.Cls(**self.kwargs)

    # What can be done ---------------------------------------------------------------------------------------------

    def append(self, n):
        """Append a chunk of n steps, and return it."""
        starts = [i // self.interval for i in range(self.naive.written, self.naive.written + n) if i % self.interval == 0]
        more, priorities = {}, np.full((len(starts), self.B), None)
        if self.given:  # One for each start.
            shape = [(len(starts), self.B), (self.B,), ()][self.rng.integers(3)]
            more = dict(priorities=self.rng.uniform(0.1, 3, size=shape).astype(np.float32))
            priorities = np.broadcast_to(more["priorities"], priorities.shape)
        samples = self.stream.batch(n, **more)
        if self.kind.prioritized:
            for j, k in enumerate(starts):
                for b in range(self.B):
                    self.priorities.write(k, b, priorities[j, b])
        self.buffer.append_samples(samples)
        return samples

    def end_episodes(self, environments=None):
        """Have episodes end with the newest step."""
        knows = self.stream.timeouts and self.stream.tells_after and not self.kind.sequence
        as_timeouts = self.stream.timeouts and (knows or self.kind.sequence or self.kind.time_limit)
        self.stream.end_episodes(range(self.B) if environments is None else environments, as_timeouts, knows)
        self.buffer.end_episodes(environments)

    def sample(self, n):
        """Draw a batch, compare it with the oracle, and return it."""
        batch = self.buffer.sample_batch(n)
        pairs = self.pairs(batch)
        assert set(pairs) <= set(self.naive.drawable())
        self.compare(batch, pairs)
        if self.kind.prioritized:
            mass = [self.priorities.mass[i // self.interval, b] for i, b in pairs]
            assert batch.is_weights.dtype == torch.float32 and batch.ids.dtype == torch.int64
            eps = 0 if self.kind.sequence else 1e-6  # As in the original.
            np.testing.assert_allclose(batch.is_weights, is_weights(mass, self.beta, eps), rtol=1e-5)
        return batch

    def update(self, ids, with_ids=True):
        """Set new priorities of these ids, one for each of them that is different."""
        ids = np.asarray(ids)
        new = {id: np.float32(self.rng.uniform(0.1, 3)) for id in ids.tolist()}
        priorities = torch.tensor([new[id] for id in ids.tolist()])
        if with_ids:
            self.buffer.update_batch_priorities(priorities, ids)
        else:
            self.buffer.update_batch_priorities(priorities)
        for id, priority in new.items():
            self.priorities.update(id // self.B, id % self.B, float(priority))

    # What is compared ---------------------------------------------------------------------------------------------

    def row(self, i):
        return i % self.T

    def pairs(self, batch):
        """(number, environment) of what is in a batch."""
        if self.kind.prioritized:
            return [(id // self.B * self.interval, id % self.B) for id in batch.ids.tolist()]
        if not self.kind.sequence:
            return [divmod(action - 1, self.B) for action in batch.action.tolist()]
        T = len(batch.return_)
        of = {}
        for i, b in self.naive.drawable(T):
            of[tuple(self.naive.sequence(i, b, T)["all_action"])] = (i, b)  # The same for two only where all of it is blank.
        return [of[tuple(actions)] for actions in batch.all_action.T.tolist()]

    def check(self, buffer=None):
        """Compare everything that can be replayed now, of this buffer or of one that should be its twin."""
        buffer = buffer or self.buffer
        pairs = self.naive.drawable()
        if self.kind.prioritized:
            expected = np.zeros((self.T // self.interval, self.B))
            for i, b in pairs:
                expected[self.row(i) // self.interval, b] = self.priorities.mass[i // self.interval, b]
            assert_close(buffer.priority_tree.priorities, expected, rtol=1e-6)
        if pairs:
            self.compare(self.extract(pairs, buffer), pairs)

    def extract(self, pairs, buffer=None, batch_T=None):
        args = np.array([self.row(i) for i, _ in pairs]), np.array([b for _, b in pairs])
        return (buffer or self.buffer).extract_batch(*args, *([batch_T or self.naive.batch_T] if self.kind.sequence else []))

    def compare(self, batch, pairs):
        """Compare a batch with what the oracle says of the steps or sequences in it."""
        for leaf in buffer_leaves(batch):
            assert leaf is None or isinstance(leaf, torch.Tensor)
        if self.kind.sequence:
            T = len(batch.return_)
            once = {(i, b): self.naive.sequence(i, b, T) for i, b in set(pairs)}  # Large batches have each many times.
            expected = [once[pair] for pair in pairs]
            for name in expected[0]:
                got = getattr(batch, name)
                if name != "init_rnn_state":
                    assert_same(got, np.stack([np.array(x[name]) for x in expected], axis=1), name)
                elif self.stream.rnn:
                    assert_same(got.h, np.stack([x[name].h for x in expected]), "h")
                    assert_same(got.c, np.stack([x[name].c for x in expected]), "c")
                else:
                    assert got is None
            return
        expected = [self.naive.transition(i, b) for i, b in pairs]
        got = dict(
            observation=batch.agent_inputs.observation,
            prev_action=batch.agent_inputs.prev_action,
            prev_reward=batch.agent_inputs.prev_reward,
            action=batch.action,
            return_=batch.return_,
            done=batch.done,
            done_n=batch.done_n,
            bootstrap_discount=batch.bootstrap_discount,
        )
        if self.kind.time_limit:
            got.update(timeout=batch.timeout, timeout_n=batch.timeout_n)
        for name, values in got.items():
            assert_same(values, np.stack([x[name] for x in expected]), name)
        on = [j for j, x in enumerate(expected) if x["bootstrap_discount"]]  # Where the target inputs matter.
        for name, values in batch.target_inputs._asdict().items() if on else ():
            assert_same(values[on], np.stack([expected[j][f"target_{name}"] for j in on]), f"target_{name}")


def assert_same(got, expected, name):
    got = got.numpy()
    if got.dtype == np.float32:
        assert_close(got, expected, rtol=1e-5, atol=1e-5, name=name)
    else:
        assert got.dtype == expected.dtype, name
        assert_close(got, expected, name=name)


def assert_close(got, expected, rtol=0.0, atol=0.0, name=""):
    """Fail where `numpy.testing.assert_allclose` does, which takes ten times longer and so only says how they differ."""
    assert got.shape == expected.shape, name
    exact = rtol == atol == 0
    if not (got == expected if exact else np.abs(got - expected) <= atol + rtol * np.abs(expected)).all():
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=atol, err_msg=name)


# ------------------------------------------------------------------------------------------------------------------
# Random games
# ------------------------------------------------------------------------------------------------------------------
@st.composite
def games(draw, kind):
    """Arguments of a random `Game`."""
    arguments = dict(
        spare=draw(st.integers(1, 8)),
        B=draw(st.integers(1, 3)),
        n_step=draw(st.integers(1, 5)),
        discount=draw(st.sampled_from([0.5, 0.9, 1.0])),
        null_action=draw(st.sampled_from([0, 7])),
        seed=draw(st.integers(0, 99)),
        timeouts=draw(st.sampled_from([True, True, False])),
        finals=draw(st.sampled_from([0.0, 0.5, 1.0])) if kind.time_limit else 1.0,
        wait_reset=draw(st.booleans()),
        p_done=draw(st.sampled_from([0.4, 0.15, 0.8, 0.0, 1.0])),
        p_timeout=draw(st.sampled_from([0.5, 0.2, 1.0])),
    )
    if kind.sequence:
        arguments.update(batch_T=draw(st.integers(1, 6)), interval=draw(st.integers(0, 4)))
    if kind.prioritized:
        arguments.update(
            alpha=draw(st.sampled_from([0.6, 1.0])),
            beta=draw(st.sampled_from([0.0, 0.4, 1.0])),
            default_priority=draw(st.sampled_from([0.5, 1.0, 3.0])),
            given=draw(st.booleans()),
            shift=draw(st.integers(0, 3)),
        )
    return arguments


def play(game, chunks):
    """Append chunks of these lengths (modulo the size), and compare everything after each; sample and update priorities in between."""
    drawn = []
    for chunk in chunks:
        game.append(1 + (chunk - 1) % game.T)
        game.check()
        if game.naive.drawable():
            batch = game.sample(4)
            if game.kind.prioritized and game.rng.random() < 0.7:
                drawn.append(batch.ids)
                game.update(batch.ids, with_ids=False)
                game.check()
        if drawn:  # Some of these have been overwritten since.
            game.update(drawn[game.rng.integers(len(drawn))])
            game.check()
