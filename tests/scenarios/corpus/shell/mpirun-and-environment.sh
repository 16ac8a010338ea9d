#!/bin/bash
# One process for each GPU, with variables for the program alone.
NUM_GPUS=16
CUDA_DEVICE_MAX_CONNECTIONS=1 NCCL_DEBUG=WARN mpirun -np $NUM_GPUS --map-by ppr:8:node -x PATH \
  python pretrain_gpt.py --world-size $NUM_GPUS \
  --num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 --max-position-embeddings 2048 \
  --vocab-size 50304 --bf16 \
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --micro-batch-size 2 --global-batch-size 128
