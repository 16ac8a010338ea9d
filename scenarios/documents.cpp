#include "scenarios/documents.hpp"

namespace penstock {

const Value* Documents::known(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  const auto found = read_.find(path);
  return found == read_.end() ? nullptr : found->second.get();
}

const Value& Documents::load(const std::string& path) {
  if (const Value* read = known(path)) return *read;
  auto document = std::make_unique<const Value>(load_document(path));
  const std::lock_guard lock(mutex_);
  return *read_.try_emplace(path, std::move(document)).first->second;
}

}  // namespace penstock
