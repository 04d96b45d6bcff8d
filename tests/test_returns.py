import numpy as np
import oracles
import pytest
import torch
from tiers import thinned

from rlpyt import returns
from rlpyt.returns import (
    discount_return,
    discount_return_n_step,
    discount_return_tl,
    explained_variance,
    generalized_advantage_estimation,
    generalized_advantage_estimation_tl,
    v_trace,
    valid_from_done,
)

# One environment, worked out by hand with discount 1/2: the second step ends an episode, the fourth is the last.
REWARD = [1.0, 2.0, 4.0, 8.0]
DONE = [False, True, False, False]


def random_batch(seed, T=17, B=6):
    rng = np.random.default_rng(seed)
    done = rng.random((T, B)) < 0.2
    timeout = done & (rng.random((T, B)) < 0.5)
    reward, value, timeout_value = rng.normal(size=(3, T, B))
    return reward, value, done, timeout, timeout_value, rng.normal(size=(1, B))


def test_discounted_returns_worked_out_by_hand():
    return_ = discount_return(np.array(REWARD), np.array(DONE), np.array([16.0]), 0.5)
    # 8 + 16/2 = 16, 4 + 16/2 = 12, 2 alone, 1 + 2/2 = 2
    np.testing.assert_allclose(return_, [2.0, 2.0, 12.0, 16.0])


def test_advantages_worked_out_by_hand():
    value = np.array([1.0, 1.0, 2.0, 4.0])
    advantage, return_ = generalized_advantage_estimation(np.array(REWARD), value, np.array(DONE), np.array([16.0]), 0.5, 0.5)
    # delta = 1 + 1/2 - 1, 2 - 1, 4 + 4/2 - 2, 8 + 16/2 - 4 = 0.5, 1, 4, 12;  A = 0.5 + 1/4, 1, 4 + 12/4, 12
    np.testing.assert_allclose(advantage, [0.75, 1.0, 7.0, 12.0])
    np.testing.assert_allclose(return_, [1.75, 2.0, 9.0, 16.0])


def test_a_truncated_step_bootstraps_from_the_final_observation_by_hand():
    timeout, final = np.array(DONE), np.array([0.0, 6.0, 0.0, 0.0])
    value = np.array([1.0, 1.0, 2.0, 4.0])
    return_ = discount_return_tl(np.array(REWARD), np.array(DONE), 16.0, 0.5, timeout, value, timeout_value=final)
    np.testing.assert_allclose(return_, [3.5, 5.0, 12.0, 16.0])  # 2 + 6/2 = 5, 1 + 5/2 = 3.5
    advantage, return_ = generalized_advantage_estimation_tl(
        np.array(REWARD), value, np.array(DONE), 16.0, 0.5, 0.5, timeout, timeout_value=final
    )
    np.testing.assert_allclose(advantage, [1.5, 4.0, 7.0, 12.0])  # 2 + 6/2 - 1 = 4, 0.5 + 4/4 = 1.5
    np.testing.assert_allclose(return_, advantage + value)


def test_a_truncated_step_without_final_value_returns_its_own_value():
    timeout, value = np.array(DONE), np.array([1.0, 10.0, 2.0, 4.0])
    return_ = discount_return_tl(np.array(REWARD), np.array(DONE), 16.0, 0.5, timeout, value)
    np.testing.assert_allclose(return_, [6.0, 10.0, 12.0, 16.0])  # 1 + 10/2
    advantage, return_ = generalized_advantage_estimation_tl(np.array(REWARD), value, np.array(DONE), 16.0, 0.5, 1.0, timeout)
    np.testing.assert_allclose(return_, [6.0, 10.0, 12.0, 16.0])
    assert advantage[1] == 0


def test_n_step_returns_worked_out_by_hand():
    return_, done_n = discount_return_n_step(np.array(REWARD), np.array(DONE), 3, 0.5)
    np.testing.assert_allclose(return_, [2.0, 2.0])  # 1 + 2/2 and stop; 2 and stop
    assert done_n.tolist() == [True, True]
    return_, done_n = discount_return_n_step(np.array(REWARD), np.array(DONE), 3, 0.5, do_truncated=True)
    np.testing.assert_allclose(return_, [2.0, 2.0, 8.0, 8.0])  # 4 + 8/2; 8
    assert done_n.tolist() == [True, True, False, False]


