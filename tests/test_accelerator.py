"""On an accelerator, a pretended one, everything trains as on the CPU, and launches, copies and waits keep to their budgets."""

import json
import math
import statistics
from pathlib import Path

import preloaded
import pytest
import torch
from tiers import full, gpu, processes, thinned

pytestmark = processes

SCRIPT = Path(__file__).with_name("accelerator_run.py")
FEED_FORWARD = ("cartpole:a2c", "cartpole:ppo", "cartpole:dqn", "cartpole:catdqn", "pendulum:ddpg", "pendulum:td3", "pendulum:sac")
RECURRENT = ("cartpole_without_velocities:ppo_lstm", "cartpole_without_velocities:r2d1")
EACH_KIND = ("cartpole:ppo", "pendulum:sac", RECURRENT[1])  # Minibatches, replay, and a recurrent agent.
SAMPLERS = ("serial", "cpu", "gpu", "alternating")
QUICK = {("cartpole:ppo", "gpu"), ("pendulum:sac", "serial"), (RECURRENT[1], "gpu")}
IMAGES = [
    ("atari_dqn:ernbw", "gpu"),
    ("atari_dqn:double_pri_duel", "alternating"),
    ("atari_ff_ppo:0", "cpu"),
    ("atari_r2d1:r2d1_test", "gpu"),
]


SHORT = dict(runner=dict(n_steps=200, log_interval_steps=100))  # Rows of the log and updates of both networks, but no more.
_done = {}  # What runs have written, since several tests look at the same run.


def run(tmp_path, config, sampler, device, **description):
    """Do a run in a process of its own, or take one that has been done; return what `accelerator_run.py` writes."""
    size = SHORT if "pendulum" in config else {}
    description = json.dumps({**dict(config=config, sampler=sampler, device=device), **size, **description})
    if description not in _done:
        out = tmp_path / f"{device}.pt"
        done = preloaded.run(SCRIPT, out, description, cwd=tmp_path)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        _done[description] = torch.load(out)
    return _done[description]


def assert_same(run, reference):
    """That two runs have made as many updates, and have learned the same but for rounding."""
    assert run["updates"] == reference["updates"] > 0
    torch.testing.assert_close(run["parameters"], reference["parameters"], rtol=1e-4, atol=1e-5)


# Every configuration with two samplers at least, and one of each kind of algorithm with all.
TRAINED = {config: SAMPLERS for config in ("cartpole:ppo", "cartpole:dqn", "pendulum:sac", *RECURRENT)}
TRAINED |= {"cartpole:a2c": ("serial", "gpu"), "cartpole:catdqn": ("serial", "alternating")}
TRAINED |= {"pendulum:ddpg": ("serial", "cpu"), "pendulum:td3": ("serial", "gpu")}


@pytest.mark.parametrize("config,sampler", thinned([(config, name) for config, names in TRAINED.items() for name in names], quick=QUICK))
def test_training_gives_the_numbers_of_the_cpu(tmp_path, config, sampler):
    assert_same(run(tmp_path, config, sampler, 0), run(tmp_path, config, sampler, None))


@full
@pytest.mark.parametrize("config,sampler", [*IMAGES, ("atari_lstm_a2c:0", "alternating"), ("mujoco_sac_v:sac_serial_bstl", "serial")])
def test_training_on_images_and_with_other_algorithms_gives_the_numbers_of_the_cpu(tmp_path, config, sampler):
    pytest.importorskip("mujoco" if config.startswith("mujoco") else "ale_py")
    # Adam divides gradients by their size. With its own eps of 1e-8, it makes steps of the mere rounding of gradients that are about zero.
    description = dict(algo=dict(optim_kwargs=dict(eps=1e-3))) if config == "atari_ff_ppo:0" else {}
    assert_same(run(tmp_path, config, sampler, 0, **description), run(tmp_path, config, sampler, None, **description))


