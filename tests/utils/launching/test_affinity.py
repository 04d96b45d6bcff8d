"""Affinity codes, and the processors and GPUs that they give to each slot, on machines of several kinds."""

import inspect
import os
import subprocess
import sys
from dataclasses import asdict, fields
from itertools import chain

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from machines import NAMES, recorded

from rlpyt.utils.collections import AttrDict
from rlpyt.utils.launching import affinity as affinity_module
from rlpyt.utils.launching.affinity import (
    ABBREVS,
    affinity_from_code,
    auto_affinity,
    build_affinities_gpu_1cpu_drive,
    build_async_affinity,
    build_cpu_affinity,
    build_gpu_affinity,
    build_multigpu_affinity,
    decode_affinity,
    encode_affinity,
    get_hyperthread_offset,
    get_master_cpus,
    get_n_run_slots,
    get_n_socket,
    get_workers_cpus,
    launcher_environment,
    make_affinity,
    prepend_run_slot,
    quick_affinity_code,
    remove_run_slot,
)
from rlpyt.utils.launching.machine import Core, Machine
from rlpyt.utils.launching.resources import Resources, place
from rlpyt.utils.processors import check_affinity, split_async_affinity

unhurried = settings(
    deadline=None, max_examples=60, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)  # Machines may be busy.
SINGLE_KEYS = {
    "all_cpus", "master_cpus", "workers_cpus", "master_torch_threads", "worker_torch_threads", "alternating", "set_affinity"
}  # fmt: skip
OPTIMIZER_KEYS = {"cpus", "cuda_idx", "torch_threads", "set_affinity"}


# What there may be, and what may be asked for -------------------------------------------------------------------------
@st.composite
def resources(draw):
    """Any valid combination of settings."""
    async_sample = draw(st.booleans())
    n_gpu = draw(st.integers(0, 8))
    gpu_per_run = draw(st.integers(1, n_gpu)) if n_gpu else 1
    share = bool(n_gpu) and async_sample and draw(st.booleans())
    most = n_gpu if share else n_gpu - gpu_per_run
    sample_gpu_per_run = draw(st.integers(0, most)) if n_gpu and async_sample else 0
    shape = dict(
        n_gpu=n_gpu,
        gpu_per_run=gpu_per_run,
        contexts_per_gpu=draw(st.integers(1, 3)),
        cpu_per_worker=draw(st.integers(1, 3)),
        cpu_reserved=draw(st.integers(0, 2)),
        hyperthread_offset=draw(st.none() | st.just(0)),
        n_socket=draw(st.none() | st.integers(1, 3)),
        async_sample=async_sample,
        sample_gpu_per_run=sample_gpu_per_run,
        optim_sample_share_gpu=share,
        alternating=draw(st.booleans()),
        set_affinity=draw(st.booleans()),
    )
    # As few cores as are needed, by trying.
    for cores in range(1, 200):
        try:
            least = Resources(n_cpu_core=cores, cpu_per_run=cores, **shape)
        except ValueError:
            continue
        break
    if n_gpu:
        return Resources(n_cpu_core=cores + draw(st.integers(0, 9)), cpu_per_run=draw(st.integers(1, 4)), **shape)
    each = least.cpu_per_run + draw(st.integers(0, 3))
    return Resources(n_cpu_core=each * draw(st.integers(1, 4)) + draw(st.integers(0, each - 1)), cpu_per_run=each, **shape)


@st.composite
def machines(draw, n_cores, n_gpu):
    """A machine with at least so much: processors numbered in any way, some cores without their second hyperthread."""
    n_cores += draw(st.integers(0, 6))
    numbers = iter(draw(st.permutations(range(3, 3 + 2 * n_cores))))
    n_sockets = draw(st.integers(1, 3))
    hyperthreads = draw(st.sampled_from(["none", "all", "some"]))
    cores = []
    for _ in range(n_cores):
        n = {"none": 1, "all": 2, "some": draw(st.integers(1, 2))}[hyperthreads]
        cores.append(Core(tuple(sorted(next(numbers) for _ in range(n))), draw(st.integers(0, n_sockets - 1))))
    gpus = draw(st.lists(st.none() | st.integers(0, n_sockets - 1), min_size=n_gpu, max_size=n_gpu + 2))
    return Machine(tuple(sorted(cores, key=lambda core: (core.socket, core.cpus))), tuple(gpus))


@st.composite
def layouts(draw):
    asked = draw(resources())
    return asked, draw(machines(asked.n_cpu_core, asked.n_gpu))


def processes(affinity):
    """The affinities of all processes of a run that want processors of their own, each with its processors."""
    if isinstance(affinity, list):
        return [(each, each["master_cpus"]) for each in affinity]
    if "optimizer" not in affinity:
        return [(affinity, affinity["master_cpus"])]
    sampler = affinity["sampler"]
    samplers = sampler if isinstance(sampler, list) else [sampler]
    return [(each, each["cpus"]) for each in affinity["optimizer"]] + [(each, each["master_cpus"]) for each in samplers]


