#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Simulations a second from one core: `exact`, 8 stages and 64 microbatches, each with another time
of a forward, so that nothing but the program of ops is the same. And what the engine alone takes of
that (`engine_seconds`: C++, from the schedule to the finished timeline)."""
import functools
import statistics
import time

import penstock

COUNT = 20_000
scenario = penstock.ReadScenario("small-1f1b")


def rate(simulate):
    simulate(0)
    start = time.process_time()
    for i in range(COUNT):
        simulate(i)
    return COUNT / (time.process_time() - start)


def main():
    keys = {"engine": "exact", "devices": 8, "stages": 8, "microbatches": 64}

    def simulated(how, i):
        return how(forward=f"{1 + i * 1e-6:.6f} s", **keys)

    for what, simulate in {
            "timeline only": lambda i: simulated(scenario.simulate, i),
            "with iteration_time_s": lambda i: simulated(scenario.simulate, i).iteration_time_s,
            "penstock.simulate of a name, with it":
                lambda i: simulated(functools.partial(penstock.simulate, "small-1f1b"), i).iteration_time_s,
    }.items():
        print(f"{what}: {rate(simulate):.0f} simulations/s")
    alone = statistics.median(simulated(scenario.simulate, i).engine_seconds for i in range(1000))
    print(f"the engine alone: {1 / alone:.0f} simulations/s")


if __name__ == "__main__":
    main()
