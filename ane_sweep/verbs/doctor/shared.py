"""The probe of a shared store: it writes a file there, reads it back and deletes it."""

import os
import time

from ane_sweep import outward
from ane_sweep.store.remote import Remote, is_forbidden, why
from ane_sweep.verbs.doctor.probes import Finding

_REMEDY = "address, credentials (docs/fleet.md) and room; a sweep goes on without, and pushes nothing"


def store(url: str) -> Finding:
    """Probe a store, which is needed because the user named it. A read-only store counts as a no, with that reason."""
    remote, content = Remote(url), os.urandom(64)
    name, began = f"tmp/doctor-{content[:8].hex()}", time.perf_counter()
    said = outward.mask_credentials(url)
    try:
        remote.read(name)
    except Exception as error:  # file systems have no error in common
        return Finding("store", False, f"{said} cannot be read: {why(error)}", _REMEDY, needed=True)
    try:
        remote.write(name, content)
        same = remote.read(name) == content
    except Exception as error:
        may_not = ", may not be written" if is_forbidden(error) else ""
        return Finding("store", False, f"{said} can be read{may_not}: {why(error)}", _REMEDY, needed=True)
    try:
        remote.delete(name)
        deleted = "deleted"
    except Exception as error:  # a sweep deletes nothing there
        deleted = f"not deleted: {why(error)}"
    took = time.perf_counter() - began
    evidence = f"{said}: a file was written, read {'back' if same else 'as other bytes'} and {deleted}, in {took:.1f} s"
    return Finding("store", same, evidence, _REMEDY, needed=True)
