// SPDX-License-Identifier: Apache-2.0
#include "sweep/overview.hpp"

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "base/table.hpp"
#include "base/units.hpp"
#include "results/simulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <numeric>

namespace penstock {
namespace {

constexpr std::size_t kMostReasons = 1000;
constexpr std::size_t kMostCells = 1'000'000;  // of the heat map
constexpr std::size_t kWidestReason = 100;
constexpr std::size_t kWidestLabel = 24;
constexpr std::size_t kWidestName = 30;  // of an axis
constexpr std::size_t kMostUnfit = 5;
constexpr double kRounding = 1e-9;
constexpr std::size_t kNotShown = 2;  // from this status on: its place in kStatusNames
constexpr const char* kOptimistic =
    "microbatches smaller than the device's efficiency curve was measured with: optimistic";
constexpr const char* kNoSteadyState =
    "too few batches for a steady state: the rate of the whole run, as if it flushed (--set "
    "batches)";

std::optional<double> number_of(const std::string& text) {
  if (text.empty()) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (*end != '\0') return std::nullopt;
  return value;
}

void raise(double& best, double value) {
  if (std::isnan(best) || value > best) best = value;
}

/// What reasons have in common: their words, without the numbers.
std::string without_numbers(const std::string& text) {
  std::string out;
  for (const char c : text) {
    const bool digit = std::isdigit(static_cast<unsigned char>(c)) != 0 || c == '.';
    if (!digit) out += c;
    if (digit && !out.ends_with('#')) out += '#';
  }
  return out;
}

std::string shortened(const std::string& text, std::size_t width) {
  if (display_width(text) <= width) return text;
  std::size_t end = width - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

/// "0.5", "43.41", "30,450".
std::string rate_number(double rate) {
  return rate >= 9999.5 ? format_count(std::llround(rate)) : fmt::format("{:.4g}", rate);
}

/// A measure as people read it.
std::string pretty(const SweepColumn& column, const std::string& cell) {
  const auto number = number_of(cell);
  if (cell.empty()) return "-";
  if (!number || column.type != SweepColumn::Type::number) return cell;
  switch (measure_of(column)->unit) {
    case Unit::fraction: return format_percent(*number);
    case Unit::bytes: return format_bytes(*number);
    case Unit::seconds: return format_time(*number);
    default: break;
  }
  if (measure_of(column)->unit == Unit::tokens_per_s) return rate_number(*number);
  return *number == std::floor(*number) && std::abs(*number) < 1e15
             ? fmt::format("{:.0f}", *number)
             : fmt::format("{:.4g}", *number);
}

/// Is less better of this column?
bool rises(const std::string& name) {
  const Measure* m = find_measure(name);
  if (m == nullptr) return name == "point";
  const bool counts_against =
      m->unit == Unit::seconds || m->unit == Unit::bytes || m->unit == Unit::fraction;
  return counts_against && !m->column.higher_is_better;
}

}  // namespace

void read_sort(const std::string& text, TableOptions& options) {
  const std::size_t colon = text.rfind(':');
  options.sort = full_name(text.substr(0, colon));
  options.descending = !rises(options.sort);
  if (colon == std::string::npos) return;
  const std::string order = text.substr(colon + 1);
  if (order != "asc" && order != "desc")
    throw InputError("--sort " + text, fmt::format("the order is asc or desc, got '{}'{}", order,
                                                   did_you_mean(order, {"asc", "desc"})));
  options.descending = order == "desc";
}

Overview::Overview(const Space& space, const Columns& columns, TableOptions options)
    : space_(space), columns_(columns), options_(std::move(options)) {
  throughput_ = columns.at("throughput_samples_per_s");
  sort_ = options_.sort.empty() ? throughput_ : columns.find(options_.sort, "--sort");
  status_ = columns.at("status");
  why_ = columns.at("why");
  tokens_ = columns.at("tokens_per_s");
  tokens_per_gpu_ = columns.at("tokens_per_s_per_gpu");
  seq_length_ = columns.at("seq_length");
  parameters_ = columns.at("parameters");
  batch_ = columns.at("samples_per_update");
  gpus_ = columns.at("gpus");
  optimistic_ = columns.at("optimistic");
  iteration_ = columns.at("iteration_time_s");
  for (const std::string& name : options_.columns)
    shown_.push_back(columns.find(name, "--columns"));
  if (shown_.empty()) {
    if (space.files().size() > 1) shown_.push_back(1);
    for (std::size_t a = 0; a < columns.axes(); ++a) shown_.push_back(2 + a);
    for (const Measure* usual : usual_measures()) shown_.push_back(columns.at(usual->name));
    if (std::ranges::find(shown_, sort_) == shown_.end()) shown_.push_back(sort_);
  }
  along_.resize(space.axes().size() + 1);
  for (std::size_t level = 0; level < along_.size(); ++level) {
    const std::size_t n = level == 0 ? space.files().size() : space.axes()[level - 1].values.size();
    along_[level].assign(n, std::nan(""));
    if (n > 1) levels_.push_back(level);
  }
  if (levels_.size() < 2) return;
  auto most = levels_;
  std::ranges::stable_sort(most, std::greater(), [&](std::size_t l) { return along_[l].size(); });
  const std::size_t rows = along_[most[1]].size(), across = along_[most[0]].size();
  if (rows * across > kMostCells) return;
  mapped_ = {most[1], most[0]};
  map_.assign(rows, std::vector<double>(across, std::nan("")));
  map_empty_.assign(rows, std::vector<std::uint8_t>(across, kBlankCell));
}

void Overview::add_row(const Cells& row) {
  const auto status = static_cast<std::size_t>(std::ranges::find(kStatusNames, row[status_]) -
                                               std::begin(kStatusNames));
  if (status >= counts_.size()) return;
  ++counts_[status];
  if (status != 0) add_reason(row);
  if (status >= kNotShown) {
    add_to_empty(row, status);
    add_unfit(row);
    return;
  }
  batches_.add_number(number_of(row[batch_]));
  gpu_counts_.add_number(number_of(row[gpus_]));
  lengths_.add_number(number_of(row[seq_length_]));
  models_.add_number(number_of(row[parameters_]));
  add_to_axes(row);
  add_to_top(row);
}

void Overview::add_resumed(const Cells& row) {
  resumed_ = true;
  add_row(row);
}

void Overview::add_unwritten(const Row& row) {
  if (row.status == Row::Status::ok && row.given_forward_s_per_sample > 0)
    given_s_.add_number(row.given_forward_s_per_sample);
  if (row.too_few_devices == 0) return;
  ++short_of_devices_;
  devices_ = row.too_few_devices;
}

std::string Overview::batches() const {
  const auto chosen = [](const SweepAxis& axis) {
    return std::ranges::any_of(axis.keys, [](const std::string& key) {
      return key == "pipeline.microbatches" || key == "pipeline.global_batch_size";
    });
  };
  if (!batches_.differ() || std::ranges::any_of(space_.axes(), chosen)) return "";
  return fmt::format(
      "rows differ in their batch: {:.0f} to {:.0f} samples per update; set "
      "pipeline.global_batch_size to compare them at one",
      batches_.least, batches_.most);
}

std::string Overview::work() const {
  const auto chosen = [](const SweepAxis& axis) {
    return std::ranges::any_of(axis.keys,
                               [](const std::string& key) { return key.starts_with("model"); });
  };
  if (std::ranges::any_of(space_.axes(), chosen)) return "";
  return work_differs(given_s_.least, given_s_.most);
}

std::string Overview::models() const {
  if (!models_.differ()) return "";
  return fmt::format(
      "rows are of models of {} to {} parameters: more tokens/s may only be a smaller model "
      "(--sort "
      "mfu)",
      format_count(std::llround(models_.least)), format_count(std::llround(models_.most)));
}

double Overview::rate_of(const Cells& row) const {
  const auto tokens = number_of(row[tokens_]);
  return tokens ? *tokens : number_of(row[throughput_]).value_or(0);
}

std::string Overview::rate_unit() const { return lengths_.differ() ? "tokens/s" : "samples/s"; }

double Overview::shown(double rate) const {
  return lengths_.differ() || lengths_.most == 0 ? rate : rate / lengths_.most;
}

std::string Overview::rate_text(double rate) const {
  return fmt::format("{} {}", rate_number(shown(rate)), rate_unit());
}

std::string Overview::gpus() const {
  if (!gpu_counts_.differ()) return "";
  return fmt::format(
      "rows are of {:.0f} to {:.0f} GPUs: more {} may only be more GPUs (--sort mfu, or "
      "tokens_per_s_per_gpu)",
      gpu_counts_.least, gpu_counts_.most, rate_unit());
}

std::string Overview::fixed_width() const {
  bool degrees = false;
  for (const SweepAxis& axis : space_.axes())
    for (const std::string& key : axis.keys) {
      if (key == "pipeline.width") return "";
      degrees |= key == "pipeline.stages" || key == "pipeline.tensor";
    }
  if (!degrees || short_of_devices_ == 0) return "";
  return fmt::format(
      "{}{} need more GPUs than there are, as pipeline.width is the same for all: with --over "
      "width=1:{} --where 'stages*tensor*width == {}' every row has all",
      short_of_devices_, resumed_ ? " of the new points" : "", devices_, devices_);
}

void Overview::add_reason(const Cells& row) {
  auto& reasons = reasons_[static_cast<std::size_t>(std::ranges::find(kStatusNames, row[status_]) -
                                                    std::begin(kStatusNames))];
  std::string words = without_numbers(row[why_]);
  if (reasons.size() >= kMostReasons && !reasons.contains(words)) words.clear();
  Reason& reason = reasons[words];
  if (reason.count++ == 0) reason.example = row[why_];
}

void Overview::add_unfit(const Cells& row) {
  const double rate = rate_of(row);
  if (rate <= 0) return;
  const auto slower = [&](const Unfit& other) { return other.rate < rate; };
  unfit_.insert(std::ranges::find_if(unfit_, slower),
                {std::strtoull(row[0].c_str(), nullptr, 10), rate, settings(row)});
  if (unfit_.size() > kMostUnfit) unfit_.pop_back();
}

std::vector<std::uint64_t> Overview::faster_unfit() const {
  std::vector<std::uint64_t> points;
  for (const Unfit& row : unfit_)
    if (row.rate > best_) points.push_back(row.point);
  return points;
}

bool Overview::would_fit(std::uint64_t point, const std::string& split, const Row& as_split) {
  const double rate = rate_of(columns_.cells(as_split));
  if (rate <= best_ * (1 + kRounding)) return false;
  const auto row = std::ranges::find(unfit_, point, &Unfit::point);
  other_split_ = fmt::format("{} does not fit; with split: {} it does, and is faster: {}",
                             row->settings, split, rate_text(rate));
  return true;
}

std::string Overview::settings(const Cells& row) const {
  std::vector<std::string> parts;
  if (space_.files().size() > 1) parts.push_back(row[1]);
  for (std::size_t a = 0; a < columns_.axes(); ++a)
    parts.push_back(columns_.all()[2 + a].name + "=" + row[2 + a]);
  return fmt::format("{}", fmt::join(parts, ", "));
}

void Overview::add_to_empty(const Cells& row, std::size_t status) {
  if (map_.empty()) return;
  const auto digits = space_.digits(std::strtoull(row[0].c_str(), nullptr, 10));
  std::uint8_t& empty = map_empty_[digits[mapped_[0]]][digits[mapped_[1]]];
  empty = std::min(empty, static_cast<std::uint8_t>(status - kNotShown));
}

void Overview::add_to_axes(const Cells& row) {
  if (row[throughput_].empty()) return;
  const double value = rate_of(row);
  const auto digits = space_.digits(std::strtoull(row[0].c_str(), nullptr, 10));
  for (const std::size_t level : levels_) raise(along_[level][digits[level]], value);
  if (!map_.empty()) raise(map_[digits[mapped_[0]]][digits[mapped_[1]]], value);
  if (value <= best_) return;
  best_ = value;
  best_settings_ = settings(row);
  best_number_ = std::strtoull(row[0].c_str(), nullptr, 10);
}

/// Numbers before texts; what is equal in the order of the points.
bool Overview::before(const Best& a, const Best& b) const {
  const bool a_text = std::isnan(a.value), b_text = std::isnan(b.value);
  if (a_text != b_text) return b_text;
  if (a_text && a.text != b.text) return options_.descending ? a.text > b.text : a.text < b.text;
  if (!a_text && a.value != b.value)
    return options_.descending ? a.value > b.value : a.value < b.value;
  return a.point < b.point;
}

void Overview::add_to_top(const Cells& row) {
  if (row[sort_].empty() || options_.top == 0) return;
  const double value =
      options_.sort.empty() ? rate_of(row) : number_of(row[sort_]).value_or(std::nan(""));
  Best candidate{value, row[sort_], std::strtoull(row[0].c_str(), nullptr, 10), {}};
  const auto better = [this](const Best& a, const Best& b) { return before(a, b); };
  if (top_.size() == options_.top && !before(candidate, top_.back())) return;
  candidate.row = row;
  top_.insert(std::ranges::upper_bound(top_, candidate, better), std::move(candidate));
  if (top_.size() > options_.top) top_.pop_back();
}

std::string Overview::best() const {
  const auto point = best_point();
  return point ? fmt::format("{} ({})", point->rate, point->settings) : "";
}

std::optional<Overview::BestPoint> Overview::best_point() const {
  return best_ > 0 ? std::optional(BestPoint{rate_text(best_), best_settings_, best_number_})
                   : std::nullopt;
}

std::string Overview::most_frequent(std::size_t status) const {
  const auto& reasons = reasons_[status];
  if (reasons.empty()) return "";
  const auto most =
      std::ranges::max_element(reasons, {}, [](const auto& r) { return r.second.count; });
  return fmt::format(" ({}: {})", reasons.size() == 1 ? "because" : "most often",
                     shortened(most->second.example, kWidestReason));
}

std::uint64_t Overview::points() const {
  return std::accumulate(counts_.begin(), counts_.end(), std::uint64_t{0});
}

std::string Overview::count_text(std::size_t status) const {
  return fmt::format("{} {}{}", format_count(static_cast<std::int64_t>(counts_[status])),
                     kStatusNames[status], most_frequent(status));
}

std::vector<std::string> Overview::others() const {
  std::vector<std::string> parts;
  for (std::size_t s = 1; s < counts_.size(); ++s)
    if (counts_[s] > 0) parts.push_back(count_text(s));
  return parts;
}

std::string Overview::counts() const {
  std::vector<std::string> parts;
  for (std::size_t s = 0; s < counts_.size(); ++s)
    if (counts_[s] > 0 || kStatusNames[s] != "unknown") parts.push_back(count_text(s));
  return fmt::format("{} point{}: {}", format_count(static_cast<std::int64_t>(points())),
                     points() == 1 ? "" : "s", fmt::join(parts, ", "));
}

std::string Overview::axis_name(std::size_t level) const {
  if (level == 0) return "scenario";
  std::size_t column = 2;
  for (std::size_t a = 0; a + 1 < level; ++a) column += space_.axes()[a].keys.size();
  std::vector<std::string> names;
  for (std::size_t k = 0; k < space_.axes()[level - 1].keys.size(); ++k)
    names.push_back(columns_.all()[column + k].name);
  return fmt::format("{}", fmt::join(names, "+"));
}

std::vector<std::string> Overview::labels(std::size_t level) const {
  std::vector<std::string> out;
  if (level == 0) {
    for (const std::string& name : columns_.scenarios())
      out.push_back(shortened(name, kWidestLabel));
    return out;
  }
  for (const auto& value : space_.axes()[level - 1].values)
    out.push_back(shortened(fmt::format("{}", fmt::join(value, "+")), kWidestLabel));
  return out;
}

/// The usual columns have short names; whoever chooses columns gets theirs.
std::string Overview::header(std::size_t column) const {
  const std::string& name = columns_.all()[column].name;
  return options_.columns.empty() ? short_name(name) : name;
}

std::string Overview::top_table(const Canvas& canvas) const {
  if (top_.empty()) return "no point is feasible\n";
  std::vector<std::size_t> shown = shown_;
  const auto leave_out = [&](std::size_t column, const Range& range) {
    if (options_.columns.empty() && !range.differ() && sort_ != column) std::erase(shown, column);
  };
  leave_out(batch_, batches_);
  leave_out(gpus_, gpu_counts_);
  leave_out(tokens_per_gpu_, lengths_.most > 0 ? gpu_counts_ : lengths_);
  if (lengths_.most == 0) leave_out(tokens_, lengths_);
  std::size_t count = shown.size();
  for (; count > 0; --count) {
    std::vector<std::string> headers;
    for (std::size_t c = 0; c < count; ++c) headers.push_back(header(shown[c]));
    TextTable table(headers, {TextTable::Align::right});
    bool any_marked = false, any_short = false;
    for (const Best& best : top_) {
      std::vector<std::string> cells;
      for (std::size_t c = 0; c < count; ++c) {
        const bool marked = shown[c] == throughput_ && best.row[optimistic_] == "1";
        any_marked = any_marked || marked;
        const bool whole_run = shown[c] == throughput_ && best.row[iteration_].empty();
        any_short = any_short || whole_run;
        const std::string cell = pretty(columns_.all()[shown[c]], best.row[shown[c]]);
        cells.push_back(shortened(cell, 40) + (marked ? "*" : "") + (whole_run ? "+" : ""));
      }
      table.add_row(std::move(cells));
    }
    std::string text = table.render(0, 0);
    const bool fits =
        display_width(text.substr(0, text.find('\n'))) <= static_cast<std::size_t>(canvas.width);
    if (!fits && count > 1) continue;
    if (count < shown.size())
      text +=
          fmt::format("({} more columns do not fit; --columns chooses)\n", shown.size() - count);
    if (counts_[1] > 0)
      text += fmt::format("whether they fit is unknown: the model is one {}\n",
                          reasons_[1].begin()->second.example);
    if (any_marked) text += fmt::format("*: {}\n", kOptimistic);
    if (any_short) text += fmt::format("+: {}\n", kNoSteadyState);
    return text;
  }
  return "";
}

std::string Overview::heat_map(const Canvas& canvas) const {
  if (map_.empty()) return "";
  HeatMap map{axis_name(mapped_[0]),
              axis_name(mapped_[1]),
              labels(mapped_[0]),
              labels(mapped_[1]),
              map_,
              map_empty_};
  for (std::vector<double>& row : map.values)
    std::ranges::transform(row, row.begin(), [this](double rate) { return shown(rate); });
  const std::string field = draw(map, canvas);
  if (field.empty()) return "";
  return fmt::format("\n{} by {} (down) and {} (across){}\n{}", rate_unit(),
                     shortened(map.rows, kWidestName), shortened(map.columns, kWidestName),
                     levels_.size() > 2 ? ", the best over all else" : "", field);
}

/// With bars and labels as wide as there is room for.
std::string Overview::lines(const Canvas& canvas) const {
  if (best_ <= 0 || levels_.empty()) return "";
  std::string text;
  for (const auto& [bars, label] :
       {std::pair<std::size_t, std::size_t>{48, kWidestLabel}, {48, 12}, {32, 12}, {23, 8}}) {
    text = lines(canvas, bars, label);
    const std::size_t width = display_width(text.substr(0, text.find('\n')));
    if (width <= static_cast<std::size_t>(canvas.width)) break;
  }
  const bool dots = text.find("·") != std::string::npos;
  return "\n" + text + (dots ? "·: nothing fits there\n" : "");
}

std::string Overview::lines(const Canvas& canvas, std::size_t bars, std::size_t label) const {
  TextTable table({"axis", fmt::format("best {} along it", rate_unit()), "from", "to", "best at"},
                  {TextTable::Align::left, TextTable::Align::left});
  for (const std::size_t level : levels_) {
    const auto names = labels(level);
    const auto& values = along_[level];
    const auto best =
        std::ranges::max_element(values, {}, [](double v) { return std::isnan(v) ? -1 : v; });
    std::vector<double> shown(std::min(values.size(), bars), std::nan(""));
    for (std::size_t v = 0; v < values.size(); ++v)
      if (!std::isnan(values[v])) raise(shown[v * shown.size() / values.size()], values[v]);
    table.add_row({shortened(axis_name(level), kWidestName),
                   canvas.blocks ? sparkline(shown, canvas) : "", shortened(names.front(), label),
                   shortened(names.back(), label),
                   shortened(names[static_cast<std::size_t>(best - values.begin())], label)});
  }
  return table.render(0, 0);
}

std::string Overview::table(const Canvas& canvas) const {
  return top_table(canvas) + (other_split_.empty() ? "" : other_split_ + "\n") + heat_map(canvas) +
         lines(canvas);
}

}  // namespace penstock
