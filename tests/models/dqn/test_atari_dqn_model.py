import pytest

from rlpyt.models.dqn.atari_dqn_model import AtariDqnModel

CONVOLUTIONS = [(32, 4, 8, 8), (32,), (64, 32, 4, 4), (64,), (64, 64, 3, 3), (64,)]
FEATURES = 64 * 12 * 9  # 104x80 -> 25x19 without padding -> 12x9 and 12x9 with a padding of 1.


@pytest.mark.parametrize("dueling", [False, True])
def test_the_default_network_is_the_documented_one(dueling):
    model = AtariDqnModel(image_shape=(4, 104, 80), output_size=6, dueling=dueling)
    hidden = [(512, FEATURES), (512,)]
    head = [*hidden, (6, 512), (6,)]
    dueling_head = [(1,), *hidden, (6, 512), *hidden, (1, 512), (1,)]
    assert sorted(tuple(p.shape) for p in model.parameters()) == sorted(CONVOLUTIONS + (dueling_head if dueling else head))


def test_settings_reach_the_convolutions():
    model = AtariDqnModel((3, 20, 20), 2, fc_sizes=7, channels=[5], kernel_sizes=[3], strides=[2], paddings=[1], use_maxpool=True)
    assert [tuple(p.shape) for p in model.parameters()] == [(5, 3, 3, 3), (5,), (7, 5 * 10 * 10), (7,), (2, 7), (2,)]
    assert model.conv.conv[0].stride == (1, 1)
