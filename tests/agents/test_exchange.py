"""Parameters in shared memory: whole, of one version, and nobody waits."""

import multiprocessing as mp
import os
import signal
import time

import pytest
import torch
from tiers import processes, start_methods

from rlpyt.agents.exchange import ParameterExchange

pytestmark = pytest.mark.timeout(120)


def parameters(value, n=3):
    return [
        torch.full((n, 5), float(value)),
        torch.full((), int(value)),
        torch.full((n * 1000,), float(value)),
        torch.full((7,), float(value), dtype=torch.float64),
        torch.full((3,), float(value), dtype=torch.bfloat16),
    ]


def test_what_is_sent_is_received_in_shapes_and_dtypes():
    exchange = ParameterExchange(parameters(1))
    mine = parameters(0)
    assert exchange.version == 0 and exchange.receive(mine) == 0
    for version, value in enumerate((2, 3, 5, 7), start=1):
        assert exchange.send(parameters(value)) == exchange.version == version
        assert exchange.receive(mine) == version
        for tensor, expected in zip(mine, parameters(value), strict=True):
            assert torch.equal(tensor, expected)


def test_parameters_that_are_trained_can_be_received_and_sent():
    model = torch.nn.Linear(3, 2)
    exchange = ParameterExchange(list(model.parameters()))
    mine = torch.nn.Linear(3, 2)
    exchange.receive(list(mine.parameters()))
    assert torch.equal(model.weight, mine.weight) and torch.equal(model.bias, mine.bias)
    assert mine.weight.requires_grad and mine.weight.grad_fn is None


def send_for_ever(exchange, pipe):
    torch.set_num_threads(1)
    pipe.send("ready")
    version = 0
    while True:
        version += 1
        exchange.send(parameters(version, n=300))


@pytest.mark.parametrize("start_method", start_methods("fork", "spawn"))
def test_versions_are_never_mixed(start_method):
    ctx = mp.get_context(start_method)
    exchange = ParameterExchange(parameters(0, n=300))
    pipe, theirs = ctx.Pipe()
    sender = ctx.Process(target=send_for_ever, args=(exchange, theirs), daemon=True)
    sender.start()
    assert pipe.poll(60)
    mine, seen = parameters(0, n=300), set()
    try:
        for _ in range(300):
            version = exchange.receive(mine)
            seen.add(version)
            for tensor in mine:
                assert (tensor == version).all()
    finally:
        sender.kill()
        sender.join()
    assert len(seen) > 5


@processes
def test_a_sender_killed_at_any_moment_leaves_whole_parameters():
    for delay in range(10):
        ctx = mp.get_context("fork")
        exchange = ParameterExchange(parameters(0, n=300))
        pipe, theirs = ctx.Pipe()
        sender = ctx.Process(target=send_for_ever, args=(exchange, theirs), daemon=True)
        sender.start()
        assert pipe.poll(60)
        time.sleep(0.003 * delay)
        os.kill(sender.pid, signal.SIGKILL)
        sender.join()
        mine = parameters(-1, n=300)
        version = exchange.receive(mine)
        assert all((tensor == version).all() for tensor in mine)
        assert exchange.send(parameters(version + 1, n=300)) == version + 1
        assert exchange.receive(mine) == version + 1 and all((tensor == version + 1).all() for tensor in mine)
