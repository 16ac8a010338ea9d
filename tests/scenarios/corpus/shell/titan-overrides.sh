#!/bin/bash
# torchtitan's own way: a configuration, and flags over it from the command line, of which there are none.
set -ex
NGPU=${NGPU:-"8"}
LOG_RANK=${LOG_RANK:-0}
CONFIG_FILE=${CONFIG_FILE:-"./lib/llama3_8b.toml"}
overrides=""
if [ $# -ne 0 ]; then
    overrides="$*"
fi
PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True" \
torchrun --nproc_per_node=${NGPU} --nnodes=2 --local-ranks-filter ${LOG_RANK} --role rank --tee 3 \
  -m torchtitan.train --job.config_file ${CONFIG_FILE} --parallelism.pipeline_parallel_degree 4 $overrides
