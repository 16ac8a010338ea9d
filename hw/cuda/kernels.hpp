// SPDX-License-Identifier: Apache-2.0
// The small kernels that measure and keep time on the GPU's own clock, %globaltimer (nanoseconds).
#pragma once

#include <cuda_runtime_api.h>

namespace penstock::cuda {

/// Writes %globaltimer - `zero_ns` to `slot` (device or mapped host memory).
void launch_stamp(unsigned long long* slot, unsigned long long zero_ns, cudaStream_t stream);
/// Returns when %globaltimer has reached `*begin` + `duration_ns`.
void launch_delay(const unsigned long long* begin, unsigned long long duration_ns,
                  cudaStream_t stream);
/// Answers `trips` pings: waits for `*ping` >= i, writes %globaltimer to `times[i]` and i to
/// `*pong`, i = 1 ... trips. All in mapped host memory. A ping above `trips` ends it early.
void launch_ping_pong(const unsigned long long* ping, unsigned long long* pong,
                      unsigned long long* times, int trips, cudaStream_t stream);

/// Every one of `blocks` blocks writes the number of the SM it runs on, %smid, and stays there for
/// a while, so that the others go elsewhere.
void launch_sm_numbers(unsigned* sms, int blocks, cudaStream_t stream);
/// Writes `count` successive values of %globaltimer that differ.
void launch_ticks(unsigned long long* times, int count, cudaStream_t stream);

}  // namespace penstock::cuda
