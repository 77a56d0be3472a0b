"""The formats of `lint --format NAME`, one module each with `write(judgements)`; findings say the same in all of them."""
