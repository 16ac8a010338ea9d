#!/bin/bash
# The model's flags are in a file beside the script.
SCRIPT_DIR="$( cd -- "$( dirname -- "${BASH_SOURCE[0]}" )" &> /dev/null && pwd )"
MODEL=${MODEL:-wide-28}
source "${SCRIPT_DIR}/lib/${MODEL}.conf"
torchrun --nproc-per-node 8 --nnodes 2 pretrain_gpt.py "${MODEL_ARGS[@]}" --bf16 \
  --tensor-model-parallel-size 2 --pipeline-model-parallel-size 4 --micro-batch-size 1 --global-batch-size 128
