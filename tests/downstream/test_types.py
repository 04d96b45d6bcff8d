"""Types that programs written for the original rlpyt make out of ours."""

import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch

from rlpyt.algos.dqn.dqn import SamplesToBuffer
from rlpyt.algos.dqn.r2d1 import SamplesToBufferRnn
from rlpyt.replays.non_sequence.n_step import SamplesFromReplay
from rlpyt.replays.non_sequence.prioritized import SamplesFromReplayPri
from rlpyt.replays.non_sequence.time_limit import SamplesFromReplayTL
from rlpyt.samplers.collections import AgentSamplesBsv, EnvSamples, Samples
from rlpyt.utils.buffer import buffer_from_example
from rlpyt.utils.collections import NamedArrayTupleSchema, namedarraytuple

# The fields that each type has in the original.
KNOWN = {
    SamplesToBuffer: ["observation", "action", "reward", "done"],
    SamplesToBufferRnn: ["observation", "action", "reward", "done", "prev_rnn_state"],
    SamplesFromReplay: ["agent_inputs", "action", "return_", "done", "done_n", "target_inputs"],
    SamplesFromReplayPri: ["agent_inputs", "action", "return_", "done", "done_n", "target_inputs", "is_weights"],
    SamplesFromReplayTL: ["agent_inputs", "action", "return_", "done", "done_n", "target_inputs", "timeout", "timeout_n"],
    EnvSamples: ["observation", "reward", "prev_reward", "done", "env_info"],
    AgentSamplesBsv: ["action", "prev_action", "agent_info", "bootstrap_value"],
    Samples: ["agent", "env"],
}
every_type = pytest.mark.parametrize("cls", KNOWN, ids=lambda cls: cls.__name__)


@every_type
def test_a_type_that_extends_ours_needs_values_only_for_the_fields_its_author_knows(cls):
    Mine = namedarraytuple("Mine", cls._fields + ("mine", "too"))
    known = [*KNOWN[cls], "mine", "too"]
    values = dict(zip(known, range(len(known))))
    by_name, by_position = Mine(**values), Mine(*values.values())
    in_both_ways = Mine(*list(values.values())[:-1], too=values["too"])
    assert by_name == by_position == in_both_ways
    assert {name: value for name, value in by_name.items() if value is not None} == values
    assert Mine._fields == (*cls._fields, "mine", "too")


@every_type
def test_a_value_that_the_author_forgot_is_named(cls):
    Mine = namedarraytuple("Mine", cls._fields + ("mine",))
    values = dict.fromkeys([*KNOWN[cls], "mine"], 0)
    for name in values:
        with pytest.raises(TypeError, match=f"Mine is missing a value for '{name}'"):
            Mine(**{other: value for other, value in values.items() if other != name})


@every_type
def test_a_type_that_extends_ours_may_be_filled_from_one_of_ours(cls):
    Mine = namedarraytuple("Mine", cls._fields + ("mine",))
    ours = cls(*range(len(cls._fields)))
    assert Mine(*ours, "x") == Mine(*ours, mine="x") == Mine(**ours._asdict(), mine="x") == (*ours, "x")


def test_a_type_may_be_extended_again_and_in_front():
    More = namedarraytuple("More", namedarraytuple("Mine", SamplesToBuffer._fields + ("mine",))._fields + ("more",))
    assert More(1, 2, 3, 4, 5, 6) == More(observation=1, action=2, reward=3, done=4, mine=5, more=6)
    Before = namedarraytuple("Before", ("before",) + SamplesToBuffer._fields)
    assert Before(0, 1, 2, 3, 4).done == 4 and Before(0, 1, 2, 3, 4).timeout is None
    Both = namedarraytuple("Both", SamplesToBuffer._fields + namedarraytuple("X", "a b", defaults=(7,))._fields)
    assert (Both(1, 2, 3, 4, 5).a, Both(1, 2, 3, 4, 5).b) == (5, 7)


