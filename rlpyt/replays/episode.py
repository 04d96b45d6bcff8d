"""Replay of whole episodes and of their transitions."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from typing import Any

import numpy as np

from rlpyt.envs.base import ActionForm
from rlpyt.envs.specs import ENV_SPEC, EnvSpec
from rlpyt.episodes.batch import EpisodeBatch, TimeStepBatch, check_action_forms
from rlpyt.replays.final_observations import FinalObservations
from rlpyt.replays.ring import Ring
from rlpyt.utils.buffer import check_memory
from rlpyt.utils.plain import check_form, generator_state, set_generator_state
from rlpyt.utils.recipes import Recorded
from rlpyt.utils.seed import ProcessGenerator, rng_from_global_seed
from rlpyt.utils.settings import COUNT, checked
from rlpyt.utils.structures import Tree, as_numpy, as_torch, assign, leaves, numeric, structure, tree_map

_NOT_LAST = -1  # Slot of a step that is not the last of its episode.


class EpisodeReplayBuffer(Recorded):
    """Keeps as many of the latest episodes as fit, and drops the oldest episodes as a whole.

    Every observation is stored once. Truncated episodes are stored like others; `step_types` tells how each ended. Only numbers are stored,
    not, for example, the names in env_infos. Memory is reserved at the first append, and used as the buffer fills.

    Args:
        capacity: largest number of stored steps (env steps).
        env_spec: `EnvSpec` of the samples; None takes that of the first episodes that have one. Checkpoints do not contain it, so give it
            to a buffer that loads one. Its `action_form` is that of the first episodes in any case, also of those in a checkpoint.

    Attributes:
        capacity, env_spec: as above.
        rng: draws the samples; seeded from numpy's global generator.
    """

    rng = ProcessGenerator()

    @checked(capacity=COUNT, env_spec=ENV_SPEC)
    def __init__(self, capacity: int, env_spec: EnvSpec | None = None) -> None:
        self.capacity, self._given_spec = capacity, env_spec
        self.rng = rng_from_global_seed()
        self.clear()

    def clear(self) -> None:
        """Forget all episodes, and their fields, dtypes and shapes; `env_spec` is that of the constructor again."""
        self.env_spec = self._given_spec
        self._ring = Ring(self.capacity)
        self._episodes: deque[tuple[int, int]] = deque()  # (number of the first step, steps), oldest first.
        self._steps: dict[str, Tree] | None = None  # [capacity,...]
        self._forms: dict[str, Tree] = {}  # (dtype, shape without the first dimension) of every array in an append.
        self._last: Tree = None  # Tree of FinalObservations, which all use the same slots.
        self._slots = np.full(self.capacity, _NOT_LAST)  # Slot of the last step of each episode.
        self._episode_infos: deque[dict] = deque()
        self._action_form: ActionForm | None = None  # Of all episodes, once it is known.

    # Contents -------------------------------------------------------------------------------------------------------
    @property
    def n_episodes(self) -> int:
        """Number of stored episodes."""
        return len(self._episodes)

    @property
    def n_steps(self) -> int:
        """Number of stored steps."""
        return self._ring.written - self._first

    def __len__(self) -> int:
        """Return the number of stored steps."""
        return self.n_steps

    @property
    def _first(self) -> int:
        """Number of the oldest stored step."""
        return self._episodes[0][0] if self._episodes else self._ring.written

    # Writing --------------------------------------------------------------------------------------------------------
    def append_episodes(self, batch: EpisodeBatch) -> None:
        """Append episodes in order, and drop the oldest ones to make room. If not all fit, only the last ones are appended.

        Raises:
            TypeError: the steps are not whole episodes.
            ValueError: an episode has more steps than `capacity`; or fields, dtypes or shapes, also of last_observations and episode_infos,
                differ from those of earlier episodes. The buffer is then unchanged.
        """
        if not isinstance(batch, EpisodeBatch):
            raise TypeError(f"append_episodes takes an EpisodeBatch, not a {type(batch).__name__}, which does not tell where episodes end.")
        batch = batch.numpy()
        lengths = np.asarray(batch.lengths, np.int64)
        if not len(lengths):
            return
        if lengths.max() > self.capacity:
            raise ValueError(f"An episode of {lengths.max()} steps does not fit into a buffer with capacity={self.capacity}.")
        room = self.capacity - int(lengths.sum())
        if room < 0:
            batch = batch.select(np.cumsum(lengths[::-1])[::-1] <= self.capacity)
            lengths = np.asarray(batch.lengths, np.int64)
        steps = {name: numeric(getattr(batch, name)) for name in EpisodeBatch._PER_STEP}
        infos = numeric(batch.episode_infos_by_episode)
        forms = {**steps, "last_observations": batch.last_observations, "episode_infos": infos}
        forms = tree_map(lambda x: (x.dtype, x.shape[1:]), forms)
        if self._steps is None:
            self._allocate(steps, batch.last_observations)
            self._forms = forms
        self._check(forms)
        spec = self.env_spec or batch.env_spec
        if spec is not None:
            form = self._action_form or (batch.env_spec or spec).action_form
            spec = spec if spec.action_form == form else replace(spec, action_form=form)
            check_action_forms([spec, batch.env_spec], "batch of a buffer")
            self.env_spec, self._action_form = spec, form
        self._evict(max(room, 0))

        number = self._ring.written
        stops = number + np.cumsum(lengths)
        rows = self._ring.wrap(np.arange(number, stops[-1]))
        assign(self._steps, rows, steps)
        self._slots[rows] = _NOT_LAST
        slots = tree_map(lambda store, x: store.append(x, len(lengths)), self._last, batch.last_observations)
        self._slots[self._ring.wrap(stops - 1)] = next(leaf for _, leaf in leaves(slots))
        self._ring.advance(len(rows))
        self._episodes.extend(zip((stops - lengths).tolist(), lengths.tolist()))
        self._episode_infos.extend(tree_map(lambda x, i=i: x[i], infos) for i in range(len(lengths)))

    def _allocate(self, steps: dict[str, Tree], last_observations: Tree) -> None:
        arrays = [x for _, x in leaves(steps)]
        n_bytes = sum(self.capacity * math.prod(x.shape[1:]) * x.itemsize for x in arrays)
        check_memory(n_bytes, f"A replay buffer of {self.capacity} steps of episodes")
        last = tree_map(lambda x: FinalObservations(x[0], self.capacity), last_observations)  # Raises for what is no number.
        self._steps, self._last = tree_map(lambda x: np.zeros((self.capacity, *x.shape[1:]), x.dtype), steps), last

    def _check(self, forms: dict[str, Tree]) -> None:
        expected, got = structure(self._forms), structure(forms)
        if expected != got:
            raise ValueError(f"The episodes have the fields {got}, but must have those kept before, {expected}.")
        given = dict(leaves(forms))
        for path, (dtype, shape) in leaves(self._forms):
            got_dtype, got_shape = given[path]
            if (got_dtype, got_shape) != (dtype, shape):
                raise ValueError(
                    f"{path} has dtype {got_dtype} and shape {got_shape} in each entry, but must have {dtype} and {shape} as before."
                )

    def _evict(self, n_steps: int) -> None:
        """Forget the oldest episodes until no more than `n_steps` steps are left."""
        last_steps = []
        while self.n_steps > n_steps:
            number, length = self._episodes.popleft()
            self._episode_infos.popleft()
            last_steps.append(number + length - 1)
        if last_steps:
            slots = self._slots[self._ring.wrap(np.array(last_steps))]
            tree_map(lambda store: store.forget(slots), self._last)

    # Reading --------------------------------------------------------------------------------------------------------
    def sample_timesteps(self, n: int) -> TimeStepBatch:
        """Return copies of `n` transitions drawn uniformly with replacement.

        Raises:
            ValueError: the buffer is empty, `n` is less than 1, or the `env_spec` of restored episodes is missing, see `episodes`.
        """
        self._check_spec()
        return self._timesteps(n)

    def _timesteps(self, n: int) -> TimeStepBatch:
        self._check_not_empty(n)
        numbers = self.rng.integers(self._first, self._ring.written, size=n)
        rows = self._ring.wrap(numbers)
        slots = self._slots[rows]
        is_last = slots != _NOT_LAST
        following = self._ring.wrap(numbers + ~is_last)

        def after(memory: np.ndarray, store: Any) -> np.ndarray:
            out = memory[following]
            out[is_last] = store[slots[is_last]]
            return out

        steps = tree_map(lambda memory: memory[rows], self._steps)
        next_observations = tree_map(after, self._steps["observations"], self._last)  # type: ignore[index]
        starts = np.array([start for start, _ in self._episodes])
        infos = self._infos(np.searchsorted(starts, numbers, side="right") - 1)
        return TimeStepBatch(env_spec=self.env_spec, **steps, next_observations=next_observations, episode_infos=infos, validate=False)

    def sample_transitions(self, n: int) -> dict[str, Tree]:
        """Return the result of `sample_timesteps` as a dictionary of arrays [n,...].

        Raises:
            ValueError: the buffer is empty, or `n` is less than 1.
        """
        batch = self._timesteps(n)
        return {name: getattr(batch, name) for name in TimeStepBatch._PER_STEP}

    def sample_episodes(self, n: int) -> EpisodeBatch:
        """Return copies of `n` episodes drawn uniformly with replacement, regardless of their lengths.

        Raises:
            ValueError: the buffer is empty, `n` is less than 1, or the `env_spec` of restored episodes is missing, see `episodes`.
        """
        self._check_spec()
        return self._sampled_episodes(n)

    def _sampled_episodes(self, n: int) -> EpisodeBatch:
        self._check_not_empty(n)
        return self._read(self.rng.integers(self.n_episodes, size=n))

    def sample_path(self) -> dict[str, Tree]:
        """Return one episode drawn uniformly, in the format of `EpisodeBatch.to_list`.

        Raises:
            ValueError: the buffer is empty.
        """
        return self._sampled_episodes(1).to_list()[0]

    def episodes(self) -> EpisodeBatch:
        """Return copies of all episodes, oldest first.

        Raises:
            ValueError: the buffer is empty; or the actions of restored episodes are in the units of an agent, and neither the constructor
                nor later episodes have given the `env_spec` by which `EpisodeBatch.for_envs` converts them.
        """
        self._check_spec()
        self._check_not_empty()
        return self._read(np.arange(self.n_episodes))

    def _check_spec(self) -> None:
        if self.env_spec is None and self._action_form is not None and any(self._action_form):
            raise ValueError(
                "The restored episodes have actions as an agent chose them, and only an EnvSpec tells what environments got: make the "
                "buffer with env_spec, and load the state again."
            )

    def _check_not_empty(self, n: int = 1) -> None:
        if not self._episodes:
            raise ValueError("The buffer is empty: append episodes before sampling.")
        if n < 1:
            raise ValueError(f"n={n} must be at least 1.")

    def _read(self, idxs: np.ndarray) -> EpisodeBatch:
        """Return the episodes at `idxs` [n], counted from the oldest one."""
        starts, lengths = np.array(self._episodes)[idxs].T
        stops = np.cumsum(lengths)
        rows = self._ring.wrap(np.arange(stops[-1]) + np.repeat(starts - (stops - lengths), lengths))
        slots = self._slots[rows[stops - 1]]
        return EpisodeBatch(
            env_spec=self.env_spec,
            **tree_map(lambda memory: memory[rows], self._steps),
            last_observations=tree_map(lambda store: store[slots], self._last),
            episode_infos=self._infos(idxs),
            lengths=lengths,
            validate=False,
        )

    def _infos(self, idxs: np.ndarray) -> dict:
        """Return the infos of these episodes: arrays [n,...] with one entry per episode."""
        return tree_map(lambda *values: np.stack(values), *(self._episode_infos[i] for i in idxs.tolist()))

    # Checkpoints ----------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict:
        """Return the contents as plain data and tensors. Of `env_spec`, an argument of the constructor, only the `action_form` is there."""
        kept = None
        if self._episodes:
            batch = self._read(np.arange(self.n_episodes))
            names = (*EpisodeBatch._PER_STEP, *EpisodeBatch._PER_EPISODE)
            kept = {name: tree_map(as_torch, getattr(batch, name)) for name in names}
        form = None if self._action_form is None else self._action_form._asdict()
        return dict(capacity=self.capacity, rng=generator_state(self.rng), episodes=kept, action_form=form)

    def load_state_dict(self, state: dict) -> None:
        """Restore what `state_dict` returned.

        Raises:
            ValueError: the state has another capacity, or is damaged.
        """
        check_form(state, dict(capacity=int, rng=str, episodes=(dict, type(None))), "The saved buffer")
        if state["capacity"] != self.capacity:
            raise ValueError(f"The saved buffer has capacity={state['capacity']}, and this one has capacity={self.capacity}.")
        spec = self.env_spec  # The state has none.
        self.clear()
        self.env_spec = spec
        if state["episodes"] is not None:
            kept = {name: tree_map(as_numpy, tree) for name, tree in state["episodes"].items()}
            check_form(kept, dict(lengths=np.ndarray, rewards=np.ndarray, episode_infos_by_episode=dict), "episodes of the saved buffer")
            lengths, infos = kept["lengths"], kept.pop("episode_infos_by_episode")
            if lengths.ndim != 1 or lengths.dtype != np.int64 or (lengths < 1).any() or lengths.sum() != len(kept["rewards"]):
                raise ValueError("The lengths of the episodes of the saved buffer do not fit its steps.")
            form = state.get("action_form")  # Older states have none.
            if form is not None:
                check_form(form, dict(clip=bool, rescale=(bool, str)), "action_form of the saved buffer")
                self._action_form = ActionForm(form["clip"], form["rescale"])
            self.append_episodes(EpisodeBatch(env_spec=None, episode_infos=infos, **kept, validate=False))
        set_generator_state(self.rng, state["rng"])
