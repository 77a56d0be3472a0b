"""The probes of the doctor, in the order of its table. Each examines the world and returns one Finding; none raises."""

import os
import platform
import time
from collections.abc import Callable
from dataclasses import dataclass

from ane_sweep import outward
from ane_sweep.bridge.programs import PROGRAMS
from ane_sweep.machine import powermetrics, stand_in, syslog, thermal, tools
from ane_sweep.store import remote
from ane_sweep.verbs.doctor.world import World

GB = 1e9
LEAST_FREE_GB, LEAST_MEMORY_GB = 10, 8
LISTEN_S = 3.0
NEEDS_MAC = "a Mac with Apple silicon; on this host programs are converted, cut, predicted and scored all the same"
_STORE_REMEDY = "address, credentials (docs/fleet.md) and room; a sweep goes on without, and pushes nothing"


@dataclass
class Finding:
    """The result of a probe. `can`: the ability exists; `needed`: no sweep can run without it."""

    probe: str
    can: bool
    evidence: str
    remedy: str
    needed: bool = False


Answer = tuple[bool, str, str]  # can, evidence, remedy
PROBES: list[Callable[[World], Finding]] = []


def probe(name: str, needed: bool = False) -> Callable[[Callable[[World], Answer]], Callable[[World], Answer]]:
    """Return a decorator that adds a function to the probes."""

    def add(look: Callable[[World], Answer]) -> Callable[[World], Answer]:
        PROBES.append(lambda world: Finding(name, *look(world), needed))
        return look

    return add


@probe("python", needed=True)
def python(world: World) -> Answer:
    can = (3, 11) <= world.python[:2] <= (3, 13)
    return can, ".".join(map(str, world.python)), "Python 3.11 to 3.13: coremltools 9.0 has wheels for no other"


@probe("architecture", needed=True)
def architecture(world: World) -> Answer:
    """Check that Python is native: under Rosetta, or built for Intel, it cannot use the Neural Engine."""
    if world.system != "darwin":
        return True, f"{world.system} {world.machine}", ""
    translated = world.translated()
    evidence = f"macOS {world.machine}" + (", translated by Rosetta" if translated else "")
    remedy = "an arm64 Python: under Rosetta Core ML sees no Neural Engine and timings are of translated code"
    return world.machine == "arm64" and not translated, evidence, remedy


@probe("packages", needed=True)
def packages(world: World) -> Answer:
    names = ("coremltools", "torch", "transformers", "numpy", "mlflow", "hydra-core")
    have = {name: world.version(name) for name in names}
    pins = [pin.partition("==")[2] for pin in world.requirements() if pin.startswith("coremltools==")]
    wanted = next(iter(pins), "9.0")
    evidence = ", ".join(f"{name} {version or 'missing'}" for name, version in have.items())
    remedy = f"pip install -e '.[run]' (coremltools {wanted} is what this version is checked with)"
    return None not in have.values() and have["coremltools"] == wanted, evidence, remedy


@probe("conversion", needed=True)
def conversion(world: World) -> Answer:
    """Check that coremltools can write weights: its pure-Python build cannot (coremltools#2448)."""
    remedy = "coremltools from PyPI: it has wheels for macOS and for Linux on x86-64"
    try:
        can = bool(world.child("coreml")["storage"])
    except (RuntimeError, KeyError) as error:
        return False, f"importing coremltools {error}", remedy
    return can, f"coremltools' weight writer is {'there' if can else 'missing: a build without native code'}", remedy


@probe("core ai")
def core_ai(world: World) -> Answer:
    """Check for the extra that toolchain=coreai needs."""
    have = {name: world.version(name) for name in PROGRAMS["coreai"].distributions}
    evidence = ", ".join(f"{name} {version or 'missing'}" for name, version in have.items())
    return None not in have.values(), evidence, "pip install 'ane-sweep[coreai]', for toolchain=coreai alone"


@probe("disk", needed=True)
def disk(world: World) -> Answer:
    remedy = (
        f"another folder with out=PATH, or `ane-sweep prune max-gb=N`; {LEAST_FREE_GB} GB hold a large model's programs"
    )
    try:
        free = world.free_bytes() / GB
    except OSError as error:
        return False, f"{world.out} cannot be written ({error.strerror or error})", remedy
    return free >= LEAST_FREE_GB, f"{free:.1f} GB free at {world.out}", remedy


