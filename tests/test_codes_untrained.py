"Heads before training: the null of what training does."

import numpy as np
import torch

from brace_nb.codes import CodeEncoder, untrained_heads


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
