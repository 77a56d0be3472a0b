"""Does PSNR predict the task? Precision x variant on the shipped language model and on trained MiniLM (some minutes)"""

from collections.abc import Sequence
from pathlib import Path

from ane_sweep.bridge.record import Record
from ane_sweep.stats.ranks import spearman
from tests.bench import Row, demo

PICTURE = Path(__file__).parents[2] / "ane_sweep" / "docs" / "scores.svg"
VARIANTS = ("original", "split_einsum")
UNTIMED = ["chips=[m4]", "tracking.enabled=false"]
ASKED = {
    "tale": ["score=perplexity", "precision=fp16,int8_channel,int4_channel,p6,p4,p3,p2,p1,sparse50,sparse75,w8a8"],
    "minilm": ["score=embedding", "precision=fp16,int8_channel,int4_channel,p6,p4,p3,p2,sparse50"],
}
NORMS = [
    "-m",
    "model=tale",
    "variant=split_einsum",
    "norm=fp16,fp16_ops,fp32_mean",
    "numerics=ane",
    "effects=[narrow_sums]",
]
AFFORDED = 0.01  # of perplexity, or of rank agreement


def run() -> list[Row]:
    found: dict[str, list[Record]] = {}
    rows = []
    for model, asked in ASKED.items():
        words = ["-m", f"model={model}", f"variant={','.join(VARIANTS)}", *asked]
        found[model] = [one for one in scored(words) if one.value("psnr_db") is not None]
        rows += [*_by_precision(found[model]), _answer(model, found[model])]
    for one in scored([*NORMS, "score=perplexity"]):
        rows.append(Row(f"tale, sums of norms in fp16, norm={one.cell['norm']}", _figures(one)))
    draw(found, PICTURE)
    return rows


def scored(words: Sequence[str]) -> list[Record]:
    """Records of cells that are scored and not timed: a goal that needs no timing takes none."""
    return demo.swept(["best", *words, "minimise=package_mb", *UNTIMED])


def lost(one: Record) -> float:
    """What the task lost against fp32 torch: perplexity's factor less 1, or rank agreement's distance from 1."""
    own, torchs = one.value("perplexity"), one.value("perplexity_torch")
    if own is not None and torchs:
        return max(0.0, float(own / torchs - 1))
    return max(0.0, 1 - float(one.value("embedding_rank_agreement") or 0.0))


def _by_precision(records: Sequence[Record]) -> list[Row]:
    names = dict.fromkeys(one.cell["precision"] for one in records)
    cells = {(one.cell["precision"], one.cell["variant"]): one for one in records}
    model = records[0].cell["model"]
    return [
        Row(f"{model} {name}", "; ".join(f"{v}: {_figures(cells[name, v])}" for v in VARIANTS if (name, v) in cells))
        for name in names
    ]


def _figures(one: Record) -> str:
    said, size = [f"{one.value('psnr_db'):.1f} dB"], one.value("package_bytes") or 0
    if (own := one.value("perplexity")) is not None:
        said.append(f"perplexity {own:.3f} ({one.value('perplexity_torch'):.3f})")
        said.append(f"top1 {one.value('task_top1_agreement'):.3f}")
    else:
        said.append(f"ranks {one.value('embedding_rank_agreement'):.3f}")
        said.append(f"grades {one.value('embedding_spearman'):.3f} ({one.value('embedding_spearman_torch'):.3f})")
    return ", ".join([*said, f"{size / 1e6:.2f} MB"])


def _answer(model: str, records: Sequence[Record]) -> Row:
    """How well the order by PSNR is the order by the task, and from which PSNR on the task loses under AFFORDED."""
    db = [float(one.value("psnr_db") or 0.0) for one in records]
    losses = [lost(one) for one in records]
    bad = [value for value, loss in zip(db, losses) if loss > AFFORDED]
    good = [value for value, loss in zip(db, losses) if loss <= AFFORDED]
    spare = f"lowest without {min(good):.1f} dB" if good else "none without"
    return Row(
        f"{model}: PSNR and what the task lost",
        f"rank correlation {spearman(db, losses):.3f} of {len(db)} cells; more than {AFFORDED:.0%} lost: highest ".replace(
            "%", " %"
        )
        + (f"{max(bad):.1f} dB" if bad else "none")
        + f", {spare}",
    )


def draw(found: dict[str, list[Record]], path: Path) -> None:
    """A panel a model: PSNR and what the task lost, the area of a spot the size of the package."""
    from matplotlib import pyplot, rc_context

    heads = {"tale": "perplexity over torch's, less 1", "minilm": "1 - rank agreement"}
    with rc_context({"svg.hashsalt": "scores", "font.size": 9}):
        figure, panels = pyplot.subplots(1, len(found), figsize=(10, 4.2))
        for panel, (model, records) in zip(panels, found.items()):
            for variant, colour in zip(VARIANTS, ("#1f77b4", "#d95f02")):
                chosen = sorted(
                    (one for one in records if one.cell["variant"] == variant),
                    key=lambda one: one.value("psnr_db") or 0.0,
                )
                x = [float(one.value("psnr_db") or 0.0) for one in chosen]
                y = [max(lost(one), 1e-6) for one in chosen]
                largest = max(float(one.value("package_bytes") or 1) for one in records)
                area = [220 * float(one.value("package_bytes") or 1) / largest for one in chosen]
                panel.scatter(x, y, area, color=colour, alpha=0.6, label=variant)
                if variant == VARIANTS[0]:
                    for n, (one, place) in enumerate(zip(chosen, zip(x, y))):
                        panel.annotate(
                            one.cell["precision"],
                            place,
                            xytext=(6, 5 if n % 2 else -11),
                            textcoords="offset points",
                            fontsize=7,
                        )
            panel.axhline(AFFORDED, color="#888", linewidth=0.8, linestyle="--")
            panel.set(
                yscale="log", xlabel="PSNR, dB", ylabel=heads[model], title=f"{model} (what lost less is drawn at 1e-6)"
            )
            panel.legend(loc="lower left", frameon=False)
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None})
        pyplot.close(figure)
