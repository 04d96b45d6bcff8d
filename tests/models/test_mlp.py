from collections import namedtuple
from functools import partial

import numpy as np
import pytest
import torch

from rlpyt.models.dqn.dueling import DuelingHeadModel
from rlpyt.models.dqn.mlp_dqn_model import MlpDqnModel
from rlpyt.models.dqn.mlp_iqn_model import MlpIqnModel
from rlpyt.models.dqn.mlp_r2d1_model import MlpR2d1Model
from rlpyt.models.mlp import MlpModel, ObservationVector
from rlpyt.models.pg.mlp_ff_model import MlpFfModel, MlpGaussianFfModel
from rlpyt.models.pg.mujoco_ff_model import MujocoFfModel
from rlpyt.models.qpg.ensemble import QEnsembleModel
from rlpyt.models.qpg.lstm import QpgLstm
from rlpyt.models.qpg.mlp import QofMuMlpModel


def test_last_layer_is_linear_only_if_it_has_a_size():
    x = torch.randn(50, 3)
    hidden = MlpModel(3, [8, 5])
    assert hidden.output_size == 5 and hidden(x).shape == (50, 5) and (hidden(x) >= 0).all()
    linear = MlpModel(3, [8], output_size=2)
    torch.nn.init.constant_(linear.model[-1].bias, -10)
    assert linear.output_size == 2 and linear(x).shape == (50, 2) and (linear(x) < 0).all()


def test_hidden_sizes_may_be_a_number_or_empty():
    assert [tuple(p.shape) for p in MlpModel(3, 8, 2).parameters()] == [(8, 3), (8,), (2, 8), (2,)]
    assert len(MlpModel(3, [], 2).model) == 1
    assert MlpModel(3, None).output_size == 3


@pytest.mark.parametrize(
    "make",
    [
        partial(MlpModel, 4, output_size=2),
        partial(MlpDqnModel, (4,), 2),
        partial(MlpDqnModel, (4,), 2, dueling=True),
        partial(MlpIqnModel, (4,), 2),
        partial(QEnsembleModel, (4,), action_size=2),
        partial(QpgLstm, (4,), 2, 2, lstm_size=np.int64(8)),
        partial(QpgLstm, (4,), 2, 2, lstm_size=np.int64(8), rnn="gru"),
    ],
)
@pytest.mark.parametrize("sizes", [np.int64(8), np.array([8]), np.array(8), torch.tensor(8), [np.int64(8)], (8,), 8], ids=repr)
def test_sizes_of_hidden_layers_may_be_numbers_of_numpy(make, sizes):
    expected = {name: x.shape for name, x in make(hidden_sizes=[8]).state_dict().items()}
    assert {name: x.shape for name, x in make(hidden_sizes=sizes).state_dict().items()} == expected


def test_bytes_are_scaled_and_flattened():
    vector = ObservationVector((2, 3))
    observation = torch.randint(0, 256, (4, 5, 2, 3), dtype=torch.uint8)
    x, lead_dims = vector(observation)
    assert lead_dims == (2, 4, 5) and vector.size == 6
    torch.testing.assert_close(x, observation.view(20, 6) / 255)


def test_a_discrete_observation_is_encoded_one_hot():
    x, lead_dims = ObservationVector((), n_values=4)(torch.tensor([3, 0]))
    assert x.tolist() == [[0, 0, 0, 1], [1, 0, 0, 0]] and lead_dims == (1, 1, 2)


def test_the_parts_of_a_structured_observation_are_joined():
    Observation = namedtuple("Observation", ["position", "goal"])
    Goal = namedtuple("Goal", ["x", "id"])
    vector = ObservationVector(Observation((2,), Goal((1, 2), ())))
    observation = Observation(torch.tensor([[1.0, 2.0]]), Goal(torch.tensor([[[3.0, 4.0]]]), torch.tensor([5])))
    x, lead_dims = vector(observation)
    assert vector.size == 5 and x.tolist() == [[1, 2, 3, 4, 5]] and lead_dims == (1, 1, 1)


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (0,), (2, 0)])
@pytest.mark.parametrize(
    "make, n_outputs",
    [
        (lambda: MlpFfModel((4,), 2), 2),
        (lambda: MujocoFfModel((4,), 2, normalize_observation=True), 3),
        (lambda: MlpGaussianFfModel((4,), 2), 3),
        (lambda: MlpDqnModel((4,), 2), 1),
        (lambda: MlpDqnModel((4,), 2, dueling=True), 1),
        (lambda: MlpDqnModel((4,), 2, hidden_sizes=16, dueling=True), 1),
    ],
)
def test_outputs_have_the_leading_dims_of_the_observation(make, n_outputs, lead):
    model = make()
    observation = torch.randn(*lead, 4)
    outputs = model(observation, None, None)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    assert len(outputs) == n_outputs
    if n_outputs > 1:
        assert outputs[-1].shape == lead
        outputs, value = outputs[:-1], outputs[-1]
        torch.testing.assert_close(value.flatten(), model(observation.reshape(-1, 4), None, None)[-1])
    for output in outputs:
        assert output.shape == (*lead, 2)


