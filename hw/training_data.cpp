// SPDX-License-Identifier: Apache-2.0
#include "hw/training_data.hpp"

#include "base/error.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numbers>
#include <numeric>

namespace penstock {
namespace {

/// Of the part of a text that is trained on.
std::int64_t trained_bytes(const TrainingSpec& training, const std::string& text) {
  const auto all = static_cast<double>(text.size());
  return static_cast<std::int64_t>(all * (1 - training.held_out));
}

/// Near the golden ratio's part of the vocabulary, so that it goes all over it.
std::int64_t multiplier(std::int64_t vocabulary) {
  auto m = static_cast<std::int64_t>(static_cast<double>(vocabulary) * 0.618);
  while (std::gcd(m, vocabulary) != 1) ++m;
  return m;
}

}  // namespace

TokenSource token_source(const TrainingSpec& training, const std::string* text,
                         const TransformerSpec& model, std::int64_t sequences,
                         std::uint32_t microbatch) {
  const bool held_out = (microbatch & kHeldOut) != 0;
  TokenSource source{.seed = held_out ? 1 : training.seed,
                     .microbatch = microbatch,
                     .sequences = sequences,
                     .seq_length = model.seq_length,
                     .vocab_size = model.vocab_size};
  if (training.data == TrainingSpec::Data::markov) {
    source.kind = TokenSource::Kind::markov;
    source.multiplier = multiplier(model.vocab_size);
  }
  if (training.data == TrainingSpec::Data::text) {
    invariant(text != nullptr, "the text has been read");
    const std::int64_t trained = trained_bytes(training, *text);
    source.kind = TokenSource::Kind::text;
    source.text = reinterpret_cast<const unsigned char*>(text->data()) + (held_out ? trained : 0);
    source.text_bytes = held_out ? std::ssize(*text) - trained : trained;
  }
  return source;
}

void load_text(RunPlan& plan) {
  const TrainingSpec& t = plan.training;
  if (t.data != TrainingSpec::Data::text || plan.compute != Compute::transformer) return;
  plan.text = std::make_shared<const std::string>(read_file(t.file));
  const std::int64_t trained = trained_bytes(t, *plan.text);
  const std::int64_t least = std::min(trained, std::ssize(*plan.text) - trained);
  if (least <= plan.model.seq_length) {
    throw InputError(t.file, fmt::format("has {} bytes, of which the smaller part is {}: both that "
                                         "which is trained on and that which is held out must be "
                                         "longer than a sequence of {} tokens",
                                         plan.text->size(), least, plan.model.seq_length));
  }
  const auto largest = static_cast<unsigned char>(*std::ranges::max_element(
      *plan.text, {}, [](char c) { return static_cast<unsigned char>(c); }));
  if (largest < plan.model.vocab_size) return;
  throw InputError(t.file, fmt::format("has a byte {}, the model's vocab_size is {}; 256 is enough "
                                       "for every text",
                                       largest, plan.model.vocab_size));
}

std::string why_no_data(const RunPlan& plan) {
  if (plan.compute != Compute::transformer) return "";
  if (plan.training.data == TrainingSpec::Data::markov && plan.model.vocab_size < 4)
    return "training.data: markov needs a vocab_size of 4 or more";
  return "";
}

std::optional<double> loss_floor(const RunPlan& plan) {
  if (plan.compute == Compute::quadratic || plan.compute == Compute::linear) return 0;
  if (plan.compute == Compute::transformer && plan.training.data == TrainingSpec::Data::markov)
    return kMarkovBits * std::numbers::ln2;
  return std::nullopt;
}

}  // namespace penstock
