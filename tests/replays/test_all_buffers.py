"""All documented buffers: what is promised of every one of them, and those of transitions against the list-based oracle."""

import io

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from streams import KINDS, Game, all_windows, find, games, play
from tiers import thinned

from rlpyt.utils.buffer import buffer_leaves
from rlpyt.utils.collections import namedarraytuple

every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
prioritized = pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.prioritized], ids=lambda kind: kind.name)
transitions = pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.sequence], ids=lambda kind: kind.name)
# At least one with each property, for tests of which the code is the same in all kinds.
QUICK = ["PrioritizedReplayBuffer", "AsyncPrioritizedReplayFrameBuffer", "TlPrioritizedReplayBuffer", "AsyncTlUniformReplayFrameBuffer"]
QUICK += ["UniformSequenceReplayBuffer", "AsyncPrioritizedSequenceReplayFrameBuffer"]
every_kind_thinned = pytest.mark.parametrize(
    "kind", thinned(KINDS, quick=[kind for kind in KINDS if kind.name in QUICK]), ids=lambda kind: kind.name
)
CHUNKS = [3, 1, 7, 2, 5, 12, 4, 1, 9]
EVERYTHING = dict(timeouts=True, wait_reset=True, given=True, shift=1)  # Options of a game.


def same(a, b):
    """Whether two structures have the same leaves."""
    leaves = list(zip(buffer_leaves(a), buffer_leaves(b)))
    return type(a)._fields == type(b)._fields and all(torch.equal(x, y) for x, y in leaves if x is not None)


# ------------------------------------------------------------------------------------------------------------------
# Transitions and the oracle
# ------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "kind",
    thinned(
        [kind for kind in KINDS if not kind.sequence],
        quick=[kind for kind in KINDS if kind.name in ("AsyncPrioritizedReplayFrameBuffer", "TlPrioritizedReplayBuffer")],
    ),
    ids=lambda kind: kind.name,
)
def test_every_transition_priority_and_draw_is_the_oracles(kind):
    @settings(max_examples=30, deadline=None, derandomize=True, database=None)
    @given(games(kind), st.lists(st.integers(1, 30), min_size=4, max_size=12))
    def whatever_happens(arguments, chunks):
        play(Game(kind, **arguments), chunks)

    whatever_happens()


@pytest.mark.parametrize(
    "kind",
    thinned([kind for kind in KINDS if not kind.sequence], quick=[kind for kind in KINDS if not kind.sequence and kind.name in QUICK]),
    ids=lambda kind: kind.name,
)
@pytest.mark.parametrize("chunk", [1, 2, 5])
def test_every_pattern_of_ends_in_a_window_and_over_a_border_of_chunks(kind, chunk):
    """Nothing, termination or timeout on every step of the three of a window and the one before it, at different places in the chunk."""
    game = Game(kind, n_step=3, spare=7, timeouts=True, script=all_windows(4))
    for i in range(max(82 // chunk, 10)):
        game.append(chunk)
        if i % 3 == 2 or chunk > 2:
            game.check()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.time_limit], ids=lambda kind: kind.name)
@pytest.mark.parametrize("finals", [0.0, 0.5])
def test_time_limit_buffers_do_without_final_observations(kind, finals):
    game = Game(kind, n_step=3, timeouts=True, finals=finals, script=all_windows(4))
    for _ in range(30):
        game.append(3)
        game.check()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.time_limit and not kind.sequence], ids=lambda kind: kind.name)
def test_other_buffers_need_the_final_observations(kind):
    game = Game(kind, timeouts=True, finals=0.0, p_timeout=1.0, p_done=1.0)
    with pytest.raises(ValueError, match="final_observation"):
        game.append(2)


# ------------------------------------------------------------------------------------------------------------------
# What is documented
# ------------------------------------------------------------------------------------------------------------------
@every_kind
def test_the_documented_class_has_the_documented_bases(kind):
    assert kind.cls.__name__ == kind.name
    assert kind.cls.async_ == kind.async_
    for base in kind.bases:
        assert issubclass(kind.cls, find(base))
    order = [kind.cls.__mro__.index(find(base)) for base in kind.bases]
    assert order == sorted(order)


