"Heads before training: the null of what training does."

import numpy as np
import torch

from brace_nb.codes import CodeEncoder, unpushed_distance, untrained_heads


def trained():
    random = np.random.default_rng(0)
    views = [random.normal(size=(64, f)).astype(np.float32) for f in (6, 5)]
    return CodeEncoder.preset("post", dim=16, hidden=8).fit(*views, epochs=3, batch_size=16), views


def test_untrained_heads_have_the_shapes_and_none_of_the_training():
    model, (images, texts) = trained()
    before, state = model.embed_images(images), torch.random.get_rng_state()
    first, second = untrained_heads([model, model])
    assert torch.equal(state, torch.random.get_rng_state())
    assert np.array_equal(model.embed_images(images), before)
    assert first.embed_images(images).shape == before.shape and first.encode_texts(texts).shape == (64, 16)
    assert not np.allclose(first.embed_images(images), before)
    assert not np.allclose(first.embed_images(images), second.embed_images(images))
    again, _ = untrained_heads([model, model])
    assert np.array_equal(first.embed_texts(texts), again.embed_texts(texts))


def test_what_nothing_has_pushed_is_softplus_of_normal_values():
    model, (images, _) = trained()
    space, head = model.heads["image"]
    z = head.net(space(torch.from_numpy(images))).detach().double().numpy()
    for own, mean, spread in ((False, 0.0, 1.0), (True, z.mean(), z.std())):
        drawn = np.random.default_rng(0).standard_normal((64, 16))
        v = np.array([[np.log1p(np.exp(mean + spread * value)) for value in row] for row in drawn])
        best = [max(row[np.argsort(-row)[:k]].sum() / np.sqrt(k) for k in range(1, 17)) for row in v]
        wanted = 2 - 2 * np.mean(np.array(best) / np.linalg.norm(v, axis=1))
        assert abs(unpushed_distance(model, images, own) - wanted) < 1e-12
