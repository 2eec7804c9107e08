"Scenes with relations: places, boxes, captions."

import numpy as np
import pytest
import torch

from brace_nb.grounding import PLACES, relation_of, render_relations, tell


@pytest.fixture(scope="module")
def scenes():
    rgba = np.zeros((6, 32, 32, 4), np.uint8)
    rgba[:, 4:28, 4:28] = 255
    rgba[..., :3] = np.arange(6)[:, None, None, None] * 40
    high = torch.tensor([True, True, True, False, False, False])
    return render_relations(rgba, high, 400, seed=0), high


def in_words(box, other):
    "The relation of two boxes, in plain steps."
    across = (box[0] + box[2] - other[0] - other[2]) / 2
    down = (box[1] + box[3] - other[1] - other[3]) / 2
    if abs(across) >= abs(down):
        return "right of" if across > 0 else "left of"
    return "below" if down > 0 else "above"


def test_relations_are_those_of_the_boxes(scenes):
    found, _ = scenes
    words = [PLACES[r] for r in found.relations.tolist()]
    assert words == [in_words(a, b) for a, b in found.boxes.tolist()]
    assert set(words) == set(PLACES)


def test_places_depend_on_what_a_thing_is(scenes):
    found, high = scenes
    middle = (found.boxes[..., 1] + found.boxes[..., 3]) / 2
    assert torch.equal(middle < 0.5, high[found.pairs])


def test_swapping_a_pair_turns_its_relation_round(scenes):
    found, _ = scenes
    turned = relation_of(found.boxes.flip(1))
    opposite = torch.tensor([1, 0, 3, 2])
    assert (turned == opposite[found.relations]).double().mean() > 0.99


def test_the_mask_is_the_subjects(scenes):
    found, _ = scenes
    for mask, (box, _) in zip(found.masks[:50], found.boxes[:50].tolist()):
        rows, columns = (mask.nonzero()[:, k].double() + 0.5 for k in (0, 1))
        assert box[0] <= columns.mean() / 8 <= box[2] and box[1] <= rows.mean() / 8 <= box[3]


def test_captions_name_the_triple(scenes):
    found, _ = scenes
    names = list("abcdef")
    told, swapped, plain = tell(names, found), tell(names, found, swapped=True), tell(names, found, False)
    for i, (a, b) in enumerate(found.pairs[:20].tolist()):
        word = PLACES[int(found.relations[i])]
        assert told[i] == f"{names[a]} {word} {names[b]}" and swapped[i] == f"{names[b]} {word} {names[a]}"
        assert plain[i] == f"{names[a]} and {names[b]}"


def test_scenes_repeat_and_refuse():
    rgba = np.full((3, 32, 32, 4), 255, np.uint8)
    high = torch.tensor([True, False, True])
    again = [render_relations(rgba, high, 5, seed=1).images for _ in range(2)]
    assert np.array_equal(*again)
    with pytest.raises(ValueError, match="grid must divide"):
        render_relations(rgba, high, 5, 0, grid=7)
    with pytest.raises(ValueError, match="high must have the shape"):
        render_relations(rgba, high[:2], 5, 0)
