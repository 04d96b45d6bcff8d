"""rlpyt verify and rlpyt bisect."""

import csv
import json
import shutil
from pathlib import Path

import pytest
from tiers import full, processes, thinned

from rlpyt.experiments.verify import facts_of
from rlpyt.runners import digests, minibatch_rl
from rlpyt.utils.digests import FILE, line_of, read_rows, together

DIGEST = "runner.digest=True"
SHORT = (DIGEST, "algo.linear_lr_schedule=False", "runner.n_steps=128", "runner.log_interval_steps=64")
ALL_KINDS = "(samples, parameters, optimizer, random)"
ONE_THREAD = "affinity.master_torch_threads=1"


@pytest.fixture
def run_dir(trained, tmp_path):
    """A run with digests, to write to: rows after 0, 128 and 256 environment steps."""
    return Path(shutil.copytree(trained("cartpole", "ppo", DIGEST), tmp_path / "run_0"))


def change(run_dir, row, **changes):
    """Change a row of digests, and its columns in the log."""
    rows = read_rows(run_dir / FILE)
    rows[row - 1] = rows[row - 1]._replace(**changes)
    (run_dir / FILE).write_bytes(b"".join(map(line_of, rows)))
    for kind, parts in rows[row - 1].digests.items():
        in_log(run_dir, row, f"Diagnostics/Digest{kind}", together({name: int(number, 16) for name, number in parts.items()}))


def in_log(run_dir, row, column, value):
    """Change a value in the log."""
    with open(run_dir / "progress.csv", newline="") as file:
        header, *lines = csv.reader(file)
    lines[row - 1][header.index(column)] = value
    with open(run_dir / "progress.csv", "w", newline="") as file:
        csv.writer(file).writerows([header, *lines])


def without(run_dir, row, *kinds):
    """Remove kinds of digests."""
    change(run_dir, row, digests={kind: found for kind, found in read_rows(run_dir / FILE)[row - 1].digests.items() if kind not in kinds})


def with_other_bit(run_dir, row, kind, name):
    """Change a digest."""
    found = json.loads(json.dumps(read_rows(run_dir / FILE)[row - 1].digests))
    found[kind][name] = f"{int(found[kind][name], 16) ^ 1:016x}"
    change(run_dir, row, digests=found)


# --- Verify -----------------------------------------------------------------------------------------------------------
def test_a_run_verifies_and_stays_as_it_is(run_dir, rlpyt):
    before = {path: path.read_bytes() for path in run_dir.iterdir()}
    code, out, _ = rlpyt("verify", run_dir)
    assert code == 0 and f"Verified: 3 rows of {run_dir}, up to 256 environment steps, bit for bit" in out
    assert ALL_KINDS in out and "Not compared" not in out
    assert {path: path.read_bytes() for path in run_dir.iterdir()} == before


def test_only_the_first_rows_are_computed_if_that_is_asked_for(run_dir, rlpyt):
    with_other_bit(run_dir, 3, "Parameters", "pi.model.0.bias")
    code, out, _ = rlpyt("verify", run_dir, "--rows", "2")
    assert code == 0 and "Verified: 2 rows" in out and "up to 128 environment steps" in out


def test_what_differs_is_named_and_what_is_different_here(run_dir, rlpyt):
    with_other_bit(run_dir, 2, "Parameters", "pi.model.2.weight")
    change(run_dir, 2, on=dict(read_rows(run_dir / FILE)[1].on, torch="0.1", processor="an abacus"))
    code, out, _ = rlpyt("verify", run_dir, "--rows", "all")
    assert code == 1
    assert "First row that differs: row 2 (iteration 0, 128 environment steps); 1 row before it is the same." in out
    assert "First tensor in it: parameters, pi.model.2.weight." in out
    assert "  samples: the same" in out and "  parameters: 1 of 12 differ: pi.model.2.weight" in out
    assert "  torch: 0.1 then, " in out and "  processor: an abacus then, " in out and "numpy" not in out


