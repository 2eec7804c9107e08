"Small encoders and a short recipe that several tests train or build."

from brace_nb.foundations import EncoderConfig, TrainingConfig


TINY = EncoderConfig(
    embed_dim=16, text_width=32, text_heads=1, text_layers=1, vocab_size=300, context_length=16
)
SMALL = EncoderConfig(
    embed_dim=32, text_width=32, text_heads=2, text_layers=2, vocab_size=512, context_length=12
)
RECIPE = TrainingConfig(
    steps=20, batch_size=8, texts=3, warmup=3, languages=("en", "ig"), split="val"
)  # Igbo lacks names: absent views too
