#!/bin/bash
# Nothing sets MODEL_ARGS and EXTRA_ARGS: they may hold anything.
TRAIN_ARGS=(--micro-batch-size 1 --global-batch-size 16 --bf16)
torchrun --nproc-per-node 8 --nnodes 1 pretrain_gpt.py "${MODEL_ARGS[@]}" "${TRAIN_ARGS[@]}" $EXTRA_ARGS
