"""fetch: downloads a checkpoint from the Hugging Face hub to its local cache; the only stage that uses the network."""

from pathlib import Path

from ane_sweep.bridge.stages import Stage
from ane_sweep.errors import WeightsError
from ane_sweep.worker import params
from ane_sweep.worker.stages import StageResult

STAGE = Stage(
    order=10, many="downloads", timeout_s=14400, memory_gib=4, base_gib=0.2, per_byte=0.1, base_s=5, per_gb_s=40,
    stored=False, network=True,
)  # fmt: skip


class Params(params.Params, frozen=True):
    """The repository, its revision, and the files (patterns) that are needed."""

    repo: str
    revision: str | None
    files: list[str] | None


def run(params: dict[str, object], inputs: dict[str, Path], out: Path) -> StageResult:
    """Fetch the files of params. facts: {"folder": the snapshot's folder}. Raises WeightsError."""
    from huggingface_hub import snapshot_download

    source = Params.read(params)
    try:
        folder = snapshot_download(source.repo, revision=source.revision, allow_patterns=source.files)
    except Exception as error:  # the hub client has no common base class for its failures
        raise WeightsError(
            f"{source.repo} could not be fetched: {type(error).__name__}: {error}; run the same command again"
        ) from error
    return StageResult(facts={"folder": str(folder)})