def cpus_of(affinity):
    return set(chain(*(cpus for _, cpus in processes(affinity))))


def gpus_of(affinity):
    return [each["cuda_idx"] for each, _ in processes(affinity) if each.get("cuda_idx") is not None]


def all_slots(asked, machine):
    return [asked.affinity(machine, slot) for slot in range(asked.n_run_slots)]


# Codes ----------------------------------------------------------------------------------------------------------------
@unhurried
@given(resources(), st.none() | st.integers(0, 100))
def test_a_code_is_decoded_to_what_was_encoded(asked, slot):
    if slot is not None:
        slot %= asked.n_run_slots
    code = encode_affinity(run_slot=slot, **asdict(asked))
    assert affinity_module._resources(code) == asked
    assert remove_run_slot(code) == (slot, encode_affinity(**asdict(asked)))
    assert get_n_run_slots(code) == asked.n_run_slots
    if slot is not None:
        assert prepend_run_slot(slot, remove_run_slot(code)[1]) == code == prepend_run_slot(slot, code)


@unhurried
@given(layouts())
def test_a_code_gives_what_its_arguments_give(layout):
    asked, machine = layout
    for slot in range(asked.n_run_slots):
        code = prepend_run_slot(slot, encode_affinity(**asdict(asked)))
        assert affinity_from_code(code, machine=machine) == make_affinity(slot, machine=machine, **asdict(asked))
        assert affinity_from_code(code, machine=machine) == asked.affinity(machine, slot)


def test_a_code_has_what_is_not_a_default():
    assert encode_affinity() == "1cpu"
    assert encode_affinity(n_cpu_core=40, n_gpu=8) == "40cpu_8gpu"
    code = encode_affinity(
        n_cpu_core=16,
        n_gpu=8,
        contexts_per_gpu=2,
        gpu_per_run=2,
        cpu_per_run=3,
        cpu_per_worker=1,
        cpu_reserved=1,
        hyperthread_offset=0,
        n_socket=2,
        run_slot=1,
        async_sample=True,
        sample_gpu_per_run=1,
        alternating=True,
        set_affinity=False,
        optim_sample_share_gpu=False,
    )
    assert code == "1slt_16cpu_8gpu_2cxg_2gpr_3cpr_1res_0hto_2skt_1ass_1sgr_1alt_0saf"
    assert decode_affinity(code) == dict(cpu=16, gpu=8, cxg=2, gpr=2, cpr=3, res=1, hto=0, skt=2, ass=1, sgr=1, alt=1, saf=0)


def test_tokens_may_be_in_any_order():
    assert get_n_run_slots("8gpu_2gpr_40cpu") == get_n_run_slots("40cpu_8gpu_2gpr") == 4
    assert decode_affinity("3slt_8gpu_40cpu") == dict(gpu=8, cpu=40)


def test_defaults_are_the_same_everywhere():
    defaults = {name: parameter.default for name, parameter in inspect.signature(encode_affinity).parameters.items()}
    assert defaults.pop("run_slot") is None
    assert defaults == {field.name: field.default for field in fields(Resources)}
    assert set(affinity_module._FIELDS.values()) == set(defaults) and all(len(letters) == 3 for letters in ABBREVS)
    assert {affinity_module.ASYNC_SAMPLE, affinity_module.RUN_SLOT, affinity_module.HYPERTHREAD_OFFSET} <= set(ABBREVS)


@pytest.mark.parametrize(
    "code, said",
    [
        ("", "must be a text"),
        (None, "must be a text"),
        ("cpu", "'cpu' must be a number and three letters"),
        ("-4cpu", "'-4cpu' must be a number"),
        ("4.5cpu", "'4.5cpu' must be a number"),
        ("4cpu_", "'' must be a number"),
        ("4cpu 2gpu", "must be a number"),
        ("٤cpu", "must be a number"),
        ("4cup", "unknown letters. Did you mean 'cpu'"),
        ("4zzz", "There are: cpu, gpu"),
        ("4cpu_4cpu", "'4cpu' comes after another"),
        ("4cpu_1slt", "'1slt' must be at the front"),
        ("0slt", "'0slt' has only a slot"),
        ("0cpu", "n_cpu_core=0 must be at least 1"),
        ("2cpu_3cpr", "cpu_per_run=3 is more than n_cpu_core=2"),
        ("4cpu_2saf", "set_affinity=2 must be True or False"),
        ("4cpu_2gpu_3gpr", "A run takes 3 GPUs"),
        ("4cpu_1sgr", "async_sample=True"),
        ("4cpu_2gpr", "n_gpu=0, but runs are to use GPUs"),
    ],
)
def test_a_malformed_code_is_refused_in_a_sentence(code, said):
    for function in (affinity_from_code, get_n_run_slots, lambda code: prepend_run_slot(0, code)):
        with pytest.raises(ValueError, match="affinity code") as raised:
            function(code)
        assert said in str(raised.value)


