"""Episodes as rows of [T,B] memory."""

from __future__ import annotations

import numpy as np
import pytest

from rlpyt.envs.specs import StepType
from rlpyt.episodes.batch import EpisodeBatch
from rlpyt.episodes.segments import Episode, Episodes, Layout, Segment, Steps


def steps(T, B, first=0, **infos):
    """Return steps whose values all are ``first + 100 * b + t``."""
    values = first + 100 * np.arange(B) + np.arange(T)[:, None]
    arrays = {("observations",): values, ("actions", "a"): values, ("rewards",): values.astype(float)}
    step_types = np.full((T, B), StepType.MID, np.uint8)
    return Steps({**arrays, ("step_types",): step_types, **{("env_infos", key): info for key, info in infos.items()}})


def test_an_episode_is_gathered_from_its_segments_in_order():
    old, new = steps(4, 2), steps(4, 2, first=50)
    long = Episode([Segment(old, 1, 2, 4), Segment(new, 1, 0, 1)], np.array(7), {"goal": 3})
    short = Episode([Segment(new, 0, 1, 3)], np.array(8), {"goal": 4})
    batch = Episodes(None, [long, short]).to_batch()
    assert batch.observations.tolist() == [102, 103, 150, 51, 52] and batch.lengths.tolist() == [3, 2]
    assert batch.actions["a"].tolist() == batch.rewards.tolist() == batch.observations.tolist()
    assert batch.last_observations.tolist() == [7, 8] and batch.episode_infos_by_episode["goal"].tolist() == [3, 4]


def test_a_copied_segment_holds_its_rows_only():
    chunk = steps(5, 3)
    copied = Segment(chunk, 2, 1, 4).copy()
    chunk.leaves()["observations",][...] = -1
    assert copied.chunk.leaves()["observations",].tolist() == [[201], [202], [203]] and (copied.b, copied.start, copied.stop) == (0, 0, 3)


def test_a_batch_becomes_segments_without_a_copy_and_the_same_batch_again():
    batch = Episodes(None, [Episode([Segment(steps(4, 1), 0, 0, n)], np.array(n), {"n": n}) for n in (1, 3)]).to_batch()
    played = Episodes.of_batch(batch)
    assert played.to_batch() is batch and played.n_steps == 4 and [episode.length for episode in played.episodes] == [1, 3]
    assert np.shares_memory(played.episodes[1].segments[0].chunk.leaves()["observations",], batch.observations)
    assert played.first(1).to_batch() == batch.split()[0]


def test_dtypes_are_widened_over_episodes_and_strings_are_kept():
    whole, parts, text = steps(2, 1, x=np.array([[1], [2]])), steps(2, 1, x=np.array([[0.5], [0.25]])), np.array([["a"], ["bc"]], object)
    episodes = [Episode([Segment(chunk, 0, 0, 2)], np.array(0), {}) for chunk in (whole, parts)]
    assert Episodes(None, episodes).to_batch().env_infos["x"].tolist() == [1, 2, 0.5, 0.25]
    named = Episode([Segment(steps(2, 1, x=text), 0, 0, 2)], np.array(0), {})
    assert Episodes(None, [named]).to_batch().env_infos["x"].dtype.kind == "U"


def test_text_and_numbers_of_several_episodes_stay_what_they_are():
    columns = np.array([[1], [2]]), np.array([["a"], ["b"]]), np.array([[None], [0.5]], object)
    episodes = [
        Episode([Segment(steps(2, 1, x=column), 0, 0, 2)], np.array(0), {"name": name}) for column, name in zip(columns, ("a", 1, 2.5))
    ]
    batch = Episodes(None, episodes).to_batch()
    assert batch.env_infos["x"].tolist() == [1, 2, "a", "b", None, 0.5]
    assert batch.episode_infos_by_episode["name"].tolist() == ["a", 1, 2.5]
    assert EpisodeBatch.concatenate(*(Episodes(None, [episode]).to_batch() for episode in episodes)) == batch


def test_columns_of_objects_become_numbers_or_text_where_no_entry_changes():
    def column(*entries):
        infos = np.array([[entry] for entry in entries], object)
        return (
            Episodes(None, [Episode([Segment(steps(len(entries), 1, x=infos), 0, 0, len(entries))], np.array(0), {})])
            .to_batch()
            .env_infos["x"]
        )

    assert column(1, 2.5, np.nan).dtype == np.float64 and column(True, False).dtype == bool and column(b"a", b"bc").dtype == "S2"
    assert column(np.datetime64("2020-01-01"), np.datetime64("2020-01-02")).dtype == "datetime64[D]"
    for entries in (["1", 1], [b"a\0", b"b"], [2**63 + 1, -1], [None, 1]):
        assert column(*entries).tolist() == entries


def test_layouts_of_other_fields_or_shapes_do_not_merge():
    def layout(**infos):
        return Episodes(None, [Episode([Segment(steps(2, 1, **infos), 0, 0, 2)], np.array(0), {})]).layout()

    merged = Layout.merge([layout(), layout()])
    assert merged.lengths == [2, 2] and merged.n_bytes == sum(array.nbytes for array in merged.allocate().values())
    with pytest.raises(ValueError, match="do not have the same fields: only some have .*env_infos.x"):
        Layout.merge([layout(), layout(x=np.zeros((2, 1)))])
    with pytest.raises(ValueError, match=r"env_infos.x has shape \(3,\) in one episode and \(\) in another"):
        Layout.merge([layout(x=np.zeros((2, 1))), layout(x=np.zeros((2, 1, 3)))])


def test_episodes_whose_resets_return_other_infos_are_refused():
    episodes = [Episode([Segment(steps(2, 1), 0, 0, 2)], np.array(0), info) for info in ({"a": 1}, {"b": 1})]
    with pytest.raises(ValueError, match=r"episode_info: expected the keys \['a'\] of every reset, got \['b'\]"):
        Episodes(None, episodes).to_batch()
