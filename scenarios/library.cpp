// Models, devices and clusters: shipped files by name, the user's by path, or inline.
#include "scenarios/library.hpp"

#include "base/suggest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace penstock {
namespace {

namespace fs = std::filesystem;

bool looks_like_path(const std::string& name) {
  return name.find('/') != std::string::npos || name.ends_with(".yaml") || name.ends_with(".yml") ||
         name.ends_with(".json");
}

std::string lower(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// Hugging Face's model_type, in our families.
void translate_model_type(Value& document, Diagnostics& diagnostics) {
  static const std::pair<const char*, const char*> kFamilies[] = {
      {"gpt2", "gpt"},     {"gpt_neo", "gpt"}, {"opt", "gpt"},       {"bert", "bert"},
      {"roberta", "bert"}, {"llama", "llama"}, {"mistral", "llama"}, {"qwen2", "llama"}};
  for (Value::Entry& entry : document.entries) {
    const bool experts = entry.key.text == "num_local_experts" || entry.key.text == "num_experts" ||
                         entry.key.text == "num_experts_per_tok" ||
                         entry.key.text == "n_routed_experts";
    if (experts) diagnostics.add(entry.key, "mixture-of-experts models are not modelled");
    if (entry.key.text != "model_type") continue;
    const auto known =
        std::ranges::find_if(kFamilies, [&](const auto& f) { return entry.value.text == f.first; });
    if (known != std::end(kFamilies)) entry.value.text = known->second;
  }
}

}  // namespace

std::string data_folder() {
  if (const char* home = std::getenv("PENSTOCK_HOME")) return home;
  return PENSTOCK_DATA_FOLDER;
}

std::vector<std::string> shipped_names(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(fs::path(data_folder()) / folder, ignored)) {
    if (entry.path().extension() == ".yaml") names.push_back(entry.path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

Library::Library(std::string folder, Diagnostics& diagnostics)
    : folder_(std::move(folder)), diagnostics_(diagnostics) {}

const Value* Library::find(const Value& name, const std::string& kind,
                           const std::string& shipped_folder) {
  fs::path path;
  if (looks_like_path(name.text)) {
    path = fs::path(name.text).is_absolute() ? fs::path(name.text) : fs::path(folder_) / name.text;
    std::error_code ignored;
    if (!fs::is_regular_file(path, ignored)) {
      diagnostics_.add(name, fmt::format("the {} file '{}' does not exist", kind, path.string()));
      return nullptr;
    }
  } else {
    path = fs::path(data_folder()) / shipped_folder / (lower(name.text) + ".yaml");
    std::error_code ignored;
    if (!fs::exists(path, ignored)) {
      const auto names = shipped_names(shipped_folder);
      diagnostics_.add(
          name,
          fmt::format("unknown {} '{}'{} (`penstock list {}s` shows all; a file needs its ending)",
                      kind, name.text, did_you_mean(name.text, names), kind));
      return nullptr;
    }
  }
  try {
    documents_.push_back(std::make_unique<Value>(load_document(path.string())));
  } catch (const InputError& error) {
    for (const Diagnostic& d : error.diagnostics()) diagnostics_.add(d);
    return nullptr;
  }
  if (path.extension() == ".json") translate_model_type(*documents_.back(), diagnostics_);
  return documents_.back().get();
}

const Value* Library::resolve(const Value& value, const std::string& kind,
                              const std::string& shipped_folder) {
  if (value.kind == Value::Kind::scalar) return find(value, kind, shipped_folder);
  const Value* base_name = value.find("base");
  if (base_name == nullptr || base_name->kind != Value::Kind::scalar) return &value;
  if (++depth_ > 8) {
    diagnostics_.add(*base_name, "the chain of 'base' is too long, or goes in a circle");
    return nullptr;
  }
  const Value* base = find(*base_name, kind, shipped_folder);
  if (base != nullptr) base = resolve(*base, kind, shipped_folder);
  if (base == nullptr) return nullptr;
  auto merged = std::make_unique<Value>(*base);
  merged->source = value.source;
  merged->line = value.line;
  merged->column = value.column;
  for (const Value::Entry& entry : value.entries) {
    if (entry.key.text == "base") continue;
    replace(*merged, entry, kind);
  }
  documents_.push_back(std::move(merged));
  return documents_.back().get();
}

void Library::replace(Value& map, const Value::Entry& entry, const std::string& kind) {
  const KeyRow* row = find_key(kind, entry.key.text);
  for (Value::Entry& old : map.entries) {
    const KeyRow* old_row = find_key(kind, old.key.text);
    const bool same = old.key.text == entry.key.text || (row != nullptr && row == old_row);
    if (!same) continue;
    // Links are merged key by key: `inter: 25 Gbps` keeps the latency of the base.
    const bool link =
        row != nullptr && row->type == KeyRow::Type::link && old.value.kind == Value::Kind::map;
    if (!link) {
      old = entry;
    } else if (entry.value.kind == Value::Kind::map) {
      for (const Value::Entry& inner : entry.value.entries) replace(old.value, inner, "link");
    } else {
      Value::Entry bandwidth = entry;
      bandwidth.key.text = "bandwidth";
      replace(old.value, bandwidth, "link");
    }
    return;
  }
  map.entries.push_back(entry);
}

}  // namespace penstock
