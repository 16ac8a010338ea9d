// SPDX-License-Identifier: Apache-2.0
#include "models/documents.hpp"

#include "models/perturbation.hpp"

#include <algorithm>
#include <cmath>

namespace penstock {
namespace {

double tokens_of(std::int64_t n) { return static_cast<double>(n); }

/// Keys that the tokens [from, to) of a document attend to: those before and their own, but no more
/// than a window has.
double keys_of_tokens(double from, double to, double window) {
  const auto up_to = [&](double n) {  // of the first n tokens
    const double growing = std::min(n, window);
    return growing * (growing + 1) / 2 + (n - growing) * window;
  };
  return up_to(to) - up_to(from);
}

/// The keys of each context rank's tokens in a sequence that is divided as a whole.
class RankWork {
 public:
  RankWork(const TransformerSpec& model, int context)
      : model_(model),
        part_(tokens_of(model.seq_length) / (2 * context)),
        windowed_(model.windowed_layers()),
        window_(tokens_of(model.sliding_window.value_or(model.seq_length))),
        of_(std::size_t(context)) {}

  void add_sequence(const Pieces& pieces) {
    double begin = 0;
    for (const std::int64_t piece : pieces) {
      const double end = begin + tokens_of(piece);
      for (double at = begin; at < end;) {
        const auto chunk = std::min(static_cast<std::size_t>(at / part_), 2 * of_.size() - 1);
        const bool last = chunk == 2 * of_.size() - 1;
        const double until = last ? end : std::min(end, tokens_of(std::int64_t(chunk) + 1) * part_);
        if (until <= at) break;
        of_[std::min(chunk, 2 * of_.size() - 1 - chunk)] += keys(at - begin, until - begin, piece);
        at = until;
      }
      begin = end;
    }
  }
  /// Returns what the rank with most has, over the mean.
  double imbalance() const {
    double sum = 0;
    for (const double keys : of_) sum += keys;
    return sum > 0 ? *std::ranges::max_element(of_) * tokens_of(std::int64_t(of_.size())) / sum : 1;
  }

 private:
  double keys(double from, double to, std::int64_t piece) const {
    if (!model_.form().causal) return (to - from) * tokens_of(piece);
    const double all = keys_of_tokens(from, to, tokens_of(piece));
    if (windowed_ == 0) return all;
    return (1 - windowed_) * all + windowed_ * keys_of_tokens(from, to, window_);
  }

  const TransformerSpec& model_;
  double part_, windowed_, window_;
  std::vector<double> of_;  // by rank
};

}  // namespace

Attended attended(const TransformerSpec& model, const std::vector<Pieces>& sequences,
                  DocumentsSpec::Division division, int context, bool whole) {
  const bool divided = context > 1 && !whole && division == DocumentsSpec::Division::sequences;
  double pairs = 0;
  RankWork work(model, context);
  for (const Pieces& pieces : sequences) {
    for (const std::int64_t piece : pieces) pairs += model.attention_pairs(piece);
    if (divided) work.add_sequence(pieces);
  }
  Attended all;
  all.mean = pairs / (tokens_of(std::int64_t(sequences.size())) * model.attention_pairs());
  all.slowest = all.mean * (divided ? work.imbalance() : 1);
  return all;
}

DocumentStream::DocumentStream(const DocumentsSpec& spec, std::int64_t seq_length,
                               std::uint64_t stream)
    : spec_(spec), seq_length_(seq_length), stream_(stream) {
  double sum = 0;
  for (std::size_t i = 0; i < spec.lengths.size(); ++i)
    up_to_.push_back(sum += i < spec.weights.size() ? spec.weights[i] : 1);
}

std::int64_t DocumentStream::drawn() {
  const double at = uniform_hash(spec_.seed, stream_, next_++) * up_to_.back();
  const auto found = std::ranges::upper_bound(up_to_, at);
  const auto place = std::min(std::size_t(found - up_to_.begin()), up_to_.size() - 1);
  return std::max<std::int64_t>(1, std::llround(spec_.lengths[place]));
}

Pieces DocumentStream::next() {
  Pieces pieces;
  for (std::int64_t room = seq_length_; room > 0;) {
    if (left_ == 0) left_ = drawn();
    const std::int64_t piece = std::min(left_, room);
    pieces.push_back(piece);
    left_ -= piece;
    room -= piece;
  }
  return pieces;
}

}  // namespace penstock
