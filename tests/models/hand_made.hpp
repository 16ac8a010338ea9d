// SPDX-License-Identifier: Apache-2.0
// Small models and devices with numbers that can be followed by hand.
#pragma once

#include "models/device.hpp"
#include "models/transformer.hpp"

namespace penstock {

/// GPT-2 small's layer: h = 768, a = 12, 12 layers, V = 50304, s = 1024.
inline TransformerSpec gpt_small() {
  TransformerSpec t;
  t.name = "gpt-small";
  t.num_layers = 12;
  t.hidden_size = 768;
  t.num_attention_heads = 12;
  t.num_query_groups = 12;
  t.ffn_hidden_size = 4 * 768;
  t.vocab_size = 50304;
  t.seq_length = 1024;
  return t;
}

inline TransformerSpec llama_3_8b() {
  TransformerSpec t;
  t.name = "llama-3-8b";
  t.family = Family::llama;
  t.num_layers = 32;
  t.hidden_size = 4096;
  t.num_attention_heads = 32;
  t.num_query_groups = 8;
  t.ffn_hidden_size = 14336;
  t.vocab_size = 128256;
  t.seq_length = 8192;
  t.tie_embeddings = false;
  t.flash_attention = true;
  t.compute_type = "bf16";
  return t;
}

/// 1 TFLOP/s at every size, and nothing else takes time.
inline DeviceSpec plain_device() {
  DeviceSpec d;
  d.name = "plain";
  d.peak_flops_per_s = {{"fp16", 1e12}, {"bf16", 1e12}, {"fp32", 1e11}};
  return d;
}

}  // namespace penstock