@pytest.mark.parametrize("slot", [4, -1, True, "0", None, 1.5])
def test_a_slot_that_is_not_there_is_refused(slot):
    with pytest.raises(ValueError, match="0 to 3"):
        prepend_run_slot(slot, "4cpu")


def test_a_slot_that_is_not_there_is_refused_where_it_is_used():
    with pytest.raises(ValueError, match="no run slot 4: the slots are 0 to 3"):
        affinity_from_code("4slt_4cpu", machine=Machine(tuple(Core((i,)) for i in range(8))))


def test_a_code_without_slot_is_that_of_slot_0():
    machine = Machine((Core((5,)), Core((6,))))
    assert remove_run_slot("2cpu") == (None, "2cpu")
    assert affinity_from_code("2cpu", machine=machine).all_cpus == (5,)


@pytest.mark.parametrize(
    "kwargs, error, said",
    [
        (dict(contexts_per_run=2), TypeError, "no argument 'contexts_per_run'. Did you mean 'contexts_per_gpu'"),
        (dict(n_cpu_core=2.5), TypeError, "n_cpu_core=2.5 must be a whole number."),
        (dict(n_cpu_core=True), TypeError, "n_cpu_core=True must be a whole number."),
        (dict(hyperthread_offset="1"), TypeError, "must be a whole number or None."),
        (dict(alternating="no"), ValueError, "alternating='no' must be True or False"),
        (dict(cpu_per_worker=0), ValueError, "cpu_per_worker=0 must be at least 1"),
        (dict(cpu_reserved=-1), ValueError, "cpu_reserved=-1 must be at least 0"),
        (dict(n_cpu_core=3, cpu_per_worker=2), ValueError, "needs 2 at least"),
        (dict(n_cpu_core=8, cpu_per_run=2, cpu_reserved=2), ValueError, "cpu_per_run=2 leaves 2 cores for a run, which needs 3 at least"),
        (dict(n_cpu_core=4, n_gpu=8), ValueError, "n_cpu_core=4 for 8 runs at a time leaves 0 cores for a run, which needs 1 at least"),
        (dict(n_cpu_core=4, async_sample=True), ValueError, "cpu_per_run=1 leaves 1 cores for a run, which needs 2 at least"),
        (dict(n_cpu_core=8, n_gpu=1, async_sample=True, sample_gpu_per_run=1), ValueError, "takes 2 GPUs"),
        (dict(n_cpu_core=8, optim_sample_share_gpu=True), ValueError, "add async_sample=True"),
        (dict(n_cpu_core=8, async_sample=True, sample_gpu_per_run=1), ValueError, "n_gpu=0"),
    ],
)
def test_settings_that_do_not_fit_are_refused_in_a_sentence(kwargs, error, said):
    with pytest.raises(error) as raised:
        make_affinity(**kwargs)
    assert said in str(raised.value)


# Slots ----------------------------------------------------------------------------------------------------------------
@unhurried
@given(resources())
def test_the_number_of_slots_is_right(asked):
    """Deal out what there is, run by run, until it is not enough."""
    n_slots = 0
    if asked.n_gpu:
        contexts = asked.n_gpu * asked.contexts_per_gpu
        each = asked.gpu_per_run + (0 if asked.optim_sample_share_gpu else asked.sample_gpu_per_run)
        while contexts >= each:
            contexts, n_slots = contexts - each, n_slots + 1
    else:
        cores = asked.n_cpu_core
        while cores >= asked.cpu_per_run:
            cores, n_slots = cores - asked.cpu_per_run, n_slots + 1
    assert get_n_run_slots(encode_affinity(**asdict(asked))) == asked.n_run_slots == n_slots


@unhurried
@given(layouts())
def test_slots_share_no_core_and_stay_within_what_is_allowed(layout):
    asked, machine = layout
    core_of = {cpu: core for core in machine.cores for cpu in core.cpus}
    used = [{core_of[cpu] for cpu in cpus_of(affinity)} for affinity in all_slots(asked, machine)]  # KeyError: not allowed.
    assert sum(map(len, used)) == len(set().union(*used))
    assert len({len(cores) for cores in used}) == 1  # All runs have the same number.


@unhurried
@given(layouts())
def test_processes_of_a_run_share_no_core(layout):
    asked, machine = layout
    core_of = {cpu: core for core in machine.cores for cpu in core.cpus}
    affinity = asked.affinity(machine, asked.n_run_slots - 1)
    used = [{core_of[cpu] for cpu in cpus} for _, cpus in processes(affinity)]
    assert sum(map(len, used)) == len(set().union(*used)) <= asked.cores_in_run


