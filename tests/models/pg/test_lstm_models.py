import pytest
import torch

from rlpyt.models.lstm import RnnState
from rlpyt.models.pg import atari_lstm_model, mlp_lstm_model, mujoco_lstm_model
from rlpyt.models.pg.atari_lstm_model import AtariLstmModel
from rlpyt.models.pg.mlp_lstm_model import MlpLstmModel
from rlpyt.models.pg.mujoco_ff_model import MujocoFfModel
from rlpyt.models.pg.mujoco_lstm_model import MujocoLstmModel

H, A = 7, 3
CONV = dict(channels=[4], kernel_sizes=[4], strides=[2], paddings=[0])
CASES = {
    "atari": (lambda: AtariLstmModel((2, 12, 12), A, fc_sizes=6, lstm_size=H, **CONV), (2, 12, 12)),
    "mlp": (lambda: MlpLstmModel((4,), A, hidden_sizes=6, lstm_size=H), (4,)),
    "numbers": (lambda: MlpLstmModel((), A, lstm_size=H, n_observations=5), ()),
    "mujoco": (lambda: MujocoLstmModel((4,), A, hidden_sizes=[5, 6], lstm_size=H), (4,)),
    "normalizing": (lambda: MujocoLstmModel((4,), A, hidden_sizes=[], lstm_size=H, normalize_observation=True), (4,)),
}


@pytest.fixture(params=CASES)
def case(request):
    torch.manual_seed(0)
    make, shape = CASES[request.param]

    def inputs(*lead):
        observation = torch.randint(5, lead) if shape == () else torch.rand(*lead, *shape)
        return observation, torch.nn.functional.one_hot(torch.randint(A, lead), A).float(), torch.randn(lead)

    model = make()
    if request.param == "normalizing":
        model.update_obs_rms(3 * torch.rand(9, *shape))
    return model, inputs


def assert_equal(a, b):
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def state(B):
    return RnnState(torch.randn(1, B, H), torch.randn(1, B, H))


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (0,), (2, 0)])
def test_outputs_have_the_leading_dims_of_the_inputs_and_states_always_have_B(case, lead):
    model, inputs = case
    B = lead[-1] if lead else 1
    *dist_info, value, next_state = model(*inputs(*lead), state(B))
    assert all(part.shape == (*lead, A) for part in dist_info) and value.shape == lead
    assert type(next_state) is RnnState and next_state.h.shape == next_state.c.shape == (1, B, H)


def test_a_sequence_gives_what_single_steps_give(case):
    model, inputs = case
    sequence, first = inputs(5, 3), state(3)
    *expected, last = model(*sequence, first)
    now = first
    for t in range(5):
        *outputs, now = model(*(x[t] for x in sequence), now)
        for part, whole in zip(outputs, expected):
            assert_equal(part, whole[t])
    for part, whole in zip(tuple(now), tuple(last)):
        assert_equal(part, whole)


def test_environments_do_not_see_each_other(case):
    model, inputs = case
    sequence, first = inputs(4, 3), state(3)
    *expected, last = model(*sequence, first)
    for b in range(3):
        *outputs, next_state = model(*(x[:, b : b + 1] for x in sequence), first[:, b : b + 1])
        for part, whole in zip(outputs, expected):
            assert_equal(part, whole[:, b : b + 1])
        assert_equal(next_state.c, last.c[:, b : b + 1])


def test_no_state_means_zeros(case):
    model, inputs = case
    sequence = inputs(2, 3)
    zeros = RnnState(torch.zeros(1, 3, H), torch.zeros(1, 3, H))
    for a, b in zip(model(*sequence, None)[:-1], model(*sequence, zeros)[:-1]):
        assert torch.equal(a, b)


@pytest.mark.parametrize("which", [0, 1, 2, 3])
def test_every_input_matters(case, which):
    model, inputs = case
    before = [*inputs(2, 3), state(3)]
    after = list(before)
    after[which] = state(3) if which == 3 else before[which].roll(1, 1) if which < 2 else before[which] + 1
    assert not torch.equal(model(*before)[0], model(*after)[0])


def test_a_state_of_other_environments_is_an_error(case):
    model, inputs = case
    with pytest.raises(RuntimeError, match="hidden"):
        model(*inputs(2, 3), state(4))


def test_the_default_networks_are_the_documented_ones():
    def shapes(model):
        return [tuple(p.shape) for name, p in model.named_parameters() if "bias" not in name]

    assert shapes(AtariLstmModel(image_shape=(1, 104, 80), output_size=6)) == [
        (16, 1, 8, 8), (32, 16, 4, 4), (512, 32 * 12 * 9), (4 * 512, 512 + 6 + 1), (4 * 512, 512), (6, 512), (1, 512),
    ]  # fmt: skip
    assert shapes(MujocoLstmModel((17,), 6)) == [
        (256, 17), (256, 256), (4 * 256, 256 + 6 + 1), (4 * 256, 256), (2 * 6 + 1, 256),
    ]  # fmt: skip


def test_observations_are_normalized_as_in_the_feedforward_model():
    lstm, ff = (Model((4,), A, normalize_observation=True, norm_obs_clip=1.5) for Model in (MujocoLstmModel, MujocoFfModel))
    observation = 5 + 3 * torch.randn(6, 2, 4)
    for model in (lstm, ff):
        model.update_obs_rms(observation)
    assert torch.equal(lstm.observation_vector(observation)[0], ff.observation_vector(observation)[0])
    assert lstm.observation_vector(observation)[0].abs().max() == 1.5


def test_each_documented_module_has_the_state_under_its_name():
    assert all(module.RnnState is RnnState for module in (atari_lstm_model, mlp_lstm_model, mujoco_lstm_model))
    assert RnnState._fields == ("h", "c")