def test_a_run_that_verifies_under_other_conditions_names_them(run_dir, trained, rlpyt):
    change(run_dir, 2, on=dict(read_rows(run_dir / FILE)[1].on, torch="0.1"))
    code, out, _ = rlpyt("verify", run_dir)
    assert code == 0 and "Verified: 3 rows" in out and "Different:\n  torch: 0.1 then, " in out and "numpy" not in out
    code, out, _ = rlpyt("bisect", trained("cartpole", "ppo", DIGEST), run_dir)
    assert code == 0 and "The same: 3 rows" in out and "in the first, 0.1 in the second" in out


def test_kinds_that_the_run_lacks_in_some_rows_are_not_called_verified(run_dir, rlpyt):
    without(run_dir, 2, "Samples")
    code, out, _ = rlpyt("verify", run_dir)
    assert code == 0 and "bit for bit (parameters, optimizer, random)." in out
    assert "Not compared: samples in 1 of 3 rows, of which not both have their digests." in out


def test_if_nothing_is_different_here_it_says_so(run_dir, rlpyt):
    with_other_bit(run_dir, 1, "Random", "torch")
    code, out, _ = rlpyt("verify", run_dir)
    assert code == 1 and "First tensor in it: random, torch." in out and "no row before it" in out
    assert "versions, processor, threads, workers and choices are the same" in out


def test_choices_are_those_of_the_run_and_nothing_is_measured(run_dir, rlpyt, monkeypatch):
    params = json.loads((run_dir / "params.json").read_text())
    params["rlpyt"]["choices"] = {"linear 3 4 5": "native"}
    (run_dir / "params.json").write_text(json.dumps(params))
    monkeypatch.setattr(minibatch_rl.choices, "is_calibrated", lambda: True)
    monkeypatch.setattr(minibatch_rl, "calibrate", lambda *args, **kwargs: pytest.fail("It measures."))
    adopted = []
    adopt = minibatch_rl.choices.adopt
    monkeypatch.setattr(minibatch_rl.choices, "adopt", lambda answers: adopted.append(dict(answers)) or adopt(answers))
    assert rlpyt("verify", run_dir, "--rows", "2")[0] == 0
    assert {"linear 3 4 5": "native"} in adopted


@pytest.mark.parametrize(
    "args, message",
    [
        (["run_0", "--rows", "4"], "has 3 rows with digests, so the first 4 cannot be compared"),
        (["run_0", "--rows", "0"], "must be an integer of at least 1"),
        (["run_1"], "There is no directory"),
        (["plain"], "give the directory of a run that was trained with --digest"),
        (["empty"], "the run has ended before its first one"),
        (["damaged"], "digests.jsonl is damaged: line 1"),
        (["unknown"], "does not say how the run was made"),
        (["strange"], "params.json is damaged: its seed is"),
        (["epochs"], "was trained by a Trainer"),
    ],
)
def test_what_cannot_be_verified_is_refused(run_dir, trained, tmp_path, rlpyt, args, message):
    shutil.copytree(trained("cartpole", "ppo"), tmp_path / "plain")
    for name, contents in dict(empty="", damaged="{}\n").items():
        shutil.copytree(run_dir, tmp_path / name)
        (tmp_path / name / FILE).write_text(contents)
    params = json.loads((run_dir / "params.json").read_text())
    for name, changes in dict(unknown=None, strange=dict(seed="three"), epochs=dict(trainer=dict(n_epochs=3, batch_size=64))).items():
        shutil.copytree(run_dir, tmp_path / name)
        changed = {} if changes is None else dict(params, rlpyt=dict(params["rlpyt"], **changes))
        (tmp_path / name / "params.json").write_text(json.dumps(changed))
    code, _, err = rlpyt("verify", tmp_path / args[0], *args[1:])
    assert code == 2 and message in err


def test_a_run_that_was_resumed_verifies_from_its_beginning(trained, tmp_path, rlpyt):
    run_dir = Path(shutil.copytree(trained("cartpole", "ppo", *SHORT), tmp_path / "run_0"))
    assert rlpyt("resume", run_dir, "--n_steps", "256")[0] == 0
    assert [row.steps for row in read_rows(run_dir / FILE)] == [0, 128, 256]
    assert rlpyt("verify", run_dir, "--rows", "all")[0] == 0
    assert rlpyt("verify", run_dir, "--rows", "2")[0] == 0, "with the steps that were planned then"


