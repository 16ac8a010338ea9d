#!/bin/bash
# Four nodes of which the job has four GPUs each: tensor parallelism over eight crosses the network.
GPUS_PER_NODE=4
NNODES=4
torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES pretrain_gpt.py --num-layers 32 --hidden-size 4096 \
  --num-attention-heads 32 --seq-length 4096 --max-position-embeddings 4096 --vocab-size 128256 --bf16 \
  --micro-batch-size 1 --global-batch-size 128 --tensor-model-parallel-size 8 --sequence-parallel --use-distributed-optimizer
