import copy
import io
import itertools
import multiprocessing

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import start_methods

from rlpyt.replays.sum_tree import AsyncSumTree, SumTree

DENORMAL = 5e-324
TIMEOUT = 60  # Seconds that another process may take.


class NaiveTree:
    """What a sum tree does, with a dict of rows: number -> list of priorities of its steps."""

    def __init__(self, T, B, off_backward, off_forward, default_value=1.0, shift=0):
        self.T, self.B, self.off_backward, self.off_forward = T, B, off_backward, off_forward
        self.default_value, self.shift = default_value, shift
        self.written = self.claimed = 0
        self.inputs, self.on, self.valid = {}, {}, {}

    def claim(self, T):
        self.claimed = max(self.claimed, self.written + T)
        for number in list(self.on):
            if number < max(self.claimed - self.T, 0) + self.off_forward:
                del self.on[number]

    def advance(self, T, priorities=None, valid=None):
        self.claim(T)
        for k in range(T):
            self.inputs[self.written + k] = [self.default_value] * self.B
            self.valid[self.written + k] = [True] * self.B if valid is None else list(valid[k])
        for k in range(T if priorities is not None else 0):
            number = self.written - self.shift + k
            if number >= max(self.claimed - self.T, 0):
                self.inputs[number] = list(priorities[k])
                if number in self.on:
                    self.turn_on(number)
        first_new = self.written - self.off_backward
        self.written += T
        for number in range(max(first_new, 0), self.written - self.off_backward):
            if number >= max(self.claimed - self.T, 0) + self.off_forward:
                self.turn_on(number)

    def turn_on(self, number):
        self.on[number] = [p if valid else 0.0 for p, valid in zip(self.inputs[number], self.valid[number])]

    def update(self, ids, priorities):
        for i, priority in reversed(list(zip(ids, priorities))):  # Of equal ids the first one counts, as in the original.
            number, b = divmod(int(i), self.B)
            if number in self.on and self.valid[number][b]:
                row = list(self.on[number])
                row[b] = priority
                self.on[number] = row

    def leaves(self):
        leaves = np.zeros((self.T, self.B))
        for number, row in self.on.items():
            leaves[number % self.T] = row
        return leaves


def naive_sums(leaves):
    """All levels of sums over flat leaves, from the leaves up: lists of Python floats."""
    levels = [[float(x) for x in leaves]]
    while len(levels[-1]) > 1:
        nodes = [0.0] * (-len(levels[-1]) % 8) + levels[-1]
        groups = [nodes[i : i + 8] for i in range(0, len(nodes), 8)]
        levels.append([((a + b) + (c + d)) + ((e + f) + (g + h)) for a, b, c, d, e, f, g, h in groups])
    return levels


def check_sums(tree):
    expected = []
    for values in naive_sums(tree.priorities.reshape(-1)):
        expected += [0.0] * (-len(values) % 8) + values
    assert tree.tree.tolist() == expected
    assert tree.total == expected[-1]


def filled(T=16, B=4, off_backward=1, off_forward=1, cls=SumTree, rows=None, **kwargs):
    tree = cls(T, B, off_backward, off_forward, **kwargs)
    for _ in range(T + 3 if rows is None else rows):
        tree.advance(1)
    return tree


def with_leaves(values):
    """A tree of which all steps are on, with these priorities."""
    tree = SumTree(len(values), 1, 0, 0)
    tree.advance(len(values))
    tree.reconstruct(np.arange(len(values)), values)
    return tree


def check_chi_square(counts, expected):
    rare = expected < 10
    counts = np.append(counts[~rare], counts[rare].sum())
    expected = np.append(expected[~rare], expected[rare].sum())
    counts, expected = counts[expected > 0], expected[expected > 0]
    df = len(counts) - 1
    assert ((counts - expected) ** 2 / expected).sum() < df + 5 * np.sqrt(2 * df) + 5


# ---------------------------------------------------------------------------------------------------------------------
# Against the naive tree
# ---------------------------------------------------------------------------------------------------------------------
OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["advance", "advance", "input", "claim", "update", "draw", "unique"]), st.integers(0, 2**31)), max_size=25
)


