import copy
import random
import subprocess
import sys
from functools import partial

import numpy as np
import pytest
import torch
from tiers import full, processes

from rlpyt.utils.seed import (
    PURPOSES,
    _permute_32_bits,
    env_seed,
    generators_in,
    get_seed,
    make_seed,
    next_seed,
    rng,
    seed_env,
    set_envs_seeds,
    set_seed,
)


def draws():
    return random.random(), np.random.rand(), torch.rand(1).item()


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 2, 2**32 - 1, np.int64(7)])
def test_set_seed_repeats_python_numpy_and_torch(seed):
    set_seed(seed)
    first = draws()
    assert draws() != first
    set_seed(seed)
    assert draws() == first and get_seed() == seed


def test_seeds_at_the_ends_of_the_range_are_different_seeds():
    drawn = set()
    for seed in (0, 1, 2**32 - 2, 2**32 - 1):
        set_seed(seed)
        drawn.add(draws())
    assert len(drawn) == 4


def test_a_seed_out_of_range_wraps_around():
    set_seed(2**32 + 5)
    assert get_seed() == 5
    set_seed(-1)
    assert get_seed() == 2**32 - 1


@processes
def test_next_seeds_are_the_seed_and_then_others_in_the_same_order_each_time():
    drawn = []
    for seed in (3, 4, 3):
        set_seed(seed)
        drawn.append([next_seed() for _ in range(100)])
        assert drawn[-1][0] == seed == get_seed()
    assert drawn[0] == drawn[2] and len({*drawn[0], *drawn[1]}) == 200
    code = "from rlpyt.utils.seed import next_seed; assert next_seed() is None and next_seed() is None"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_seed_must_be_an_integer():
    with pytest.raises(TypeError, match="must be an integer"):
        set_seed(1.5)
    with pytest.raises(TypeError, match="must be an integer"):
        env_seed("1", "agent", 0)


@full
@processes
def test_set_seed_without_torch_leaves_it_unimported():
    code = (
        "import sys; from rlpyt.utils.seed import set_seed; set_seed(3, import_torch=False)\n"
        "assert 'torch' not in sys.modules; set_seed(3); assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_make_seed_spreads_over_the_documented_range_and_ignores_the_global_generators():
    np.random.seed(0)
    first = [make_seed() for _ in range(300)]
    np.random.seed(0)
    second = [make_seed() for _ in range(300)]
    assert all(type(seed) is int and 0 <= seed < 10000 for seed in first)
    assert first != second and len(set(first)) > 250 and max(first) > 5000 > min(first)


class Seedable:
    def seed(self, seed):
        self.seeded_with = seed


class EnvWithoutSeed:
    def __init__(self):
        self.action_space, self.observation_space = Seedable(), object()


def test_set_envs_seeds_gives_env_i_the_seed_plus_i():
    envs = [Seedable(), EnvWithoutSeed(), Seedable()]
    set_envs_seeds(envs, 2**32 - 2)
    assert envs[0].seeded_with == 2**32 - 2
    assert envs[1].action_space.seeded_with == 2**32 - 1
    assert envs[2].seeded_with == 0


def test_set_envs_seeds_leaves_the_envs_alone_without_a_seed():
    env = Seedable()
    set_envs_seeds([env], None)
    assert not hasattr(env, "seeded_with")


class Slots:
    __slots__ = ("__mine", "later")

    def __init__(self):
        self.__mine = random.Random(0)


def test_generators_are_found_wherever_an_environment_has_them():
    class Env:
        def __init__(self):
            self.generators = [np.random.default_rng(0), np.random.RandomState(0), random.Random(0), torch.Generator()]
            self.array = np.array([None, {"a": (np.random.Generator(np.random.Philox(0)),)}])
            self.bound, self.partial = np.random.default_rng(0).normal, partial(sorted, key=np.random.default_rng(0))
            self.slots, self.me, self.again = Slots(), self, self.generators[0]
            self.data = [np.random.default_rng(0)] * 20_000

    def draws(env):
        return [torch.rand(1, generator=x).item() if isinstance(x, torch.Generator) else x.random() for x in generators_in(env)]

    states = random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist()
    envs, seen = [Env(), copy.deepcopy(Env()), Env(), Env()], []
    envs[0].of_the_process = [np.random.normal, np.random, random.gauss, random.random, torch.default_generator]
    for env, seed in zip(envs, (3, 3, 4, None)):
        seed_env(env, seed)
        seen.append(draws(env))
    assert len(seen[0]) == 8 and seen[0] == seen[1]
    assert len({*seen[0], *seen[2], *seen[3]}) == 24, "none repeats another"
    assert states == (random.getstate(), str(np.random.get_state()), torch.get_rng_state().tolist())


def test_an_environments_own_seed_has_the_last_word():
    class Env(Seedable):
        def __init__(self):
            self.mine, self.other = np.random.default_rng(0), np.random.default_rng(0)

        def seed(self, seed):
            self.mine = np.random.default_rng(seed)

    env = Env()
    seed_env(env, 5)
    assert env.mine.random() == np.random.default_rng(5).random() != env.other.random() != np.random.default_rng(0).random()


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1, 2**70])
def test_no_two_environments_of_a_run_share_a_seed(seed):
    seeds = [env_seed(seed, purpose, index) for purpose in PURPOSES for index in range(5000)]
    assert len(set(seeds)) == len(seeds)
    assert all(type(s) is int and 0 <= s < 2**32 for s in seeds)


