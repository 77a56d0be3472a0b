"""The probes of the doctor, in the order of its table. Each reads the world and returns one Finding; none raises."""

import platform
from collections.abc import Callable
from dataclasses import dataclass

from ane_sweep import outward
from ane_sweep.machine import powermetrics, stand_in, syslog, thermal
from ane_sweep.verbs.doctor.world import World

GB = 1e9
LEAST_FREE_GB, LEAST_MEMORY_GB = 10, 8
LISTEN_S = 3.0
NEEDS_MAC = "a Mac with Apple silicon; on this host programs are converted, cut, predicted and scored all the same"


@dataclass
class Finding:
    """The result of a probe. `can`: True if the ability is there; `needed`: no sweep runs without it."""

    probe: str
    can: bool
    evidence: str
    remedy: str
    needed: bool = False


Probe = Callable[[World], Finding]


def python(world: World) -> Finding:
    version = ".".join(map(str, world.python))
    can = (3, 11) <= world.python[:2] <= (3, 13)
    return Finding("python", can, version, "Python 3.11 to 3.13: coremltools 9.0 has wheels for no other", needed=True)


def architecture(world: World) -> Finding:
    """Check that Python is native: one that Rosetta translates, or one for Intel, sees no Neural Engine."""
    if world.system != "darwin":
        return Finding("architecture", True, f"{world.system} {world.machine}", "", needed=True)
    translated = world.translated()
    evidence = f"macOS {world.machine}" + (", translated by Rosetta" if translated else "")
    remedy = "an arm64 Python: under Rosetta Core ML sees no Neural Engine and timings are of translated code"
    return Finding("architecture", world.machine == "arm64" and not translated, evidence, remedy, needed=True)


def packages(world: World) -> Finding:
    names = ("coremltools", "torch", "transformers", "numpy", "mlflow", "hydra-core")
    have = {name: world.version(name) for name in names}
    wanted = next((r for r in world.requirements() if r.startswith("coremltools==")), "coremltools==9.0").partition(
        "=="
    )[2]
    evidence = ", ".join(f"{name} {version or 'missing'}" for name, version in have.items())
    can = None not in have.values() and have["coremltools"] == wanted
    return Finding(
        "packages",
        can,
        evidence,
        f"pip install -e '.[run]' (coremltools {wanted} is what this version is checked with)",
        needed=True,
    )


def conversion(world: World) -> Finding:
    """Check that coremltools can write weights: a pure-Python build cannot (coremltools#2448)."""
    try:
        can = world.child("coreml")["storage"]
        evidence = "coremltools' weight writer " + ("is there" if can else "is missing: a build without native code")
    except (RuntimeError, KeyError) as error:
        can, evidence = False, f"importing coremltools {error}"
    return Finding(
        "conversion",
        can,
        evidence,
        "coremltools from PyPI: it has wheels for macOS and for Linux on x86-64",
        needed=True,
    )


def core_ml(world: World) -> Finding:
    try:
        seen = world.child("coreml")
    except (RuntimeError, ValueError) as error:
        return Finding(
            "core ml",
            False,
            f"a process that loads it {error}",
            "run `python -m ane_sweep.worker.runtimes._probe coreml` and read",
        )
    if not seen.get("native"):
        return Finding("core ml", False, f"no native module on {world.system}", NEEDS_MAC)
    if "predict_ms" not in seen:
        remedy = "a newer macOS, or the wheel of coremltools for this Python"
        return Finding("core ml", False, f"a program of one op failed: {seen.get('error')}", remedy)
    return Finding("core ml", True, f"a program of one op took {seen['predict_ms']:.2f} ms on the CPU", "")


def neural_engine(world: World) -> Finding:
    try:
        devices = world.child("coreml").get("devices", {})
    except RuntimeError as error:
        devices, why = {}, f"asking {error}"
    else:
        why = f"Core ML lists {', '.join(devices)}" if devices else "no Core ML to ask"
    if "Neural Engine" in devices:
        cores = devices["Neural Engine"]
        return Finding(
            "neural engine", True, f"Core ML lists one of {cores} cores on {world.chip() or 'this chip'}", ""
        )
    return Finding("neural engine", False, why, "a Mac with Apple silicon, not a virtual machine: those show none")


def xcode(world: World) -> Finding:
    version = world.xcode()
    said = world.ask("xcrun", "--find", "coremlcompiler")
    found = said.stdout.strip() if said is not None and said.ok else ""
    evidence = f"{version or 'no Xcode'}; coremlcompiler {found or _why(said, 'xcrun')}"
    remedy = "Xcode from the App Store; without it Core ML itself compiles (compiler=coremltools), and device=usb cannot be had"
    return Finding("xcode", bool(version and found), evidence, remedy)


def usb_devices(world: World) -> Finding:
    found = world.connected()
    shown = "; ".join(f"{device.model or device.kind}, OS {device.os_version} ({device.os_build})" for device in found)
    remedy = "one iPhone or iPad on a cable, unlocked, trusting this Mac, Developer Mode on; Xcode for devicectl"
    lacking = "devicectl lists no connected iPhone or iPad"
    if platform.system() != "Darwin" and not stand_in.active():
        lacking, remedy = (
            "no connected iPhone or iPad: only a Mac reaches them",
            "a Mac with Xcode, and one iPhone or iPad on a cable",
        )
    return Finding("usb devices", len(found) == 1, shown or lacking, remedy)