@settings(deadline=None, max_examples=150)
@given(
    T=st.integers(1, 40),
    B=st.integers(1, 5),
    off_backward=st.integers(0, 6),
    off_forward=st.integers(0, 4),
    shift=st.integers(0, 12),
    with_input=st.booleans(),
    with_blanks=st.booleans(),
    cls=st.sampled_from([SumTree, AsyncSumTree]),
    operations=OPERATIONS,
)
def test_tree_does_what_the_naive_one_does(T, B, off_backward, off_forward, shift, with_input, with_blanks, cls, operations):
    tree = cls(T, B, off_backward, off_forward, 0.5, with_input, shift, enable_blanks=with_blanks)
    naive = NaiveTree(T, B, off_backward, off_forward, 0.5, shift)
    for name, seed in operations:
        rng = np.random.default_rng(seed)
        n = int(rng.integers(T + 1))
        some = rng.choice([0.0, DENORMAL, 1e-9, 0.3, 1.0, 7.0, 1e200], size=(n, B)) * rng.random()
        if name == "claim":
            tree.claim(n)
            tree.claim(n)
            naive.claim(n)
        elif name in ("advance", "input"):
            priorities = some if name == "input" and with_input else None
            valid = rng.random((n, B)) < 0.7 if with_blanks and seed % 2 else None
            tree.advance(n, priorities, valid)
            naive.advance(n, priorities, valid)
        elif name == "update":
            ids = rng.integers(-2 * B, (naive.written + 3) * B, size=n * B)
            tree.update(ids, some.reshape(-1))
            naive.update(ids, some.reshape(-1))
        elif np.count_nonzero(tree.priorities) > n * (name == "unique"):
            n = n if name == "unique" else 50
            ids, T_idxs, B_idxs, priorities = tree.draw(n, unique=name == "unique")
            assert priorities.all()
            assert (priorities == naive.leaves()[T_idxs, B_idxs]).all()
            assert (ids // B % T == T_idxs).all() and (ids % B == B_idxs).all()
            assert set(ids // B) <= set(naive.on)
            assert name == "draw" or len(set(ids)) == n
        first, end = tree.window()
        assert list(range(first, end)) == sorted(naive.on)
        assert (tree.written, tree.claimed, tree.t) == (naive.written, naive.claimed, naive.written % T)
        assert (tree.priorities == naive.leaves()).all()
        check_sums(tree)


@settings(deadline=None, max_examples=100)
@given(
    values=st.lists(st.sampled_from([0.0, 0.0, DENORMAL, 1e-308, 0.1, 1 / 3, 1.0, 1e16, 1e300]), min_size=1, max_size=700),
    u=st.lists(st.floats(0, 1), max_size=20),
)
def test_random_numbers_lead_to_the_leaf_they_fall_into_and_never_to_zeros(values, u):
    tree = with_leaves(values)
    u = np.array([0.0, DENORMAL, np.nextafter(1, 0), 1.0, *u])
    leaves = tree.find(u)
    if tree.total == 0:
        return
    assert (np.array(values)[leaves] > 0).all()
    ends, tolerance = np.cumsum(values), 1e-12 * tree.total
    assert (ends[leaves] >= u * tree.total - tolerance).all()
    assert (ends[leaves] - np.array(values)[leaves] <= u * tree.total + tolerance).all()
    assert leaves[0] == np.flatnonzero(values)[0]


def test_sums_are_exact_after_many_updates():
    tree, rng = filled(500, 11), np.random.default_rng(0)
    first, end = tree.window()
    for n in [1, 3, 32, 100, 1000] * 90:
        tree.update(rng.integers(first * 11, end * 11, size=n), rng.random(n) * 10.0 ** rng.integers(-20, 20, size=n))
    check_sums(tree)
    tree.update(np.arange(first * 11, end * 11), np.zeros((end - first) * 11))
    assert not tree.tree.any()


def test_large_trees_find_what_a_cumulative_sum_finds():
    rng = np.random.default_rng(0)
    values = rng.integers(0, 5, size=300_000).astype(float)  # Whose sums are exact.
    tree, u = with_leaves(values), rng.random(5000)
    ends = np.cumsum(values)
    assert (tree.find(u) == np.searchsorted(ends, u * ends[-1], side="right")).all()


# ---------------------------------------------------------------------------------------------------------------------
# Probabilities
# ---------------------------------------------------------------------------------------------------------------------
def test_steps_are_drawn_in_proportion_to_their_priorities():
    np.random.seed(1)
    values = np.random.rand(300) ** 3 * (np.random.rand(300) < 0.8)
    tree, n = with_leaves(values), 200_000
    _, T_idxs, _, _ = tree.draw(n)
    check_chi_square(np.bincount(T_idxs, minlength=300), n * values / values.sum())


@pytest.mark.parametrize("values", [[1, 1, 1, 1, 1], [100, 10, 3, 1, 0, 0.1], [1, 2, 3, 4, 0, 5]])
def test_draws_without_replacement_have_the_probabilities_of_drawing_one_after_another(values):
    np.random.seed(2)
    tree, n, values = with_leaves(values), 40_000, np.array(values, float)
    orders = list(itertools.permutations(range(len(values)), 3))
    expected = np.zeros(len(orders))
    for i, (a, b, c) in enumerate(orders):
        rest = values.sum()
        expected[i] = n * values[a] / rest * values[b] / (rest - values[a]) * values[c] / (rest - values[a] - values[b])
    number = {order: i for i, order in enumerate(orders)}
    counts = np.zeros(len(orders))
    for _ in range(n):
        counts[number[tuple(tree.draw(3, unique=True)[1].tolist())]] += 1
    assert not counts[expected == 0].any()
    check_chi_square(counts, expected)


def test_draws_without_replacement_leave_the_tree_as_it_was():
    np.random.seed(3)
    tree = with_leaves(np.random.rand(1000) ** 30)
    before = tree.tree.copy()
    for n in (0, 1, 100, 700, 1000):
        ids, T_idxs, B_idxs, priorities = tree.draw(n, unique=True)
        assert len(set(ids)) == n
        assert (priorities == tree.priorities[T_idxs, 0]).all()
        assert (tree.tree == before).all()


def test_fewer_positive_priorities_than_different_steps_asked_for_are_an_error():
    tree = with_leaves([0, 1, 0, 2, 3])
    before = tree.tree.copy()
    assert sorted(tree.draw(3, unique=True)[1]) == [1, 3, 4]
    with pytest.raises(ValueError, match="4 different steps .* only 3"):
        tree.draw(4, unique=True)
    assert (tree.tree == before).all()


def test_an_empty_tree_says_what_to_do():
    tree = SumTree(8, 2, 2, 1)
    for rows in range(4):
        with pytest.raises(ValueError, match=f"Nothing to replay yet: {rows} time steps .* more than 3 .* min_steps_learn"):
            tree.draw(2)
        tree.advance(1)
    assert (tree.draw(9)[1] == 1).all()
    tree.claim(8)
    with pytest.raises(ValueError, match="Nothing to replay yet"):
        tree.draw(1, unique=True)
    with pytest.raises(ValueError, match="all 5 steps are 0.*lower it .*raise min_steps_learn"):
        with_leaves([0] * 5).sample(2)


# ---------------------------------------------------------------------------------------------------------------------
# Updates and input priorities
# ---------------------------------------------------------------------------------------------------------------------
def test_updates_of_steps_that_are_off_are_ignored():
    tree = filled(T=8, B=2, rows=8)
    assert tree.window() == (1, 7)
    (T_idxs, B_idxs), _ = tree.sample(64)
    assert set(T_idxs) == set(range(1, 7))
    tree.advance(4)  # Numbers 1 to 4 are gone.
    tree.update_batch_priorities(np.full(64, 9.0))
    on = {number % 8 for number in range(*tree.window())}
    for row in range(8):
        expected = 0 if row not in on else 9 if row in (5, 6) else 1
        assert (tree.priorities[row] == expected).all()
    check_sums(tree)


def test_of_equal_ids_the_first_priority_counts():
    tree = filled(T=8, B=2, rows=8)
    tree.update(np.array([5, 4, 5, 5]), np.array([3.0, 2.0, 4.0, 6.0]))
    assert tree.priorities[2].tolist() == [2, 3]
    assert tree.total == 10 + 5


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, -1.0, 1e308])
def test_what_is_no_priority_is_refused_and_nothing_written(bad):
    tree = filled(enable_input_priorities=True)
    before = tree.tree.copy()
    first, _ = tree.window()
    with pytest.raises(ValueError, match="A priority is"):
        tree.update(np.array([first * 4, first * 4 + 1]), np.array([5.0, bad]))
    with pytest.raises(ValueError, match="A priority is"):
        tree.advance(2, [1.0, 2.0, bad, 4.0])
    with pytest.raises(ValueError, match="A priority is"):
        SumTree(4, 4, 1, 1, default_value=bad)
    assert (tree.tree == before).all()
    assert tree.written == tree.claimed == 19