def test_steps_after_the_first_done_are_not_valid():
    done = torch.tensor([[0, 1], [1, 0], [0, 0], [1, 0]], dtype=torch.bool)
    assert valid_from_done(done).tolist() == [[1, 1], [1, 0], [0, 0], [0, 0]]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_returns_equal_the_slow_oracles(kind, seed):
    reward, value, done, timeout, timeout_value, bootstrap = random_batch(seed)
    r, v, d, to, tov, bv = (kind(x) for x in (reward, value, done, timeout, timeout_value, bootstrap))
    b = bootstrap[0]

    expected = oracles.columns(oracles.td_return, reward, done, b, 0.9)
    np.testing.assert_allclose(discount_return(r, d, bv, 0.9), expected)
    expected = oracles.columns(oracles.td_return, reward, done, b, 0.9, timeout, timeout_value)
    np.testing.assert_allclose(discount_return_tl(r, d, bv, 0.9, to, v, timeout_value=tov), expected)
    np.testing.assert_allclose(
        generalized_advantage_estimation_tl(r, v, d, bv, 0.9, 1.0, to, timeout_value=tov)[1], expected
    )  # With lambda 1 the same returns, by another way.

    expected = oracles.columns(oracles.gae, reward, value, done, b, 0.9, 0.8)
    advantage, return_ = generalized_advantage_estimation(r, v, d, bv, 0.9, 0.8)
    np.testing.assert_allclose(advantage, expected)
    np.testing.assert_allclose(return_, expected + value)
    expected = oracles.columns(oracles.gae, reward, value, done, b, 0.9, 0.8, timeout, timeout_value)
    advantage, return_ = generalized_advantage_estimation_tl(r, v, d, bv, 0.9, 0.8, to, timeout_value=tov)
    np.testing.assert_allclose(advantage, expected)
    np.testing.assert_allclose(return_, expected + value)
    assert isinstance(advantage, type(r)) and isinstance(return_, type(r))

    np.testing.assert_allclose(valid_from_done(d), oracles.columns(oracles.valid_until_done, done))