def test_the_documented_parts_have_the_documented_bases():
    documented = {
        "n_step.BaseNStepReturnBuffer": ["base.BaseReplayBuffer"],
        "non_sequence.n_step.NStepReturnBuffer": ["n_step.BaseNStepReturnBuffer"],
        "non_sequence.frame.NStepFrameBuffer": ["frame.FrameBufferMixin", "non_sequence.n_step.NStepReturnBuffer"],
        "non_sequence.time_limit.NStepTimeLimitBuffer": ["non_sequence.n_step.NStepReturnBuffer"],
        "sequence.n_step.SequenceNStepReturnBuffer": ["n_step.BaseNStepReturnBuffer"],
        "sequence.frame.SequenceNStepFrameBuffer": ["frame.FrameBufferMixin", "sequence.n_step.SequenceNStepReturnBuffer"],
        "sum_tree.AsyncSumTree": ["sum_tree.SumTree"],
    }
    for path, bases in documented.items():
        for base in bases:
            assert issubclass(find(path), find(base))
    for path in ("frame.BufferSamples", "sequence.n_step.SamplesToBuffer", "non_sequence.prioritized.EPS"):
        find(path)


def test_the_documented_tuples_begin_with_the_documented_fields():
    transition = ("agent_inputs", "action", "return_", "done", "done_n", "target_inputs")
    sequence = ("all_observation", "all_action", "all_reward", "return_", "done", "done_n", "init_rnn_state")
    for path, fields in {"non_sequence.n_step.SamplesFromReplay": transition, "sequence.n_step.SamplesFromReplay": sequence}.items():
        assert find(path)._fields[: len(fields)] == fields
    for path, more in {
        "non_sequence.prioritized.SamplesFromReplayPri": "is_weights",
        "non_sequence.time_limit.SamplesFromReplayTL": "timeout timeout_n",
        "sequence.prioritized.SamplesFromReplayPri": "is_weights",
    }.items():
        base = find(f"{path.split('.')[0]}.n_step.SamplesFromReplay")._fields
        assert find(path)._fields[: len(base)] == base
        assert find(path)._fields[len(base) :][: len(more.split())] == tuple(more.split())


@every_kind
def test_batches_begin_with_the_documented_fields(kind):
    game = Game(kind, timeouts=True, interval=1)
    game.append(game.T)
    fields = game.sample(3)._fields
    documented = find(f"{'sequence' if kind.sequence else 'non_sequence'}.n_step.SamplesFromReplay")._fields
    assert fields[: len(documented)] == documented
    more = kind.time_limit * ["timeout", "timeout_n"] + kind.prioritized * ["is_weights", "ids"]
    assert set(fields[len(documented) :]) == set(more)


@every_kind
def test_the_size_is_rounded_up_to_whole_rows(kind):
    game = Game(kind, B=3, interval=2)
    game.kwargs["size"] -= 2
    buffer = game.new_buffer()
    assert (buffer.T, buffer.size, buffer.B) == (game.T, game.T * 3, 3)


# ------------------------------------------------------------------------------------------------------------------
# What a subclass overrides
# ------------------------------------------------------------------------------------------------------------------
def overridden(kind, **methods):
    """A full buffer of a subclass with these methods, which get the class's own as first argument."""
    cls = kind.cls
    bodies = {
        name: lambda self, *args, method=method, name=name, **kwargs: method(getattr(super(Mine, self), name), *args, **kwargs)
        for name, method in methods.items()
    }
    Mine = type(kind.name, (cls,), {"__module__": __name__, **bodies})
    game = Game(kind, Cls=Mine, n_step=2, interval=2, spare=8, p_done=0)
    for _ in range(3):
        game.append(game.T - 1)
    return game


@every_kind
def test_append_samples_can_be_overridden(kind):
    game = overridden(kind, append_samples=lambda own, samples: own(samples._replace(reward=torch.full_like(samples.reward, 2))))
    batch = game.buffer.sample_batch(4)
    assert ((batch.return_ - (2 + 0.9 * 2)).abs() < 1e-5).all()


