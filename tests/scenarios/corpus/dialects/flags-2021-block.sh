#!/bin/bash
python -m torch.distributed.launch --nproc_per_node 8 --nnodes 1 pretrain_gpt.py \
  --model-parallel-size 8 --num-layers 72 --hidden-size 3072 --num-attention-heads 32 \
  --seq-length 1024 --micro-batch-size 8 --fp16 --vocab-size 50257 \
  --activations-checkpoint-method block --activations-checkpoint-num-layers 2 --distribute-checkpointed-activations
