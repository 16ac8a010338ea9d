#!/bin/bash
# Written in an editor that ends lines as DOS does.
LAYERS=24
torchrun --nproc-per-node 8 --nnodes 1 pretrain_gpt.py --num-layers $LAYERS \
  --hidden-size 2048 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 --vocab-size 50304 --bf16 \
  --micro-batch-size 2 --global-batch-size 64
