#!/bin/bash
#SBATCH --nodes=128 --exclusive --job-name=gpt3
options=" --tensor-model-parallel-size 8 --pipeline-model-parallel-size 16 \
  --num-layers 96 --hidden-size 12288 --num-attention-heads 96 --seq-length 2048 \
  --max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 1536 \
  --rampup-batch-size 16 16 5859375 --vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt \
  --activations-checkpoint-method uniform --DDP-impl local --fp16 \
  --no-query-key-layer-scaling --clip-grad 1.0"
srun --ntasks-per-node=8 python pretrain_gpt.py ${options}
