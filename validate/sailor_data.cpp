// SPDX-License-Identifier: Apache-2.0
#include "validate/sailor_data.hpp"

#include "base/error.hpp"
#include "base/folder.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNetworkFile = "network_coeffs_all_homo.json";

/// `profiles` in the file's folder or the nearest folder above that has one.
fs::path profiles_near(const std::string& measured_file) {
  const fs::path start = fs::absolute(measured_file).lexically_normal().parent_path();
  for (fs::path folder = start;; folder = folder.parent_path()) {
    if (fs::is_directory(folder / "profiles")) return folder / "profiles";
    if (folder == folder.parent_path()) break;
  }
  throw InputError(measured_file,
                   "needs measured layer times, and there is no folder 'profiles' beside or above "
                   "it; give one with --profiles DIR (DIR/MODEL/GPU/profile.json)");
}

std::vector<fs::path> sorted_entries(const fs::path& folder) {
  std::vector<fs::path> out;
  if (!fs::is_directory(folder)) throw InputError(folder.string(), "is not a folder");
  for (const std::string& name : names_in(folder.string())) out.push_back(folder / name);
  return out;
}

/// Layers a model must have: its blocks, an embedding, a head and perhaps a norm between.
bool may_have_layers(const TransformerSpec& spec, int layers) {
  return layers == spec.num_layers + 2 || layers == spec.num_layers + 3;
}

}  // namespace

SailorLibrary::SailorLibrary(const std::string& measured_file, const std::string& profiles)
    : profiles_(profiles.empty() ? profiles_near(measured_file) : fs::path(profiles)) {
  if (!fs::is_directory(profiles_)) throw InputError(profiles_.string(), "is not a folder");
  configs_ =
      fs::absolute(profiles_ / "x").lexically_normal().parent_path().parent_path() / "configs";
  read_models();
  read_configurations();
  leave_out_contradictions();
}

void SailorLibrary::read_models() {
  for (const fs::path& model : sorted_entries(profiles_)) {
    if (!fs::is_directory(model)) continue;
    for (const fs::path& gpu : sorted_entries(model)) {
      const std::string file = (gpu / "profile.json").string();
      if (!fs::exists(file)) continue;
      models_[model.filename().string()].profiles.emplace(
          gpu.filename().string(), SailorProfile::parse(read_file(file), file));
    }
  }
  if (models_.empty()) throw InputError(profiles_.string(), "holds no MODEL/GPU/profile.json");
  for (auto& [name, model] : models_) model.spec = known_sailor_model(name);
}

void SailorLibrary::read_configurations() {
  const std::string network = (configs_ / kNetworkFile).string();
  if (!fs::exists(network))
    throw InputError(network, "is missing: the bandwidths between nodes are read from it");
  network_ = SailorNetwork::parse(read_file(network), network);
  for (const fs::path& file : sorted_entries(configs_)) {
    if (!file.filename().string().starts_with("training_config") || file.extension() != ".json")
      continue;
    const TransformerSpec spec = parse_sailor_model(read_file(file.string()), file.string());
    const auto model = models_.find(spec.name);
    if (model != models_.end()) model->second.spec = spec;
  }
}

void SailorLibrary::leave_out_contradictions() {
  std::vector<std::pair<std::string, std::string>> left_out;
  for (auto& [name, model] : models_) {
    if (!model.spec) continue;
    for (const auto& [gpu, profile] : model.profiles) {
      if (may_have_layers(*model.spec, profile.layers())) continue;
      left_out.emplace_back(name, gpu);
      notes_[name].push_back(
          fmt::format("the profile of {} on {} is left out: it has {} layers, the model {} blocks",
                      name, gpu, profile.layers(), model.spec->num_layers));
    }
  }
  for (const auto& [model, gpu] : left_out) models_.at(model).profiles.erase(gpu);
  for (const auto& [model, gpu] : left_out) estimate(model, gpu);
}

void SailorLibrary::estimate(const std::string& model, const std::string& gpu) {
  auto& profiles = models_.at(model).profiles;
  std::optional<SailorProfile> estimated;
  for (const auto& [elsewhere, profile] : profiles) {
    if (!profile.has_updates()) continue;
    std::vector<SailorProfile::Reference> references;
    for (const auto& [name, other] : models_) {
      const auto from = other.profiles.find(elsewhere), to = other.profiles.find(gpu);
      const bool both = from != other.profiles.end() && to != other.profiles.end();
      if (name != model && both && from->second.has_updates() && to->second.has_updates())
        references.push_back({from->second, to->second});
    }
    SailorProfile one = SailorProfile::estimate(
        profile, references,
        fmt::format("{}: {} on {}, estimated", profiles_.string(), model, gpu));
    if (one.empty()) continue;
    if (!estimated)
      estimated = std::move(one);
    else
      estimated->add_missing(one);
  }
  if (!estimated) return;
  notes_[model].push_back(
      fmt::format("times of {} on {} are estimated: those on another GPU, times what other models "
                  "gain from there",
                  model, gpu));
  profiles.emplace(gpu, std::move(*estimated));
}

std::vector<std::string> SailorLibrary::notes(const std::string& model) const {
  const auto it = notes_.find(model);
  return it == notes_.end() ? std::vector<std::string>{} : it->second;
}

std::string SailorLibrary::model_names() const {
  std::vector<std::string> names;
  for (const auto& [name, model] : models_) names.push_back(name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string SailorLibrary::model_of(const SailorPlan& plan, const std::string& given) const {
  if (!given.empty()) {
    if (models_.contains(given)) return given;
    throw InputError("--model", fmt::format("'{}' has no profile in {}; there are {}", given,
                                            profiles_.string(), model_names()));
  }
  std::vector<std::string> fitting;
  const auto gpus = plan.gpus();
  for (const auto& [name, model] : models_) {
    const bool all = std::ranges::all_of(gpus, [&](const std::string& gpu) {
      const auto it = model.profiles.find(gpu);
      return it != model.profiles.end() && it->second.layers() == plan.layers();
    });
    if (all) fitting.push_back(name);
  }
  if (fitting.size() == 1) return fitting.front();
  const std::string what = fmt::format("{} layers on {}", plan.layers(), fmt::join(gpus, " and "));
  if (fitting.empty())
    throw InputError(plan.file, fmt::format("no profile in {} has {}; its models are {}",
                                            profiles_.string(), what, model_names()));
  throw InputError(plan.file, fmt::format("several models have {}: {}; say which with --model",
                                          what, fmt::join(fitting, ", ")));
}

std::shared_ptr<const SailorData> SailorLibrary::data_for(const SailorPlan& plan,
                                                          const std::string& model) {
  const Model& found = models_.at(model);
  if (!found.spec)
    throw InputError(model, fmt::format("has layer times but no training configuration; put a "
                                        "training_config_*.json with its shape into {}",
                                        configs_.string()));
  for (const std::string& gpu : plan.gpus()) {
    if (found.profiles.contains(gpu)) continue;
    const auto why = notes(model);
    std::vector<std::string> others;
    for (const auto& [name, profile] : found.profiles) others.push_back(name);
    throw InputError(plan.file,
                     fmt::format("{} has no usable profile on {}; it has those on {}{}", model, gpu,
                                 fmt::join(others, ", "),
                                 why.empty() ? "" : fmt::format(" ({})", fmt::join(why, "; "))));
  }
  auto& data = loaded_[model];
  if (!data)
    data = std::make_shared<SailorData>(SailorData{*found.spec, found.profiles, *network_});
  return data;
}

}  // namespace penstock
