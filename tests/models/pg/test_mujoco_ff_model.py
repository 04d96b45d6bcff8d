import pytest
import torch

from rlpyt.models.pg.mujoco_ff_model import MujocoFfModel


def output(model, observation):
    mu, log_std, value = model(observation, None, None)
    return torch.cat([mu, value[..., None]], -1)


@pytest.mark.parametrize("clip", [0.5, 2, 10])
def test_normalized_observations_are_limited_to_norm_obs_clip(clip):
    model = MujocoFfModel((1,), 2, normalize_observation=True, norm_obs_clip=clip)
    plain = MujocoFfModel((1,), 2)
    plain.load_state_dict({name: value for name, value in model.state_dict().items() if "rms" not in name})
    model.update_obs_rms(torch.tensor([[1.0], [3.0]]))  # Mean 2, variance 1.
    for x in (-100.0, 2 - 2 * clip, 2 - 0.9 * clip, 2.1, 2 + 0.9 * clip, 2 + 2 * clip, 100.0):
        expected = output(plain, torch.tensor([min(max(x - 2, -clip), clip)]))
        torch.testing.assert_close(output(model, torch.tensor([x])), expected)


def test_the_default_limit_of_normalized_observations_is_10():
    assert MujocoFfModel((1,), 1, normalize_observation=True).norm_obs_clip == 10


def test_observations_that_do_not_vary_are_divided_by_the_least_variance():
    model = MujocoFfModel((1,), 1, normalize_observation=True, norm_obs_var_clip=0.25)
    model.update_obs_rms(torch.full((4, 1), 3.0))
    normalized = model.obs_rms.normalize(torch.tensor([4.0]), model.norm_obs_clip, model.norm_obs_var_clip)
    assert normalized.item() == pytest.approx(2)
    plain = MujocoFfModel((1,), 1)
    plain.load_state_dict({name: value for name, value in model.state_dict().items() if "rms" not in name})
    torch.testing.assert_close(output(model, torch.tensor([4.0])), output(plain, torch.tensor([2.0])))