def test_v_trace_worked_out_by_hand():
    value, ratio = np.array([1.0, 1.0, 2.0, 4.0]), np.array([0.5, 2.0, 0.5, 3.0])
    advantage, target = v_trace(np.array(REWARD), value, np.array(DONE), np.array([16.0]), ratio, 0.5)
    # rho = c = 0.5, 1, 0.5, 1;  delta = 1 + 1/2 - 1, 2 - 1, 4 + 4/2 - 2, 8 + 16/2 - 4 = 0.5, 1, 4, 12
    # x = 0.5 * 0.5 + 0.5 * 0.5 * 1, 1, 0.5 * 4 + 0.5 * 0.5 * 12, 12 = 0.5, 1, 5, 12
    np.testing.assert_allclose(target, [1.5, 2.0, 7.0, 16.0])
    # r + 0.5 * next target - value = 1 + 1 - 1, 2 - 1, 4 + 8 - 2, 8 + 8 - 4
    np.testing.assert_allclose(advantage, [1.0, 1.0, 10.0, 12.0])


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
@pytest.mark.parametrize("lambda_, rho_clip, c_clip", [(1.0, 1.0, 1.0), (0.8, 1.0, 1.0), (1.0, np.inf, 1.0), (0.9, 1.3, 0.6)])
@pytest.mark.parametrize("timeouts", [False, True])
def test_v_trace_equals_the_slow_oracle(kind, seed, lambda_, rho_clip, c_clip, timeouts):
    reward, value, done, timeout, timeout_value, bootstrap = random_batch(seed)
    ratio = np.exp(np.random.default_rng(seed + 100).normal(size=reward.shape))
    ends = (timeout, timeout_value) if timeouts else (None, None)
    arrays = [None if x is None else kind(x) for x in (reward, value, done, bootstrap, ratio, *ends)]
    advantage, target = v_trace(*arrays[:5], 0.9, lambda_, rho_clip, c_clip, *arrays[5:])
    for b in range(reward.shape[1]):
        of_column = [None if x is None else x[:, b] for x in ends]
        expected = oracles.v_trace(
            reward[:, b], value[:, b], done[:, b], bootstrap[0, b], ratio[:, b], 0.9, lambda_, rho_clip, c_clip, *of_column
        )
        np.testing.assert_allclose(advantage[:, b], expected[0])
        np.testing.assert_allclose(target[:, b], expected[1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("lambda_", [1.0, 0.95, 0.0])
@pytest.mark.parametrize("ends", ["none", "timeout", "final value"])
@pytest.mark.parametrize("on_gpu", [False, True])
def test_v_trace_of_ratios_of_one_is_generalized_advantage_estimation_bit_for_bit(ends, lambda_, dtype, on_gpu, monkeypatch):
    reward, value, done, timeout, timeout_value, bootstrap = (x if x.dtype == bool else x.astype(dtype) for x in random_batch(3, T=50, B=9))
    settings = dict(none={}, timeout=dict(timeout=timeout))
    settings["final value"] = dict(timeout=timeout, timeout_value=timeout_value)
    arguments = [torch.as_tensor(x) for x in (reward, value, done, bootstrap)]
    ends = {name: torch.as_tensor(x) for name, x in settings[ends].items()}
    monkeypatch.setattr(returns, "_in_cpu_memory", lambda x: not on_gpu)
    expected = generalized_advantage_estimation_tl(*arguments, 0.99, lambda_, **{"timeout": None, **ends})
    result = v_trace(*arguments, torch.ones(50, 9), 0.99, lambda_, **ends)
    assert all(torch.equal(a, b) for a, b in zip(result, expected))


def test_v_trace_on_policy_with_lambda_1_is_the_discounted_return_but_for_rounding():
    reward, value, done, timeout, timeout_value, bootstrap = random_batch(5)
    ends = dict(timeout=timeout, timeout_value=timeout_value)
    advantage, target = v_trace(reward, value, done, bootstrap, np.ones_like(reward), 0.9, **ends)
    expected = discount_return_tl(reward, done, bootstrap, 0.9, value=value, **ends)
    np.testing.assert_allclose(target, expected, rtol=1e-12)
    np.testing.assert_allclose(advantage, expected - value, rtol=1e-9, atol=1e-12)


def test_v_trace_finds_the_values_of_the_policy_that_did_not_act():
    """In a random chain, sweeps over samples of another policy lead to the values of the target policy, where ratios are not clipped.

    The oracle solves the Bellman equation.
    """
    rng = np.random.default_rng(0)
    n_states, discount, B = 3, 0.8, 4000
    transition, reward = rng.dirichlet(np.ones(n_states), (2, n_states)), rng.normal(size=(2, n_states))  # by action and state
    acted, target = np.array([0.5, 0.5, 0.5]), np.array([0.9, 0.2, 0.6])  # probability of action 1
    of_target = lambda x: (1 - target)[:, None] * x[0] + target[:, None] * x[1]  # noqa: E731
    expected = np.linalg.solve(np.eye(n_states) - discount * of_target(transition), of_target(reward[..., None])[:, 0])
    value = np.zeros(n_states)
    for _ in range(40):
        state, T = rng.integers(0, n_states, B), 4
        states, rewards, ratios = [state], [], []
        for _ in range(T):
            action = (rng.random(B) < acted[state]).astype(int)
            ratios.append(np.where(action == 1, target[state] / acted[state], (1 - target[state]) / (1 - acted[state])))
            rewards.append(reward[action, state])
            state = (rng.random(B)[:, None] > transition[action, state].cumsum(axis=1)).sum(axis=1).clip(max=n_states - 1)
            states.append(state)
        states = np.stack(states)
        v = value[states]
        _, targets = v_trace(np.stack(rewards), v[:-1], np.zeros((T, B), bool), v[-1:], np.stack(ratios), discount, rho_clip=np.inf)
        value = np.array([targets[states[:-1] == s].mean() for s in range(n_states)])
    np.testing.assert_allclose(value, expected, atol=0.05)
    assert np.abs(np.linalg.solve(np.eye(n_states) - discount * transition.mean(0), reward.mean(0)) - expected).max() > 0.15


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_explained_variance_is_the_formula_over_valid_steps(masked, on_gpu, monkeypatch):
    return_, noise, done, *_ = (torch.as_tensor(x) for x in random_batch(1))
    value = 100 + return_ + 0.3 * noise  # A constant error does not count.
    valid = valid_from_done(done).double()
    chosen = valid.bool() if masked else torch.ones_like(done)
    expected = 1 - np.var((return_ - value)[chosen].numpy()) / np.var(return_[chosen].numpy())
    monkeypatch.setattr(returns, "_in_cpu_memory", lambda x: not on_gpu)
    assert float(explained_variance(value, return_, valid if masked else None)) == pytest.approx(expected)
    assert explained_variance(return_, return_) == 1
    assert explained_variance(value, torch.ones_like(return_)) == 0


@pytest.mark.parametrize("do_truncated", [True, False])
@pytest.mark.parametrize("n", [1, 2, 5, 17])
@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_n_step_returns_equal_the_slow_oracle(kind, n, do_truncated):
    reward, _, done, *_ = random_batch(seed=n)
    return_, done_n = discount_return_n_step(kind(reward), kind(done), n, 0.9, do_truncated=do_truncated)
    rows = 17 if do_truncated else 17 - n + 1
    assert return_.shape == done_n.shape == (rows, 6)
    for t in range(rows):
        for b in range(6):
            expected, expected_done = oracles.n_step_return(reward[:, b], done[:, b], t, n, 0.9)
            assert float(return_[t, b]) == pytest.approx(expected)
            assert bool(done_n[t, b]) == expected_done
    assert done_n.dtype == kind(done).dtype


def test_more_steps_than_rows_give_truncated_returns_only():
    reward, done = torch.ones(3), torch.zeros(3, dtype=torch.bool)
    return_, _ = discount_return_n_step(reward, done, 5, 0.5, do_truncated=True)
    assert return_.tolist() == [1.75, 1.5, 1.0]
    with pytest.raises(ValueError, match="n_step=5"):
        discount_return_n_step(reward, done, 5, 0.5)


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_destinations_are_written_and_returned(kind):
    reward, value, done, _, _, bootstrap = (kind(x) for x in random_batch(0))
    a, b, c = (kind(np.zeros((17, 6))) for _ in range(3))
    out = discount_return(reward, done, bootstrap, 0.9, return_dest=a)
    np.testing.assert_array_equal(a, out)
    generalized_advantage_estimation(reward, value, done, bootstrap, 0.9, 0.8, b, c)
    advantage, return_ = generalized_advantage_estimation(reward, value, done, bootstrap, 0.9, 0.8)
    np.testing.assert_array_equal(b, advantage)
    np.testing.assert_array_equal(c, return_)
    n_step, done_n = kind(np.zeros((15, 6))), kind(np.zeros((15, 6), bool))
    expected = discount_return_n_step(reward, done, 3, 0.9)
    discount_return_n_step(reward, done, 3, 0.9, n_step, done_n)
    np.testing.assert_array_equal(n_step, expected[0])
    np.testing.assert_array_equal(done_n, expected[1])


def test_inputs_are_left_as_they_were():
    arrays = random_batch(3)
    reward, value, done, timeout, timeout_value, bootstrap = (torch.as_tensor(x.copy()) for x in arrays)
    discount_return_tl(reward, done, bootstrap, 0.9, timeout, value, timeout_value=timeout_value)
    generalized_advantage_estimation_tl(reward, value, done, bootstrap, 0.9, 0.8, timeout, timeout_value=timeout_value)
    discount_return_n_step(reward, done, 3, 0.9)
    for tensor, array in zip((reward, value, done, timeout, timeout_value, bootstrap), arrays):
        np.testing.assert_array_equal(tensor, array)


def test_float32_stays_float32_and_integer_rewards_become_float32():
    done = torch.zeros(4, 2, dtype=torch.bool)
    assert discount_return(torch.ones(4, 2), done, torch.zeros(1, 2), 0.9).dtype == torch.float32
    assert discount_return(torch.ones(4, 2, dtype=torch.int64), done, torch.zeros(1, 2), 0.9).dtype == torch.float32


def ratios_like(x):
    """Ratios that depend on the column and row alone, of the kind and shape of an array."""
    n = int(np.prod(x.shape))
    ratio = (0.2 + np.abs(np.sin(np.arange(n)))).reshape(x.shape)
    return torch.as_tensor(ratio) if isinstance(x, torch.Tensor) else ratio


ALL_FUNCTIONS = {
    "discount_return": lambda r, v, d, to, tov, b: discount_return(r, d, b, 0.9),
    "discount_return_tl": lambda r, v, d, to, tov, b: discount_return_tl(r, d, b, 0.9, to, v),
    "discount_return_tl, final value": lambda r, v, d, to, tov, b: discount_return_tl(r, d, b, 0.9, to, v, timeout_value=tov),
    "gae": lambda r, v, d, to, tov, b: generalized_advantage_estimation(r, v, d, b, 0.9, 0.8),
    "gae_tl": lambda r, v, d, to, tov, b: generalized_advantage_estimation_tl(r, v, d, b, 0.9, 0.8, to),
    "gae_tl, final value": lambda r, v, d, to, tov, b: generalized_advantage_estimation_tl(r, v, d, b, 0.9, 0.8, to, timeout_value=tov),
    "v_trace": lambda r, v, d, to, tov, b: v_trace(r, v, d, b, ratios_like(r), 0.9, 0.8, 1.2, 0.7),
    "v_trace, timeouts": lambda r, v, d, to, tov, b: v_trace(r, v, d, b, ratios_like(r), 0.9, 0.8, timeout=to),
    "v_trace, final value": lambda r, v, d, to, tov, b: v_trace(r, v, d, b, ratios_like(r), 0.9, timeout=to, timeout_value=tov),
    "n_step": lambda r, v, d, to, tov, b: discount_return_n_step(r, d, 3, 0.9),
    "n_step, do_truncated": lambda r, v, d, to, tov, b: discount_return_n_step(r, d, 3, 0.9, do_truncated=True),
}


def tensors_of(result):
    return [torch.as_tensor(x) for x in (result if isinstance(result, tuple) else (result,))]


@pytest.mark.parametrize("name", ALL_FUNCTIONS)
def test_what_other_devices_compute_equals_the_kernels(name, monkeypatch):
    arguments = [torch.as_tensor(x) for x in random_batch(1)]
    expected = tensors_of(ALL_FUNCTIONS[name](*arguments))
    monkeypatch.setattr(returns, "_in_cpu_memory", lambda x: False)
    for result, right in zip(tensors_of(ALL_FUNCTIONS[name](*arguments)), expected):
        torch.testing.assert_close(result, right)


@pytest.mark.parametrize("name", ALL_FUNCTIONS)
@pytest.mark.parametrize("shape", [(17,), (17, 6), (17, 3, 2), (17, 0), (3, 6)])
@pytest.mark.parametrize("layout", thinned(["strided", "transposed", "read-only", "rows of a longer buffer"], quick=["transposed"]))
def test_any_shape_and_layout_gives_what_contiguous_columns_give(name, shape, layout):
    rng = np.random.default_rng(7)
    reward, value, timeout_value = rng.normal(size=(3, *shape))
    done = rng.random(shape) < 0.2
    arguments = [reward, value, done, done & (rng.random(shape) < 0.5), timeout_value]
    bootstrap = rng.normal(size=(1, *shape[1:]))
    columns = [x.reshape(shape[0], -1 if x.size else 0) for x in arguments]
    expected = tensors_of(ALL_FUNCTIONS[name](*columns, bootstrap.reshape(1, -1 if bootstrap.size else 0)))

    def lay_out(x):
        if layout == "strided":
            return np.repeat(x[..., None], 2, axis=-1)[..., 0]
        if layout == "transposed":
            return np.asfortranarray(x)
        if layout == "rows of a longer buffer":
            return np.concatenate([x[:1], x])[1:]
        x = x.copy()
        x.flags.writeable = False
        return x

    results = tensors_of(ALL_FUNCTIONS[name](*(lay_out(x) for x in arguments), bootstrap))
    for result, right in zip(results, expected):
        assert result.shape[1:] == shape[1:]
        torch.testing.assert_close(result.reshape(right.shape), right)


@pytest.mark.parametrize("name", ALL_FUNCTIONS)
@pytest.mark.parametrize("done_dtype", [torch.bool, torch.uint8, torch.float32])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64])
def test_results_have_the_dtype_of_reward_if_it_is_floating_and_done_n_that_of_done(name, dtype, done_dtype):
    reward, value, done, timeout, timeout_value, bootstrap = (torch.as_tensor(x) for x in random_batch(2))
    reward = (2 * reward).to(dtype)
    expected = tensors_of(ALL_FUNCTIONS[name](reward.double(), value, done, timeout, timeout_value, bootstrap))
    results = tensors_of(ALL_FUNCTIONS[name](reward, value, done.to(done_dtype), timeout.to(done_dtype), timeout_value, bootstrap))
    returns_dtype = dtype if dtype.is_floating_point else torch.float32
    for i, (result, right) in enumerate(zip(results, expected)):
        assert result.dtype == (done_dtype if right.dtype == torch.bool and i == 1 else returns_dtype)
        tolerance = {torch.float16: 1e-2, torch.bfloat16: 5e-2}.get(dtype, 1e-5)
        torch.testing.assert_close(result.double(), right.double(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_the_destination_may_be_an_argument_and_need_not_be_contiguous(kind):
    reward, value, done, _, _, bootstrap = random_batch(4)
    expected = generalized_advantage_estimation(reward, value, done, bootstrap, 0.9, 0.8)
    r, v = kind(reward.copy()), kind(value.copy())
    generalized_advantage_estimation(r, v, kind(done), kind(bootstrap), 0.9, 0.8, advantage_dest=v, return_dest=r)
    np.testing.assert_allclose(v, expected[0])
    np.testing.assert_allclose(r, expected[1])
    strided = kind(np.zeros((17, 6, 2), np.float32))[..., 1]
    out = discount_return(kind(reward), kind(done), kind(bootstrap), 0.9, return_dest=strided)
    assert out is strided
    np.testing.assert_allclose(strided, discount_return(reward, done, bootstrap, 0.9), rtol=1e-5)


@pytest.mark.parametrize("bootstrap", [0.5, np.full(6, 0.5), np.full((1, 6), 0.5), torch.tensor(0.5), torch.full((1, 6), 0.5)])
def test_the_bootstrap_value_may_be_a_number_or_one_row(bootstrap):
    reward, _, done, *_ = random_batch(5)
    expected = oracles.columns(oracles.td_return, reward, done, 0.5, 0.9)
    np.testing.assert_allclose(discount_return(reward, done, bootstrap, 0.9), expected)


def test_no_gradient_is_asked_of_values_that_have_one():
    reward, value, done, timeout, timeout_value, bootstrap = (torch.as_tensor(x) for x in random_batch(6))
    value.requires_grad_(), timeout_value.requires_grad_(), bootstrap.requires_grad_()
    for function in ALL_FUNCTIONS.values():
        for result in tensors_of(function(reward, value, done, timeout, timeout_value, bootstrap)):
            assert not result.requires_grad


@pytest.mark.parametrize("on_gpu", [False, True])
def test_what_does_not_have_the_shape_of_the_rewards_is_refused(monkeypatch, on_gpu):
    monkeypatch.setattr(returns, "_in_cpu_memory", lambda x: not on_gpu)
    reward, done, last = torch.ones(4, 3), torch.zeros(4, 3, dtype=torch.bool), torch.zeros(3)
    for wrong in (done[:3], done[:, :1], done[:, 0]):
        with pytest.raises(ValueError, match=r"done has shape .* must have that of reward, \(4, 3\)"):
            discount_return(reward, wrong, last, 0.9)
        with pytest.raises(ValueError, match="done has shape"):
            discount_return_n_step(reward, wrong, 2, 0.9)
    with pytest.raises(ValueError, match="value has shape"):
        generalized_advantage_estimation(reward, reward[:, :1], done, last, 0.9, 0.9)
    with pytest.raises(ValueError, match="timeout_value has shape"):
        generalized_advantage_estimation_tl(reward, reward, done, last, 0.9, 0.9, done, timeout_value=reward[:2])
    with pytest.raises(ValueError, match="need timeout_value or value"):
        discount_return_tl(reward, done, last, 0.9, done, None)


@pytest.mark.parametrize("on_gpu", [False, True])
def test_the_bootstrap_value_is_not_even_looked_at_where_the_last_step_is_done(monkeypatch, on_gpu):
    monkeypatch.setattr(returns, "_in_cpu_memory", lambda x: not on_gpu)
    reward, done = torch.ones(3, 2), torch.tensor([[False, False], [False, False], [True, False]])
    last = torch.tensor([float("nan"), 2.0])
    assert discount_return(reward, done, last, 0.5).tolist() == [[1.75, 2.0], [1.5, 2.0], [1.0, 2.0]]
    advantage, return_ = generalized_advantage_estimation(reward, torch.zeros(3, 2), done, last, 0.5, 1.0)
    assert return_.tolist() == [[1.75, 2.0], [1.5, 2.0], [1.0, 2.0]]


def test_scripts_find_them_in_the_documented_place_too():
    from rlpyt.algos import utils

    public = {name for name, value in vars(returns).items() if getattr(value, "__module__", "") == "rlpyt.returns" and name[0] != "_"}
    assert len(public) == 9 and all(getattr(utils, name) is getattr(returns, name) for name in public)
