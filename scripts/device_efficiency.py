#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What matrix products and attention reach on a device, from a system file that SimuMax measured.

  scripts/device_efficiency.py SYSTEM.json

SYSTEM.json  configs/system/*.json of github.com/MooreThreads/SimuMax (Apache-2.0)

Prints `matrix_efficiency` and `attention_efficiency` for a file of models/devices: of the products large enough
that launches do not show the mean, and what they scatter by; of attention, forward and backward together, half of
the share that SimuMax gives, as it counts the FLOPs that a causal mask leaves out. Small products are slower
(`operand_traffic` of a stack): the last line says by how much a law of two numbers misses all of them."""
import json
import math
import statistics
import sys

LARGE = 1e12  # FLOPs
HEADS = range(16, 129)
FORWARD, BACKWARD = 4, 10  # FLOPs of attention per pair of tokens and element; the backward recomputes scores


def shapes(table):
    for text, share in table["accurate_efficient_factor"].items():
        yield dict(part.split("=") for part in text.split(", ")), share


def products(ops):
    """FLOPs, bytes of operands and result, share of peak."""
    for shape, share in shapes(ops["matmul"]):
        b, m, k, n = (int(shape[key]) for key in "bmkn")
        yield 2 * b * m * k * n, 2 * b * (m * k + k * n + m * n), share


def attention(ops):
    """Shares of shapes that have both directions, of both together."""
    both = {}
    for name, flops in (("sdp_fwd", FORWARD), ("sdp_bwd", BACKWARD)):
        for shape, share in shapes(ops[name]):
            if int(shape["head_num"]) in HEADS and shape["qkv_contiguous"] == "True" and shape["qk_head_dim"] == "128":
                both.setdefault((shape["seq_len"], shape["head_num"], shape["kv_head_num"]), []).append((flops, share))
    for parts in both.values():
        if len(parts) == 2:
            yield sum(flops for flops, _ in parts) / sum(flops / share for flops, share in parts)


def law_error(all_products, share, rate, peak):
    """Median error of FLOPs / (peak share) + bytes / rate against what was measured."""
    errors = []
    for flops, moved, reached in all_products:
        errors.append(abs((flops / share / peak + moved / rate) / (flops / reached / peak) - 1))
    return statistics.median(errors)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        ops = json.load(file)["accelerator"]["op"]
    peak = ops["matmul"]["tflops"] * 1e12
    every = list(products(ops))
    large = [share for flops, _, share in every if flops > LARGE]
    mean = statistics.mean(large)
    print(f"matrix_efficiency: {100 * mean:.1f}%  # of {len(large)} of {len(every)} products, those above "
          f"{LARGE / 1e12:g} TFLOP; standard deviation {100 * statistics.stdev(large):.1f} points")
    of_attention = list(attention(ops))
    if of_attention:
        print(f"attention_efficiency: {50 * statistics.mean(of_attention):.1f}%  # of {len(of_attention)} shapes, "
              f"{50 * min(of_attention):.1f} to {50 * max(of_attention):.1f}%")
    print(f"# all products: median error {100 * law_error(every, mean, math.inf, peak):.1f} %")


if __name__ == "__main__":
    main()
