// SPDX-License-Identifier: Apache-2.0
#include "scenarios/megatron_flags.hpp"

#include "scenarios/scenario.hpp"

#include <algorithm>

namespace penstock {
namespace {

/// Flags that change nothing of what is predicted: whole names.
constexpr std::string_view kIgnoredFlags =
    "account adam-beta1 adam-beta2 adam-eps adam-w-mode add-bias-linear "
    "add-position-embedding add-qkv-bias apply-layernorm-1p apply-query-key-layer-scaling "
    "apply-residual-connection-post-layernorm apply-rope-fusion async-save "
    "async-tensor-model-parallel-allreduce attention-backend attention-dropout "
    "attention-softmax-in-fp32 attention-type auto-detect-ckpt-format average-in-collective "
    "barrier-with-l1-time bert-no-binary-head beta-fast beta-slow bias-dropout-fusion "
    "bias-gelu-fusion bias-swiglu-fusion bind-cores-to-core calculate-per-token-loss chdir "
    "check-for-large-grads check-for-nan-in-loss-and-grad check-for-spiky-loss "
    "check-weight-hash-across-dp-replicas-interval checkpoint-factor ckpt-format clip-grad "
    "clone-scatter-output-in-embedding comment constraint container-image container-mounts "
    "contigious-checkpointing cpus-per-gpu cpus-per-task create-attention-mask-in-dataloader "
    "cross-entropy-fusion-impl cross-entropy-loss-fusion cuda-max-connections "
    "curriculum-learning data-cache-path data-efficiency-curriculum-learning data-impl "
    "data-path data-types dataloader-type dataset-impl ddp-average-in-collective "
    "ddp-bucket-size ddp-impl DDP-impl ddp-num-buckets ddp-pad-buckets-for-high-nccl-busbw "
    "decoupled-weight-decay decrease-batch-size-if-needed deepscale deepscale-config "
    "deepspeed deepspeed-activation-checkpointing deepspeed-config dependency "
    "deterministic-mode disable-bias-linear disable-gloo-process-groups "
    "disable-symmetric-registration disable-tp-comm-split-ag disable-tp-comm-split-rs "
    "dist-ckpt-format distill distributed-backend distributed-timeout-minutes do-test "
    "do-train do-valid ds-config-version ds-inference ds-pipeline-enabled dtype "
    "embedding-init-method-std embedding-weights-in-fp32 empty-unused-memory-level "
    "enable-gloo-process-groups enable-one-logger end-weight-decay eod-mask-loss error "
    "eval-iters exclude exclusive exit-duration-in-mins exit-interval "
    "exit-on-missing-checkpoint exit-on-nan exit-signal-handler export extra-save-iters "
    "finetune force-multi fp16-lm-cross-entropy fp32-residual-connection global-name "
    "gpt-j-residual gpt-j-tied gpu-bind gpus gradient-accumulation-fusion "
    "gradient-as-bucket-view gradient-clipping hidden-dropout hidden-size-teacher "
    "high-priority-stream-groups hostfile hysteresis include inference-rng-tracker "
    "init-method init-method-std init-method-xavier-uniform init-model-with-meta-device "
    "initial-loss-scale iterations-to-skip job-name kd-alpha-ce "
    "keep-fp8-weight-transpose-cache keep-last-n-checkpoints kill-on-bad-exit label launcher "
    "launcher-args layernorm-epsilon layernorm-fusion legacy-tokenizer load load-teacher "
    "local-rank local-ranks-filter log-dir loss-fusion loss-scale loss-scale-window lr "
    "lr-decay-iters lr-decay-samples lr-decay-style lr-decay-tokens lr-warmup-fraction "
    "lr-warmup-iters lr-warmup-samples lr-warmup-tokens mail-type mail-user "
    "make-vocab-size-divisible-by manual-gc manual-gc-eval manual-gc-interval mask-prob "
    "masked-softmax-fusion master-addr master-port max-position-embeddings max-restarts "
    "maximum-tokens mem mem-per-gpu merge-file min-loss-scale min-lr min-scale mlp-type "
    "mmap-bin-files mock-data module momentum monitor-interval mpi mscale mscale-all-dim "
    "muon-extra-scale-factor muon-fp32-matmul-prec muon-momentum muon-num-ns-steps "
    "muon-scale-mode muon-tp-mode muon-use-nesterov mup nccl-communicator-config-path "
    "nccl-ub nice no-add-position-embedding no-align-param-gather-at-start "
    "no-async-tensor-model-parallel-allreduce no-barrier-with-level-1-timing "
    "no-bias-dropout-fusion no-bias-gelu-fusion no-bias-swiglu-fusion "
    "no-check-for-nan-in-loss-and-grad no-create-attention-mask-in-dataloader "
    "no-gradient-accumulation-fusion no-initialization no-local-rank "
    "no-masked-softmax-fusion no-mmap-bin-files no-one-logger no-persist-layer-norm "
    "no-position-embedding no-python no-query-key-layer-scaling no-rope-fusion "
    "no-scatter-gather-tensors-in-pipeline node-rank nodelist norm norm-epsilon "
    "normalization ntasks num-attention-heads-teacher num-floating-point-operations-so-far "
    "num-layers-teacher num-shots num-workers nvtx one-logger-project onnx-safe open-mode "
    "openai-gelu optimizer-type original-max-position-embeddings output "
    "output-layer-init-method output-layer-parallelism overlap-cpu-optimizer-d2h-h2d "
    "overlap-p2p-communication override-opt-param-scheduler parallel-output partition "
    "perform-initialization pos-emb position-embedding-type prescale-gradients "
    "pretrained-checkpoint profile profile-backward profile-ranks profile-step-end "
    "profile-step-start qk-layernorm qos quick-geglu rampup-batch-size random-ltd "
    "rdzv-backend rdzv-endpoint rdzv-id recompute redirects remote-device "
    "repeated-dataloader requeue reset-attention-mask reset-iteration reset-position-ids "
    "return-data-index rms-norm-epsilon rmsnorm-fusion role rope-scaling-factor rope-type "
    "rotary-base rotary-emb-base rotary-interleaved rotary-pct rotary-percent "
    "rotary-position-embeddings-in-fp32 rotary-scaling-factor "
    "rotary-seq-len-interpolation-factor run-path sample-rate save save-interval "
    "scaled-masked-softmax-fusion scaled-upper-triang-masked-softmax-fusion seed "
    "sequence-length sequence-length-warmup sgd-momentum share-word-embeddings "
    "short-seq-prob signal skip-getting-attention-mask-from-dataset skip-train spec split "
    "split-transformers squared-relu standalone start-method start-weight-decay "
    "steps-per-print synchronize-each-layer te-fp8-mha te-rng-tracker tee tensorboard "
    "test-data-path test-mode text-gen-type tiktoken-num-special-tokens tiktoken-pattern "
    "tiktoken-special-tokens tile-factor time topk train-data-exact-num-epochs "
    "train-data-path train-iters train-samples train-tokens transformer-impl "
    "trust-remote-code unbuffered universal-checkpoint use-bias use-bias-in-attn-linear "
    "use-bias-in-mlp use-bias-in-norms use-checkpoint-args use-cpu-initialization "
    "use-dataset-only use-dist-ckpt use-legacy-models use-mcore-models use-mup use-nccl-ub "
    "use-one-sent-docs use-pin-memory use-pytorch-profiler use-ring-exchange-p2p "
    "use-rope-scaling use-rotary-position-embeddings "
    "use-tokenizer-model-from-checkpoint-args use-torch-optimizer-for-cpu-offload use-wandb "
    "valid-data-path variable-seq-lengths vocab-extra-ids vocab-file wall-clock-breakdown "
    "wandb warmup weight-decay weight-decay-incr-style wrap xavier-uniform-init "
    "zero-allgather-bucket-size zero-allow-untested-optimizer zero-contigious-gradients "
    "zero-reduce-bucket-size";

std::vector<std::string_view> spaced_words(std::string_view text) {
  std::vector<std::string_view> out;
  for (std::size_t at = 0, end = 0; at < text.size(); at = end + 1) {
    end = std::min(text.find(' ', at), text.size());
    out.push_back(text.substr(at, end - at));
  }
  return out;
}

constexpr std::string_view kIgnoredBeginnings[] = {"log-",
                                                   "tensorboard-",
                                                   "wandb-",
                                                   "eval-",
                                                   "no-load-",
                                                   "no-save-",
                                                   "timing-",
                                                   "lr-",
                                                   "save-",
                                                   "load-",
                                                   "ckpt-",
                                                   "dist-ckpt-",
                                                   "tokenizer-",
                                                   "one-logger-",
                                                   "rerun-",
                                                   "straggler-",
                                                   "data-",
                                                   "hf-",
                                                   "rdzv-",
                                                   "curriculum-",
                                                   "random-ltd-",
                                                   "muon-",
                                                   "inference-",
                                                   "profile-",
                                                   "rl-",
                                                   "mlflow-",
                                                   "rope-",
                                                   "rotary-",
                                                   "error-injection-",
                                                   "logging-"};

constexpr const char* kNoLatent = "multi-latent attention is not modelled";
constexpr const char* kLatent = "multi-latent attention";
constexpr const char* kAdapters = "only adapters are trained: not modelled";
constexpr const char* kNo8Bits = "8-bit numbers are not modelled: times are those of 16 bits";
constexpr const char* kNoOffload = "offloading is not modelled";
constexpr const char* kOffload = "offloading";
constexpr const char* kNoGraphs = "CUDA graphs are not modelled: launches may bind";

constexpr UnmodelledOption kUnmodelledFlags[] = {
    {"num-experts", kNoExperts, kWithoutExperts, Leaves::more, "1"},
    {"expert-", "expert parallelism is not modelled", nullptr, Leaves::nothing, "1", "num-experts"},
    {"moe-expert-parallel", "expert parallelism is not modelled", nullptr, Leaves::nothing, "1",
     "num-experts"},
    {"moe-", kNoExperts, nullptr, Leaves::nothing, "0", "num-experts"},
    {"overlap-moe", kNoExperts, nullptr, Leaves::nothing, "0", "num-experts"},
    {"enable-expert-tensor-parallelism", kNoExperts, nullptr, Leaves::nothing, "0", "num-experts"},
    {"cp-comm-type", "context parallelism is predicted as a ring (p2p)", nullptr, Leaves::nothing,
     "p2p"},
    {"hierarchical-context-parallel-sizes", "context parallelism is predicted as one ring"},
    {"ds-sequence-parallel-size",
     "DeepSpeed-Ulysses' all-to-all over heads is not modelled: each GPU has its whole sequence "
     "here",
     "DeepSpeed-Ulysses' divided sequences", Leaves::less, "1"},
    {"multi-latent-attention", kNoLatent, kLatent, Leaves::more},
    {"kv-lora-rank", kNoLatent, nullptr, Leaves::nothing, "0", "multi-latent-attention"},
    {"q-lora-rank", kNoLatent, nullptr, Leaves::nothing, "0", "multi-latent-attention"},
    {"qk-head-dim", kNoLatent, nullptr, Leaves::nothing, "0", "multi-latent-attention"},
    {"qk-pos-emb-head-dim", kNoLatent, nullptr, Leaves::nothing, "0", "multi-latent-attention"},
    {"v-head-dim", kNoLatent, nullptr, Leaves::nothing, "0", "multi-latent-attention"},
    {"mtp-num-layers", "multi-token prediction is not modelled",
     "the layers of multi-token prediction", Leaves::more},
    {"mtp-", "multi-token prediction is not modelled", nullptr, Leaves::nothing, "0",
     "mtp-num-layers"},
    {"fp8-param-gather", "weights of 8 bits are not modelled: they have 16 here",
     "weights of 8 bits", Leaves::less, "0", "fp8-format"},
    {"fp8-", kNo8Bits, nullptr, Leaves::nothing, "0", "fp8-format"},
    {"fp4-", "4-bit numbers are not modelled: times are those of 16 bits", nullptr, Leaves::nothing,
     "0", "fp4-format"},
    {"tp-comm-", "tensor exchanges hide under products part by part, whatever their buffers",
     nullptr, Leaves::nothing, "0", "tp-comm-overlap"},
    {"cpu-offloading", kNoOffload, kOffload, Leaves::less},
    {"cpu-optimizer", kNoOffload, kOffload, Leaves::less},
    {"checkpoint-in-cpu", kNoOffload, kOffload, Leaves::less},
    {"optimizer-cpu-offload", kNoOffload, kOffload, Leaves::less},
    {"optimizer-offload", kNoOffload, nullptr, Leaves::nothing, "0", "optimizer-cpu-offload"},
    {"fine-grained-activation-offloading", kNoOffload, kOffload, Leaves::less},
    {"offload-modules", kNoOffload, nullptr, Leaves::nothing, "0",
     "fine-grained-activation-offloading"},
    {"distribute-saved-activations", "not modelled: memory is pessimistic",
     "divided saved activations", Leaves::less},
    {"distribute-checkpointed-activations", "not modelled: memory is pessimistic",
     "divided saved activations", Leaves::less},
    {"partition-activations", "not modelled: memory is pessimistic", "divided saved activations",
     Leaves::less},
    {"overlap-param-gather", "the all-gather of updated weights is not hidden here"},
    {"delay-wgrad-compute", "not modelled; the zb-h1 schedule delays weight gradients, too"},
    {"defer-embedding-wgrad-compute", "not modelled"},
    {"external-cuda-graph", kNoGraphs},
    {"enable-cuda-graph", kNoGraphs},
    {"cuda-graph", kNoGraphs},
    {"window-size", "windows of attention are not modelled: attention is counted in full"},
    {"window-attn-skip-freq",
     "windows of attention are not modelled: attention is counted in full"},
    {"sparse-attention", "sparse attention is not modelled: attention is counted in full"},
    {"num-distributed-optimizer-instances", "the optimizer is shared by all replicas here",
     "the optimizer's several instances", Leaves::more, "1", "use-distributed-optimizer"},
    {"hybrid-", "its layers are of several kinds", "layers of several kinds", Leaves::more, "0.0"},
    {"standalone-embedding-stage",
     "not modelled: give a pipeline.split whose first stage has 0 layers"},
    {"align-grad-reduce", "not modelled"},
    {"enable-zero-bubble", "not followed: give the scenario schedule: zb-h1, zb-1p, zb-2p or zb-v",
     "a zero-bubble schedule's activations", Leaves::more},
    {"zero-bubble-", "not followed: give the scenario schedule: zb-h1, zb-1p, zb-2p or zb-v",
     nullptr, Leaves::nothing, "0", "enable-zero-bubble"},
    {"enable-zbh1-exact-semantics", "each stage's step is its own here"},
    {"use-tutel", kNoExperts, nullptr, Leaves::nothing, "0", "num-experts"},
    {"use-torch-compile", "compiled layers are not modelled"},
    {"peft", kAdapters, kFrozenWeights, Leaves::less},
    {"use-peft", kAdapters, kFrozenWeights, Leaves::less},
    {"lora-", kAdapters, kFrozenWeights, Leaves::less},
    {"use-lora", kAdapters, kFrozenWeights, Leaves::less},
    {"qlora", kAdapters, kFrozenWeights, Leaves::less},
    {"adapter", kAdapters, kFrozenWeights, Leaves::less},
    {"freeze-", "a part of the weights is not trained: not modelled", kFrozenWeights, Leaves::less},
    {"train-type", kAdapters, kFrozenWeights, Leaves::less, "full"},
    {"tuner-type", kAdapters, kFrozenWeights, Leaves::less, "full"},
    {"finetuning-type", kAdapters, kFrozenWeights, Leaves::less, "full"},
    {"heterogeneous-layers-config", "layers unlike each other are not modelled",
     "layers unlike each other", Leaves::more},
    {"linear-attention", "linear attention is not modelled", "linear attention", Leaves::more},
    {"experimental-attention-variant", "that attention is not modelled", "that attention",
     Leaves::more}};

}  // namespace

const KnownOptions& megatron_flags() {
  static const std::vector<std::string_view> kIgnored = spaced_words(kIgnoredFlags);
  static const KnownOptions kFlags{kIgnored, kIgnoredBeginnings, kUnmodelledFlags};
  return kFlags;
}

}  // namespace penstock
