# SPDX-License-Identifier: Apache-2.0
"""Recordings made from predictions: what a machine would have recorded that is `factor` as slow as
predicted, with jitter, launch gaps or a fault when asked for."""

import gzip
import json
import random


def from_trace(trace):
    """Spans of the messages of a Chrome trace in seconds: (kind, stage, microbatch) -> (start, end)."""
    found = {}
    for event in trace["traceEvents"]:
        if event.get("cat") == "transfer" and event["name"].startswith("recv"):
            kind = "F" if event["name"].startswith("recv act") else "B"
            args = event["args"]
            start = event["ts"] / 1e6
            found[(kind, args["stage"], args["microbatch"])] = (start, start + event["dur"] / 1e6)
    return found


def make_run(result, messages, factor=1.0, jitter=0.0, seed=0):
    """One run: every time of the prediction times `factor`; op ends move by up to `jitter` of an op."""
    rng = random.Random(seed)
    ops = []
    for event in result["events"]:
        start, end = event["start_s"] * factor, event["end_s"] * factor
        if jitter:
            end -= (end - start) * jitter * rng.random()
        op = {"device": event["device"], "op": event["op"], "start_s": start, "end_s": end}
        kind = event["op"].lstrip("0123456789")[0]
        stage = int(event["op"].split(kind)[0]) if kind in "FBIW" else None
        message = messages.get((kind, stage, int(event["op"].split(kind)[-1]))) \
            if kind in "FB" else None
        if message:
            op["message_start_s"], op["message_end_s"] = (t * factor for t in message)
        if event["weight_version"] is not None:
            op["weight_version"] = event["weight_version"]
        ops.append(op)
    devices = [{"device": d["device"], "memory": d["memory"], "peak_at_s": 0, "peak_op": None,
                "allocator_peak_bytes": None} for d in result["devices"]]
    return {"complete": True, "stopped_because": "", "weights_equal": True, "devices": devices,
            "losses": [], "ops": ops}


def make_recording(result, scenario, runs, name="made"):
    return {"format": "penstock recording", "version": 1, "name": name, "backend": "host",
            "clock": "wall", "schedule": result["schedule"], "transfers": result["transfers"],
            "depth": result["stages"], "microbatches": result["microbatches"],
            "batches": result["batches"], "compute": "stand_in", "description": {"cpu": "none"},
            "profile": "", "scenario": scenario, "runs": runs}


def write(recording, path):
    text = json.dumps(recording)
    if str(path).endswith(".gz"):
        with gzip.open(path, "wt") as file:
            file.write(text)
    else:
        with open(path, "w") as file:
            file.write(text)