def pytorch_gpu(world: World) -> Finding:
    try:
        seen = world.child("torch")
    except RuntimeError as error:
        return Finding("pytorch on gpu", False, f"importing torch {error}", "pip install -e '.[run]'")
    there = [name for name in ("mps", "cuda") if seen[name]]
    evidence = f"torch {seen['version']}: {', '.join(there).upper() or 'neither MPS nor CUDA'}"
    remedy = "a Mac with Apple silicon; runtime=reference_cuda: an NVIDIA GPU, its driver and PyTorch's CUDA build"
    return Finding("pytorch on gpu", bool(there), evidence, remedy)


def power(world: World) -> Finding:
    said = world.ask(*powermetrics.command(1), timeout_s=20)
    remedy = f"let sudo run it without a password: sudo visudo -f /etc/sudoers.d/powermetrics, with the line `{powermetrics.ALLOW}`"
    if world.system != "darwin" and said is None:
        return Finding("power", False, "no sudo powermetrics on this host", NEEDS_MAC)
    if said is None:
        return Finding("power", False, "no sudo", remedy)
    try:
        (sample, *_) = powermetrics.parse(said.stdout.encode())
    except ValueError:
        return Finding("power", False, _why(said, "sudo -n powermetrics"), remedy)
    shown = ", ".join(f"{e} {mw:.0f} mW" for e, mw in sample.milliwatts.items() if mw is not None)
    return Finding(
        "power",
        bool(shown),
        shown or "powermetrics shows no channel of this chip",
        "a macOS whose powermetrics knows this chip",
    )


def system_log(world: World) -> Finding:
    line, why = world.listen(syslog.command(1), LISTEN_S)
    if line is not None:
        return Finding("system log", True, f"log stream says `{line[:60]}`", "")
    return Finding("system log", False, why, "macOS, and a user who is an administrator")


def heat(world: World) -> Finding:
    said = world.ask(*thermal.NOTIFYUTIL)
    words = said.stdout.split() if said is not None and said.ok else []
    can = bool(words) and words[-1].isdigit() and int(words[-1]) < len(thermal.PRESSURE)
    evidence = f"thermal pressure {thermal.PRESSURE[int(words[-1])]}" if can else _why(said, "notifyutil")
    return Finding("heat", can, evidence, "macOS; without it records say nothing of thermal pressure")


def quiet(world: World) -> Finding:
    doubts = world.doubts()
    return Finding(
        "quiet for timing",
        not doubts,
        "; ".join(doubts) or "idle, as far as the system tells",
        "mains, normal power mode, nothing else running",
    )


def hub(world: World) -> Finding:
    cached = f"{world.cached_models()} models in the local cache"
    if world.environ("HF_HUB_OFFLINE") not in (None, "", "0"):
        return Finding(
            "hugging face hub",
            False,
            f"HF_HUB_OFFLINE is set; {cached}",
            "unset HF_HUB_OFFLINE, or weights=FOLDER, or weights=random",
        )
    address = (world.environ("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    try:
        world.get(address)
    except (OSError, ValueError) as error:
        return Finding(
            "hugging face hub",
            False,
            outward.mask_credentials(f"{address} does not answer ({error}); {cached}"),
            "a network, or weights=FOLDER, or weights=random",
        )
    return Finding("hugging face hub", True, outward.mask_credentials(f"{address} answers; {cached}"), "")


def tracker(world: World) -> Finding:
    uri = outward.mask_credentials(world.uri or "").replace(f"{outward.HIDDEN}@", "")
    if not uri.startswith(("http://", "https://")):
        where = uri or f"sqlite under {world.out}"
        version = world.version("mlflow")
        return Finding("tracker", version is not None, f"{where}, mlflow {version or 'missing'}", "pip install -e .")
    address = f"{uri.rstrip('/')}/health"
    try:
        said = world.get(address).strip()
    except (OSError, ValueError) as error:
        return Finding(
            "tracker",
            False,
            outward.without_secrets(f"{address} does not answer ({error})", world.uri or ""),
            "start it (mlflow server), or leave uri= out; records are kept anyway",
        )
    return Finding("tracker", said == "OK", f"{address} says {said[:40]!r}", "an MLflow server's address")


def disk(world: World) -> Finding:
    remedy = (
        f"another folder with out=PATH, or `ane-sweep prune max-gb=N`; {LEAST_FREE_GB} GB hold a large model's programs"
    )
    try:
        free = world.free_bytes() / GB
    except OSError as error:
        return Finding("disk", False, f"{world.out} cannot be written ({error.strerror or error})", remedy, needed=True)
    return Finding("disk", free >= LEAST_FREE_GB, f"{free:.1f} GB free at {world.out}", remedy, needed=True)


def memory(world: World) -> Finding:
    total, available = (size / GB for size in world.memory())
    evidence = f"{total:.1f} GB, {available:.1f} GB of it available"
    return Finding(
        "memory",
        total >= LEAST_MEMORY_GB,
        evidence,
        "lanes=1 and models up to some 500 M parameters, or a larger machine",
    )


def _why(said: object, tool: str) -> str:
    if said is None:
        return f"{tool}: no such tool on this host"
    text = getattr(said, "stderr", "").strip().splitlines()
    return f"{tool}: {text[-1] if text else 'no answer'}"


PROBES: tuple[Probe, ...] = (
    python, architecture, packages, conversion, disk, memory, core_ml, neural_engine, xcode, usb_devices, pytorch_gpu,
    power, system_log, heat, quiet, hub, tracker,
)  # fmt: skip