def test_the_commit_of_a_row_is_that_of_the_process_that_computed_it(run_dir):
    row = read_rows(run_dir / FILE)[-1]
    record = dict(githash="a", resumed=[dict(githash="b", steps=128), dict(githash="c"), "?", dict(githash="d", steps=384)])
    commits = [facts_of(record, row._replace(steps=steps)).conditions.get("commit") for steps in (128, 129, 384, 385)]
    assert commits == ["a", "b", "b", "d"]
    assert "commit" not in facts_of({}, row).conditions


LOST = "resumed without its replay buffer (save_replay=False)"


@pytest.mark.parametrize("save_replay", thinned([False, True], quick=[False]))
def test_a_replay_buffer_that_was_not_saved_is_named_if_it_differs(save_replay, trained, tmp_path, rlpyt):
    short = (DIGEST, "algo.min_steps_learn=64", "runner.n_steps=128", "runner.log_interval_steps=128", "sampler.eval_max_steps=60")
    run_dir = Path(shutil.copytree(trained("cartpole", "dqn", *short, f"runner.save_replay={save_replay}"), tmp_path / "run_0"))
    assert rlpyt("resume", run_dir, "--n_steps", "256")[0] == 0
    assert json.loads((run_dir / "params.json").read_text())["rlpyt"]["resumed"][0]["steps"] == 128
    code, out, _ = rlpyt("verify", run_dir, "--rows", "all")
    assert (code, LOST in out) == (0 if save_replay else 1, not save_replay), out
    if not save_replay:
        assert f"  {LOST}: after 128 environment steps then, nothing now" in out and "are the same. What else" not in out
        with_other_bit(run_dir, 2, "Parameters", "model.head.model.0.bias")
        assert LOST not in rlpyt("verify", run_dir, "--rows", "2")[1], "of a row before it"


@full
def test_that_a_run_was_made_longer_is_named_if_it_differs(trained, tmp_path, rlpyt):
    run_dir = Path(shutil.copytree(trained("cartpole", "ppo", DIGEST, "algo.linear_lr_schedule=True"), tmp_path / "run_0"))
    assert rlpyt("resume", run_dir, "--n_steps", "512")[0] == 0
    assert rlpyt("verify", run_dir, "--rows", "3")[0] == 0
    code, out, _ = rlpyt("verify", run_dir, "--rows", "all")
    assert code == 1 and "row 3 (" in out and "  n_steps: 256 then, 512 now" in out


@full
def test_that_a_run_was_resumed_with_other_workers_is_named_if_it_differs(tmp_path, rlpyt):
    options = ["--seed", "0", "--log_dir", tmp_path, "--sampler", "cpu", "--n_parallel", "2"]
    settings = [DIGEST, "algo.linear_lr_schedule=False", "sampler.batch_T=8", "runner.n_steps=128", "runner.log_interval_steps=64"]
    assert rlpyt("train", "cartpole", "ppo", *options, "--set", *settings)[0] == 0
    run_dir = tmp_path / "run_0"
    assert rlpyt("verify", run_dir, "--rows", "all")[0] == 0
    assert rlpyt("resume", run_dir, "--n_steps", "256", "--n_parallel", "1")[0] == 0
    code, out, _ = rlpyt("verify", run_dir, "--rows", "3")
    assert code == 1 and "  workers of parallel samplers: 2 then, 1 now" in out


def test_rows_of_an_interruption_are_left_out(run_dir, rlpyt):
    rows = read_rows(run_dir / FILE)
    rows.insert(2, rows[2]._replace(steps=200))
    (run_dir / FILE).write_bytes(b"".join(map(line_of, rows)))
    code, out, _ = rlpyt("verify", run_dir, "--rows", "all")
    assert code == 0 and "Not compared: 1 row that the run has only because it was interrupted" in out and "3 rows" in out


def interrupted_after(run_dir, n_whole, **changes):
    """Let the last row be one of an interruption, after `n_whole` whole rows."""
    rows = read_rows(run_dir / FILE)[: n_whole + 1]
    rows[-1] = rows[-1]._replace(**changes)
    (run_dir / FILE).write_bytes(b"".join(map(line_of, rows)))