def test_sums_of_the_largest_priorities_are_finite():
    tree = with_leaves(np.ones(1000))
    tree.update(np.arange(1000), np.full(1000, tree.largest_priority))
    assert np.isfinite(tree.total)
    assert len(set(tree.draw(1000)[0])) > 500


def test_updates_need_samples_and_their_shape():
    tree = filled()
    with pytest.raises(ValueError, match="call sample first"):
        tree.update_batch_priorities(np.ones(3))
    tree.sample(4)
    with pytest.raises(ValueError, match="shape"):
        tree.update_batch_priorities(np.ones(3))
    with pytest.raises(ValueError, match="shape"):
        tree.update_batch_priorities(np.ones((4, 1)))
    tree.update_batch_priorities(torch.ones(4))
    tree.update_batch_priorities([1, 2, 3, 4])


def test_input_priorities_are_those_of_the_rows_shifted_back():
    tree = SumTree(10, 2, 3, 1, enable_input_priorities=True, input_priority_shift=2)
    for number in range(6):
        tree.advance(1, float(10 + number))  # Of row number - 2.
    assert tree.priorities[:4, 0].tolist() == [0, 13, 14, 0]
    tree.advance(2, [1.0, 2.0])  # Of rows 4 and 5, the same for both.
    assert tree.priorities[:6].tolist() == [[0, 0], [13, 13], [14, 14], [15, 15], [1, 2], [0, 0]]
    tree.advance(2)  # Of nobody: rows 6 and 7 have the default.
    assert tree.priorities[:8, 0].tolist() == [0, 13, 14, 15, 1, 1, 1, 0]