@every_kind
def test_sample_batch_can_be_overridden(kind):
    game = overridden(kind, sample_batch=lambda own, batch_B: own(batch_B + 1))
    assert game.buffer.sample_batch(4).done.shape[-1] == 5


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not kind.prioritized], ids=lambda kind: kind.name)
def test_sample_idxs_can_be_overridden(kind):
    wanted = []
    game = overridden(kind, sample_idxs=lambda own, batch_B, batch_T=None: wanted[0])
    pairs = [game.naive.drawable()[j] for j in (0, 2, 0, 1)]
    wanted.append((np.array([game.row(i) for i, _ in pairs]), np.array([b for _, b in pairs])))
    batch = game.buffer.sample_batch(4)
    game.compare(batch, pairs)


@every_kind
def test_extract_batch_can_be_overridden(kind):
    game = overridden(kind, extract_batch=lambda own, *args, **kwargs: (b := own(*args, **kwargs))._replace(return_=b.return_ * 0 + 7))
    assert (game.buffer.sample_batch(4).return_ == 7).all()


@every_kind
def test_extract_observation_can_be_overridden(kind):
    game = overridden(kind, extract_observation=lambda own, *args, **kwargs: own(*args, **kwargs) * 0 + 5)
    batch = game.buffer.sample_batch(4)
    observations = [batch.all_observation] if kind.sequence else [batch.agent_inputs.observation, batch.target_inputs.observation]
    assert all((observation == 5).all() for observation in observations)


@every_kind
def test_compute_returns_can_be_overridden(kind):
    lengths = []

    def compute_returns(own, T):
        lengths.append(T)
        own(T)
        own.__self__.samples_return_[:] = 3

    game = overridden(kind, compute_returns=compute_returns)
    assert lengths == [game.T - 1] * 3
    assert (game.buffer.sample_batch(4).return_ == 3).all()


