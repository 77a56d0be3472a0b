"""A model that is talked to: its tokenizer, one prediction after the other, and the line to whoever asks."""
