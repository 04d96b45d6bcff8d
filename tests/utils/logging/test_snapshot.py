import io
from collections import OrderedDict, defaultdict, namedtuple

import numpy as np
import pytest
import torch
from tiers import gpu

from rlpyt.utils.logging.snapshot import loadable, serialize


def reload(params):
    return torch.load(io.BytesIO(serialize(params)), weights_only=True)


def test_what_runners_save_comes_back():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.randn(5, 3)).sum().backward()
    optimizer.step()
    params = dict(itr=3, cum_steps=2**40, agent_state_dict=model.state_dict(), optimizer_state_dict=optimizer.state_dict())
    loaded = reload(params)
    assert loaded["itr"] == 3 and loaded["cum_steps"] == 2**40
    assert loaded["agent_state_dict"]._metadata == model.state_dict()._metadata
    model.load_state_dict(loaded["agent_state_dict"])
    optimizer.load_state_dict(loaded["optimizer_state_dict"])
    for name, tensor in params["agent_state_dict"].items():
        assert torch.equal(loaded["agent_state_dict"][name], tensor)


def test_numpy_becomes_torch_and_python():
    loaded = reload(
        {
            "float": np.float32(0.5),
            "int": np.int64(3),
            "bool": np.bool_(True),
            "str": np.str_("a"),
            "zero_d": np.array(2),
            "array": np.arange(3, dtype=np.uint32),
            "swapped": np.arange(3, dtype=">i8"),
            np.int64(7): [np.float64(1)],
        }
    )
    assert type(loaded["float"]) is float and type(loaded["int"]) is int and loaded["bool"] is True
    assert type(loaded["str"]) is str and loaded["zero_d"].item() == 2
    assert loaded["array"].dtype == torch.uint32 and loaded["array"].tolist() == loaded["swapped"].tolist() == [0, 1, 2]
    assert loaded[7] == [1.0]


def test_the_states_of_all_generators_fit_in():
    kind, keys, position, has_gauss, cached = np.random.get_state()
    state = dict(mt=dict(keys=keys, position=position), pcg=np.random.default_rng(2**70).bit_generator.state, torch=torch.get_rng_state())
    loaded = reload(state)
    assert np.array_equal(loaded["mt"]["keys"].numpy(), keys) and loaded["pcg"] == state["pcg"]
    assert torch.equal(loaded["torch"], state["torch"])


def test_containers_and_scalars_keep_their_types():
    value = {
        "a": [1, (2.5, "x", None)],
        "b": {1, 2},
        "c": OrderedDict(z=1),
        "d": b"\xff",
        "e": torch.float32,
        (1, "k"): 1j,
        "f": torch.device("cpu"),
        "g": torch.Size([2, 3]),
        "h": float("inf"),
    }
    assert reload(value) == value and type(reload(value)["c"]) is OrderedDict


def test_subclasses_of_dict_become_dicts():
    loaded = reload(defaultdict(int, a=1))
    assert type(loaded) is dict and loaded == {"a": 1}


def test_a_view_of_a_large_memory_takes_only_its_part_along():
    large = torch.zeros(10**6)
    assert len(serialize({"a": large[5:10]})) < 10**4
    assert torch.equal(reload({"a": large[5:10]})["a"], large[5:10])


def test_tensors_that_share_memory_still_do():
    weight = torch.ones(3)
    loaded = reload({"a": weight, "b": weight})
    loaded["a"][0] = 5
    assert loaded["b"][0] == 5


Point = namedtuple("Point", "x")


@pytest.mark.parametrize(
    "value, name",
    [
        ({"a": {"b": [0, object()]}}, r"params\['a'\]\['b'\]\[1\] is a builtins.object"),
        ({"f": len}, r"params\['f'\] is a builtins.builtin_function_or_method"),
        ({"p": Point(1)}, r"params\['p'\] is a .*Point"),
        ({"s": np.array(["text"])}, r"params\['s'\] is a numpy.ndarray of dtype <U4"),
        ({"o": np.array([object()])}, r"params\['o'\] is a numpy.ndarray of dtype object"),
        ({"l": np.longdouble(1)}, r"params\['l'\] is a numpy.longdouble"),
        ({frozenset(): 1}, r"as a key frozenset\(\)"),
        ({"m": torch.nn.Linear(1, 1)}, r"params\['m'\] is a torch.nn.modules.linear.Linear"),
    ],
)
def test_what_would_run_code_is_refused_by_its_place(value, name):
    with pytest.raises(TypeError, match=name + ".*loading it would run code"):
        loadable(value)


def test_no_bytes_are_refused_because_torch_cannot_read_them():
    with pytest.raises(TypeError, match=r"params\['a'\]\[1\] is b''.*store None"):
        loadable({"a": [b"x", b""]})
    assert reload({"a": b"x"}) == {"a": b"x"}


@gpu
def test_tensors_on_a_gpu_are_saved_for_machines_without_one():
    loaded = loadable({"a": torch.ones(3, device="cuda")})
    assert loaded["a"].device.type == "cpu"
