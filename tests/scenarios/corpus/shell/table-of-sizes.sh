#!/bin/bash
# Associative arrays of sizes.
declare -A LAYERS=([1b]=24 [7b]=32 [13b]=40) HIDDEN=([1b]=2048 [7b]=4096 [13b]=5120)
SIZE=${SIZE:-7b}
declare -i HEADS=${HIDDEN[$SIZE]}/128
torchrun --nproc-per-node 8 --nnodes 1 pretrain_gpt.py --num-layers ${LAYERS[$SIZE]} --hidden-size ${HIDDEN[$SIZE]} \
  --num-attention-heads $HEADS --seq-length 2048 --max-position-embeddings 2048 --vocab-size 50304 --bf16 \
  --tensor-model-parallel-size 2 --micro-batch-size 2 --global-batch-size 64
