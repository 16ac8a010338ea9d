// SPDX-License-Identifier: Apache-2.0
// Spans of Megatron-LM as a recording: what its OpenTelemetry instrumentation exports with
// MEGATRON_OTEL_SPAN_GROUPS=all and MEGATRON_OTEL_RANK_STRATEGY=all_ranks, as OTLP JSON (one
// request, or one a line as the collector's file exporter writes them).
//
//   megatron.microbatch.forward, .backward    F and B, in the order of the microbatches
//   megatron.p2p.recv_forward, .recv_backward  arrival of the message of the first Fs, the last Bs
//   megatron.grad_sync.start ... .finish      REDUCE_GRAD, where there are data-parallel ranks
//   megatron.optimizer_step                   STEP
// each within the megatron.train_step of its iteration. A device is the first tensor rank of a
// stage; ranks go tensor, context, data, pipeline. Spans are of the host, which runs ahead of its
// GPU: an op's span is the time in which its kernels were issued, unless the run waits for each
// (CUDA_LAUNCH_BLOCKING=1). Updates, which end with a number read from the GPU, are right.
// Sources: Megatron-LM, docs/user-guide/observability/{span-groups,configuration}.md (2026);
// opentelemetry-proto, docs/specification.md (JSON Protobuf encoding).
#pragma once

#include "traces/recording.hpp"

namespace penstock {

/// Returns whether a file's text begins as exported spans do.
bool is_spans(std::string_view text);

/// Returns the recording of these spans, without schedule, transfers and scenario, which spans do
/// not name. Throws InputError with everything that is wrong with the file, which it calls
/// `origin`.
Recording recording_of_spans(const std::string& text, const std::string& origin);

}  // namespace penstock
