"""What a run starts listens on the loopback interface alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from scaffold.verify.child.leftovers import end_leftovers
from scaffold.verify.rollout.environment import find_environment
from scaffold.verify.train.run import RunPlan, variables
from scaffold.verify.train.trainers import SYNC, Trainer
from scaffold.verify.train.variants import VARIANTS

VERSION = "0.27.0rc1"
LISTEN = """
import json, os
import psutil, ray
ray.init(num_cpus=1, include_dashboard=False)
address = ray.get(ray.remote(ray.util.get_node_ip_address).remote())
started = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
held = [c for c in psutil.net_connections() if c.status == "LISTEN" and c.pid in started]
print(json.dumps({"verl binds to": address, "listening": sorted({c.laddr.ip.removeprefix("::ffff:") for c in held})}))
"""


@pytest.mark.rollout
def test_servers_of_a_run_are_not_reached_from_elsewhere(tmp_path: Path) -> None:
    if isinstance(found := find_environment(VERSION), str):
        pytest.skip(found)
    token = os.urandom(4).hex()
    trainer = Trainer(SYNC, "verl_omni.trainer.main_diffusion_v1")
    plan = RunPlan(found, tmp_path, None, tmp_path, tmp_path, tmp_path, VARIANTS[0], trainer, 1, (), "foo")
    given = variables(plan, tmp_path, token)
    try:
        done = subprocess.run(
            [str(found.python), "-c", LISTEN], env=given, cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
    finally:
        end_leftovers(token, Path(given["RAY_TMPDIR"]))
        shutil.rmtree(given["RAY_TMPDIR"], ignore_errors=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {"verl binds to": "127.0.0.1", "listening": ["127.0.0.1"]}
