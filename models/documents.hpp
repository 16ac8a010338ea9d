// SPDX-License-Identifier: Apache-2.0
// Documents of many lengths, packed into sequences of s tokens one after the other: what does not
// fit goes on in the next sequence. Tokens attend to their own document alone (flash attention of
// variable lengths), so a sequence with pieces of l_1, l_2 ... tokens has sum(pairs(l_i)) of the
// pairs(s) that one whole document has: sum(l_i^2) / s^2 without a window. So attention's FLOPs and
// time vary from microbatch to microbatch.
//
// Among c context ranks either each document is divided alike, so that all have as much to do, or
// the sequence is: into 2c parts, of which a rank has one from each end, as suits a whole document.
// Then the rank with most pairs decides.
#pragma once

#include "models/transformer.hpp"

#include <cstdint>
#include <string_view>
#include <vector>

namespace penstock {

struct DocumentsSpec {
  enum class Division : std::uint8_t { documents, sequences };
  std::vector<double> lengths{};  ///< tokens
  std::vector<double> weights{};  ///< how often each comes up; empty: all as often
  Division division = Division::documents;
  std::uint64_t seed = 1;
};
inline constexpr std::string_view kDocumentDivisions = "documents|sequences";

/// What attention has to do in a microbatch, over what it has with whole sequences.
struct Attended {
  double mean = 1;     ///< of all context ranks
  double slowest = 1;  ///< of the one with most pairs, over its part of whole sequences
};

/// The pieces of documents that a sequence consists of, in tokens.
using Pieces = std::vector<std::int64_t>;

/// Returns what attention has to do in these sequences among so many context ranks, which divide
/// them or (`whole`) heads.
Attended attended(const TransformerSpec& model, const std::vector<Pieces>& sequences,
                  DocumentsSpec::Division division, int context, bool whole);

/// Sequences of one replica of the data, one after the other.
class DocumentStream {
 public:
  /// `stream`: of replica and draw. Precondition: there are lengths.
  DocumentStream(const DocumentsSpec& spec, std::int64_t seq_length, std::uint64_t stream);

  Pieces next();

 private:
  std::int64_t drawn();

  const DocumentsSpec& spec_;
  std::int64_t seq_length_, left_ = 0;  // left_: of a document that has begun
  std::vector<double> up_to_;           // of each length: weights of it and of those before
  std::uint64_t stream_, next_ = 0;
};

}  // namespace penstock