@gpu
@pytest.mark.parametrize(
    "config,sampler,graphs",
    [
        *[(config, "cpu", False) for config in ("cartpole:a2c", "cartpole:ppo", "cartpole:dqn", "cartpole:catdqn", "pendulum:ddpg")],
        *[(config, "serial", True) for config in ("cartpole:a2c", "cartpole:dqn", "cartpole:catdqn")],
    ],
)
def test_training_on_a_gpu_gives_the_numbers_of_the_cpu(tmp_path, config, sampler, graphs):
    """Where no random number is drawn on the device."""
    assert_same(run(tmp_path, config, sampler, 0, real=True, graphs=graphs), run(tmp_path, config, sampler, None))


@full
def test_an_agent_there_that_acts_for_those_who_are_ready_gives_the_numbers_of_the_cpu(tmp_path):
    lockstep = run(tmp_path, RECURRENT[1], "gpu", None)  # With 0.99, too, all must be ready: the order of what happens is known.
    assert_same(run(tmp_path, RECURRENT[1], "gpu", 0, serve_fraction=0.99), lockstep)


@pytest.mark.parametrize(
    "config,sampler",
    [
        ("cartpole:ppo", "serial"),
        *[pytest.param(*case, marks=full) for case in [("pendulum:sac", "serial"), ("pendulum:tqc", "serial"), ("cartpole:dqn", "cpu")]],
    ],
)
def test_ranks_that_train_together_give_the_numbers_of_the_cpu(tmp_path, config, sampler):
    description = dict(ranks=2, runner=dict(n_steps=400))
    assert_same(run(tmp_path, config, sampler, 0, **description), run(tmp_path, config, sampler, None, **description))


@pytest.mark.parametrize(
    "config,sampler",
    [
        ("cartpole:dqn", "async_gpu"),
        *[pytest.param(*case, marks=full) for case in [("pendulum:sac", "async_serial"), (RECURRENT[1], "async_cpu")]],
        pytest.param("pendulum:td3", "async_alternating", marks=full),
    ],
)
def test_an_optimizer_trains_there_while_others_sample(tmp_path, config, sampler):
    trained = run(tmp_path, config, sampler, 0, runner=dict(n_steps=2000))  # What is sampled depends on time: no numbers to compare.
    assert trained["updates"] > 0
    assert all(parameter.isfinite().all() for parameter in trained["parameters"].values())


# ---------------------------------------------------------------------------------------------------------------------
# Budgets
# ---------------------------------------------------------------------------------------------------------------------
def total(counts, what, name):
    """What was counted as `name` in each call of `what`."""
    return [sum(each[name].values()) for each in counts if each["what"] == what]


# The most in an update, and in the mean: every other update of TD3 includes the policy.
LAUNCHES = {"cartpole:ppo": (83, 83), "cartpole:dqn": (45, 45), "pendulum:sac": (107, 107), "pendulum:td3": (88, 69)}
BY_OPTIONS = [f"cartpole:{key}" for key in ("iqn", "m_dqn", "rainbow", "sac")]
BY_OPTIONS += [f"pendulum:{key}" for key in ("redq", "droq", "tqc", "crossq")]