def test_probabilities_sum_to_1():
    pi, _ = MlpFfModel((4,), 3)(torch.randn(5, 4), None, None)
    torch.testing.assert_close(pi.sum(-1), torch.ones(5))


def test_gaussian_mean_is_bounded_only_for_mujoco():
    torch.manual_seed(0)
    observation = 100 * torch.randn(1000, 4)
    assert MujocoFfModel((4,), 2)(observation, None, None)[0].abs().max() <= 1
    free = MlpGaussianFfModel((4,), 2)
    with torch.no_grad():
        free.mu[0].model[-1].weight.mul_(100)
    assert free(observation, None, None)[0].abs().max() > 1


def test_log_std_is_learned_and_does_not_share_memory_with_the_parameter():
    model = MujocoFfModel((4,), 2, init_log_std=-0.5)
    log_std = model(torch.zeros(1, 4), None, None)[1]
    log_std.sum().backward()
    assert torch.equal(model.log_std.grad, torch.ones(2))
    with torch.no_grad():
        model.log_std.fill_(7)
    assert log_std.tolist() == [[-0.5, -0.5]]


def test_observations_are_normalized_by_what_was_seen():
    torch.manual_seed(0)
    model = MujocoFfModel((2,), 1, normalize_observation=True, norm_obs_clip=2)
    seen = torch.tensor([5.0, -1.0]) + torch.tensor([3.0, 0.1]) * torch.randn(400, 3, 2)
    model.update_obs_rms(seen)
    x = model.obs_rms.normalize(seen.view(-1, 2))
    torch.testing.assert_close(x.mean(0), torch.zeros(2), atol=1e-4, rtol=0)
    torch.testing.assert_close(x.std(0, correction=0), torch.ones(2), atol=1e-4, rtol=0)
    # Beyond the clip limit, nothing changes any more.
    far, farther = [model(torch.full((1, 2), value), None, None)[0] for value in (1e4, 1e5)]
    assert torch.equal(far, farther)


def test_dueling_head_combines_value_and_centred_advantages():
    torch.manual_seed(0)
    head = DuelingHeadModel(4, [8], 3)
    x = torch.randn(5, 4, requires_grad=True)
    q = head(x)
    advantage = head.advantage(x)
    for b in range(5):
        for a in range(3):
            expected = head.value(x)[b, 0] + advantage[b, a] - sum(advantage[b]) / 3
            torch.testing.assert_close(q[b, a], expected)
    assert head.advantage_bias.shape == (1,)


def test_dueling_head_scales_the_gradient_of_its_input_only():
    torch.manual_seed(0)
    scaled, plain = DuelingHeadModel(4, [8], 3), DuelingHeadModel(4, [8], 3, grad_scale=1)
    plain.load_state_dict(scaled.state_dict())
    grads = []
    for head in (scaled, plain):
        x = torch.ones(2, 4, requires_grad=True)
        head(x).square().sum().backward()
        grads.append((x.grad, head.value.model[0].weight.grad))
    torch.testing.assert_close(grads[0][0], 2**-0.5 * grads[1][0])
    torch.testing.assert_close(grads[0][1], grads[1][1])


@pytest.mark.parametrize("shape", [(3,), (2, 2), ((3,), (2, 2)), ()])
def test_an_empty_batch_of_observations_gives_an_empty_batch(shape):
    vector = ObservationVector(shape)
    shapes = shape if shape and isinstance(shape[0], tuple) else (shape,)
    parts = tuple(torch.zeros(0, *each) for each in shapes)
    x, (lead_dim, T, B) = vector(parts if len(parts) > 1 else parts[0])
    assert x.shape == (0, vector.size) and (lead_dim, T, B) == (1, 1, 0)


@pytest.mark.parametrize("sizes", ["64", "abc", 0, -1, 2.5, [64, 0], [64.0], [None], {"a": 1}, b"4"])
@pytest.mark.parametrize("make, name", [(MlpDqnModel, "hidden_sizes"), (QofMuMlpModel, "hidden_sizes"), (MlpR2d1Model, "head_size")])
def test_widths_of_layers_are_whole_numbers(make, name, sizes):
    more = dict(action_size=2) if make is QofMuMlpModel else dict(output_size=2)
    with pytest.raises(
        ValueError, match=f"^{make.__name__}: {name}=.* is not possible; it must be a whole number at least 1, or a list of"
    ):
        make((4,), **{**dict(hidden_sizes=[8]), **more, name: sizes})
