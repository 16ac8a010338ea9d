#!/bin/bash
# 4 servers of 8 H100. What `penstock import megatron-args` reads.
TP=4
PP=8
MODEL_ARGS=(
    --num-layers 44 --hidden-size 6144 --num-attention-heads 48
    --seq-length 2048 --max-position-embeddings 2048
    --swiglu --normalization RMSNorm --position-embedding-type rope
    --untie-embeddings-and-output-weights --disable-bias-linear
)
TRAINING_ARGS=(
    --micro-batch-size 1 --global-batch-size 32
    --train-iters 100000 --lr 1.0e-4 --clip-grad 1.0 --bf16
    --recompute-activations
)
PARALLEL_ARGS=(
    --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP
    --sequence-parallel --use-distributed-optimizer
)
torchrun --nproc-per-node 8 --nnodes 4 pretrain_gpt.py \
    "${MODEL_ARGS[@]}" "${TRAINING_ARGS[@]}" "${PARALLEL_ARGS[@]}" \
    --data-path my-gpt_text_document --vocab-size 50257 --make-vocab-size-divisible-by 128
