#!/bin/bash
# What a subshell, a command that is not run and a pipe assign is lost.
LAYERS=24
( LAYERS=48 )
false && LAYERS=96
true || LAYERS=97
echo 12 | read LAYERS
{ HIDDEN=2048; }
unset HIDDEN_SIZE
torchrun --nproc-per-node 4 --nnodes 1 pretrain_gpt.py --num-layers $LAYERS --hidden-size $HIDDEN --num-attention-heads 16 \
  --seq-length 1024 --max-position-embeddings 1024 --vocab-size 50304 --fp16 \
  --pipeline-model-parallel-size 4 --micro-batch-size 2 --global-batch-size 32
