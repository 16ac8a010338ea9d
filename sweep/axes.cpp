// SPDX-License-Identifier: Apache-2.0
#include "sweep/axes.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "base/text.hpp"
#include "base/units.hpp"
#include "scenarios/document.hpp"
#include "scenarios/overrides.hpp"
#include "sweep/decimal.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace penstock {
namespace {

constexpr std::size_t kMostValues = 1'000'000;
constexpr std::string_view kBeforeWord = ",:[{";

/// Cuts at `at` outside of brackets, braces and quotes, which begin a word as in YAML: that of
/// "it's" is a letter, and \\" ends none.
std::vector<std::string> split_outside(const std::string& text, char at,
                                       const std::string& origin) {
  std::vector<std::string> parts(1);
  std::string closing;  // of the brackets that are open
  char quote = 0;
  bool begins = true, escaped = false;
  for (const char c : text) {
    const bool opens = begins;
    begins = kBeforeWord.find(c) != kBeforeWord.npos || (begins && (c == ' ' || c == '\t'));
    if (quote != 0) {
      if (c == quote && !escaped) quote = 0;
      escaped = quote == '"' && c == '\\' && !escaped;
    } else if (opens && (c == '"' || c == '\'')) {
      quote = c;
    } else if (c == '[' || c == '{') {
      closing += c == '[' ? ']' : '}';
    } else if (c == ']' || c == '}') {
      if (closing.empty() || closing.back() != c)
        throw InputError(origin, fmt::format("a '{}' closes nothing", c));
      closing.pop_back();
    }
    if (c == at && quote == 0 && closing.empty()) {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  if (quote != 0) throw InputError(origin, fmt::format("a {} is not closed", quote));
  if (!closing.empty()) throw InputError(origin, fmt::format("a '{}' is missing", closing.back()));
  return parts;
}

class Range {
 public:
  Range(const std::vector<std::string>& parts, const std::string& origin)
      : text_(fmt::format("{}", fmt::join(parts, ":"))), origin_(origin) {
    if (parts.size() > 3) fail("has more than three parts");
    from_ = bound(parts[0]);
    to_ = bound(parts[1]);
    read_step(parts.size() == 3 ? std::string(trimmed(parts[2])) : "+1" + unit_);
    if (less(to_, from_)) fail("is empty: give its smaller end first");
  }

  void append_to(std::vector<std::string>& values) const {
    const std::string unit = unit_;
    for (Decimal at = from_; !less(to_, at);) {
      values.push_back(to_string(at) + unit);
      if (values.size() > kMostValues) fail("has more than a million values");
      const auto next = factor_ ? times(at, step_) : plus(at, step_);
      if (!next) fail("needs more than 18 digits");
      if (!less(at, *next)) fail("does not get on: its step is too small for its digits");
      at = *next;
    }
  }

 private:
  [[noreturn]] void fail(const std::string& why) const {
    throw InputError(origin_,
                     fmt::format("the range {} {} (ranges are such as 1:8, 1:9:+2, 1ms:9ms:+1ms "
                                 "or 1:32:*2)",
                                 printable(text_), why));
  }

  Decimal number(const std::string& text, std::string& unit) const {
    const NumberWithUnit parts = split_unit(text);
    const auto value = parse_decimal(parts.number);
    if (!value) fail(fmt::format("has '{}', which is no number of at most 15 digits", text));
    unit = std::string(parts.unit);
    return *value;
  }

  Decimal bound(const std::string& part) {
    std::string unit;
    const Decimal value = number(std::string(trimmed(part)), unit);
    same_unit(unit);
    return value;
  }

  void same_unit(const std::string& unit) {
    if (unit_known_ && unit != unit_)
      fail(fmt::format("has the units '{}' and '{}'; give all parts in one", unit_, unit));
    unit_ = unit;
    unit_known_ = true;
  }

  void read_step(const std::string& step) {
    const bool signed_step = step.starts_with('+') || step.starts_with('*');
    if (!signed_step)
      fail(fmt::format("needs a step such as +{0} or *{0}", step.empty() ? "2" : step));
    factor_ = step[0] == '*';
    std::string unit;
    step_ = number(std::string(trimmed(step.substr(1))), unit);
    if (factor_ && !unit.empty()) fail("has a factor with a unit");
    if (!factor_) same_unit(unit);
    const Decimal least{factor_ ? 1 : 0, 0};
    if (!less(least, step_))
      fail(factor_ ? "has a factor that is not above 1" : "has no step above 0");
    if (factor_ && !less({0, 0}, from_)) fail("cannot multiply from 0 or below");
  }

  std::string text_, origin_, unit_;
  bool unit_known_ = false, factor_ = false;
  Decimal from_, to_, step_;
};

/// May these parts of a value with colons be a range? Text keeps its colons (`name=a:b`).
bool is_range(const std::vector<std::string>& parts, const KeyRow* row) {
  using T = KeyRow::Type;
  if (parts.size() < 2) return false;
  const bool text = row != nullptr && (row->type == T::text || row->type == T::name_or_section);
  return !text;
}

void append_values(const std::string& item, const KeyRow* row, const std::string& origin,
                   std::vector<std::string>& values) {
  if (item.empty()) throw InputError(origin, "has an empty value");
  if (item.find_first_of("\r\n") != std::string::npos)
    throw InputError(origin, "has a value with a line break");
  const auto parts = split_outside(item, ':', origin);
  if (is_range(parts, row)) {
    Range(parts, origin).append_to(values);
  } else {
    values.push_back(item);
  }
}

std::string flag(const char* name, const std::string& text) {
  return fmt::format("{} {}", name, printable(text));
}

/// Which axis has this key? Its number; -1 where none has.
int axis_of(const std::vector<SweepAxis>& axes, const std::string& key) {
  for (std::size_t a = 0; a < axes.size(); ++a) {
    if (std::ranges::find(axes[a].keys, key) != axes[a].keys.end()) return static_cast<int>(a);
  }
  return -1;
}

class Axes {
 public:
  void add_axis(const std::string& text) {
    collect([&] {
      SweepAxis axis = parse_axis(text);
      for (const SweepAxis& other : axes_) {
        if (axis.keys[0] != other.keys[0]) continue;
        throw InputError(flag("--over", text), fmt::format("'{}' is an axis already; give all its "
                                                           "values in one list",
                                                           axis.keys[0]));
      }
      axes_.push_back(std::move(axis));
    });
  }

  /// An axis wins over a --set, which would be ignored in silence.
  void check_changes(const std::vector<Override>& changes) {
    for (const Override& change : changes) {
      collect([&] {
        const std::string origin = flag("--set", change.key + "=" + change.value);
        const std::string key = fmt::format("{}", fmt::join(key_path(change.key, origin), "."));
        if (axis_of(axes_, key) >= 0)
          throw InputError(origin, "is also an axis (--over); leave out one of them");
      });
    }
  }

  /// `model` before `model.num_layers` changes one key of each model; after it, it undoes that.
  void check_nesting() {
    std::vector<std::string> before;
    for (const SweepAxis& axis : axes_) {
      for (const std::string& key : axis.keys) {
        for (const std::string& inner : before) {
          if (!inner.starts_with(key + ".")) continue;
          complain("--over", fmt::format("'{0}' undoes '{1}'; give '{0}' first", key, inner));
        }
        before.push_back(key);
      }
    }
  }

  void zip(const std::string& text) {
    collect([&] {
      const std::string origin = flag("--zip", text);
      std::vector<SweepAxis> members;
      for (const std::string& name : split_values(text, origin))
        members.push_back(take_axis(name, origin));
      if (members.size() < 2)
        throw InputError(origin, "needs at least two axes, such as stages,width");
      axes_.insert(axes_.begin() + first_, zipped(members, origin));
    });
  }

  void check_values() {
    for (const SweepAxis& axis : axes_) {
      std::set<std::vector<std::string>> seen;
      for (const auto& value : axis.values) {
        if (seen.insert(value).second) continue;
        complain(flag("--over", axis.keys[0]),
                 fmt::format("has {} twice", fmt::join(value, " with ")));
        break;
      }
    }
  }

  std::vector<SweepAxis> result() {
    if (!diagnostics_.empty()) throw InputError(diagnostics_);
    return std::move(axes_);
  }

 private:
  template <class Work>
  void collect(Work&& work) {
    try {
      work();
    } catch (const InputError& error) {
      diagnostics_.insert(diagnostics_.end(), error.diagnostics().begin(),
                          error.diagnostics().end());
    }
  }

  void complain(const std::string& origin, const std::string& message) {
    diagnostics_.push_back({Position{origin, 0, 0}, message, "", 1});
  }

  SweepAxis take_axis(const std::string& name, const std::string& origin) {
    const std::string key =
        fmt::format("{}", fmt::join(key_path(std::string(trimmed(name)), origin), "."));
    const int at = axis_of(axes_, key);
    if (at < 0) throw InputError(origin, fmt::format("'{}' is no axis; give it with --over", key));
    SweepAxis axis = std::move(axes_[static_cast<std::size_t>(at)]);
    axes_.erase(axes_.begin() + at);
    first_ = at;
    return axis;
  }

  static SweepAxis zipped(const std::vector<SweepAxis>& members, const std::string& origin) {
    SweepAxis out;
    for (const SweepAxis& member : members) {
      if (member.values.size() != members[0].values.size()) {
        throw InputError(origin, fmt::format("'{}' has {} values and '{}' {}; they move together "
                                             "and need as many",
                                             members[0].keys[0], members[0].values.size(),
                                             member.keys[0], member.values.size()));
      }
      out.keys.insert(out.keys.end(), member.keys.begin(), member.keys.end());
      out.values.resize(member.values.size());
      for (std::size_t v = 0; v < member.values.size(); ++v)
        out.values[v].insert(out.values[v].end(), member.values[v].begin(), member.values[v].end());
    }
    return out;
  }

  std::vector<SweepAxis> axes_;
  std::ptrdiff_t first_ = 0;  ///< where the last axis that was taken stood
  std::vector<Diagnostic> diagnostics_;
};

}  // namespace

std::vector<std::string> split_values(const std::string& text, const std::string& origin) {
  auto parts = split_outside(text, ',', origin);
  for (std::string& part : parts) part = std::string(trimmed(part));
  return parts;
}

SweepAxis parse_axis(const std::string& text) {
  const std::string origin = flag("--over", text);
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0)
    throw InputError(origin, "expected KEY=VALUES, such as stages=2,4,8 or stages=1:32:*2");
  const auto path = key_path(std::string(trimmed(text.substr(0, equals))), origin);
  const KeyRow* row = key_row(path);
  std::vector<std::string> values;
  for (const std::string& item : split_values(text.substr(equals + 1), origin))
    append_values(item, row, origin, values);
  SweepAxis axis{{fmt::format("{}", fmt::join(path, "."))}, {}};
  for (std::string& value : values) axis.values.push_back({std::move(value)});
  return axis;
}

std::vector<SweepAxis> parse_axes(const std::vector<std::string>& over,
                                  const std::vector<std::string>& zips,
                                  const std::vector<Override>& changes) {
  Axes axes;
  for (const std::string& text : over) axes.add_axis(text);
  axes.check_changes(changes);
  for (const std::string& text : zips) axes.zip(text);
  axes.check_nesting();
  axes.check_values();
  return axes.result();
}

}  // namespace penstock