def test_input_priorities_of_an_earlier_lap_are_forgotten():
    tree = SumTree(6, 1, 1, 1, default_value=0.5, enable_input_priorities=True)
    tree.advance(6, 7.0)
    tree.advance(4)
    tree.advance(1)
    assert tree.priorities[:, 0].tolist() == [0.5, 0.5, 0.5, 0.5, 0, 0]


def test_input_priorities_that_come_late_replace_those_of_rows_that_are_on():
    tree = SumTree(10, 1, 1, 1, enable_input_priorities=True, input_priority_shift=4)
    tree.advance(6)
    assert tree.priorities[:, 0].tolist() == [0, 1, 1, 1, 1, 0, 0, 0, 0, 0]
    tree.advance(2, [[3.0], [4.0]])
    assert tree.priorities[:, 0].tolist() == [0, 1, 3, 4, 1, 1, 1, 0, 0, 0]
    check_sums(tree)


def test_steps_that_are_not_valid_are_never_turned_on():
    tree = SumTree(6, 2, 1, 1, enable_input_priorities=True, input_priority_shift=2, enable_blanks=True)
    tree.advance(4, 3.0, np.array([[True, True], [True, False], [False, False], [True, True]]))
    assert tree.priorities[:3].tolist() == [[0, 0], [3, 0], [0, 0]]
    tree.advance(2, 5.0)
    assert tree.priorities[:5].tolist() == [[0, 0], [3, 0], [0, 0], [5, 5], [1, 1]]
    tree.advance(6)
    assert tree.priorities[:5].tolist() == [[0, 0], [1, 1], [1, 1], [1, 1], [1, 1]]


