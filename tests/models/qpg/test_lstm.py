import pytest
import torch

from rlpyt.models.lstm import RnnState
from rlpyt.models.qpg.lstm import MuLstmModel, PiLstmModel, QofMuLstmModel

O, A, H = 4, 2, 5
MODELS = {"mu": MuLstmModel, "pi": PiLstmModel, "q": QofMuLstmModel}
SHAPES = {"mu": [(A,)], "pi": [(A,), (A,)], "q": [()]}  # of outputs
every_model = pytest.mark.parametrize("name", MODELS)


def make(name, **kwargs):
    torch.manual_seed(0)
    return MODELS[name](observation_shape=(O,), action_size=A, **{**dict(lstm_size=H, hidden_sizes=[3], head_size=[6]), **kwargs})


def inputs(name, *lead):
    """All inputs before the state, and those after it."""
    return (torch.rand(*lead, O), torch.rand(*lead, A), torch.randn(lead)), (torch.rand(*lead, A),) if name == "q" else ()


def state(B, rnn="lstm"):
    return RnnState(torch.randn(1, B, H), torch.randn(1, B, H)) if rnn == "lstm" else torch.randn(1, B, H)


@every_model
@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (0,), (2, 0)])
@pytest.mark.parametrize("rnn", ["lstm", "gru"])
def test_outputs_have_the_leading_dims_of_the_inputs_and_states_always_have_B(name, lead, rnn):
    model, (before, after) = make(name, rnn=rnn), inputs(name, *lead)
    B = lead[-1] if lead else 1
    *outputs, next_state = model(*before, state(B, rnn), *after)
    assert [tuple(x.shape) for x in outputs] == [(*lead, *shape) for shape in SHAPES[name]]
    assert all(x.shape == (1, B, H) for x in (next_state if rnn == "lstm" else [next_state]))


@pytest.mark.parametrize("rnn", ["lstm", "gru"])
@every_model
def test_a_sequence_gives_what_single_steps_give(name, rnn):
    model, (before, after), now = make(name, rnn=rnn), inputs(name, 5, 3), state(3, rnn)
    *expected, last = model(*before, now, *after)
    remembered = model.remember(*before, now)[1]
    for t in range(5):
        *outputs, now = model(*(x[t] for x in before), now, *(x[t] for x in after))
        for x, y in zip(outputs, expected, strict=True):
            torch.testing.assert_close(x, y[t], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(tuple(now), tuple(last), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(tuple(remembered), tuple(last), rtol=0, atol=0)


@every_model
def test_no_state_stands_for_zeros(name):
    model, (before, after) = make(name), inputs(name, 2, 3)
    zeros = RnnState(torch.zeros(1, 3, H), torch.zeros(1, 3, H))
    torch.testing.assert_close(model(*before, None, *after)[0], model(*before, zeros, *after)[0], rtol=0, atol=0)


def test_the_state_of_a_q_function_does_not_depend_on_the_action():
    model, (before, (action,)) = make("q"), inputs("q", 2, 3)
    first = state(3)
    (q, one), (other_q, other) = model(*before, first, action), model(*before, first, -action)
    assert not torch.equal(q, other_q)
    torch.testing.assert_close(tuple(one), tuple(other), rtol=0, atol=0)


def test_actions_reach_to_output_max():
    model, (before, _) = make("mu", output_max=2.0), inputs("mu", 20, 3)
    with torch.no_grad():
        model.head.model[-1].weight.mul_(1000)
    mu, _ = model(*before, None)
    assert mu.abs().max().item() == pytest.approx(2.0)


def test_unknown_settings_are_refused():
    with pytest.raises(TypeError, match="lstm_sise"):
        PiLstmModel((O,), A, lstm_sise=3)
    with pytest.raises(TypeError, match="output_size"):
        PiLstmModel((O,), A, output_size=3)
    with pytest.raises(ValueError, match="'lstm' or 'gru'"):
        make("pi", rnn="rnn")
