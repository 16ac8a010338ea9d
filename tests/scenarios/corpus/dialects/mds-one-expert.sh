#!/bin/bash
# Lists all switches of a mixture of experts, and has none: one expert is a dense model.
EP=1
deepspeed --num_gpus 8 pretrain_gpt.py --num-experts 1 --moe-expert-parallel-size $EP \
    --moe-loss-coeff 0.01 --moe-train-capacity-factor 1.0 --moe-min-capacity 4 --topk 1 --mlp-type standard \
    --num-layers 12 --hidden-size 768 --num-attention-heads 12 --seq-length 2048 \
    --micro-batch-size 4 --global-batch-size 256 --fp16 --vocab-size 50257 \
    --deepspeed --zero-stage 0 --no-pipeline-parallel