def test_a_default_given_by_the_author_counts():
    Mine = namedarraytuple("Mine", SamplesToBuffer._fields + ("mine", "too"), defaults=(0,))
    assert Mine(1, 2, 3, 4, 5).mine == 5 and Mine(1, 2, 3, 4, 5).too == 0 and Mine(1, 2, 3, 4, 5).timeout is None


def test_both_classes_of_a_type_that_extends_ours_know_the_defaults():
    nat, nt = namedarraytuple("Mine", SamplesToBuffer._fields + ("mine",), return_namedtuple_cls=True)
    assert nat(1, 2, 3, 4, mine=5) == nt(1, 2, 3, 4, 5) and nt(1, 2, 3, 4, 5).mine == 5
    schema = NamedArrayTupleSchema("Mine", SamplesToBuffer._fields + ("mine",))
    assert schema(1, 2, 3, 4, 5) == schema(1, 2, 3, done=4, mine=5) == nat(1, 2, 3, 4, 5)
    again = NamedArrayTupleSchema("Again", schema(1, 2, 3, 4, 5)._fields + ("again",))
    assert again(1, 2, 3, 4, 5, 6).again == 6


def test_fields_that_were_not_given_stay_none_in_memory_that_is_allocated_for_an_example():
    Mine = namedarraytuple("Mine", SamplesToBuffer._fields + ("value",))
    example = Mine(observation=np.zeros(3), action=np.int64(0), reward=np.float32(0), done=np.bool_(False), value=np.float32(0))
    memory = buffer_from_example(example, (4, 2))
    memory[1] = Mine(observation=np.ones((2, 3)), action=1, reward=2, done=True, value=torch.full((2,), 5.0))
    assert memory.timeout is None and memory[1].value.tolist() == [5, 5] and memory.value.shape == (4, 2)


def test_a_type_that_extends_ours_pickles_with_its_defaults():
    local = namedarraytuple("Local", SamplesToBuffer._fields + ("mine",))
    copy = pickle.loads(pickle.dumps(local(1, 2, 3, 4, mine=5)))
    assert copy == local(1, 2, 3, 4, mine=5) and type(copy)(1, 2, 3, 4, 5).mine == 5
    assert pickle.loads(pickle.dumps(local._fields)).defaults == local._fields.defaults != {}
    schema = NamedArrayTupleSchema("Local", SamplesToBuffer._fields + ("mine",))
    assert pickle.loads(pickle.dumps(schema))(1, 2, 3, 4, 5) == local(1, 2, 3, 4, 5)


@pytest.mark.processes
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_type_of_a_script_that_extends_ours_reaches_processes(method, tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import multiprocessing\n"
        "from rlpyt.samplers.collections import EnvSamples\n"
        "from rlpyt.utils.collections import namedarraytuple\n"
        "Mine = namedarraytuple('Mine', EnvSamples._fields + ('cost',))\n"
        "def child(x, y):\n    print(x.cost, type(x) is Mine, y.price, type(y)(1, 2, 3, 4, 5, 6).price, flush=True)\n"
        "if __name__ == '__main__':\n"
        "    Local = namedarraytuple('Local', EnvSamples._fields + ('price',))\n"
        "    values = Mine(1, 2, 3, 4, 5, cost=6), Local(1, 2, 3, 4, 5, 7)\n"
        f"    p = multiprocessing.get_context('{method}').Process(target=child, args=values)\n"
        "    p.start(); p.join(); assert p.exitcode == 0\n"
    )
    out = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert out.returncode == 0, out.stderr
    assert out.stdout.split() == ["6", "True", "7", "6"]


def test_names_of_fields_are_a_plain_tuple_in_every_other_way():
    fields = SamplesToBuffer._fields
    assert fields == ("observation", "action", "reward", "done", "timeout", "final_observation", "valid", "observation_after")
    assert isinstance(fields, tuple) and hash(fields) == hash(tuple(fields)) and repr(fields) == repr(tuple(fields))
    assert type(fields[:4]) is tuple and fields.index("done") == 3 and "done" in fields
    with pytest.raises(TypeError):
        fields + ["mine"]
    with pytest.raises(TypeError):
        ["mine"] + fields
