#!/bin/bash
# One file is not there, the place of the other is not known: both are asked for.
source "$(dirname "$0")/not-there.conf"
. "${CLUSTER_DIR}/nccl.conf"
torchrun --nproc-per-node 8 --nnodes 2 pretrain_gpt.py "${MODEL_ARGS[@]}" --micro-batch-size 1 --global-batch-size 16