def test_the_permutation_behind_env_seed_is_one():
    """Inverted step by step, for random keys."""
    generator = np.random.default_rng(0)
    for _ in range(200):
        x, *keys = (int(value) for value in generator.integers(2**32, size=5))
        y = _permute_32_bits(x, *keys)
        for key in reversed(keys):
            y ^= y >> 16
            y = y * pow(0x9E3779B1, -1, 2**32) % 2**32 ^ key
        assert y == x


def test_env_seed_uses_all_32_bits_and_depends_on_everything():
    seeds = np.array([env_seed(0, "train_env", index) for index in range(4096)], dtype=np.uint32)
    bits = np.unpackbits(seeds.view(np.uint8)).reshape(4096, 32).mean(axis=0)
    assert np.all(np.abs(bits - 0.5) < 0.05)
    assert env_seed(0, "train_env", 3) == env_seed(0, "train_env", 3)
    assert len({env_seed(0, "train_env", 3), env_seed(1, "train_env", 3), env_seed(0, "eval_env", 3)}) == 3


def test_an_environment_gets_the_same_stream_whatever_the_number_of_workers():
    B = 12
    by_n_workers = []
    for n_workers in (1, 3, 5):
        shares = np.array_split(np.arange(B), n_workers)
        by_n_workers.append([rng(5, "train_env", int(b)).random() for share in shares for b in share])
    assert by_n_workers[0] == by_n_workers[1] == by_n_workers[2] and len(set(by_n_workers[0])) == B


def test_streams_of_different_purposes_seeds_and_indexes_differ():
    drawn = {rng(seed, purpose, index).random() for seed in (0, 1) for purpose in PURPOSES for index in range(20)}
    assert len(drawn) == 2 * len(PURPOSES) * 20
    assert rng(0, "agent").random() == rng(0, "agent", 0).random()


@pytest.mark.parametrize("make", [rng, env_seed])
def test_unknown_purposes_and_impossible_indexes_are_refused(make):
    with pytest.raises(ValueError, match="purpose='trainenv'.*train_env"):
        make(0, "trainenv", 0)
    with pytest.raises(ValueError, match="index=-1"):
        make(0, "agent", -1)
    with pytest.raises(ValueError, match="index="):
        make(0, "agent", 2**28)
    with pytest.raises(ValueError, match="seed=-1"):
        make(-1, "agent", 0)
