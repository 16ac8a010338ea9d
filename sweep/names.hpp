// SPDX-License-Identifier: Apache-2.0
// What the names in a condition stand for: an axis, or what each scenario says at that key.
#pragma once

#include "scenarios/documents.hpp"
#include "sweep/condition.hpp"

namespace penstock {

class Names {
 public:
  /// All of them must outlive this.
  Names(const std::vector<std::string>& files, const std::vector<SweepAxis>& axes,
        const std::vector<Override>& changes, Documents& documents);

  /// Throws InputError: an unknown name, or one whose value is not known.
  Variable find(const std::string& name);

 private:
  const std::vector<Value>& scenarios();
  std::string text_of(const Value& document, const std::string& key) const;

  const std::vector<std::string>& files_;
  const std::vector<SweepAxis>& axes_;
  const std::vector<Override>& changes_;
  Documents& documents_;
  std::vector<Value> scenarios_;  ///< of the files, changed; read when first needed
};

}  // namespace penstock
