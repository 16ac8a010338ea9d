// SPDX-License-Identifier: Apache-2.0
#include "sweep/space.hpp"

#include "base/error.hpp"
#include "sweep/names.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace penstock {
namespace {

constexpr std::uint64_t kMostPoints = 1'000'000'000;

std::string sizes_text(const std::vector<SweepAxis>& axes, std::size_t files) {
  std::vector<std::string> parts;
  if (files > 1) parts.push_back(fmt::format("{} scenarios", files));
  for (const SweepAxis& axis : axes)
    parts.push_back(fmt::format("{} of {}", axis.values.size(), fmt::join(axis.keys, "+")));
  return fmt::format("{}", fmt::join(parts, " x "));
}

}  // namespace

Space::Space(std::vector<std::string> files, std::vector<SweepAxis> axes,
             const std::vector<std::string>& conditions, const std::vector<Override>& changes,
             Documents& documents)
    : files_(std::move(files)), axes_(std::move(axes)) {
  sizes_.push_back(files_.size());
  for (const SweepAxis& axis : axes_) sizes_.push_back(axis.values.size());
  strides_.assign(sizes_.size(), 1);
  size_ = 1;
  for (std::size_t level = sizes_.size(); level-- > 0;) {
    strides_[level] = size_;
    size_ *= sizes_[level];
    if (size_ > kMostPoints) {
      throw InputError("--over", fmt::format("more than a billion points ({}); give fewer values, "
                                             "or axes that move together (--zip)",
                                             sizes_text(axes_, files_.size())));
    }
  }
  conditions_.resize(sizes_.size());
  Names names(files_, axes_, changes, documents);
  std::vector<Diagnostic> diagnostics;
  for (const std::string& text : conditions) {
    try {
      Condition condition(text, [&](const std::string& name) { return names.find(name); });
      last_condition_ = std::max(last_condition_, condition.level());
      conditions_[condition.level()].push_back(std::move(condition));
    } catch (const InputError& error) {
      diagnostics.insert(diagnostics.end(), error.diagnostics().begin(), error.diagnostics().end());
    }
  }
  if (!diagnostics.empty()) throw InputError(std::move(diagnostics));
}

std::vector<std::size_t> Space::digits(std::uint64_t number) const {
  std::vector<std::size_t> out(sizes_.size());
  for (std::size_t level = 0; level < sizes_.size(); ++level)
    out[level] = static_cast<std::size_t>(number / strides_[level] % sizes_[level]);
  return out;
}

std::size_t Space::first_false(std::span<const std::size_t> digits) const {
  for (std::size_t level = 0; level <= last_condition_; ++level) {
    for (const Condition& condition : conditions_[level])
      if (!condition.holds(digits)) return level;
  }
  return sizes_.size();
}

std::uint64_t Space::next(std::uint64_t number) const {
  if (number >= size_) return size_;
  std::vector<std::size_t> at = digits(number);
  while (number < size_) {
    std::size_t level = first_false(at);
    if (level == sizes_.size()) return number;
    // On to the next value of that level: what lies behind it fails, too.
    number = (number / strides_[level] + 1) * strides_[level];
    std::fill(at.begin() + static_cast<std::ptrdiff_t>(level) + 1, at.end(), 0);
    while (++at[level] == sizes_[level] && level > 0) at[level--] = 0;
  }
  return size_;
}

std::uint64_t Space::count() const {
  if (count_) return *count_;
  const std::uint64_t block = strides_[last_condition_];  // all or nothing
  std::uint64_t count = 0;
  for (std::uint64_t at = next(0); at < size_;) {
    const std::uint64_t behind = (at / block + 1) * block;
    count += behind - at;
    at = next(behind);
  }
  count_ = count;
  return count;
}

Point Space::point(std::uint64_t number) const {
  const auto at = digits(number);
  Point point{number, at[0], {}};
  for (std::size_t a = 0; a < axes_.size(); ++a) {
    const auto& value = axes_[a].values[at[a + 1]];
    for (std::size_t k = 0; k < value.size(); ++k)
      point.changes.push_back({axes_[a].keys[k], value[k]});
  }
  return point;
}

}  // namespace penstock