def test_misuse_is_refused():
    with pytest.raises(ValueError, match="input_priority_shift=-1"):
        SumTree(4, 2, 1, 1, input_priority_shift=-1)
    tree = SumTree(4, 2, 1, 1)
    for method in (tree.advance, tree.claim):
        with pytest.raises(ValueError, match="5 rows .* T=4"):
            method(5)
    with pytest.raises(ValueError, match="enable_input_priorities=True"):
        tree.advance(1, 2.0)
    with pytest.raises(ValueError, match=r"\(3, 2\) or \(2,\).*\(3,\)"):
        SumTree(4, 2, 1, 1, enable_input_priorities=True).advance(3, np.ones(3))


def test_a_tree_is_empty_after_a_reset():
    tree = filled(enable_input_priorities=True)
    tree.advance(2, 5.0)
    tree.reset()
    assert (tree.written, tree.claimed, tree.t, tree.total) == (0, 0, 0, 0.0)
    assert tree.input_priorities.tolist() == np.ones((16, 4)).tolist()
    with pytest.raises(ValueError, match="Nothing to replay yet"):
        tree.draw(1)


def test_the_global_seed_makes_draws_repeatable():
    draws = []
    for seed in (1, 1, 2):
        np.random.seed(seed)
        draws.append(filled().draw(20)[0].tolist())
    assert draws[0] == draws[1] != draws[2]


# ---------------------------------------------------------------------------------------------------------------------
# The tree itself
# ---------------------------------------------------------------------------------------------------------------------
def test_leaves_can_be_set_by_their_index():
    tree = filled(T=30, B=3)
    tree.reconstruct(np.array([3, 80, 4]), np.array([5.0, 6.0, 0.0]))
    assert tree.priorities.reshape(-1)[[3, 80, 4]].tolist() == [5, 6, 0]
    check_sums(tree)
    for idxs in ([-1], [90]):
        with pytest.raises(ValueError, match="Leaves have indexes from 0 to 89"):
            tree.reconstruct(idxs, 1.0)


def test_random_numbers_outside_0_to_1_lead_nowhere():
    for u in (-1e-9, 1.1, np.nan):
        with pytest.raises(ValueError, match="from 0 to 1"):
            filled().find([0.5, u])


def test_differences_reach_the_total():
    tree = filled(T=30, B=3)
    total = tree.total
    tree.propagate_diffs(np.array([3, 80, 3]), np.array([5.0, 6.0, 1.0]), min_level=0)
    assert tree.total == total + 12
    tree.priorities[2, 1] += 4
    tree.propagate_diffs(np.array([7]), np.array([4.0]))
    assert tree.total == total + 16
    check_sums(tree)
    with pytest.raises(ValueError, match="A priority is -"):
        tree.propagate_diffs(np.array([3]), np.array([-100.0]), min_level=0)
    check_sums(tree)


def test_rows_can_be_turned_on_and_off_across_the_end_of_the_ring():
    tree = SumTree(10, 2, 1, 1, default_value=2)
    tree.reconstruct_advance(7, 2, 8, 9)
    assert tree.priorities[:, 1].tolist() == [2, 2, 0, 0, 0, 0, 0, 2, 0, 2]
    check_sums(tree)


def test_levels_are_printed_from_the_total_down(capsys):
    tree = filled(T=10, B=2, rows=4)
    tree.print_tree(0)
    assert capsys.readouterr().out == "level 0:\n[4.]\n"
    tree.print_tree()
    assert "level 0:\n[4.]\nlevel 1:\n[2. 2. 0.]\nlevel 2:\n[[0. 0.]\n [1. 1.]\n" in capsys.readouterr().out