@probe("memory")
def memory(world: World) -> Answer:
    total, available = (size / GB for size in world.memory())
    remedy = "lanes=1 and models up to some 500 M parameters, or a larger machine"
    return total >= LEAST_MEMORY_GB, f"{total:.1f} GB, {available:.1f} GB of it available", remedy


@probe("core ml")
def core_ml(world: World) -> Answer:
    try:
        seen = world.child("coreml")
    except (RuntimeError, ValueError) as error:
        remedy = "run `python -m ane_sweep.worker.runtimes._probe coreml` and read"
        return False, f"a process that loads it {error}", remedy
    if not seen.get("native"):
        return False, f"no native module on {world.system}", NEEDS_MAC
    if "predict_ms" not in seen:
        remedy = "a newer macOS, or the wheel of coremltools for this Python"
        return False, f"a program of one op failed: {seen.get('error')}", remedy
    return True, f"a program of one op took {seen['predict_ms']:.2f} ms on the CPU", ""


@probe("neural engine")
def neural_engine(world: World) -> Answer:
    try:
        devices = world.child("coreml").get("devices", {})
        why = f"Core ML lists {', '.join(devices)}" if devices else "no Core ML to ask"
    except RuntimeError as error:
        devices, why = {}, f"asking {error}"
    if "Neural Engine" in devices:
        return True, f"Core ML lists one of {devices['Neural Engine']} cores on {world.chip() or 'this chip'}", ""
    return False, why, "a Mac with Apple silicon, not a virtual machine: those show none"


@probe("xcode")
def xcode(world: World) -> Answer:
    version = world.xcode()
    answer = world.ask("xcrun", "--find", "coremlcompiler")
    path = answer.stdout.strip() if answer is not None and answer.ok else ""
    evidence = f"{version or 'no Xcode'}; coremlcompiler {path or _why(answer, 'xcrun')}"
    remedy = "Xcode from the App Store; without it Core ML itself compiles (compiler=coremltools), and device=usb cannot be had"
    return bool(version and path), evidence, remedy


@probe("usb devices")
def usb_devices(world: World) -> Answer:
    found = world.connected()
    shown = "; ".join(f"{device.model or device.kind}, OS {device.os_version} ({device.os_build})" for device in found)
    remedy = "one iPhone or iPad on a cable, unlocked, trusting this Mac, Developer Mode on; Xcode for devicectl"
    lacking = "devicectl lists no connected iPhone or iPad"
    if platform.system() != "Darwin" and not stand_in.active():
        lacking = "no connected iPhone or iPad: only a Mac reaches them"
        remedy = "a Mac with Xcode, and one iPhone or iPad on a cable"
    return len(found) == 1, shown or lacking, remedy


@probe("pytorch on gpu")
def pytorch_gpu(world: World) -> Answer:
    try:
        seen = world.child("torch")
    except RuntimeError as error:
        return False, f"importing torch {error}", "pip install -e '.[run]'"
    there = [name for name in ("mps", "cuda") if seen[name]]
    evidence = f"torch {seen['version']}: {', '.join(there).upper() or 'neither MPS nor CUDA'}"
    remedy = "a Mac with Apple silicon; runtime=reference_cuda: an NVIDIA GPU, its driver and PyTorch's CUDA build"
    return bool(there), evidence, remedy


@probe("power")
def power(world: World) -> Answer:
    answer = world.ask(*powermetrics.command(1), timeout_s=20)
    remedy = f"let sudo run it without a password: sudo visudo -f /etc/sudoers.d/powermetrics, with the line `{powermetrics.ALLOW}`"
    if answer is None:
        is_mac = world.system == "darwin"
        return False, "no sudo" if is_mac else "no sudo powermetrics on this host", remedy if is_mac else NEEDS_MAC
    try:
        (sample, *_) = powermetrics.parse(answer.stdout.encode())
    except ValueError:
        return False, _why(answer, "sudo -n powermetrics"), remedy
    shown = ", ".join(f"{e} {mw:.0f} mW" for e, mw in sample.milliwatts.items() if mw is not None)
    remedy = "a macOS whose powermetrics knows this chip"
    return bool(shown), shown or "powermetrics shows no channel of this chip", remedy


