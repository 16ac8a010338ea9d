#!/bin/bash
# import: --define NNODES=4
# The batch follows from the replicas.
GPUS_PER_NODE=${GPUS_PER_NODE:-8}
WORLD=$(($GPUS_PER_NODE * NNODES))
TP=2 PP=4
let "DP = WORLD / (TP * PP)"
MBS=2
GBS=$(( DP > 1 ? MBS * DP * 16 : 64 ))
torchrun --nproc_per_node=$GPUS_PER_NODE --nnodes=$NNODES pretrain_gpt.py \
  --num-layers 32 --hidden-size 3072 --num-attention-heads 24 --seq-length 2048 --max-position-embeddings 2048 \
  --vocab-size 50304 --bf16 \
  --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP --micro-batch-size $MBS --global-batch-size $GBS
