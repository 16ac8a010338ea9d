// SPDX-License-Identifier: Apache-2.0
// Finds what predictions of Sailor's measurements need in the folders around them:
//   profiles/MODEL/GPU/profile.json    layer times; `profiles` beside or above the measured file
//   configs/*.json                     training configurations and bandwidths; beside `profiles`
// A profile whose layers are not those of its model (GPT-Neo-2.7's on GH-96 is a copy of OPT-350's)
// is left out; the times are estimated from the model's on another kind of GPU and from what other
// models gain between the two, and a note says so.
#pragma once

#include "validate/sailor.hpp"

#include <filesystem>
#include <memory>

namespace penstock {

class SailorLibrary {
 public:
  /// `profiles` empty: looked for beside and above `measured_file`. Throws InputError when there is
  /// none, or when a file in it cannot be read.
  SailorLibrary(const std::string& measured_file, const std::string& profiles);

  /// The model a plan was run with: `given`, or the one that has as many layers and was profiled on
  /// the plan's GPUs. Throws InputError when there is none, or several.
  std::string model_of(const SailorPlan& plan, const std::string& given) const;

  /// Throws InputError when a kind of GPU of the plan was not profiled.
  std::shared_ptr<const SailorData> data_for(const SailorPlan& plan, const std::string& model);

  /// Profiles of a model that were left out, and what was done about it.
  std::vector<std::string> notes(const std::string& model) const;

 private:
  struct Model {
    std::optional<TransformerSpec> spec;
    std::map<std::string, SailorProfile> profiles;  // by kind of GPU
  };
  void read_models();
  void read_configurations();
  void leave_out_contradictions();
  void estimate(const std::string& model, const std::string& gpu);
  std::string model_names() const;

  std::filesystem::path profiles_, configs_;
  std::map<std::string, Model> models_;
  std::optional<SailorNetwork> network_;
  std::map<std::string, std::vector<std::string>> notes_;  // by model
  std::map<std::string, std::shared_ptr<const SailorData>> loaded_;
};

}  // namespace penstock