@unhurried
@given(layouts())
def test_gpus_are_shared_as_said_only(layout):
    asked, machine = layout
    runs = [gpus_of(affinity) for affinity in all_slots(asked, machine)]
    uses = [gpu for gpus in runs for gpu in set(gpus)]
    assert set(uses) <= set(range(asked.n_gpu))
    assert all(uses.count(gpu) <= asked.contexts_per_gpu for gpu in uses)
    for gpus in runs:
        twice = len(gpus) - len(set(gpus))
        assert twice == (asked.gpu_per_run if asked.optim_sample_share_gpu else 0)  # Sharing overrides sample_gpu_per_run.


@unhurried
@given(layouts())
def test_every_affinity_is_one_that_runners_take(layout):
    asked, machine = layout
    for affinity in all_slots(asked, machine):
        if asked.async_sample:
            optimizers, samplers = split_async_affinity(affinity)
            assert len(optimizers) == (asked.gpu_per_run if asked.n_gpu else 1)
            assert isinstance(affinity.sampler, list) == (asked.n_gpu > 0 and len(gpus_of(affinity)) > len(optimizers))
            assert all(each.keys() == OPTIMIZER_KEYS for each in affinity.optimizer)
            assert affinity.keys() == {"all_cpus", "optimizer", "sampler", "set_affinity"}
        else:
            samplers = affinity if isinstance(affinity, list) else [affinity]
            assert isinstance(affinity, list) == (asked.gpu_per_run > 1) and len(samplers) == asked.gpu_per_run
            for each in samplers:
                check_affinity(each)
        assert all(each.keys() - {"cuda_idx"} == SINGLE_KEYS for each in samplers)
        for each in affinity if isinstance(affinity, list) else [affinity]:  # In a list, each has those of its own GPU.
            assert set(each["all_cpus"]) == cpus_of(each)


@unhurried
@given(layouts())
def test_workers_have_their_number_of_cores(layout):
    asked, machine = layout
    core_of = {cpu: core for core in machine.cores for cpu in core.cpus}
    for affinity in all_slots(asked, machine):
        for each, cpus in processes(affinity):
            if "workers_cpus" not in each:
                continue
            workers = each["workers_cpus"]
            half = len(workers) // (2 if asked.alternating else 1)
            cores = [{core_of[cpu] for cpu in worker} for worker in workers]
            free = len({core_of[cpu] for cpu in cpus}) - (0 if asked.async_sample else asked.cpu_reserved)
            assert half == free // asked.cpu_per_worker >= 1
            assert all(len(own) == asked.cpu_per_worker for own in cores[:half])
            assert len(set().union(*cores[:half])) == half * asked.cpu_per_worker  # No two of a group share one.
            assert set(chain(*workers)) <= set(cpus)
            assert each["worker_torch_threads"] == asked.cpu_per_worker
            if asked.alternating:
                assert all(second <= first for first, second in zip(cores[:half], cores[half:]))
            if asked.hyperthread_offset == 0:
                assert all(len(set(worker)) == asked.cpu_per_worker for worker in workers)


@unhurried
@given(st.data())
def test_whoever_fits_into_one_socket_is_in_one(data):
    """In its home, if all that have the same home fit there."""
    sizes = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
    n_sockets = data.draw(st.integers(1, 3))
    homes = [data.draw(st.integers(0, n_sockets - 1)) for _ in sizes]
    sockets = [[Core((10 * socket + i,), socket) for i in range(data.draw(st.integers(0, 8)))] for socket in range(n_sockets)]
    assume(sum(sizes) <= sum(map(len, sockets)))
    placed = place(sizes, homes, sockets)
    assert [len(cores) for cores in placed] == sizes
    assert len(set(chain(*placed))) == sum(sizes) and set(chain(*placed)) <= set(chain(*sockets))
    for socket in range(n_sockets):
        if sum(size for size, home in zip(sizes, homes) if home == socket) <= len(sockets[socket]):
            for cores, home in zip(placed, homes):
                assert home != socket or {core.socket for core in cores} == {socket}


@unhurried
@given(resources(), st.integers(1, 3))
def test_without_binding_there_may_be_fewer_processors_than_asked_for(asked, n):
    asked = Resources(**{**asdict(asked), "set_affinity": False})
    machine = Machine(tuple(Core((i, i + 50)) for i in range(n)), (None,) * asked.n_gpu)
    enough = Machine(tuple(Core((i, i + 500)) for i in range(asked.n_cpu_core)), (None,) * asked.n_gpu)
    for slot in range(asked.n_run_slots):
        few, many = asked.affinity(machine, slot), asked.affinity(enough, slot)
        assert cpus_of(few) <= set(machine.cpus)
        for (a, _), (b, _) in zip(processes(few), processes(many)):
            assert a["set_affinity"] is False and len(a.get("workers_cpus", ())) == len(b.get("workers_cpus", ()))