def test_a_last_row_of_an_interruption_is_left_out(run_dir, rlpyt):
    interrupted_after(run_dir, 2, steps=200)
    code, out, _ = rlpyt("verify", run_dir, "--rows", "all")
    assert code == 0 and "Not compared: 1 row that" in out and "Verified: 2 rows" in out


def test_row_0_alone_does_not_verify_a_run_that_was_interrupted_in_its_first_interval(run_dir, rlpyt):
    interrupted_after(run_dir, 1, steps=32)
    code, out, err = rlpyt("verify", run_dir, "--rows", "all")
    assert code == 2 and "no other one ends an interval of 128 environment steps" in err and "Verified" not in out
    assert rlpyt("verify", run_dir, "--rows", "1")[0] == 0


def test_row_0_alone_says_nothing_of_training(run_dir, trained, rlpyt):
    first, *_ = (run_dir / FILE).read_bytes().splitlines(keepends=True)
    (run_dir / FILE).write_bytes(first)
    for args in ((), ("--rows", "all")):
        code, _, err = rlpyt("verify", run_dir, *args)
        assert code == 2 and "has digests only of the row before training" in err
    code, out, _ = rlpyt("verify", run_dir, "--rows", "1")
    assert code == 0 and "up to 0 environment steps" in out
    code, _, err = rlpyt("bisect", run_dir, trained("cartpole", "ppo", DIGEST))
    assert code == 2 and "only the row before training in common" in err
    with_other_bit(run_dir, 1, "Parameters", next(iter(read_rows(run_dir / FILE)[0].digests["Parameters"])))
    assert rlpyt("bisect", run_dir, trained("cartpole", "ppo", DIGEST))[0] == 1, "a difference in it is one"


@pytest.mark.parametrize("n_written", [0, 1, 2])
def test_a_disk_that_refuses_what_is_computed_does_not_verify_a_run(run_dir, rlpyt, monkeypatch, n_written):
    written, write = [], digests.append_whole

    def refuses(path, data):
        if len(written) == n_written:
            raise OSError("The disk is full.")
        written.append(write(path, data))

    monkeypatch.setattr(digests, "append_whole", refuses)
    code, out, err = rlpyt("verify", run_dir, "--rows", "all")
    assert code == 2 and "could not be written, so it cannot be compared" in err and "The disk is full." in err and "Verified" not in out


def test_rows_that_are_not_computed_for_another_reason_do_not_verify_a_run(run_dir, rlpyt, monkeypatch):
    monkeypatch.setattr(minibatch_rl.MinibatchRlBase, "_stops", lambda self, interrupt: self._itr >= 0)
    code, out, err = rlpyt("verify", run_dir, "--rows", "all")
    assert code == 2 and "Verified" not in out
    assert "ended after 128 environment steps, before row 3 (iteration 1, 256 environment steps)" in err


def test_a_row_that_is_lost_in_the_middle_does_not_verify_a_run(run_dir, rlpyt, monkeypatch):
    record = digests.Digests.record
    monkeypatch.setattr(digests.Digests, "record", lambda self, runner, itr, where: record(self, runner, itr, where) if itr else None)
    code, out, err = rlpyt("verify", run_dir, "--rows", "all")
    assert code == 2 and "lacks row" in err and "Verified" not in out


def cut(run_dir, n_bytes):
    (run_dir / FILE).write_bytes((run_dir / FILE).read_bytes()[:-n_bytes])


def test_rows_that_are_cut_off_are_told(run_dir, trained, rlpyt):
    n_last = len((run_dir / FILE).read_bytes().splitlines(keepends=True)[-1])
    cut(run_dir, n_last)
    gap = "1 row of the log without digests, the first after 256 environment steps."
    for rows in ([], ["--rows", "all"]):
        code, out, _ = rlpyt("verify", run_dir, *rows)
        assert code == 0 and f"Not compared: {gap}" in out and "Verified: 2 rows" in out
    assert "Not compared" not in rlpyt("verify", run_dir, "--rows", "1")[1]
    code, out, _ = rlpyt("bisect", trained("cartpole", "ppo", DIGEST), run_dir)
    assert code == 0 and f"Not compared, of the second run: {gap}" in out


