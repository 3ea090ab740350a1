"""What a run starts listens on the loopback interface alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from scaffold.scratch import scratch_folder
from scaffold.verify.child.contained import start_contained
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
    trainer = Trainer(SYNC, "verl_omni.trainer.main_diffusion_v1")
    plan = RunPlan(found, tmp_path, None, tmp_path, tmp_path, tmp_path, VARIANTS[0], trainer, 1, (), "foo")
    with scratch_folder("ray", Path("/tmp")) as ray, (tmp_path / "told").open("wb") as told:
        given = variables(plan, tmp_path, os.urandom(4).hex(), ray)
        child = start_contained([str(found.python), "-c", LISTEN], cwd=tmp_path, variables=given, stdout=told)
        try:
            assert child.wait(300) == 0
        finally:
            child.end()
    line = (tmp_path / "told").read_text().splitlines()[-1]
    assert json.loads(line) == {"verl binds to": "127.0.0.1", "listening": ["127.0.0.1"]}
