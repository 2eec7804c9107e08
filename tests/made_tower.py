"A text tower of a few words with its tokenizer, for tests that read and translate."

from brace_nb.foundations import ByteBPE, EncoderConfig, build_encoder, train_bpe

WORDS = ["red cat", "blue dog", "green bird", "big house", "a small car there", "old tree"]


def text_tower():
    "Tower, tokenizer, ids of the words."
    tokenizer = ByteBPE(train_bpe(WORDS, 300), 300, 16)
    shape = dict(embed_dim=16, image_model="test_resnet", text_width=16, text_heads=2)
    tower = build_encoder(EncoderConfig(**shape, vocab_size=300, context_length=16), tokenizer, 0).model
    return tower, tokenizer, tokenizer(WORDS)
