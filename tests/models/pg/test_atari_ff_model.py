import torch

from rlpyt.models.pg.atari_ff_model import AtariFfModel


def test_the_default_network_is_the_documented_one():
    model = AtariFfModel(image_shape=(4, 104, 80), output_size=6)
    shapes = [tuple(p.shape) for p in model.parameters()]
    assert shapes == [
        (16, 4, 8, 8), (16,),
        (32, 16, 4, 4), (32,),
        (512, 32 * 12 * 9), (512,),  # 104x80 -> 25x19 without padding -> 12x9 with a padding of 1.
        (6, 512), (6,),
        (1, 512), (1,),
    ]  # fmt: skip


def test_settings_reach_the_convolutions():
    model = AtariFfModel((3, 20, 20), 2, fc_sizes=7, channels=[5], kernel_sizes=[3], strides=[2], paddings=[1], use_maxpool=True)
    shapes = [tuple(p.shape) for p in model.parameters()]
    assert shapes == [(5, 3, 3, 3), (5,), (7, 5 * 10 * 10), (7,), (2, 7), (2,), (1, 7), (1,)]
    assert model.conv.conv.conv[0].stride == (1, 1)


def test_probabilities_and_values_keep_leading_dims():
    model = AtariFfModel((4, 36, 36), 3)
    image = torch.randint(256, (2, 5, 4, 36, 36), dtype=torch.uint8)
    prob, value = model(image, None, None)
    assert prob.shape == (2, 5, 3) and value.shape == (2, 5)
    torch.testing.assert_close(prob.sum(-1), torch.ones(2, 5))
    one_prob, one_value = model(image[1, 2], None, None)
    torch.testing.assert_close(one_prob, prob[1, 2], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(one_value, value[1, 2], rtol=1e-4, atol=1e-5)


def test_an_orthogonal_start_is_one():
    model = AtariFfModel((4, 36, 36), 3, orthogonal_init=True)
    convolution, hidden, policy = model.conv.conv.conv[0].weight.flatten(1), model.conv.head.model[0].weight, model.pi.weight
    for weight, gain in ((convolution, 2**0.5), (hidden, 2**0.5), (policy, 0.01), (model.value.weight, 1)):
        rows = weight if len(weight) <= weight.shape[1] else weight.T
        torch.testing.assert_close(rows @ rows.T, gain**2 * torch.eye(len(rows)), rtol=1e-4, atol=1e-5)
    assert not any(p.any() for name, p in model.named_parameters() if name.endswith("bias"))
    prob, _ = model(torch.randint(256, (5, 4, 36, 36), dtype=torch.uint8), None, None)
    assert prob.max() < 0.36, "a policy that prefers nothing yet"
