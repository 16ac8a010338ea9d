#!/bin/bash
# The size is cut out of the run's name.
NAME=gpt-24l-2048h
LAYERS=${NAME#gpt-}
LAYERS=${LAYERS%%l*}
HIDDEN=${NAME##*-}
HIDDEN=${HIDDEN%h}
torchrun --nproc-per-node 8 --nnodes 1 pretrain_gpt.py --num-layers $LAYERS --hidden-size ${HIDDEN} \
  --num-attention-heads 16 --seq-length ${HIDDEN:0:4} --max-position-embeddings 2048 --vocab-size 50304 \
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --micro-batch-size 2 --global-batch-size 64 --${DTYPE:-bf16}
