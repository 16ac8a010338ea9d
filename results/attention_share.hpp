// SPDX-License-Identifier: Apache-2.0
// When it matters how MFU counts attention.
#pragma once

namespace penstock {

/// Is attention over a fifth of the FLOPs, so that how it is counted matters? Its share is twice
/// what counting it by half takes away.
inline bool much_attention(double mfu, double mfu_causal) {
  return mfu_causal > 0 && 2 * (mfu - mfu_causal) > 0.2 * mfu;
}

}  // namespace penstock
