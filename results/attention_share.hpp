// SPDX-License-Identifier: Apache-2.0
// Whether it matters how MFU counts causal attention: in full, or by half.
#pragma once

namespace penstock {

/// Returns whether attention is more than a fifth of the FLOPs. Its share is twice what counting it
/// by half takes away.
inline bool much_attention(double mfu, double mfu_causal) {
  return mfu_causal > 0 && 2 * (mfu - mfu_causal) > 0.2 * mfu;
}

}  // namespace penstock