def test_a_last_line_that_is_cut_is_told(run_dir, rlpyt):
    cut(run_dir, 5)
    code, out, _ = rlpyt("verify", run_dir, "--rows", "all")
    assert code == 0 and "Not compared: the last line of digests.jsonl, which has not been written completely." in out
    (run_dir / "progress.csv").unlink()
    assert rlpyt("verify", run_dir, "--rows", "all")[0] == 0, "without a log to compare with"


@pytest.mark.parametrize("row, kind", [(1, "Random"), (3, "Samples")])
def test_digests_that_contradict_the_log_are_refused(run_dir, rlpyt, row, kind):
    in_log(run_dir, row, f"Diagnostics/Digest{kind}", together(dict(other=1)))
    for words in (["verify", run_dir], ["bisect", run_dir, run_dir]):
        code, _, err = rlpyt(*words)
        assert code == 2 and f"digests.jsonl is damaged: in row {row} (" in err and f"it contradicts the column Digest{kind}" in err


def test_train_has_an_option_for_it(tmp_path, rlpyt):
    run_dir = tmp_path / "run_0"
    assert rlpyt("train", "cartpole", "a2c", "--smoke", "--digest", "--log_dir", tmp_path)[0] == 0
    assert rlpyt("verify", run_dir, "--rows", "1")[0] == 0
    assert rlpyt("train", "cartpole", "dqn", "--smoke", "--digest", "--sampler", "async_serial")[0] == 2


RUNS = [  # configuration, sampler, worker processes
    ("cartpole ppo", "cpu", 1),
    ("cartpole dqn", "serial", 1),
    ("cartpole ppo", "cpu", 2),
    ("cartpole ppo", "cpu", 4),
    ("cartpole ppo", "gpu", 2),
    ("cartpole ppo", "alternating", 2),
    ("cartpole a2c", "serial", 1),
    ("cartpole catdqn", "serial", 1),
    ("cartpole dqn", "cpu", 4),
    ("cartpole sac", "serial", 1),
    ("cartpole_without_velocities ppo_lstm", "cpu", 2),
    ("cartpole_without_velocities r2d1", "serial", 1),
    ("pendulum sac", "serial", 1),
    ("pendulum td3", "cpu", 2),
    ("halfcheetah sac_100k", "serial", 1),
    ("mujoco_ppo ppo_1M_serial", "serial", 1),
    ("atari_ff_ppo pong_2M", "cpu", 2),
    ("atari_dqn double_pri_duel", "serial", 1),
]


@processes
@pytest.mark.timeout(200)
@pytest.mark.parametrize("names, sampler, n_workers", thinned(RUNS, quick=[RUNS[0], RUNS[1]]))
def test_runs_with_any_sampler_and_number_of_workers_verify(names, sampler, n_workers, tmp_path, rlpyt):
    settings = [ONE_THREAD, *["sampler.batch_B=4"] * (n_workers > 1), *["env.horizon=25"] * names.startswith("atari")]
    where = ["--sampler", sampler, "--n_parallel", n_workers, "--log_dir", tmp_path]
    assert rlpyt("train", *names.split(), "--smoke", "--digest", *where, "--set", *settings)[0] == 0
    code, out, _ = rlpyt("verify", tmp_path / "run_0", "--rows", "all")
    assert code == 0, out


# --- Bisect -----------------------------------------------------------------------------------------------------------
def test_two_runs_of_the_same_settings_are_the_same(run_dir, trained, rlpyt):
    code, out, _ = rlpyt("bisect", run_dir, trained("cartpole", "ppo", DIGEST))
    assert (code, out) == (0, f"The same: 3 rows, up to 256 environment steps, bit for bit {ALL_KINDS}.\n")


