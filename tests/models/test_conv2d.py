import pytest
import torch

from rlpyt.models.conv2d import Conv2dHeadModel, Conv2dModel
from rlpyt.models.dqn.atari_dqn_model import AtariDqnModel
from rlpyt.models.pg.atari_ff_model import AtariFfModel

LAYERS = dict(channels=[6, 8], kernel_sizes=[8, 4], strides=[4, 2], paddings=[0, 1])


def random_images(*lead, shape=(4, 52, 40)):
    return torch.randint(0, 256, (*lead, *shape), dtype=torch.uint8)


@pytest.mark.parametrize("B", [1, 7])
@pytest.mark.parametrize("with_grad", [True, False])
def test_bytes_give_the_same_as_a_plain_float_computation(B, with_grad):
    torch.manual_seed(0)
    model, images = Conv2dModel(4, **LAYERS), random_images(B)
    plain = torch.nn.Sequential(torch.nn.Conv2d(4, 6, 8, 4), torch.nn.ReLU(), torch.nn.Conv2d(6, 8, 4, 2, 1), torch.nn.ReLU())
    plain.load_state_dict(model.conv.state_dict())
    expected = plain(images.float() / 255)
    with torch.set_grad_enabled(with_grad):
        out = model(images)
    torch.testing.assert_close(out, expected)
    if with_grad:
        weight = torch.randn_like(out)
        (out * weight).sum().backward()
        (expected * weight).sum().backward()
        for ours, theirs in zip(model.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-4)


def test_bytes_are_left_alone():
    images = random_images(2)
    before = images.clone()
    Conv2dModel(4, **LAYERS)(images)
    assert torch.equal(images, before)


@pytest.mark.parametrize("use_maxpool", [True, False])
def test_output_size_is_known_before_the_forward_pass(use_maxpool):
    model = Conv2dModel(4, **LAYERS, use_maxpool=use_maxpool)
    assert model.conv_out_size(52, 40) == model(random_images(1)).numel()


def test_maxpool_convolves_with_stride_1():
    model = Conv2dModel(4, [6], [3], [2], use_maxpool=True)
    assert model.conv[0].stride == (1, 1) and model.conv[2].stride == 2


def test_layers_need_all_their_settings():
    with pytest.raises(ValueError, match="one entry per layer"):
        Conv2dModel(4, [6, 8], [8, 4], [4])


@pytest.mark.parametrize("hidden_sizes, output_size, width", [([16], None, 16), (16, 3, 3), (None, 3, 3), (None, None, 6 * 12 * 9)])
def test_head_has_the_size_it_says(hidden_sizes, output_size, width):
    model = Conv2dHeadModel((4, 52, 40), [6], [8], [4], hidden_sizes, output_size)
    assert model.output_size == width and model(random_images(2)).shape == (2, width)


@pytest.mark.parametrize("lead", [(), (3,), (2, 3)])
def test_atari_models_keep_leading_dims(lead):
    images = random_images(*lead)
    pi, value = AtariFfModel((4, 52, 40), 5)(images, None, None)
    assert pi.shape == (*lead, 5) and value.shape == lead
    torch.testing.assert_close(pi.sum(-1), torch.ones(lead))
    for dueling in (False, True):
        assert AtariDqnModel((4, 52, 40), 5, dueling=dueling)(images, None, None).shape == (*lead, 5)


def test_time_and_batch_are_computed_independently():
    images = random_images(2, 3)
    model = AtariDqnModel((4, 52, 40), 5)
    q = model(images, None, None)
    for t in range(2):
        for b in range(3):
            torch.testing.assert_close(q[t, b], model(images[t, b], None, None))


@pytest.mark.parametrize("shape", [(3, 10, 10), (1, 2, 2), (3, 100, 10)])
def test_images_that_are_too_small_are_refused_when_the_model_is_made(shape):
    with pytest.raises(ValueError, match=f"{shape[1]} x {shape[2]} pixels are too small"):
        AtariFfModel(shape, 5)


def test_default_networks_are_the_documented_ones():
    ff, dqn = AtariFfModel((4, 104, 80), 6), AtariDqnModel((4, 104, 80), 6)
    assert [tuple(p.shape) for p in ff.conv.conv.parameters() if p.dim() == 4] == [(16, 4, 8, 8), (32, 16, 4, 4)]
    assert ff.conv.output_size == 512
    assert [tuple(p.shape) for p in dqn.conv.parameters() if p.dim() == 4] == [(32, 4, 8, 8), (64, 32, 4, 4), (64, 64, 3, 3)]
    assert [layer.padding for layer in dqn.conv.conv if isinstance(layer, torch.nn.Conv2d)] == [(0, 0), (1, 1), (1, 1)]
