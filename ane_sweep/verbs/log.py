"""`ane-sweep log [RUN] [uri=URI] [experiment=NAME]`: send stored records to a tracking server"""

from ane_sweep.terminal import NOT_ALL_OK, print_result
from ane_sweep.words import RUN, Parser


def log(args: list[str]) -> int:
    parser = Parser(
        "log [RUN] [uri=URI] [experiment=NAME] [--json] [out=PATH]",
        "Send a sweep's stored records to a tracking server, or again to the one it was logged to; nothing is doubled.",
        "ane-sweep log last uri=http://127.0.0.1:5000",
        {NOT_ALL_OK: "the tracking server cannot be reached; the records stay"},
    )
    parser.add("run RUN", RUN, nargs="?")
    parser.add("uri=URI", "any MLflow tracking URI (default: the sweep's own, or $MLFLOW_TRACKING_URI)")
    parser.add("experiment=NAME", "the MLflow experiment (default: the sweep's own)")
    parser.json("sweep, links (the pages, and the command that serves them)", "a line a page")
    parser.outputs()
    given = parser.read(args)
    from ane_sweep import engine, tracking
    from ane_sweep.planner import inherited
    from ane_sweep.store import runs

    run = runs.find_run(given.out, given.run)
    own = run.info["tracking"]  # where the sweep itself was to be logged
    uri = given.uri if given.uri is not None else tracking.reopened(own["uri"], run.stamp) or inherited.tracking_uri()
    experiment = own["experiment"] if given.experiment is None else given.experiment
    links = engine.links(tracking.log_sweep(run.folder, uri=uri, experiment=experiment), own["ui"])
    return print_result(given.json, engine.format_links(links), sweep=run.stamp, links=links)
