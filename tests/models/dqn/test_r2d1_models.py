import pytest
import torch

from rlpyt.models.dqn import atari_r2d1_model, mlp_r2d1_model
from rlpyt.models.dqn.atari_r2d1_model import AtariR2d1Model
from rlpyt.models.dqn.mlp_r2d1_model import MlpR2d1Model
from rlpyt.models.lstm import RnnState

H, A = 5, 3
CONV = dict(channels=[4], kernel_sizes=[4], strides=[2], paddings=[0])
CASES = {
    "atari": (lambda dueling: AtariR2d1Model((2, 12, 12), A, fc_size=6, lstm_size=H, head_size=4, dueling=dueling, **CONV), (2, 12, 12)),
    "mlp": (lambda dueling: MlpR2d1Model((4,), A, lstm_size=H, dueling=dueling), (4,)),
    "numbers": (lambda dueling: MlpR2d1Model((), A, lstm_size=H, dueling=dueling, n_observations=7), ()),
}


@pytest.fixture(params=[(name, dueling) for name in CASES for dueling in (False, True)], ids=str)
def case(request):
    torch.manual_seed(0)
    name, dueling = request.param
    make, shape = CASES[name]

    def inputs(*lead):
        observation = torch.randint(7, lead) if shape == () else torch.rand(*lead, *shape)
        return observation, torch.nn.functional.one_hot(torch.randint(A, lead), A).float(), torch.randn(lead)

    return make(dueling), inputs


def state(B):
    return RnnState(torch.randn(1, B, H), torch.randn(1, B, H))


@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (0,), (2, 0)])
def test_outputs_have_the_leading_dims_of_the_inputs_and_states_always_have_B(case, lead):
    model, inputs = case
    B = lead[-1] if lead else 1
    q, next_state = model(*inputs(*lead), state(B))
    assert q.shape == (*lead, A)
    assert type(next_state) is RnnState and next_state.h.shape == next_state.c.shape == (1, B, H)


def test_a_sequence_gives_what_single_steps_give(case):
    model, inputs = case
    sequence, now = inputs(5, 3), state(3)
    expected, last = model(*sequence, now)
    for t in range(5):
        q, now = model(*(x[t] for x in sequence), now)
        torch.testing.assert_close(q, expected[t], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(now.c, last.c, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("which", [0, 1, 2, 3])
def test_every_input_matters(case, which):
    model, inputs = case
    before = [*inputs(2, 3), state(3)]
    after = list(before)
    after[which] = state(3) if which == 3 else before[which].roll(1, 1) if which < 2 else before[which] + 1
    assert not torch.equal(model(*before)[0], model(*after)[0])


def test_no_state_means_zeros(case):
    model, inputs = case
    sequence = inputs(2, 3)
    assert torch.equal(model(*sequence, None)[0], model(*sequence, RnnState(torch.zeros(1, 3, H), torch.zeros(1, 3, H)))[0])


@pytest.mark.parametrize("dueling", [False, True])
def test_the_default_network_is_the_documented_one(dueling):
    model = AtariR2d1Model(image_shape=(1, 104, 80), output_size=6, dueling=dueling)
    shapes = [tuple(p.shape) for name, p in model.named_parameters() if "bias" not in name]
    head = [(512, 512), (6, 512), (512, 512), (1, 512)] if dueling else [(512, 512), (6, 512)]
    assert shapes == [
        (32, 1, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3), (512, 64 * 12 * 9), (4 * 512, 512 + 6 + 1), (4 * 512, 512), *head,
    ]  # fmt: skip


def test_each_documented_module_has_the_state_under_its_name():
    assert atari_r2d1_model.RnnState is RnnState and mlp_r2d1_model.RnnState is RnnState