@probe("system log")
def system_log(world: World) -> Answer:
    line, why = world.listen(syslog.command(1), LISTEN_S)
    if line is not None:
        return True, f"log stream says `{line[:60]}`", ""
    return False, why, "macOS, and a user who is an administrator"


@probe("heat")
def heat(world: World) -> Answer:
    answer = world.ask(*thermal.NOTIFYUTIL)
    words = answer.stdout.split() if answer is not None and answer.ok else []
    can = bool(words) and words[-1].isdigit() and int(words[-1]) < len(thermal.PRESSURE)
    evidence = f"thermal pressure {thermal.PRESSURE[int(words[-1])]}" if can else _why(answer, "notifyutil")
    return can, evidence, "macOS; without it records say nothing of thermal pressure"


@probe("quiet for timing")
def quiet(world: World) -> Answer:
    doubts = "; ".join(world.doubts())
    return not doubts, doubts or "idle, as far as the system tells", "mains, normal power mode, nothing else running"


@probe("hugging face hub")
def hub(world: World) -> Answer:
    cached, remedy = f"{world.cached_models()} models in the local cache", "weights=FOLDER, or weights=random"
    if world.environ("HF_HUB_OFFLINE") not in (None, "", "0"):
        return False, f"HF_HUB_OFFLINE is set; {cached}", f"unset HF_HUB_OFFLINE, or {remedy}"
    address = (world.environ("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    try:
        world.get(address)
    except (OSError, ValueError) as error:
        evidence = outward.mask_credentials(f"{address} does not answer ({error}); {cached}")
        return False, evidence, f"a network, or {remedy}"
    return True, outward.mask_credentials(f"{address} answers; {cached}"), ""


@probe("tracker")
def tracker(world: World) -> Answer:
    uri = outward.mask_credentials(world.uri or "").replace(f"{outward.HIDDEN}@", "")
    if not uri.startswith(("http://", "https://")):
        version = world.version("mlflow")
        evidence = f"{uri or f'sqlite under {world.out}'}, mlflow {version or 'missing'}"
        return version is not None, evidence, "pip install -e ."
    address = f"{uri.rstrip('/')}/health"
    try:
        answer = world.get(address).strip()
    except (OSError, ValueError) as error:
        evidence = outward.without_secrets(f"{address} does not answer ({error})", world.uri or "")
        return False, evidence, "start it (mlflow server), or leave uri= out; records are kept anyway"
    return answer == "OK", f"{address} says {answer[:40]!r}", "an MLflow server's address"


def _why(answer: tools.Answer | None, tool: str) -> str:
    if answer is None:
        return f"{tool}: no such tool on this host"
    text = answer.stderr.strip().splitlines()
    return f"{tool}: {text[-1] if text else 'no answer'}"


def store(url: str) -> Finding:
    """Probe a store, which is needed because the user named it: write a file there, read it back and delete it.

    A read-only store counts as a no, with that reason.
    """
    shared, content = remote.Remote(url), os.urandom(64)
    name, began = f"tmp/doctor-{content[:8].hex()}", time.perf_counter()
    address, done = outward.mask_credentials(url), "cannot be read"
    try:
        shared.read(name)
        done = "can be read"
        shared.write(name, content)
        same = shared.read(name) == content
    except Exception as error:  # file systems have no error in common
        if done == "can be read" and remote.is_forbidden(error):
            done = "can be read, may not be written"
        return Finding("store", False, f"{address} {done}: {remote.why(error)}", _STORE_REMEDY, needed=True)
    try:
        shared.delete(name)
        deleted = "deleted"
    except Exception as error:  # a sweep deletes nothing there
        deleted = f"not deleted: {remote.why(error)}"
    took = time.perf_counter() - began
    evidence = (
        f"{address}: a file was written, read {'back' if same else 'as other bytes'} and {deleted}, in {took:.1f} s"
    )
    return Finding("store", same, evidence, _STORE_REMEDY, needed=True)
