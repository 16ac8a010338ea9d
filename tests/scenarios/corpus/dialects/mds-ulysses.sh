#!/bin/bash
# Megatron-DeepSpeed with DeepSpeed-Ulysses: two GPUs divide every sequence and exchange heads.
TP=4; PP=4
DS_CONFIG=ds_zero1.json
deepspeed --num_nodes 4 --num_gpus 8 pretrain_gpt.py \
    --tensor-model-parallel-size $TP --pipeline-model-parallel-size $PP \
    --num-layers 40 --hidden-size 5120 --num-attention-heads 40 \
    --seq-length 2048 --max-position-embeddings 2048 --fp16 \
    --global-batch-size 1024 --vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt \
    --checkpoint-activations --ds-sequence-parallel-size 2 --train-samples 1000000 --lr 1e-4 \
    --deepspeed --deepspeed_config=$DS_CONFIG --zero-stage=1 --deepspeed-activation-checkpointing
