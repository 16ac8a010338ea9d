#!/bin/bash
# Mixtral 8x7B on 2 servers of 8 H100, whose optimizer is on the hosts: penstock cannot say that.
torchrun --nproc-per-node 8 --nnodes 2 pretrain_gpt.py \
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \
    --group-query-attention --num-query-groups 8 --seq-length 4096 \
    --swiglu --normalization RMSNorm --position-embedding-type rope \
    --untie-embeddings-and-output-weights --disable-bias-linear \
    --num-experts 8 --moe-router-topk 2 --expert-model-parallel-size 8 \
    --moe-grouped-gemm --moe-token-dispatcher-type alltoall \
    --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 4 \
    --micro-batch-size 1 --global-batch-size 128 --bf16 --optimizer-cpu-offload \
    --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather \
    --vocab-size 32000