def test_a_change_of_one_bit_is_named_by_row_and_tensor(run_dir, trained, rlpyt):
    with_other_bit(run_dir, 3, "Optimizer", "state.2.exp_avg_sq")
    code, out, _ = rlpyt("bisect", trained("cartpole", "ppo", DIGEST), run_dir)
    assert code == 1 and "row 3 (iteration 1, 256 environment steps); 2 rows before it are the same." in out
    assert (
        "First tensor in it: optimizer, state.2.exp_avg_sq." in out
        and "versions, processor, threads, workers and choices are the same" in out
    )


def test_of_long_settings_the_first_part_is_shown(run_dir, trained, rlpyt):
    params = json.loads((run_dir / "params.json").read_text())
    params["rlpyt"]["sampler"]["arguments"]["env_kwargs"] = dict(maze=list(range(1000)))
    (run_dir / "params.json").write_text(json.dumps(params))
    with_other_bit(run_dir, 2, "Parameters", "pi.model.2.weight")
    code, out, _ = rlpyt("bisect", run_dir, trained("cartpole", "ppo", DIGEST))
    assert code == 1 and "[0, 1, 2, 3" in out and "... (4,890 characters) in the first" in out and max(map(len, out.splitlines())) < 500


def test_different_settings_are_named(run_dir, trained, rlpyt):
    other = trained("cartpole", "ppo", DIGEST, "algo.learning_rate=0.003", seed=1)
    code, out, _ = rlpyt("bisect", run_dir, other)
    assert code == 1 and "First tensor in it: parameters, pi.model.0.weight." in out
    assert "  samples: none yet" in out and out.count("seed: 0 in the first, 1 in the second") == 1
    assert "  seed: 0 in the first, 1 in the second" in out and "  algo.learning_rate: 0.001 in the first, 0.003 in the second" in out


def test_rows_that_only_one_run_has_are_counted(run_dir, trained, rlpyt):
    rows = read_rows(run_dir / FILE)
    (run_dir / FILE).write_bytes(b"".join(map(line_of, rows[:2])))
    code, out, _ = rlpyt("bisect", run_dir, trained("cartpole", "ppo", DIGEST))
    assert code == 0 and "Not compared: 0 rows of the first run and 1 of the second" in out and "The same: 2 rows" in out


def test_kinds_that_one_run_lacks_are_named(run_dir, trained, rlpyt):
    without(run_dir, 2, "Samples")
    without(run_dir, 3, "Samples", "Random")
    code, out, _ = rlpyt("bisect", run_dir, trained("cartpole", "ppo", DIGEST))
    assert code == 0 and "bit for bit (parameters, optimizer)." in out
    assert "Not compared: samples in 2 of 3 rows, random in 1 of 3 rows, of which not both have their digests." in out


def test_kinds_that_one_run_lacks_are_named_beside_a_difference(run_dir, trained, rlpyt):
    with_other_bit(run_dir, 2, "Parameters", "pi.model.2.weight")
    without(run_dir, 2, "Samples")
    without(run_dir, 3, "Random")
    code, out, _ = rlpyt("bisect", run_dir, trained("cartpole", "ppo", DIGEST))
    assert code == 1 and "  samples: not compared" in out and "  random: the same" in out
    assert "Not compared: samples in 1 of 2 rows, of which" in out, "up to the first row that differs"


def test_runs_without_a_kind_in_common_are_not_called_the_same(run_dir, trained, rlpyt):
    for row in (1, 2, 3):
        without(run_dir, row, "Samples", "Parameters", "Optimizer", "Random")
    code, out, err = rlpyt("bisect", run_dir, trained("cartpole", "ppo", DIGEST))
    assert code == 2 and "no kind of digest in common" in err and "The same" not in out


def test_what_cannot_be_compared_is_refused(run_dir, trained, rlpyt):
    assert "trained with --digest" in rlpyt("bisect", run_dir, trained("cartpole", "ppo"))[2]
    for words in (["verify", run_dir.parent], ["bisect", run_dir.parent, run_dir]):
        assert f"give the directory of one run, such as {run_dir}." in rlpyt(*words)[2]
    for row in (1, 2, 3):
        change(run_dir, row, steps=row * 7)
    code, _, err = rlpyt("bisect", run_dir, trained("cartpole", "ppo", DIGEST))
    assert code == 2 and "no row after the same number of environment steps" in err and "after 7, 14, 21" in err
