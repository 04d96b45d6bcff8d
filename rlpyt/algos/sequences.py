"""Replay of sequences with the recurrent states that the agent had while sampling: what algorithms for agents with memory share."""

from __future__ import annotations

from typing import Any

import torch

from rlpyt.algos.replay import ReplayAlgorithm, SamplesToBuffer, is_frame_stack
from rlpyt.replays.sequence.frame import (
    AsyncPrioritizedSequenceReplayFrameBuffer,
    AsyncUniformSequenceReplayFrameBuffer,
    PrioritizedSequenceReplayFrameBuffer,
    UniformSequenceReplayFrameBuffer,
)
from rlpyt.replays.sequence.prioritized import AsyncPrioritizedSequenceReplayBuffer, PrioritizedSequenceReplayBuffer
from rlpyt.replays.sequence.uniform import AsyncUniformSequenceReplayBuffer, UniformSequenceReplayBuffer
from rlpyt.types import BatchSpec
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


class SequenceReplay(ReplayAlgorithm):
    """Replays sequences for a recurrent agent; put it in front of an algorithm that replays transitions.

    A sequence begins with the recurrent state that the agent had while sampling, if that is stored. Networks first update the state through
    `warmup_T` steps, without gradient. They learn from the next `batch_T` steps.

    Args:
        batch_T: steps of a sequence to train on.
        batch_B: sequences per gradient update.
        warmup_T: steps of a sequence before those to train on.
        store_rnn_state_interval: steps between two stored recurrent states. Sequences begin only at steps with a stored state. 0 stores
            no states: sequences begin anywhere, with a state of zeros.
        replay_ratio: replayed steps per sampled step; an update replays ``(batch_T + warmup_T) * batch_B`` steps.
    """

    recurrent = True
    batch_T: int
    batch_B: int
    warmup_T: int
    store_rnn_state_interval: int

    @checked(without=("batch_size",), batch_T=COUNT, batch_B=COUNT, warmup_T=STEPS, store_rnn_state_interval=STEPS)
    def __init__(
        self, *, batch_T: int = 32, batch_B: int = 32, warmup_T: int = 8, store_rnn_state_interval: int = 8, **settings: Any
    ) -> None:
        save__init__args(locals())
        super().__init__(batch_size=(self.batch_T + self.warmup_T) * self.batch_B, **settings)  # type: ignore[call-arg]

    @property
    def replay_batch_B(self) -> int:
        """Number of sequences that an update draws from the buffer."""
        return self.batch_B

    def trained_rows(self, agent: Any, batch_spec: BatchSpec) -> list[int]:
        """Return the size of the part of the sequences with gradient."""
        return [self.batch_T * self.batch_B]

    def default_replay_buffer_cls(self, example: Any, async_: bool = False) -> type:
        """Return the buffer class for the observation of an example and the settings."""
        return SEQUENCE_BUFFERS[is_frame_stack(example.observation), self.prioritized_replay, async_]

    def replay_kwargs(self, batch_spec: BatchSpec) -> dict[str, Any]:
        """Add the shape of sequences."""
        kwargs = super().replay_kwargs(batch_spec)
        kwargs.update(rnn_state_interval=self.store_rnn_state_interval, batch_T=self.warmup_T + self.batch_T)
        return kwargs

    def examples_to_buffer(self, examples: dict[str, Any]) -> Any:
        """Return the example of one stored step."""
        return self._with_rnn_state(super().examples_to_buffer(examples), examples["agent_info"])

    def samples_to_buffer(self, samples: Any) -> Any:
        """Return the part of a batch [T,B] to store."""
        return self._with_rnn_state(super().samples_to_buffer(samples), samples.agent.agent_info)

    def _with_rnn_state(self, stored: SamplesToBuffer, agent_info: Any) -> Any:
        prev_rnn_state = agent_info.prev_rnn_state if self.store_rnn_state_interval else None
        return SamplesToBufferRnn(*stored._replace(final_observation=None), prev_rnn_state)


def agent_inputs(samples: Any) -> tuple[Any, Any, torch.Tensor]:
    """Return the agent's inputs at each step of sequences; previous ones are null at episode starts if the buffer provides that."""
    if field_of(samples, "all_prev_reward") is None:
        return samples.all_observation, samples.all_action, samples.all_reward
    return samples.all_observation, samples.all_prev_action, samples.all_prev_reward


def as_model_state(init_rnn_state: Any) -> Any:
    """Transpose a stored state [B,N,...] to [N,B,...] for models; return None for None."""
    return buffer_func(init_rnn_state, lambda x: x.transpose(0, 1).contiguous())
