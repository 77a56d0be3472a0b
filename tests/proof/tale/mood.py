"""A DistilBERT of a few hundred kilobytes that tells the mood of a torn tale."""

from pathlib import Path
from typing import Any

from tests.proof.tale import grammar, torn
from tests.proof.tale.language import save_tokenizer

SEED = 11
TALES, STEPS, BATCH, LENGTH, RATE = 12_000, 200, 48, 40, 2e-3
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
ARCH: dict[str, Any] = {
    "activation": "gelu",
    "dim": 64,
    "hidden_dim": 128,
    "max_position_embeddings": 128,
    "n_heads": 4,
    "n_layers": 2,
}


def write(folder: Path) -> None:
    """config.json, model.safetensors (fp16), tokenizer.json and tokenizer_config.json."""
    examples = torn.moods(TALES, SEED)
    tokenizer = _tokenizer([text for _, text in examples])
    folder.mkdir(parents=True, exist_ok=True)
    _trained(tokenizer, examples).half().save_pretrained(folder)
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), SPECIAL))
    save_tokenizer(tokenizer, folder, **names, model_max_length=ARCH["max_position_embeddings"])


def _tokenizer(texts: list[str]) -> Any:
    """Whole words, in small letters, between [CLS] and [SEP]."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(texts, trainers.WordLevelTrainer(special_tokens=[*SPECIAL], show_progress=False))
    ends = [(name, tokenizer.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    return tokenizer


def _trained(tokenizer: Any, examples: list[tuple[str, str]]) -> Any:
    import torch
    from transformers import DistilBertConfig, DistilBertForSequenceClassification

    torch.manual_seed(SEED)
    tokenizer.enable_padding()
    tokenizer.enable_truncation(LENGTH)
    coded = tokenizer.encode_batch([text for _, text in examples])
    ids, mask = (torch.tensor([getattr(one, name) for one in coded]) for name in ("ids", "attention_mask"))
    labels = torch.tensor([grammar.MOODS.index(mood) for mood, _ in examples])
    tokenizer.no_padding()
    tokenizer.no_truncation()
    names = dict(enumerate(grammar.MOODS))
    config = DistilBertConfig(
        **ARCH,
        vocab_size=tokenizer.get_vocab_size(),
        id2label=names,
        label2id={name: n for n, name in names.items()},
        pad_token_id=0,
    )
    model = DistilBertForSequenceClassification(config)
    optimiser = torch.optim.AdamW(model.parameters(), RATE, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=STEPS)
    for step in range(STEPS):
        rows = torch.randint(len(labels), (BATCH,))
        found = model(input_ids=ids[rows], attention_mask=mask[rows], labels=labels[rows])
        found.loss.backward()
        optimiser.step()
        schedule.step()
        optimiser.zero_grad()
        if step % 100 == 0 or step == STEPS - 1:
            right = (found.logits.argmax(-1) == labels[rows]).float().mean().item()
            print(f"step {step}: {found.loss.item():.3f} nat, {right:.2f} right", flush=True)
    return model.eval()
