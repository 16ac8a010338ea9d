// SPDX-License-Identifier: Apache-2.0
// Resolves the names in conditions: a name is an axis, or a key and what each scenario says at it.
#pragma once

#include "scenarios/documents.hpp"
#include "sweep/condition.hpp"

namespace penstock {

class Names {
 public:
  /// Keeps references to all of these, which must outlive it.
  Names(const std::vector<std::string>& files, const std::vector<SweepAxis>& axes,
        const std::vector<Override>& changes, Documents& documents);

  /// Returns the variable of a name. Throws InputError where the name or its value is not known.
  Variable find(const std::string& name);

 private:
  const std::vector<Value>& scenarios();
  std::string text_of(const Value& document, const std::string& key) const;

  const std::vector<std::string>& files_;
  const std::vector<SweepAxis>& axes_;
  const std::vector<Override>& changes_;
  Documents& documents_;
  std::vector<Value> scenarios_;  ///< the files with the changes; they are read when first needed
};

}  // namespace penstock