@pytest.mark.parametrize("config", thinned([*LAUNCHES, *BY_OPTIONS], quick=["cartpole:ppo", "pendulum:sac"]))
def test_updates_from_replay_and_of_minibatches_keep_to_their_budgets(tmp_path, config):
    counts = run(tmp_path, config, "serial", 0)["counts"]
    most, mean = LAUNCHES.get(config, (math.inf, math.inf))
    launches = total(counts, "update", "launches")
    launches = launches[len(launches) // 2 :]  # In the first ones optimizers allocate their states.
    assert max(launches) <= most and statistics.mean(launches) <= mean
    for name in ("waits", "synchronized", "to_device", "from_device"):
        assert set(total(counts, "update", name)[1:]) == {0}, name


@pytest.mark.parametrize("config", thinned([config for config in (*FEED_FORWARD, *RECURRENT) if config != "cartpole:a2c"], quick=EACH_KIND))
def test_an_iteration_copies_each_batch_at_once_and_reads_diagnostics_once(tmp_path, config):
    counts = run(tmp_path, config, "serial", 0)["counts"]
    is_ppo, has_priorities = ":ppo" in config, config.endswith("r2d1")
    n_all, n_waited = 0, 0  # Updates, and waits until a piece of memory for batches is free again.
    n_updates, is_first = 0, True  # In the first iteration constants are copied, too.
    for each in counts:
        n_waited += sum(each["synchronized"].values()) if each["what"] == "optimize_agent" else 0
        if each["what"] == "update":
            n_updates, n_all = n_updates + 1, n_all + 1
        elif each["what"] == "optimize_agent" and n_updates and is_first:
            n_updates, is_first = 0, False
        elif each["what"] == "optimize_agent" and n_updates:
            made = {name: sum(each[name].values()) for name in ("to_device", "from_device", "waits")}
            assert made["to_device"] == (1 if is_ppo else n_updates)
            if not is_ppo:  # Batches are copied from where they are put together. Copies of other memory wait until it is free again.
                assert {line.split(":")[0] for line in each["synchronized"]} <= {"algos/replay.py"}
            assert made["from_device"] == n_updates * has_priorities
            assert made["waits"] == 1 + n_updates * has_priorities
            n_updates = 0
    assert not is_first and (is_ppo or n_waited == n_all - 2)


@pytest.mark.parametrize("config", thinned(["cartpole:ppo", "cartpole:dqn", "pendulum:sac", *RECURRENT], quick=EACH_KIND[::2]))
def test_an_action_server_copies_once_each_way_in_each_step(tmp_path, config):
    result = run(tmp_path, config, "gpu", 0)
    n_values = "ppo" in config  # After the last step, its value to bootstrap from.
    for name in ("to_device", "from_device"):
        made = total(result["counts"], "obtain_samples", name)
        assert len(made) > 1
        constants = "r2d1" in config and name == "to_device"  # An epsilon for each environment, once per batch.
        assert set(made[1:]) == {result["batch_T"] + n_values + constants}


# ---------------------------------------------------------------------------------------------------------------------
# Graphs
# ---------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("config", thinned([*FEED_FORWARD, *RECURRENT, *BY_OPTIONS[:-1]], quick=["cartpole:ppo", "pendulum:sac"]))
def test_updates_as_graphs_give_the_same_numbers_and_wait_for_nothing(tmp_path, config):
    # PPO makes few updates; where many follow each other, differences of rounding grow. Evaluation is not what this is about.
    n_steps = 1024 if ":ppo" in config or ":a2c" in config else 320 if config.startswith("cartpole") else 200
    description = dict(runner=dict(n_steps=n_steps, log_interval_steps=n_steps))
    graphed = run(tmp_path, config, "serial", 0, graphs=True, **description)
    assert_same(graphed, run(tmp_path, config, "serial", None, **description))
    counts = [each for each in graphed["counts"] if each["what"] == "update"]
    repeated = [each for each in counts if each["graphs"]]
    assert len(repeated) > len(counts) / 2
    for name in ("waits", "synchronized", "to_device", "from_device"):
        assert not any(each[name] for each in repeated), name
    of_copies = sorted(sum(each["launches"].values()) for each in repeated)[:-2]  # But for two branches, perhaps, that are recorded.
    assert max(of_copies) <= 20


@full
def test_a_graph_with_batch_renormalization_gives_the_same_numbers(tmp_path):
    # The gradient of a bias before a normalization is rounding alone. With a larger eps, Adam does not make whole steps of it.
    optim_kwargs = dict(betas=(0.5, 0.999), eps=1e-4)
    description = dict(runner=dict(n_steps=256, log_interval_steps=256), algo=dict(min_steps_learn=241, optim_kwargs=optim_kwargs))
    graphed, plain = (run(tmp_path, BY_OPTIONS[-1], "serial", 0, graphs=graphs, **description) for graphs in (True, False))
    assert graphed["updates"] == plain["updates"] == 15
    assert sum(bool(each["graphs"]) for each in graphed["counts"] if each["what"] == "update") > 5
    for name, value in plain["parameters"].items():
        torch.testing.assert_close(graphed["parameters"][name], value, rtol=1e-3, atol=1e-4, msg=lambda text, name=name: f"{name}: {text}")
