import pytest
import torch
import torch.distributed
from ranks import run_ranks
from tiers import processes

from rlpyt.models.running_mean_std import RunningMeanStdModel


def test_batches_of_any_size_give_the_statistics_of_all_data():
    torch.manual_seed(0)
    data = 1000 + 3 * torch.randn(500, 2, 3, dtype=torch.float64)
    rms = RunningMeanStdModel((2, 3))
    start = 0
    for size in (1, 2, 40, 57, 400):
        rms.update(data[start : start + size])
        start += size
    assert rms.count == 500
    torch.testing.assert_close(rms.exact_mean, data.mean(0))
    torch.testing.assert_close(rms.exact_var, data.var(0, correction=0))
    assert rms.mean.dtype == rms.var.dtype == torch.float32
    torch.testing.assert_close(rms.var, data.var(0, correction=0).float())


def test_any_leading_dims_are_data():
    data = torch.randn(4, 5, 3)
    many, flat = RunningMeanStdModel((3,)), RunningMeanStdModel((3,))
    many.update(data)
    flat.update(data.view(20, 3))
    assert many.count == 20 and torch.equal(many.mean, flat.mean)


def test_nothing_seen_yet_normalizes_nothing():
    x = torch.randn(5, 3)
    assert torch.equal(RunningMeanStdModel((3,)).normalize(x), x)


def test_an_empty_batch_changes_nothing():
    x, rms = torch.randn(5, 3), RunningMeanStdModel((3,))
    rms.update(x[:0])
    assert torch.equal(rms.normalize(x), x)
    rms.update(x)
    before = {name: each.clone() for name, each in rms.state_dict().items()}
    rms.update(x[:0])
    torch.testing.assert_close(dict(rms.state_dict()), before, rtol=0, atol=0)


def test_a_large_count_still_grows():
    rms = RunningMeanStdModel((1,))
    rms.count.fill_(2**25)
    rms.update(torch.zeros(1, 1))
    assert rms.count == 2**25 + 1


def test_variance_has_a_floor_and_results_a_limit():
    rms = RunningMeanStdModel((1,))
    rms.update(torch.full((10, 1), 2.0))
    x = rms.normalize(torch.tensor([[2.0], [2.001], [3.0]]), clip=5, var_clip=1e-4)
    torch.testing.assert_close(x, torch.tensor([[0.0], [0.1], [5.0]]), rtol=1e-3, atol=1e-3)


def _update(rank, results):
    rms = RunningMeanStdModel((2,))
    generator = torch.Generator().manual_seed(0)
    for _ in range(3):
        a, b = torch.randn(5, 2, generator=generator), 10 + torch.randn(7, 2, generator=generator)
        rms.update(a if rank == 0 else b)
    results[rank] = torch.stack([rms.exact_mean, rms.exact_var])


@processes
@pytest.mark.skipif(not torch.distributed.is_available(), reason="needs torch.distributed")
def test_all_ranks_get_the_statistics_of_all_data():
    results = torch.zeros(2, 2, 2, dtype=torch.float64).share_memory_()
    run_ranks(_update, results)
    generator = torch.Generator().manual_seed(0)
    data = [torch.cat([torch.randn(5, 2, generator=generator), 10 + torch.randn(7, 2, generator=generator)]) for _ in range(3)]
    data = torch.cat(data).double()
    for rank in range(2):
        torch.testing.assert_close(results[rank, 0], data.mean(0))
        torch.testing.assert_close(results[rank, 1], data.var(0, correction=0))
