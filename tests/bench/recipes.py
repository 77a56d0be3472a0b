"""+sweep=recipes: what each precision costs trained MiniLM in size and accuracy (some ten minutes)"""

from tests.bench import Row, demo


def run() -> list[Row]:
    rows = []
    for one in demo.swept(["-m", "+sweep=recipes", "latency.repeats=1", "latency.samples=3"]):
        size, bits = (one.value("package_bytes") or 0) / 1e6, one.value("bits_per_weight")
        said = f"{size:.1f} MB, {bits:.2f} bits a weight, {one.value('psnr_db'):.1f} dB, rank agreement {one.value('rank_agreement'):.3f}"
        rows.append(Row(one.cell["precision"], said))
    return rows
