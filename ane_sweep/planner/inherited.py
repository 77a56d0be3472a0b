"""Settings from MLflow's own environment variables, used if the corresponding key is not set."""

import os
from dataclasses import replace

from ane_sweep import outward
from ane_sweep.bridge.settings import TrackingSettings

URI, EXPERIMENT = "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME"
OWN_EXPERIMENT = "ane-sweep"


def tracking_uri() -> str | None:
    """Return MLflow's tracking URI from its variable; None, also for an empty one, means the outputs folder's database."""
    return os.environ.get(URI) or None


def complete_tracking(tracking: TrackingSettings) -> tuple[TrackingSettings, list[str]]:
    """Return (the settings under `tracking`, completed; notes on the variables used).

    A key wins over its variable, the variable over the default.
    """
    uri = tracking.uri or tracking_uri()
    experiment = tracking.experiment or os.environ.get(EXPERIMENT) or OWN_EXPERIMENT
    own = {URI: tracking.uri, EXPERIMENT: tracking.experiment}
    taken = [name for name, value in own.items() if os.environ.get(name) and not value]
    where = outward.mask_credentials(uri) if uri else "the outputs folder's database"
    note = f"logged to {where}, experiment {experiment} ({', '.join(taken)})"
    return replace(tracking, uri=uri, experiment=experiment), [note] if taken and tracking.enabled else []
