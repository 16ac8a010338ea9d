#!/bin/bash
python -m torch.distributed.launch --nproc_per_node 8 --nnodes 2 pretrain_gpt.py \
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 8 --num-layers 40 --hidden-size 5120 \
  --num-attention-heads 40 --seq-length 2048 --micro-batch-size 1 --global-batch-size 64 --fp16 \
  --vocab-size 50257 --checkpoint-activations --checkpoint-num-layers 1