# ---------------------------------------------------------------------------------------------------------------------
# Copies, checkpoints, processes
# ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("cls", [SumTree, AsyncSumTree])
def test_a_loaded_state_continues_with_the_same_draws(cls):
    tree = filled(cls=cls, enable_input_priorities=True, off_backward=3, enable_blanks=True)
    tree.advance(5, np.random.rand(5, 4), np.random.rand(5, 4) < 0.5)
    tree.claim(3)
    tree.draw(7)
    file = io.BytesIO()
    torch.save(tree.state_dict(), file)
    file.seek(0)
    other = filled(cls=cls, enable_input_priorities=True, off_backward=3, rows=5, enable_blanks=True)
    other.load_state_dict(torch.load(file, weights_only=True))
    for _ in range(3):
        assert other.window() == tree.window()
        check_sums(other)
        (ids, *_), (other_ids, *_) = tree.draw(50), other.draw(50)
        assert (ids == other_ids).all()
        for each in (tree, other):
            each.update(ids, np.arange(50.0))
            each.advance(2)
        assert (tree.tree == other.tree).all()


def test_a_state_of_another_tree_is_refused():
    tree = filled()
    with pytest.raises(ValueError, match="'T': 8, 'B': 8.*'T': 16, 'B': 4"):
        tree.load_state_dict(filled(8, 8).state_dict())
    with pytest.raises(ValueError, match="has input_priorities, unlike this one"):
        tree.load_state_dict(filled(enable_input_priorities=True).state_dict())
    check_sums(tree)


def test_a_copy_is_a_tree_of_its_own():
    tree = filled()
    other = copy.deepcopy(tree)
    assert (tree.draw(10)[0] == other.draw(10)[0]).all()
    other.advance(3)
    assert tree.written == 19 and other.written == 22
    check_sums(tree)
    check_sums(other)


def advance_and_update(tree):
    tree.advance(3, 2.0, np.arange(12).reshape(3, 4) % 3 > 0)
    tree.update(np.array([tree.window()[0] * tree.B]), np.array([50.0]))


def work_on(tree, pipe):
    """In another process: rows advance, one step is updated, and some are drawn."""
    advance_and_update(tree)
    ids, *_ = tree.draw(100)
    pipe.send((ids, tree.rng.random(3).tolist()))
    pipe.close()


@pytest.mark.parametrize("method", start_methods("fork", "spawn"))
def test_processes_share_an_asynchronous_tree_but_not_its_random_numbers(method):
    context = multiprocessing.get_context(method)
    tree = filled(cls=AsyncSumTree, enable_input_priorities=True, enable_blanks=True)
    twin = filled(enable_input_priorities=True, enable_blanks=True)
    random_numbers = []
    for _ in range(2):
        mine, theirs = context.Pipe()
        process = context.Process(target=work_on, args=(tree, theirs), daemon=True)
        process.start()
        try:
            assert mine.poll(TIMEOUT)
            ids, numbers = mine.recv()
            process.join(TIMEOUT)
            assert process.exitcode == 0
        finally:
            process.kill()
            process.join()
        advance_and_update(twin)
        assert (tree.tree == twin.tree).all()
        assert (tree.input_priorities == twin.input_priorities).all()
        assert tree.window() == twin.window()
        first, end = tree.window()
        assert (ids >= first * 4).all() and (ids < end * 4).all()
        random_numbers += numbers
    ids, *_ = tree.draw(100)
    random_numbers += tree.rng.random(3).tolist()
    assert len(set(random_numbers)) == 9


def test_blank_steps_cannot_be_given_a_priority():
    tree = SumTree(6, 2, 1, 1, enable_blanks=True)
    valid = np.ones((6, 2), np.bool_)
    valid[3, 1] = False
    tree.advance(6, valid=valid)
    tree.update(np.arange(12), np.full(12, 2.0))
    assert tree.priorities[3].tolist() == [2, 0]
    check_sums(tree)
