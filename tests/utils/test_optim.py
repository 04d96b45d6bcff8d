import pytest
import torch

from rlpyt.utils.optim import _Default, make_optimizer


def test_a_class_takes_the_keyword_arguments():
    module = torch.nn.Linear(2, 3)
    optimizer = make_optimizer(torch.optim.Adam, module=module, lr=0.5, eps=_Default(0.25))
    assert type(optimizer) is torch.optim.Adam and optimizer.defaults["lr"] == 0.5 and optimizer.defaults["eps"] == 0.25
    assert optimizer.param_groups[0]["params"] == list(module.parameters())


def test_a_tuple_brings_its_own_arguments():
    optimizer = make_optimizer((torch.optim.SGD, dict(lr=0.5)), module=torch.nn.Linear(2, 3), lr=_Default(0.1))
    assert type(optimizer) is torch.optim.SGD and optimizer.defaults["lr"] == 0.5
    with pytest.raises(ValueError, match="Put momentum into the dictionary of optimizer_type"):
        make_optimizer((torch.optim.SGD, dict(lr=0.5)), module=torch.nn.Linear(2, 3), lr=_Default(0.1), momentum=0.9)


def test_without_a_module_the_class_is_called_without_parameters():
    assert make_optimizer(dict, lr=1) == make_optimizer((dict, dict(lr=1))) == dict(lr=1)


@pytest.mark.parametrize("wrong", [(torch.optim.Adam,), (torch.optim.Adam, 3), "Adam"])
def test_anything_else_is_refused(wrong):
    with pytest.raises(TypeError, match="must be a class, or a tuple"):
        make_optimizer(wrong, module=torch.nn.Linear(2, 3))
