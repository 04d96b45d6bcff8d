"""Replay of sequences with the recurrent states that the agent had while sampling: what algorithms for agents with memory share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rlpyt.algos.replay import SamplesToBuffer
from rlpyt.replays.sequence.frame import (
    AsyncPrioritizedSequenceReplayFrameBuffer,
    AsyncUniformSequenceReplayFrameBuffer,
    PrioritizedSequenceReplayFrameBuffer,
    UniformSequenceReplayFrameBuffer,
)
from rlpyt.replays.sequence.prioritized import AsyncPrioritizedSequenceReplayBuffer, PrioritizedSequenceReplayBuffer
from rlpyt.replays.sequence.uniform import AsyncUniformSequenceReplayBuffer, UniformSequenceReplayBuffer
from rlpyt.utils.buffer import buffer_func
from rlpyt.utils.collections import field_of, namedarraytuple
from rlpyt.utils.quick_args import save__init__args
from rlpyt.utils.settings import COUNT, STEPS, checked

# What is stored of a step, and the recurrent state before it, [T,B,...], or None if none is stored.
SamplesToBufferRnn = namedarraytuple("SamplesToBufferRnn", SamplesToBuffer._fields + ("prev_rnn_state",))

# Buffers of sequences, by (frames stored once, prioritized, shared by processes).
SEQUENCE_BUFFERS = {
    (False, False, False): UniformSequenceReplayBuffer,
    (False, False, True): AsyncUniformSequenceReplayBuffer,
    (False, True, False): PrioritizedSequenceReplayBuffer,
    (False, True, True): AsyncPrioritizedSequenceReplayBuffer,
    (True, False, False): UniformSequenceReplayFrameBuffer,
    (True, False, True): AsyncUniformSequenceReplayFrameBuffer,
    (True, True, False): PrioritizedSequenceReplayFrameBuffer,
    (True, True, True): AsyncPrioritizedSequenceReplayFrameBuffer,
}


# Settings of algorithms that replay sequences, and their allowed values.
OF_SEQUENCES = dict(batch_T=COUNT, batch_B=COUNT, warmup_T=STEPS, store_rnn_state_interval=STEPS)


class Sequences:
    """Sequences, which an algorithm for recurrent agents replays in place of transitions; this part is its attribute `sequences`.

    Args:
        batch_T: steps of a sequence to train on.
        batch_B: sequences per gradient update.
        warmup_T: steps of a sequence before those to train on.
        store_rnn_state_interval: steps between two stored recurrent states. Sequences begin only at steps with a stored state. 0 stores
            no states: sequences begin anywhere, with a state of zeros.
    """

    def __init__(self, batch_T: int, batch_B: int, warmup_T: int, store_rnn_state_interval: int) -> None:
        self.batch_T, self.batch_B, self.warmup_T, self.store_rnn_state_interval = batch_T, batch_B, warmup_T, store_rnn_state_interval

    @classmethod
    def of(cls, algo: Any) -> Any:
        """Return a new `Sequences` with the settings of `algo`."""
        return cls(**{name: getattr(algo, name) for name in OF_SEQUENCES})

    @property
    def batch_size(self) -> int:
        """Steps that an update replays."""
        return (self.batch_T + self.warmup_T) * self.batch_B

    def buffer_cls(self, has_frames: bool, prioritized: bool, async_: bool) -> type:
        """Return the class of the replay buffer."""
        return SEQUENCE_BUFFERS[has_frames, prioritized, async_]

    def buffer_kwargs(self) -> dict[str, int]:
        """Return the arguments of the replay buffer about sequences."""
        return dict(rnn_state_interval=self.store_rnn_state_interval, batch_T=self.warmup_T + self.batch_T)

    def with_rnn_state(self, stored: Any, agent_info: Any) -> Any:
        """Return what is stored of steps, `SamplesToBuffer`, with the recurrent state before each, if that is stored."""
        prev_rnn_state = agent_info.prev_rnn_state if self.store_rnn_state_interval else None
        return SamplesToBufferRnn(*stored._replace(final_observation=None), prev_rnn_state)


def constructor_on_sequences(AlgoCls: Any) -> Callable[..., None]:
    """Return a constructor for an algorithm that declares `SequencesCls`: it has settings of sequences in place of `batch_size`."""

    @checked(OF_SEQUENCES, without=("batch_size",))
    def __init__(  # type: ignore[no-untyped-def]
        self,
        *,
        batch_T: int = 32,
        batch_B: int = 32,
        warmup_T: int = 8,
        store_rnn_state_interval: int = 8,
        replay_ratio: float = 1280,
        **settings: Any,
    ) -> None:
        save__init__args(locals())
        self.sequences = self.SequencesCls.of(self)
        super(AlgoCls, self).__init__(batch_size=self.sequences.batch_size, **settings)

    __init__.__qualname__ = f"{AlgoCls.__qualname__}.__init__"
    return __init__


def agent_inputs(samples: Any) -> tuple[Any, Any, torch.Tensor]:
    """Return the agent's inputs at each step of sequences; previous ones are null at episode starts if the buffer provides that."""
    if field_of(samples, "all_prev_reward") is None:
        return samples.all_observation, samples.all_action, samples.all_reward
    return samples.all_observation, samples.all_prev_action, samples.all_prev_reward


def as_model_state(init_rnn_state: Any) -> Any:
    """Transpose a stored state [B,N,...] to [N,B,...] for models; return None for None."""
    return buffer_func(init_rnn_state, lambda x: x.transpose(0, 1).contiguous())
