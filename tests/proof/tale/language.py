"""A GPT-2 of a megabyte, trained on tales, with activations as large as those of large models.

Afterwards the residual stream is scaled by a power of two, which changes nothing in exact arithmetic: embeddings and what is
added to the stream times s, the last norm's weight divided by it (the head is tied to the embeddings), the norms' epsilon
times s squared. The sums of squares of its norms then lie beyond fp16, as others found in GPT-2 (more-ane-transformers).
"""

import math
from pathlib import Path
from typing import Any

from tests.proof.tale import grammar

SEED = 7
TALES, BLOCK = 24_000, 8  # that are read, and how many stand between two ends of text
STEPS, BATCH, WINDOW, RATE = 500, 12, 128, 3e-3
LARGEST = 200.0  # of a norm's input after its mean is taken away: below 256, whose square fp16 still holds
END = "<|endoftext|>"
ARCH: dict[str, Any] = {
    "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5, "n_embd": 128, "n_head": 4, "n_layer": 4, "n_positions": 256,
    "vocab_size": 1024, "tie_word_embeddings": True,
}  # fmt: skip


def write(folder: Path) -> None:
    """config.json, model.safetensors (fp16), tokenizer.json and tokenizer_config.json."""
    texts = [tale.text for tale in grammar.tales(TALES, SEED)]
    tokenizer = _tokenizer(texts)
    model = _trained(tokenizer, texts)
    scale = rescale(model.half().float(), tokenizer.encode("\n".join(texts[:40])).ids)
    print(f"residual stream times {scale:g}")
    folder.mkdir(parents=True, exist_ok=True)
    model.half().save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)
    save_tokenizer(tokenizer, folder, eos_token=END, bos_token=END, pad_token=END, model_max_length=ARCH["n_positions"])


def save_tokenizer(tokenizer: Any, folder: Path, **more: Any) -> None:
    from transformers import PreTrainedTokenizerFast

    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **more).save_pretrained(folder)


def _tokenizer(texts: list[str]) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=ARCH["vocab_size"],
        special_tokens=[END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def _trained(tokenizer: Any, texts: list[str]) -> Any:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(SEED)
    end = tokenizer.token_to_id(END)
    blocks = ["\n".join(texts[first : first + BLOCK]) + "\n" + END for first in range(0, len(texts), BLOCK)]
    ids = torch.tensor([one for block in tokenizer.encode_batch(blocks) for one in block.ids])
    model = GPT2LMHeadModel(
        GPT2Config(**ARCH, bos_token_id=end, eos_token_id=end, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0)
    )
    optimiser = torch.optim.AdamW(model.parameters(), RATE, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min((step + 1) / 50, 0.5 + 0.5 * math.cos(math.pi * step / STEPS))
    )
    for step in range(STEPS):
        starts = torch.randint(len(ids) - WINDOW, (BATCH,))
        batch = torch.stack([ids[start : start + WINDOW] for start in starts])
        loss = model(batch, labels=batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        optimiser.zero_grad()
        if step % 100 == 0 or step == STEPS - 1:
            print(f"step {step}: {loss.item():.3f} nat, perplexity {math.exp(loss.item()):.2f}", flush=True)
    return model.eval()


def rescale(model: Any, ids: list[int]) -> float:
    """Multiply the residual stream by the power of two that brings the largest input of a norm, its mean taken away, just
    under LARGEST. Bit by bit the same function in fp32; returns the factor."""
    import torch

    seen: list[float] = []
    norms = [module for module in model.modules() if isinstance(module, torch.nn.LayerNorm)]
    hooks = [norm.register_forward_pre_hook(lambda _, x: seen.append(_spread(x[0]))) for norm in norms]
    with torch.inference_mode():
        for first in range(0, len(ids) - WINDOW, WINDOW):
            model(torch.tensor([ids[first : first + WINDOW]]))
    for hook in hooks:
        hook.remove()
    scale = 2.0 ** math.floor(math.log2(LARGEST / max(seen)))
    body = model.transformer
    with torch.no_grad():
        added = [part for block in body.h for part in (block.attn.c_proj, block.mlp.c_proj)]
        for tensor in (body.wte.weight, body.wpe.weight, *(t for part in added for t in (part.weight, part.bias))):
            tensor *= scale
        body.ln_f.weight /= scale
        body.ln_f.bias /= scale
    for norm in norms:
        norm.eps *= scale**2
    model.config.layer_norm_epsilon *= scale**2
    return scale


def _spread(x: Any) -> float:
    return float((x - x.mean(-1, keepdim=True)).abs().max())
