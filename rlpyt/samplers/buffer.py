"""Allocate the batch a sampler fills, from one example of everything in it."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlpyt.envs.base import (
    WRAP_HINT,
    CompletedEnv,
    as_flag,
    as_number,
    checked_spaces,
    horizon_of,
    truncates_only_at_horizon,
)
from rlpyt.samplers.workers import describe_failure
from rlpyt.spaces.base import CompletedSpace
from rlpyt.spaces.masked import allowed_action
from rlpyt.types import Agent, AgentSamples, AgentSamplesBsv, CompletedAgent, EnvSamples, Samples, StepBuffer, check_estimates_values
from rlpyt.utils.buffer import buffer_from_example, buffer_func, buffer_leaves, check_memory, named_leaves, numpify_buffer, torchify_buffer
from rlpyt.utils.collections import field_of, fields_of
from rlpyt.utils.misc import is_of_rlpyt, name_of, torch_threads

_MOST_OFF_1 = 0.01  # Deviation of a sum of probabilities, also in half precision.


def build_samples_buffer(
    agent: Agent,
    env: Any,
    batch_spec: Any,
    bootstrap_value: bool = False,
    agent_shared: bool = True,
    env_shared: bool = True,
    subprocess: bool = True,
    examples: dict | None = None,
    keep_terminal_observations: bool = False,
) -> tuple[Samples, Samples, dict]:
    """Allocate a batch of `batch_spec` = (T, B).

    Actions, rewards and observations have T + 1 rows of memory each, seen through two overlapping views: writing ``action[t]`` is
    writing ``prev_action[t + 1]``, and writing ``next_observation[t]`` is writing ``observation[t + 1]``.

    Args:
        agent: an initialized agent, to make an example of its outputs.
        env: an environment, to make an example of its outputs; it is reset and stepped.
        bootstrap_value: include the agent's value of the observation after the batch, and of those that ended truncated episodes.
        agent_shared, env_shared: allocate the agent's and the environment's fields on shared memory.
        subprocess: make the examples in a separate process, so that no thread or graphics context of agent or environment starts
            in this one.
        examples: dictionary to fill with the examples, unless it holds them already.
        keep_terminal_observations: include the observations that end terminated episodes, not only those of truncated ones.

    Returns:
        The batch as torch tensors, the same memory as numpy arrays, and the examples: a dictionary of observation, reward, done,
        env_info, action and agent_info, without leading dimensions.
    """
    examples = {} if examples is None else examples
    if not examples:
        get_example_outputs(agent, env, examples, subprocess)
    T, B = batch_spec
    row_bytes = B * sum(np.asarray(leaf).nbytes for leaf in buffer_leaves(tuple(examples.values())))
    check_memory((T + 1) * row_bytes, f"A batch of batch_T={T}, batch_B={B}")  # Final observations take up memory only as they occur.

    def allocate(name: str, rows: int, shared: bool, example: Any = None) -> Any:
        return buffer_from_example(examples[name] if example is None else example, (rows, B), shared, name=name)

    all_action = allocate("action", T + 1, agent_shared)
    agent_fields = [all_action[1:], all_action[:-1], allocate("agent_info", T, agent_shared)]
    value_example = np.zeros((), np.float32)
    if bootstrap_value:
        check_estimates_values(agent)
        agent_fields += [allocate("value", rows, agent_shared, value_example) for rows in (1, T)]
    agent_samples = (AgentSamplesBsv if bootstrap_value else AgentSamples)(*agent_fields)

    all_observation = allocate("observation", T + 1, env_shared)
    all_reward = allocate("reward", T + 1, env_shared)
    env_samples = EnvSamples(
        observation=all_observation[:-1],
        reward=all_reward[1:],
        prev_reward=all_reward[:-1],
        done=allocate("done", T, env_shared),
        env_info=allocate("env_info", T, env_shared),
        timeout=allocate("done", T, env_shared),
        next_observation=all_observation[1:],
        ends_recorded=allocate("done", T, env_shared, np.zeros((), bool)),
        valid=allocate("done", T, env_shared, np.zeros((), bool)) if CompletedEnv(env).leaves_blank_rows else None,
    )
    final_observation = allocate("observation", max_timeouts(env, T), env_shared)
    terminal_observation = allocate("observation", T, env_shared) if keep_terminal_observations else None
    samples_np = Samples(agent_samples, env_samples, final_observation, terminal_observation)
    return torchify_buffer(samples_np), samples_np, examples


def build_step_buffer(examples: dict, B: int, share_memory: bool = True) -> tuple[StepBuffer, StepBuffer]:
    """Allocate a step buffer of `B` environments, from examples of observation and action, and of agent_info if any.

    Returns:
        The step buffer as torch tensors, and the same memory as numpy arrays.
    """
    step_buffer = build_step_buffer_np(examples, B, share_memory)
    return torchify_buffer(step_buffer), step_buffer


def build_step_buffer_np(examples: dict, B: int, share_memory: bool) -> StepBuffer:
    """Like `build_step_buffer`, but as numpy arrays only, without torch."""
    return StepBuffer(
        observation=buffer_from_example(examples["observation"], (B,), share_memory, name="observation"),
        action=buffer_from_example(examples["action"], (B,), share_memory, name="action"),
        reward=buffer_from_example(np.zeros((), np.float32), (B,), share_memory),
        done=buffer_from_example(np.zeros((), bool), (B,), share_memory),
        agent_info=buffer_from_example(examples.get("agent_info"), (B,), share_memory, name="agent_info"),
    )


def check_same_form(env: Any, example: Any, name: str) -> None:
    """Raise ValueError if what `env` returns and takes does not fit the memory of a batch made for `example`.

    Observations must have the same fields, shapes and dtypes, and action spaces be equal. (The first step checks the fields of env_info.)

    Args:
        name: what messages call `env`.
    """
    theirs, ours = checked_spaces(env), checked_spaces(example)
    for what, a, b in (("observations", theirs.observation, ours.observation), ("actions", theirs.action, ours.action)):
        if _form(a.null_value()) != _form(b.null_value()):
            raise ValueError(
                f"{name} has {what} of {a!r}, another one has {b!r}: all columns of a batch need the same fields, shapes and dtypes."
            )
    if not _same_bounds(theirs.action, ours.action):
        raise ValueError(
            f"{name} takes actions of {theirs.action!r}, another one of {ours.action!r}: one agent acts for all, so they must be equal."
        )


def _form(value: Any) -> list:
    """Path, shape and dtype of every array in a structure."""
    return [(path, np.shape(leaf), np.asarray(leaf).dtype) for path, leaf in named_leaves(value, "")]


def _same_bounds(a: Any, b: Any) -> bool:
    if CompletedSpace(a).names is not None:
        return all(map(_same_bounds, a.spaces, b.spaces))
    bounds = (list(map(np.asarray, (space.n, space.nvec, space.low, space.high))) for space in map(CompletedSpace, (a, b)))
    return all(map(np.array_equal, *bounds))


def _checked_step(env: Any, action: Any) -> tuple:
    """Step `env`; raise ValueError if it does not return what an environment of rlpyt does."""
    step = env.step(action)
    if len(step) != 4:
        raise ValueError(f"{type(env).__name__}.step returned {len(step)} values, not (observation, reward, done, env_info). {WRAP_HINT}")
    env_info = step[3]
    if env_info is not None and fields_of(env_info) is None:
        raise ValueError(f"env_info is a {type(env_info).__name__}, but must be a namedtuple, or None. {WRAP_HINT}")
    for name in ("timeout", "traj_done"):
        flag = field_of(env_info, name)
        if np.ndim(flag):  # An array with one element, for which the batch has single bools.
            env_info = env_info._replace(**{name: as_flag(flag, f"env_info.{name}")})
    if field_of(env_info, "traj_done", False) is None:
        raise ValueError("env_info.traj_done is None: it must say at every step whether the trajectory ends, or be left out.")
    return step[0], as_number(step[1]), as_flag(step[2]), env_info


def max_timeouts(env: Any, T: int) -> int:
    """Return how many episodes of one environment can be truncated within `T` steps."""
    horizon = horizon_of(env)
    if truncates_only_at_horizon(env) and horizon:
        return min(T // int(horizon) + 1, T)
    return T


def get_example_outputs(agent: Agent, env: Any, examples: dict, subprocess: bool = False) -> None:
    """Fill `examples` with one observation, reward, done, env_info, action and agent_info, without leading dimensions.

    The environment is reset and stepped once with a random action, the agent steps once; the agent's random state is left as it was.
    """
    if subprocess:
        from rlpyt.samplers.workers import WorkerPool

        pool = WorkerPool(_example_process, [dict(agent=agent, env=env)], ["the process that makes example outputs"])
        try:
            examples.update(pool.receive()[0])
        finally:
            pool.kill()
    else:
        examples.update(_make_examples(agent, env))


def _example_process(pipe: Any, agent: Agent, env: Any) -> None:
    import torch

    from rlpyt.samplers.workers import send_by_value

    torch.set_num_threads(1)  # A forked process cannot use the threads of its parent.
    send_by_value(pipe, ("ok", _make_examples(agent, env)))


def _make_examples(agent: Agent, env: Any) -> dict:
    checked_spaces(env)
    try:
        first_observation = env.reset()
        action = allowed_action(env.action_space, env.action_space.sample(), first_observation)
        observation, reward, done, env_info = _checked_step(env, action)
    except (Exception, SystemExit) as error:
        describe_failure(error, f"This was in {type(env).__name__}, in a step that is an example of those to come.")
        raise
    as_arrays = buffer_func(observation, np.asarray)
    reward = np.asarray(reward, np.float32)
    action, agent_info = agent_example(agent, as_arrays, action, reward)
    return dict(
        observation=as_arrays,
        reward=reward,
        done=np.asarray(done),
        env_info=env_info,
        action=action,
        agent_info=agent_info,
    )


def agent_example(agent: Agent, observation: Any, action: Any, reward: Any) -> tuple[Any, Any]:
    """Return an example each of the actions and the agent_info of `agent`, as numpy structures without leading dimensions.

    The agent steps twice, and is reset; its random state is left as it was.

    Args:
        agent: an initialized agent.
        observation, action, reward: its inputs, without leading dimensions.
    """
    import torch

    steps = []
    # One sample needs no thread pool, and a process without one can be forked.
    with torch_threads(1), torch.random.fork_rng(devices=[]):
        for _ in range(2):  # The second step gets the agent's own action, whose dtype may differ from the space's.
            agent.reset()
            inputs = torchify_buffer(buffer_func((observation, action, reward), np.array))
            try:
                action, agent_info = _checked_outputs(agent, inputs, action)
            except Exception as error:
                describe_failure(error, f"This was in the first step of {_described(agent)}.")
                raise
            steps.append((action, agent_info))
        agent.reset()
    action, agent_info = _with_dtypes(*steps)
    if agent_info is not None and "prev_rnn_state" in (fields_of(agent_info) or ()):
        agent_info = agent_info._replace(prev_rnn_state=buffer_func(agent_info.prev_rnn_state, lambda x: x[0]))  # [B=1,N,H]
    return action, agent_info


def _checked_outputs(agent: Any, inputs: Any, example: Any) -> tuple[Any, Any]:
    """Return action and agent_info of a step, as numpy structures; raise an error that names the model if that is the cause."""
    try:
        action, agent_info = numpify_buffer(tuple(agent.step(*inputs)))
        _check_outputs(agent, agent_info, action, example)
    except Exception:
        CompletedAgent(agent).blame_model(*inputs)
        raise
    return action, agent_info


def _check_outputs(agent: Any, agent_info: Any, action: Any, example: Any) -> None:
    """Raise ValueError if the model of an agent of rlpyt returned what is no action, value or probability, for one observation.

    Args:
        example: an action of the environment.
    """
    from rlpyt.distributions.categorical import Categorical

    if not is_of_rlpyt(type(agent)):
        return
    shapes = [[list(np.shape(leaf)) for leaf in buffer_leaves(each)] for each in (action, example)]
    if shapes[0] != shapes[1]:
        chosen, expected = (" and ".join(map(str, each)) for each in shapes)
        raise ValueError(
            f"An action of shape {chosen} was chosen for one observation, but the environment takes {expected}: let "
            "the model return one number for each component."
        )
    q = field_of(agent_info, "q")
    if q is not None and np.shape(q) != (agent.distribution.dim,):
        raise ValueError(
            f"Values of shape {list(np.shape(q))} were returned for one observation and {agent.distribution.dim} actions: "
            "let the model return one for each action."
        )
    value, dist_info = field_of(agent_info, "value"), field_of(agent_info, "dist_info")
    if dist_info is None:
        return
    if value is not None and np.shape(value) != ():
        raise ValueError(f"A value of shape {list(np.shape(value))} was returned for one observation: end it with value.squeeze(-1).")
    if type(agent.distribution) is Categorical:
        prob, n = np.asarray(dist_info.prob), agent.distribution.dim
        if prob.shape != (n,):
            raise ValueError(f"Probabilities of shape {list(prob.shape)} were returned for one observation and {n} actions.")
        if prob.min() < 0 or abs(prob.sum() - 1) > _MOST_OFF_1:
            raise ValueError(
                f"{prob.tolist()} are no probabilities: make them positive, with sum 1, by torch.softmax(logits, dim=-1), or return their "
                "logarithms by torch.log_softmax if this agent takes logarithms."
            )


def _described(agent: Any) -> str:
    """The class of an agent, and that of its model if a user has written it."""
    ModelCls, name = CompletedAgent(agent).ModelCls, type(agent).__name__
    if ModelCls is None or is_of_rlpyt(ModelCls):
        return name
    return f"{name} with {name_of(ModelCls)}; docs/custom_agent.md says what a model gets and returns"


def _with_dtypes(structure: Any, other: Any) -> Any:
    """Return `structure` as arrays with the dtypes of `other`; if the numbers of arrays differ, return `other`."""
    dtypes = [np.asarray(leaf).dtype for leaf in buffer_leaves(other)]
    if len(buffer_leaves(structure)) != len(dtypes):
        return other
    remaining = iter(dtypes)
    return buffer_func(structure, lambda leaf: np.asarray(leaf, next(remaining)))
