// SPDX-License-Identifier: Apache-2.0
#include "results/comparison.hpp"

#include "results/expected_error.hpp"
#include "results/fields.hpp"
#include "base/json_fields.hpp"
#include "base/units.hpp"
#include "results/simulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

namespace penstock {
namespace {

using Words = std::vector<std::string>;

/// The scenario's name and what was changed on the command line.
std::string name_of(const Json& result) {
  const Json changes = result.value("overrides", Json::array());
  std::string name = result.value("scenario", "");
  if (changes.empty()) return name;
  return name + fmt::format(" [{}]", fmt::join(changes.get<std::vector<std::string>>(), ", "));
}

/// Returns how sure a result is of its time; "" where a saved result, which may be an older one,
/// does not say it in today's words.
std::string sureness_in(const Json& result) {
  const Json error = result.value("expected_error", Json());
  try {
    return error.is_object() ? expected_error_text(error) : "";
  } catch (const JsonError&) {
    return "";
  }
}

/// Was a time or size of the model itself changed on the command line?
bool changes_model(const Json& result) {
  const auto changes = result.value("overrides", Json::array()).get<std::vector<std::string>>();
  return std::ranges::any_of(changes, [](const std::string& c) { return c.starts_with("model"); });
}

/// "the models differ: a (8,030,261,248 parameters), ..."; "" where they do not.
std::string models_differ(const std::vector<Json>& results) {
  Words models;
  for (const Json& r : results) {
    if (!r.contains("model")) return "";  // an older result
    const Json model = r.value("model", Json());
    std::string text = model.is_string() ? model.get<std::string>() : "times that are given";
    if (const auto parameters = number_in(r, "parameters"))
      text += fmt::format(" ({} parameters)", format_count(static_cast<std::int64_t>(*parameters)));
    if (std::ranges::find(models, text) == models.end()) models.push_back(text);
  }
  return models.size() < 2 ? "" : fmt::format("the models differ: {}\n", fmt::join(models, ", "));
}

/// Returns the least and the most of numbers of all results; none unless all have one and they
/// differ.
std::optional<std::pair<double, double>> differing(const std::vector<double>& numbers) {
  if (std::ranges::any_of(numbers, [](double n) { return std::isnan(n); })) return std::nullopt;
  if (numbers.empty()) return std::nullopt;
  const auto [least, most] = std::minmax_element(numbers.begin(), numbers.end());
  return *least < *most ? std::optional(std::pair(*least, *most)) : std::nullopt;
}

/// Does a field of this name last, count or weigh?
bool is_never_negative(std::string_view key) {
  return key.ends_with("_s") || key.ends_with("bytes") || key.find("_per_") != key.npos ||
         key.ends_with("fraction") || key.ends_with("_seconds");
}

/// Checks the numbers of a value that stands under a key.
void check_numbers(const Json& value, std::string_view key, const Place& place) {
  constexpr double kLeast = 1e-18, kMost = 1e18;
  if (value.is_object())
    for (const auto& [name, inner] : value.items()) check_numbers(inner, name, place.in(name));
  if (value.is_array())
    for (std::size_t i = 0; i < value.size(); ++i) check_numbers(value.at(i), key, place.at(i));
  if (!value.is_number()) return;
  const auto number = value.get<double>(), size = std::abs(number);
  if (size != 0 && !(size >= kLeast && size <= kMost))
    place.problem(
        fmt::format("must be 0, or from {:g} to {:g}, got {}", kLeast, kMost, value.dump()));
  else if (number < 0 && is_never_negative(key))
    place.problem(fmt::format("must not be negative, got {}", value.dump()));
}

}  // namespace

std::string why_no_result(const Json& json) {
  if (!json.is_object() || !json.contains("schema_version") || !json.contains("makespan_s"))
    return "is not a result of `penstock simulate --format json`";
  const Json& version = json["schema_version"];
  if (version == Json(kSchemaVersion)) return "";
  return fmt::format(
      "has schema_version {}, and this version of penstock reads {}; simulate its "
      "scenario again",
      version.dump(), kSchemaVersion);
}

void require_numbers_of_a_run(const Json& result, const std::string& origin) {
  JsonProblems problems(origin);
  check_numbers(result, "", Place(problems));
  problems.throw_if_any();
}

double number_or_0(const Json& result, const char* key) {
  return number_in(result, key).value_or(0);
}

double most_of_devices(const Json& result, const char* key) {
  double value = 0;
  for (const Json& device : result.value("devices", Json::array()))
    value = std::max(value, number_or_0(device, key));
  return value;
}

std::size_t gpus_in(const Json& result) {
  std::size_t count = 0;
  for (const Json& device : result.value("devices", Json::array()))
    count += std::max<std::size_t>(1, device.value("gpus", Json::array()).size());
  return count;
}

bool gpus_differ(const std::vector<Json>& results) {
  return std::ranges::any_of(results,
                             [&](const Json& r) { return gpus_in(r) != gpus_in(results[0]); });
}

std::vector<double> numbers_of(const std::vector<Json>& results, const char* key) {
  std::vector<double> values;
  for (const Json& r : results) values.push_back(number_in(r, key).value_or(std::nan("")));
  return values;
}

double tokens_per_s(const Json& result) {
  const double older = number_in(result, "tokens_per_s_per_device").value_or(std::nan("")) *
                       static_cast<double>(gpus_in(result));
  return number_in(result, "tokens_per_s").value_or(older);
}

ComparedRate compared_rate(const std::vector<Json>& results) {
  ComparedRate rate{"samples/s"};
  for (const Json& r : results) rate.per_s.push_back(number_or_0(r, "throughput_samples_per_s"));
  if (!differing(numbers_of(results, "seq_length"))) return rate;
  rate.unit = "tokens/s";
  std::ranges::transform(results, rate.per_s.begin(), tokens_per_s);
  return rate;
}

bool result_fits(const Json& result) {
  const Json feasible = result.value("feasible", Json());
  return feasible.is_null() || feasible.get<bool>();
}

ComparisonLabels labels_of(const std::vector<Json>& results) {
  ComparisonLabels labels;
  for (const Json& r : results) labels.rows.push_back(name_of(r));
  const auto changes = [](const Json& r) {
    return r.value("overrides", Json::array()).get<Words>();
  };
  const auto name = [](const Json& r) { return r.value("scenario", ""); };
  if (results.size() < 2 ||
      !std::ranges::all_of(results, [&](const Json& r) { return name(r) == name(results[0]); }))
    return labels;
  Words common = changes(results[0]);
  for (const Json& r : results)
    std::erase_if(common, [all = changes(r)](const std::string& c) {
      return std::ranges::find(all, c) == all.end();
    });
  labels.heading = name(results[0]);
  if (!common.empty()) labels.heading += fmt::format(" [{}]", fmt::join(common, ", "));
  for (std::size_t i = 0; i < results.size(); ++i) {
    Words own = changes(results[i]);
    std::erase_if(
        own, [&](const std::string& c) { return std::ranges::find(common, c) != common.end(); });
    labels.rows[i] = own.empty() ? "as it is" : fmt::format("{}", fmt::join(own, ", "));
  }
  return labels;
}

std::string comparison_notes(const std::vector<Json>& results, const ComparisonLabels& labels) {
  std::string text = models_differ(results);
  if (const auto lengths = differing(numbers_of(results, "seq_length")))
    text += fmt::format(
        "the sequences differ, {:.0f} to {:.0f} tokens: rows are compared by tokens/s\n",
        lengths->first, lengths->second);
  const std::vector<double> samples = numbers_of(results, "samples_per_update");
  const auto [least, most_samples] = std::ranges::minmax_element(samples);
  if (*least < *most_samples)
    text += fmt::format(
        "the batches differ, {:.0f} to {:.0f} samples (pipeline.global_batch_size sets one)\n",
        *least, *most_samples);
  if (const std::vector<double> given = numbers_of(results, "given_forward_s_per_sample");
      std::ranges::none_of(given, [](double s) { return std::isnan(s); }) &&
      std::ranges::none_of(results, changes_model)) {
    const auto [least_s, most_s] = std::ranges::minmax_element(given);
    const std::string differs = work_differs(*least_s, *most_s);
    if (!differs.empty()) text += differs + "\n";
  }
  if (gpus_differ(results)) {
    const auto [fewest, most_gpus] = std::ranges::minmax_element(results, {}, gpus_in);
    text += fmt::format("the GPUs differ, {} to {}: a higher ratio may only be more GPUs\n",
                        gpus_in(*fewest), gpus_in(*most_gpus));
  }
  std::map<std::string, Words> said;  // notes and their rows
  for (std::size_t i = 0; i < results.size(); ++i) {
    const std::string error = sureness_in(results[i]);
    if (!error.empty()) said["times may be off: " + error].push_back(labels.rows[i]);
    for (const Json& note : results[i].value("notes", Json::array()))
      said[note.get<std::string>()].push_back(labels.rows[i]);
  }
  for (const auto& [note, rows] : said) {
    const bool of_all = rows.size() == results.size();
    text +=
        fmt::format("note{}: {}\n", of_all ? "" : fmt::format(", {}", fmt::join(rows, "; ")), note);
  }
  return text;
}

BestResults best_of(const std::vector<Json>& results) {
  BestResults best;
  const std::vector<double> rates = compared_rate(results).per_s;
  const auto rate = [&](std::size_t i) { return rates[i]; };
  const auto peak = [&](std::size_t i) { return most_of_devices(results[i], "peak_memory_bytes"); };
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!result_fits(results[i])) {
      ++best.unfit;
      continue;
    }
    if (!best.fastest || rate(i) > rate(*best.fastest)) best.fastest = i;
    if (!best.smallest || peak(i) < peak(*best.smallest)) best.smallest = i;
  }
  if (best.fastest && *best.fastest > 0 && rate(0) > 0 && result_fits(results[0]))
    best.faster_than_first = rate(*best.fastest) / rate(0);
  return best;
}

}  // namespace penstock
