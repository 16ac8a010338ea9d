#!/bin/bash
# import: --launch 2
# Two runs, of which the second was asked for.
ARGS="--hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 --vocab-size 50304 --bf16"
torchrun --nproc-per-node 8 --nnodes 1 pretrain_gpt.py --num-layers 12 $ARGS --micro-batch-size 8 --global-batch-size 64
torchrun --nproc-per-node 8 --nnodes 1 pretrain_gpt.py --num-layers 24 $ARGS --pipeline-model-parallel-size 2 \
  --micro-batch-size 4 --global-batch-size 128