@unhurried
@given(layouts(), st.integers(1, 5))
def test_asking_for_more_than_there_is_is_one_clear_error(layout, n):
    asked, machine = layout
    settings = {**asdict(asked), "set_affinity": True}
    n_cores = len(machine.cpus if asked.hyperthread_offset == 0 else machine.cores)
    more = Resources(**{**settings, "n_cpu_core": n_cores + n})
    with pytest.raises(ValueError, match=f"asks for n_cpu_core={n_cores + n} .* this process may use {len(machine.cores)} core"):
        more.affinity(machine, 0)
    more = Resources(**{**settings, "n_gpu": machine.n_gpu + n, "n_cpu_core": 999})
    with pytest.raises(ValueError, match=f"asks for n_gpu={machine.n_gpu + n}, but {machine.n_gpu} are visible"):
        more.affinity(machine, 0)


# Machines -------------------------------------------------------------------------------------------------------------
def test_one_gpu_per_run_on_a_server(tmp_path):
    machine = recorded("eight_gpus", tmp_path)
    slots = [make_affinity(slot, n_cpu_core=40, n_gpu=8, machine=machine) for slot in range(8)]
    assert slots[3] == dict(
        all_cpus=(15, 16, 17, 18, 19, 55, 56, 57, 58, 59),
        master_cpus=(15, 16, 17, 18, 19, 55, 56, 57, 58, 59),
        workers_cpus=((15, 55), (16, 56), (17, 57), (18, 58), (19, 59)),
        master_torch_threads=5,
        worker_torch_threads=1,
        alternating=False,
        set_affinity=True,
        cuda_idx=3,
    )
    assert isinstance(slots[3], AttrDict) and slots[3].cuda_idx == 3
    for slot in slots:
        assert {cpu % 40 // 20 for cpu in slot.all_cpus} == {machine.gpu_sockets[slot.cuda_idx]}


def test_two_gpus_per_run_on_a_server(tmp_path):
    machine = recorded("eight_gpus", tmp_path)
    first, second = make_affinity(2, n_cpu_core=40, n_gpu=8, gpu_per_run=2, cpu_reserved=1, alternating=True, machine=machine)
    assert (first.cuda_idx, second.cuda_idx) == (4, 5)
    assert first.master_cpus == (20, 21, 22, 23, 24, 60, 61, 62, 63, 64) and first.master_torch_threads == 5
    assert first.workers_cpus == ((21,), (22,), (23,), (24,), (61,), (62,), (63,), (64,)) and first.alternating
    assert (first.all_cpus, second.all_cpus) == (first.master_cpus, second.master_cpus)
    assert second.master_cpus == (25, 26, 27, 28, 29, 65, 66, 67, 68, 69)


def test_one_run_on_all_gpus_has_each_process_next_to_its_own(tmp_path):
    machine = recorded("eight_gpus", tmp_path)
    ranks = make_affinity(n_cpu_core=40, n_gpu=8, gpu_per_run=8, machine=machine)
    assert [{cpu % 40 // 20 for cpu in rank.master_cpus} for rank in ranks] == 4 * [{0}] + 4 * [{1}]


def test_asynchronous_run_with_gpus_for_sampling(tmp_path):
    machine = recorded("eight_gpus", tmp_path)
    kwargs = dict(n_cpu_core=40, n_gpu=8, async_sample=True, gpu_per_run=2, sample_gpu_per_run=2, cpu_per_worker=2, machine=machine)
    affinity = make_affinity(1, **kwargs)
    assert [dict(each) for each in affinity.optimizer] == [
        dict(cpus=(20, 60), cuda_idx=4, torch_threads=1, set_affinity=True),
        dict(cpus=(21, 61), cuda_idx=5, torch_threads=1, set_affinity=True),
    ]
    assert [each.cuda_idx for each in affinity.sampler] == [6, 7]
    assert affinity.sampler[0].workers_cpus[0] == (22, 23, 62, 63) and len(affinity.sampler[0].workers_cpus) == 4
    shared = make_affinity(3, **{**kwargs, "optim_sample_share_gpu": True})
    assert [each.cuda_idx for each in shared.optimizer] == [each.cuda_idx for each in shared.sampler] == [6, 7]
    assert make_affinity(3, **{**kwargs, "sample_gpu_per_run": 0, "optim_sample_share_gpu": True}) == shared


def test_asynchronous_run_that_samples_without_gpu(tmp_path):
    affinity = make_affinity(n_cpu_core=8, n_gpu=1, async_sample=True, cpu_reserved=2, machine=recorded("desktop", tmp_path))
    assert affinity.optimizer[0] == dict(cpus=(0, 2, 1, 3), cuda_idx=0, torch_threads=2, set_affinity=True)
    assert affinity.sampler.cuda_idx is None and affinity.sampler.workers_cpus[0] == (4, 5) and len(affinity.sampler.workers_cpus) == 6


def test_asynchronous_run_without_any_gpu(tmp_path):
    affinity = make_affinity(1, n_cpu_core=8, cpu_per_run=4, async_sample=True, machine=recorded("desktop", tmp_path))
    assert affinity.optimizer[0].cpus == (8, 9) and affinity.optimizer[0].cuda_idx is None
    assert affinity.sampler.workers_cpus == ((10, 11), (12, 13), (14, 15))


def test_runs_that_share_gpus_are_spread_over_them(tmp_path):
    machine = recorded("eight_gpus", tmp_path)
    slots = [make_affinity(slot, n_cpu_core=32, n_gpu=8, contexts_per_gpu=2, machine=machine) for slot in range(16)]
    assert [slot.cuda_idx for slot in slots] == [*range(8), *range(8)]
    assert all({cpu % 40 // 20 for cpu in slot.all_cpus} == {machine.gpu_sockets[slot.cuda_idx]} for slot in slots)


def test_runs_without_gpu_are_spread_over_sockets(tmp_path):
    machine = recorded("eight_gpus", tmp_path)
    slots = [make_affinity(slot, n_cpu_core=36, cpu_per_run=12, machine=machine) for slot in range(3)]
    assert [slot.workers_cpus[0][0] for slot in slots] == [0, 12, 20]  # The second one straddles: nowhere is room for it.
    slots = [make_affinity(slot, n_cpu_core=20, cpu_per_run=10, machine=machine) for slot in range(2)]
    assert [slot.workers_cpus[0][0] for slot in slots] == [0, 20]
    assert make_affinity(1, n_cpu_core=20, cpu_per_run=10, n_socket=1, machine=machine).workers_cpus[0][0] == 10


def test_a_cpuset_that_does_not_start_at_0(tmp_path):
    machine = recorded("cpuset", tmp_path)
    affinity = make_affinity(n_cpu_core=6, n_gpu=1, machine=machine)
    assert affinity.workers_cpus == ((8, 24), (9, 25), (10, 26), (11, 27), (12,), (13,)) and affinity.cuda_idx == 0
    alternating = make_affinity(n_cpu_core=6, cpu_per_run=6, alternating=True, machine=machine)
    assert alternating.workers_cpus == ((8,), (9,), (10,), (11,), (12,), (13,), (24,), (25,), (26,), (27,), (12,), (13,))
    with pytest.raises(ValueError, match=r"n_cpu_core=7 physical cores, but this process may use 6 cores \(CPUs 8-13,24-27, hyper"):
        make_affinity(n_cpu_core=7, machine=machine)
    with pytest.raises(ValueError, match="n_gpu=2, but 1 are visible"):
        make_affinity(n_cpu_core=4, n_gpu=2, machine=machine)


def test_one_core(tmp_path):
    machine = recorded("one_core", tmp_path)
    assert quick_affinity_code(machine=machine) == "1cpu"
    assert make_affinity(machine=machine).workers_cpus == ((0,),)
    assert make_affinity(machine=machine, alternating=True).workers_cpus == ((0,), (0,))
    with pytest.raises(ValueError, match="set_affinity=False"):
        make_affinity(n_cpu_core=2, machine=machine)
    assert make_affinity(n_cpu_core=3, cpu_per_run=3, set_affinity=False, machine=machine).workers_cpus == ((0,), (0,), (0,))
    split_async_affinity(auto_affinity(async_sample=True, machine=machine))


def test_a_quota_counts_as_cores_that_there_are_not(tmp_path):
    machine = recorded("container", tmp_path)
    assert len(make_affinity(n_cpu_core=4, cpu_per_run=4, machine=machine).workers_cpus) == 4
    with pytest.raises(ValueError, match=r"processor time for 4.5 CPUs \(cgroup quota\)"):
        make_affinity(n_cpu_core=5, machine=machine)
    assert make_affinity(n_cpu_core=5, cpu_per_run=5, set_affinity=False, machine=machine).all_cpus[:5] == (0, 1, 2, 3, 4)


def test_hyperthreads_may_be_left_out_or_taken_for_cores(tmp_path):
    machine = recorded("desktop", tmp_path)
    kwargs = dict(hyperthread_offset=0, machine=machine)
    assert make_affinity(n_cpu_core=8, cpu_per_run=8, **kwargs).all_cpus == tuple(range(0, 16, 2))
    slots = [make_affinity(slot, n_cpu_core=16, cpu_per_run=8, **kwargs).all_cpus for slot in range(2)]
    assert slots == [tuple(range(0, 16, 2)), tuple(range(1, 16, 2))]
    with pytest.raises(ValueError, match="n_cpu_core=17"):
        make_affinity(n_cpu_core=17, **kwargs)


def test_a_hyperthread_offset_is_believed_where_the_system_tells_nothing(tmp_path):
    silent = Machine(tuple(Core((i,)) for i in range(8)))
    assert make_affinity(n_cpu_core=4, cpu_per_run=2, hyperthread_offset=4, machine=silent).workers_cpus == ((0, 4), (1, 5))
    with pytest.raises(ValueError, match="hyperthread_offset=8 asks for hyperthreads, but"):
        make_affinity(n_cpu_core=4, hyperthread_offset=8, machine=silent)
    assert make_affinity(n_cpu_core=4, hyperthread_offset=8, set_affinity=False, machine=silent).all_cpus == (0,)
    told = make_affinity(n_cpu_core=8, cpu_per_run=2, hyperthread_offset=8, machine=recorded("desktop", tmp_path))
    assert told.workers_cpus == ((0, 1), (2, 3))  # The system knows better.


def test_sockets_may_be_said_where_the_system_tells_nothing():
    silent = Machine(tuple(Core((i,)) for i in range(8)), (None, None))
    assert make_affinity(1, n_cpu_core=4, n_gpu=2, machine=silent).all_cpus == (2, 3)
    assert make_affinity(1, n_cpu_core=4, n_gpu=2, n_socket=2, machine=silent).all_cpus == (4, 5)


# What suits a machine -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "name, kwargs, code",
    [
        ("eight_gpus", {}, "40cpu_8gpu"),
        ("eight_gpus", dict(n_parallel=4), "40cpu_4gpu"),
        ("eight_gpus", dict(n_parallel=16, contexts_per_gpu=3), "40cpu_8gpu_2cxg"),
        ("eight_gpus", dict(n_parallel=11, contexts_per_gpu=3), "40cpu_5gpu_2cxg"),
        ("eight_gpus", dict(contexts_per_gpu=8), "64cpu_8gpu_8cxg_0saf"),
        ("eight_gpus", dict(use_gpu=False), "40cpu"),
        ("eight_gpus", dict(use_gpu=False, n_parallel=3), "39cpu_13cpr"),
        ("desktop", {}, "8cpu_1gpu"),
        ("cpuset", dict(n_parallel=2, contexts_per_gpu=2), "6cpu_1gpu_2cxg"),
        ("one_core", {}, "1cpu"),
        ("one_core", dict(n_parallel=3), "3cpu_0saf"),
        ("container", {}, "4cpu_0saf"),
        ("container", dict(n_parallel=2, contexts_per_gpu=3), "4cpu_2cpr_0saf"),
    ],
)
def test_a_quick_code_uses_the_whole_machine(name, kwargs, code, tmp_path):
    machine = recorded(name, tmp_path)
    assert quick_affinity_code(**kwargs, machine=machine) == code
    for slot in range(get_n_run_slots(code)):
        affinity_from_code(prepend_run_slot(slot, code), machine=machine)


@pytest.mark.parametrize("kwargs", [dict(n_parallel=9), dict(n_parallel=0), dict(contexts_per_gpu=0)])
def test_a_quick_code_for_more_runs_than_there_is_room_for_is_refused(kwargs, tmp_path):
    with pytest.raises(ValueError, match="contexts_per_gpu|at least 1"):
        quick_affinity_code(**kwargs, machine=recorded("eight_gpus", tmp_path))


@pytest.mark.parametrize("kwargs", [dict(n_parallel="2"), dict(contexts_per_gpu=None), dict(n_parallel=1.5)])
def test_a_quick_code_takes_whole_numbers(kwargs):
    with pytest.raises(TypeError, match="must be a whole number"):
        quick_affinity_code(**kwargs)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("use_gpu", [True, False])
@pytest.mark.parametrize("set_affinity", [True, False])
def test_an_automatic_affinity_fits_every_machine(name, use_gpu, set_affinity, tmp_path):
    machine = recorded(name, tmp_path)
    gpus = machine.n_gpu if use_gpu else 0
    single = auto_affinity(use_gpu=use_gpu, set_affinity=set_affinity, machine=machine)
    check_affinity(single)
    assert len(single.workers_cpus) == machine.n_cores and single.get("cuda_idx") == (0 if gpus else None)
    assert ("master_torch_threads" in single) == machine.is_limited
    ranks = auto_affinity(use_gpu=use_gpu, n_process=0, set_affinity=set_affinity, machine=machine)
    assert [rank.get("cuda_idx") for rank in ranks] == (list(range(gpus)) or [None])
    if name == "one_core" and set_affinity:
        return  # One process optimizes, one samples.
    optimizers, samplers = split_async_affinity(
        auto_affinity(use_gpu=use_gpu, async_sample=True, set_affinity=set_affinity, machine=machine)
    )
    assert [each["master_cpus"] is not None for each in optimizers] == [True] and len(samplers) == 1
    assert (optimizers[0]["cuda_idx"], samplers[0].get("cuda_idx")) == ((0, min(gpus - 1, 1)) if gpus else (None, None))
    for affinity in (single, *ranks, *samplers):
        assert affinity["set_affinity"] is set_affinity


def test_the_number_of_workers_may_be_said_or_limited(tmp_path):
    machine = recorded("desktop", tmp_path)
    assert len(auto_affinity(3, machine=machine).workers_cpus) == 3
    assert len(auto_affinity(20, machine=machine).workers_cpus) == 20  # Not bound.
    assert len(auto_affinity(max_parallel=5, machine=machine).workers_cpus) == 5
    assert len(auto_affinity(max_parallel=50, machine=machine).workers_cpus) == 8
    assert [len(each.workers_cpus) for each in auto_affinity(n_process=2, use_gpu=False, machine=machine)] == [4, 4]
    with pytest.raises(ValueError, match="n_gpu=2, but 1"):
        auto_affinity(n_process=2, machine=machine)


# Old names ------------------------------------------------------------------------------------------------------------
def test_parts_have_their_old_names(tmp_path, monkeypatch):
    machine = recorded("eight_gpus", tmp_path)
    monkeypatch.setattr(affinity_module, "read_machine", lambda **kwargs: machine)
    assert build_cpu_affinity(1, cpu=8, cpr=4).all_cpus == (4, 5, 6, 7, 44, 45, 46, 47)
    assert build_gpu_affinity(7, gpu=8, cpu=40, skt=2) == make_affinity(7, n_gpu=8, n_cpu_core=40, machine=machine)
    assert build_multigpu_affinity(3, gpu=8, cpu=40, gpr=2) == make_affinity(3, n_gpu=8, n_cpu_core=40, gpu_per_run=2, machine=machine)
    assert len(build_multigpu_affinity(3, gpu=8, cpu=40)) == 1
    assert build_async_affinity(0, gpu=8, cpu=40, sgr=1).sampler[0].cuda_idx == 1
    assert len(build_async_affinity(0, gpu=0, cpu=4).sampler.workers_cpus) == 3
    assert [len(each.workers_cpus) for each in build_affinities_gpu_1cpu_drive(0, gpu=8, cpu=40, gpr=2)] == [4, 4]
    assert (get_n_socket(), get_hyperthread_offset()) == (2, 40)
    with pytest.raises(ValueError, match="without GPU"):
        build_cpu_affinity(0, cpu=8, cpr=4, gpu=1)


def test_processors_of_cores_with_a_hyperthread_offset():
    assert get_master_cpus([2, 3], 8) == (2, 3, 10, 11) and get_master_cpus([2, 3], 0) == (2, 3)
    assert get_workers_cpus([2, 3, 4, 5], 2, 8, False) == ((2, 3, 10, 11), (4, 5, 12, 13))
    assert get_workers_cpus([2, 3], 1, 8, True) == ((2,), (3,), (10,), (11,))
    assert get_workers_cpus([2, 3], 1, None, True) == ((2,), (3,), (2,), (3,))


# This machine ---------------------------------------------------------------------------------------------------------
@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system does not bind processes")
@pytest.mark.timeout(60)
def test_slots_are_within_the_processors_this_process_is_bound_to():
    last = max(os.sched_getaffinity(0))
    code = (
        f"import os; os.sched_setaffinity(0, [{last}])\n"
        "from rlpyt.utils.launching.affinity import affinity_from_code, quick_affinity_code\n"
        f"assert affinity_from_code(quick_affinity_code(use_gpu=False)).workers_cpus == (({last},),)\n"
        "try: affinity_from_code('2cpu')\n"
        f"except ValueError as error: assert 'CPU {last})' in str(error)\n"
        "else: raise AssertionError\n"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system does not bind processes")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("told", [True, False])
def test_a_run_that_is_bound_to_its_slot_is_told_out_of_which_processors_the_slots_are(told):
    n = len(os.sched_getaffinity(0))
    if n < 2:
        pytest.skip("one processor has no slot besides the first")
    code = prepend_run_slot(1, encode_affinity(n_cpu_core=2, hyperthread_offset=0))
    mine = affinity_from_code(code)
    run = (
        f"import os; os.sched_setaffinity(0, {mine.all_cpus})\n"
        "from rlpyt.utils.launching.affinity import affinity_from_code\n"
        f"print(dict(affinity_from_code('{code}')))\n"
    )
    env = {**os.environ, **(launcher_environment() if told else {})}
    ended = subprocess.run([sys.executable, "-c", run], env=env, capture_output=True, text=True)
    if told:
        assert ended.stdout.strip() == str(dict(mine))
    else:
        assert "asks for n_cpu_core=2 physical cores, but this process may use 1 core" in ended.stderr


def test_a_launcher_with_other_processors_is_not_the_one_of_this_run(monkeypatch):
    machine_cpus = []
    monkeypatch.setattr(affinity_module, "allowed_cpus", lambda: [4, 5])
    monkeypatch.setattr(affinity_module, "read_machine", lambda cpus, n_gpu: machine_cpus.append(cpus) or Machine((Core((4,)), Core((5,)))))
    for told in ("0-7", "0-3", "5-7", ""):
        monkeypatch.setenv("RLPYT_LAUNCHER_CPUS", told)
        affinity_from_code("1slt_2cpu")
    affinity_from_code("2cpu")  # Of no launcher.
    assert machine_cpus == [list(range(8)), None, None, None, None]