@prioritized
def test_update_batch_priorities_can_be_overridden(kind):
    game = overridden(kind, update_batch_priorities=lambda own, priorities, ids=None: own(priorities * 0 + 4, ids))
    batch = game.buffer.sample_batch(50)
    game.buffer.update_batch_priorities(torch.ones(50))
    for id in batch.ids.tolist():
        game.priorities.update(id // game.B, id % game.B, 4.0)
    game.check()


# ------------------------------------------------------------------------------------------------------------------
# What is drawn
# ------------------------------------------------------------------------------------------------------------------
def counts_of(game, n):
    """How often each start was drawn in n draws, as a dictionary."""
    counts = dict.fromkeys(game.naive.drawable(), 0)
    for pair in game.pairs(game.buffer.sample_batch(n)):
        counts[pair] += 1
    return counts


def assert_drawn_in_proportion(counts, mass, n):
    """Within five standard deviations each, and all together by the chi-square statistic, whose mean is the number of classes."""
    total, chi_square = sum(mass.values()), 0
    for pair, count in counts.items():
        expected = n * mass[pair] / total
        assert abs(count - expected) < 5 * np.sqrt(expected) + 1
        chi_square += (count - expected) ** 2 / expected
    assert chi_square < len(counts) + 5 * np.sqrt(2 * len(counts))


@every_kind
@pytest.mark.parametrize("wait_reset", [False, True])
def test_new_starts_are_drawn_uniformly_among_those_that_may_be(kind, wait_reset):
    np.random.seed(5)
    game = Game(kind, spare=9, B=3, n_step=2, interval=2, wait_reset=wait_reset)
    for _ in range(6):
        game.append(5)
    counts = counts_of(game, 4000)
    assert_drawn_in_proportion(counts, dict.fromkeys(counts, 1), 4000)


@prioritized
def test_starts_are_drawn_in_proportion_to_priority_to_the_power_of_alpha(kind):
    np.random.seed(5)
    game = Game(kind, spare=9, B=2, n_step=2, interval=2, alpha=0.7)
    for _ in range(6):
        game.append(5)
    pairs = game.naive.drawable()
    ids = np.array([i // game.interval * game.B + b for i, b in pairs])
    priorities = np.linspace(0.5, 6, len(ids))
    game.buffer.update_batch_priorities(torch.tensor(priorities), ids)
    assert_drawn_in_proportion(counts_of(game, 6000), dict(zip(pairs, priorities**0.7)), 6000)


@prioritized
def test_unique_batches_have_everything_once_and_smaller_ones_prefer_high_priorities(kind):
    np.random.seed(5)
    game = Game(kind, spare=9, B=2, interval=1, unique=True)
    for _ in range(6):
        game.append(5)
    pairs = game.naive.drawable()
    n = len(pairs)
    assert sorted(game.pairs(game.sample(n))) == pairs
    priorities = np.where(np.arange(n) < 3, 50.0, 0.5)
    game.buffer.update_batch_priorities(torch.tensor(priorities), np.array([i * game.B + b for i, b in pairs]))
    counts = np.zeros(n)
    for _ in range(200):
        drawn = [pairs.index(pair) for pair in game.pairs(game.buffer.sample_batch(3))]
        assert len(set(drawn)) == 3
        counts[drawn] += 1
    assert counts[:3].min() > 100 > counts[3:].max()


@every_kind
def test_what_stood_still_is_never_drawn(kind):
    np.random.seed(5)
    game = Game(kind, wait_reset=True, p_done=0.4, spare=12)
    for _ in range(10):
        game.append(6)
        if not game.naive.drawable():
            with pytest.raises(ValueError, match="Nothing to replay"):
                game.buffer.sample_batch(3)
            continue
        for pair, count in counts_of(game, 300).items():
            assert pair in game.naive.drawable() or not count


@transitions
def test_nothing_is_drawn_while_all_that_is_stored_stood_still(kind):
    game = Game(kind, wait_reset=True, p_done=1.0)
    game.append(game.T)  # The first row, which cannot be replayed, and then nothing.
    assert not game.naive.drawable()
    with pytest.raises(ValueError):
        game.buffer.sample_batch(3)


@every_kind
def test_nothing_is_drawn_from_an_empty_buffer(kind):
    with pytest.raises(ValueError, match="Nothing to replay yet"):
        Game(kind).buffer.sample_batch(3)


@every_kind
def test_a_batch_is_not_changed_by_what_comes_after(kind):
    game = Game(kind, spare=10, interval=1)
    game.append(game.T)
    batch = game.sample(6)
    copies = [leaf.clone() for leaf in buffer_leaves(batch) if leaf is not None]
    game.append(game.T)
    game.sample(6)
    assert all(torch.equal(x, y) for x, y in zip(copies, [leaf for leaf in buffer_leaves(batch) if leaf is not None]))


@every_kind_thinned
def test_batches_in_reused_memory_are_the_same_and_last_as_long_as_promised(kind):
    game = Game(kind, spare=10, n_step=2, timeouts=True, interval=1)
    game.buffer.reuse_batches(n_slots=2)
    for _ in range(4):
        game.append(5)
        game.check()
        if game.naive.drawable():
            first, second = game.sample(6), game.sample(6)
            game.compare(first, game.pairs(first))
            game.sample(3)  # Another size is in other memory.
            game.compare(second, game.pairs(second))
    assert game.sample(6).return_.data_ptr() == first.return_.data_ptr()
    assert first.return_.data_ptr() % 64 == 0, "a resumed run computes with inputs at such addresses, too"


@every_kind
def test_the_same_global_seed_draws_the_same_batches(kind):
    batches = []
    for _ in range(2):
        np.random.seed(3)
        game = Game(kind, spare=10)
        game.append(game.T)
        batches.append(game.sample(20))
    assert same(*batches)


# ------------------------------------------------------------------------------------------------------------------
# Priorities
# ------------------------------------------------------------------------------------------------------------------
@prioritized
@pytest.mark.parametrize("shift", [0, 1, 2, 3])
def test_given_priorities_land_on_the_start_they_are_meant_for(kind, shift):
    game = Game(kind, n_step=3, batch_T=4, interval=2, given=True, shift=shift, alpha=0.5)
    for n in (4, 2, 6, 1, 1, 3, 8, 5, 2):
        game.append(n)
        game.check()


@prioritized
def test_samples_and_priorities_may_come_in_two_fields(kind):
    game = Game(kind, given=True, shift=1, interval=1)
    twin = game.new_buffer()
    Both = namedarraytuple("PrioritiesSamplesToBuffer", ["priorities", "samples"])
    for n in (4, 3, 8, 2):
        samples = game.append(n)
        without = game.stream.samples_type()
        twin.append_samples(Both(samples.priorities, without(*(getattr(samples, name) for name in without._fields))))
        game.check(twin)


@prioritized
def test_an_update_reaches_only_what_is_still_there(kind):
    game = Game(kind, spare=5, B=2, interval=2, n_step=2)
    game.append(game.T)
    old = game.sample(30).ids
    for _ in range(2 * game.T):  # Some, then all of the old ones are overwritten.
        game.append(1)
        game.update(old)
        game.check()


@prioritized
def test_beta_can_be_changed(kind):
    game = Game(kind, interval=1)
    game.append(game.T)
    game.update(game.sample(10).ids)
    for beta in (0.0, 0.7, 1.0):
        game.buffer.set_beta(beta)
        game.beta = beta
        game.sample(10)


@prioritized
def test_tiny_priorities_have_bounded_weights(kind):
    game = Game(kind, interval=1, alpha=1.0, beta=1.0, default_priority=1e-6)
    game.append(game.T)
    pairs = game.naive.drawable()
    ids = np.array([i * game.B + b for i, b in pairs])
    game.buffer.update_batch_priorities(torch.tensor([1e-12, 1e-6, 1e-7] + [1e-6] * (len(ids) - 3), dtype=torch.float64), ids)
    for (i, b), priority in zip(pairs, (1e-12, 1e-6, 1e-7)):
        game.priorities.update(i, b, priority)
    game.sample(200)
    game.buffer.update_batch_priorities(np.array([0.0]), ids[:1])  # Of one that is never drawn then.
    assert pairs[0] not in game.pairs(game.buffer.sample_batch(500))


# ------------------------------------------------------------------------------------------------------------------
# Checkpoints
# ------------------------------------------------------------------------------------------------------------------
def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def save_now_and_then(game, chunks):
    """Append chunks, change priorities and end episodes; return the full state after the first and an increment after each other chunk."""
    states, written, drawn = [], 0, None
    for i, chunk in enumerate(chunks):
        if i % 2:  # The steps that are marked are in the state before.
            game.end_episodes([1])
        for part in (chunk, 2):
            game.append(min(part, game.T))
            if game.naive.drawable():
                drawn = game.sample(4)
                if game.kind.prioritized:
                    game.update(drawn.ids)
        states.append(through_a_file(game.buffer.state_dict(since=written)))
        written = game.buffer.written
        assert written == game.naive.written
    return states


@every_kind_thinned
@pytest.mark.parametrize("options", thinned([dict(), EVERYTHING], quick=[EVERYTHING]), ids=["plain", "with everything"])
def test_a_full_state_and_increments_give_the_same_buffer_again(kind, options):
    game = Game(kind, spare=9, n_step=2, interval=2, **options)
    states = save_now_and_then(game, CHUNKS)
    twin = game.new_buffer()
    for state in states:
        twin.load_state_dict(state)
    assert twin.written == game.buffer.written
    assert game.naive.drawable()
    game.check(twin)
    for _ in range(3):
        assert same(twin.sample_batch(8), game.buffer.sample_batch(8))
    for chunk in CHUNKS:  # And they stay the same.
        chunk = min(chunk, game.T)
        samples = game.append(chunk)
        twin.append_samples(samples)
        game.check(twin)
        if game.naive.drawable():
            batches = game.sample(5), twin.sample_batch(5)
            assert same(*batches)
            if kind.prioritized:
                game.update(batches[0].ids)
                new = [game.priorities.mass[id // game.B, id % game.B] ** (1 / 0.6) for id in batches[0].ids.tolist()]
                twin.update_batch_priorities(torch.tensor(new))


@every_kind_thinned
def test_one_full_state_gives_the_same_buffer_again(kind):
    options = dict(spare=9, n_step=2, interval=2, timeouts=True, finals=0.5 if kind.time_limit else 1.0, wait_reset=True)
    game, other = Game(kind, **options), Game(kind, seed=9, **options)
    for chunk in CHUNKS:
        game.append(min(chunk, game.T))
    used = game.new_buffer()  # One that has something else in it, and more of it.
    for _ in range(8):
        used.append_samples(other.append(min(7, game.T)))
    for twin in (game.new_buffer(), used):
        twin.load_state_dict(through_a_file(game.buffer.state_dict()))
        game.check(twin)
    assert same(used.sample_batch(8), game.buffer.sample_batch(8))
    for chunk in CHUNKS:
        used.append_samples(game.append(min(chunk, game.T)))
        game.check(used)


@every_kind
def test_rows_that_are_being_overwritten_are_not_valid_in_a_buffer_that_was_loaded_either(kind):
    game = Game(kind, spare=9, n_step=2, interval=2)
    for chunk in CHUNKS:
        game.append(min(chunk, game.T))
    game.buffer.ring.claim(3)
    twin = game.new_buffer()
    twin.load_state_dict(game.buffer.state_dict())
    assert (twin.ring.written, twin.ring.claimed) == (game.buffer.ring.written, game.buffer.ring.written + 3)


@every_kind
def test_an_increment_is_as_small_as_what_is_new(kind):
    game = Game(kind, spare=400, B=1)
    game.append(game.T)
    sizes = []
    for since in (0, game.naive.written - 2, game.naive.written):
        file = io.BytesIO()
        torch.save(game.buffer.state_dict(since=since), file)
        sizes.append(len(file.getvalue()))
    steps_bytes = sum(leaf[:, 0].nbytes for leaf in buffer_leaves(game.buffer.samples) if leaf is not None)
    assert sizes[0] - sizes[1] > 0.9 * steps_bytes * (1 - 2 / game.T)


@every_kind_thinned
def test_a_state_that_does_not_fit_is_refused(kind):
    game = Game(kind, spare=30, n_step=2, interval=2)
    states = save_now_and_then(game, CHUNKS[:3])
    with pytest.raises(ValueError):
        game.new_buffer().load_state_dict(states[1])
    twin = game.new_buffer()
    twin.load_state_dict(states[0])
    with pytest.raises(ValueError):
        twin.load_state_dict(states[2])
    for other in (dict(spare=32), dict(B=3), dict(wait_reset=True)):
        with pytest.raises(ValueError):
            Game(kind, **{**dict(spare=30, n_step=2, interval=2), **other}).buffer.load_state_dict(states[0])


# ------------------------------------------------------------------------------------------------------------------
# What does not follow
# ------------------------------------------------------------------------------------------------------------------
ENDED = [(True, True, 3, 2), (False, True, 1, 1), (True, False, 3, 1), (True, True, 2, 5), (False, True, 3, 2)]


@every_kind_thinned
@pytest.mark.parametrize("timeouts, tells_after, n_step, chunk", thinned(ENDED, quick=ENDED[:1]))
def test_episodes_can_be_ended_with_the_newest_step(kind, timeouts, tells_after, n_step, chunk):
    game = Game(kind, n_step=n_step, B=3, timeouts=timeouts, tells_after=tells_after, spare=9, p_done=0.1, interval=2)
    rng = np.random.default_rng(n_step + chunk)
    game.buffer.end_episodes()  # There is none yet.
    for i in range(24):
        game.append(chunk)
        if i % 4 == 2:
            game.end_episodes(None if i % 8 == 2 else [int(rng.integers(3))])
        if i % 3 == 0:  # As after loading.
            state = io.BytesIO()
            torch.save(game.buffer.state_dict(), state)
            state.seek(0)
            twin = game.new_buffer()
            twin.load_state_dict(torch.load(state, weights_only=True))
            game.buffer = twin
        game.check()
