"""Two machines and a store between them, whole: real commands, S3 with TLS, credentials in the environment alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import stores

PREPARES = {"reference", "convert", "chunk", "predict"}


def sweep(out: Path, *words: str, **env: str) -> tuple[list[dict], str]:
    command = [sys.executable, "-P", "-m", "ane_sweep", "-m", "model=tiny-gpt2", "weights=random", "chunks=1,2", "seq_len=32",
               "runtime=reference", "latency.repeats=1", "gate.wait_s=0", "tracking.enabled=false", *words]  # fmt: skip
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=out.parent, env={**os.environ, "ANE_SWEEP_OUT": str(out), **env}
    )
    assert done.returncode in (0, 3), done.stderr
    (records,) = (out / "runs").glob("*/records.jsonl")
    return [json.loads(line) for line in records.read_text().splitlines()], done.stdout + done.stderr


def ends(records: list[dict]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for stage in (stage for record in records for stage in record["stages"]):
        found.setdefault(stage["stage"], set()).add(stage["status"])
    return found


@pytest.mark.slow
def test_a_second_machine_converts_nothing_and_no_file_tells_the_password(tmp_path):
    (tmp_path / "server").mkdir()
    with stores.s3(tmp_path / "server") as (url, variables):
        import botocore.session

        session = botocore.session.get_session()
        keys = {"aws_access_key_id": variables["AWS_ACCESS_KEY_ID"], "aws_secret_access_key": stores.PASSWORD}
        s3 = session.create_client(
            "s3", endpoint_url=variables["AWS_ENDPOINT_URL"], verify=variables["AWS_CA_BUNDLE"], region_name="us-east-1", **keys
        )  # fmt: skip
        s3.create_bucket(Bucket="lab")
        first, said = sweep(tmp_path / "first", f"store={url}", **variables)
        second, again = sweep(tmp_path / "second", f"store={url}", **variables)
        there = [entry["Key"] for entry in s3.list_objects_v2(Bucket="lab")["Contents"]]
        bodies = [s3.get_object(Bucket="lab", Key=key)["Body"].read() for key in there]
    assert "0 pulled" in said and "0 pushed" in again, said + again
    before, after = ends(first), ends(second)
    assert {stage: before[stage] for stage in PREPARES} == {stage: {"ok"} for stage in PREPARES}
    assert {stage: after[stage] for stage in PREPARES} == {stage: {"cached"} for stage in PREPARES}
    assert after["latency"] == after["score"] == {"ok"}
    digests = [
        [artifact["sha256"] for record in records for artifact in record["artifacts"]] for records in (first, second)
    ]
    assert digests[0] == digests[1] and digests[0]
    written = (
        [path.read_bytes() for path in tmp_path.glob("*/**/*") if path.is_file()]
        + bodies
        + [said.encode(), again.encode()]
    )
    assert not [content for content in written if stores.PASSWORD.encode() in content]
    assert not [body for body in bodies if str(tmp_path).encode() in body], "a path of the machine that made it"
