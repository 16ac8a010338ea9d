// SPDX-License-Identifier: Apache-2.0
#include "scenarios/carry_over.hpp"

#include "base/numbers.hpp"
#include "scenarios/overrides.hpp"
#include "schedules/catalog.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

namespace penstock {
namespace {

std::optional<std::uint32_t> whole(const Value* value) {
  if (value == nullptr || value->kind != Value::Kind::scalar) return std::nullopt;
  const auto number = parse_number<std::uint32_t>(value->text);
  return number.value_or(0) > 0 ? number : std::nullopt;
}

bool admits(const Chunks& chunks, std::uint32_t v) {
  return v >= chunks.least && v <= chunks.most && (v - chunks.least) % chunks.step == 0;
}

/// Virtual stages of a device in lists of them: those of a mirrored pipeline count once.
std::uint32_t listed_chunks(const Schedule& schedule, std::uint32_t chunks) {
  return schedule.layout == Layout::mirrored ? 1 : chunks;
}

std::uint32_t device_of(const Schedule& schedule, std::uint32_t stage, std::uint32_t depth) {
  const std::uint32_t there = stage % (2 * depth);
  const bool back = schedule.layout == Layout::snake && there >= depth;
  return back ? 2 * depth - 1 - there : stage % depth;
}

class Carrying {
 public:
  Carrying(Value& document, const Schedule& from, const Schedule& to,
           std::span<const std::string> given)
      : document_(document), from_(from), to_(to) {
    for (const std::string& key : given) {
      try {
        given_.push_back(key_path(key, key));
      } catch (const InputError&) {  // said where it is applied
      }
    }
    from_chunks_ = to_chunks_ = from.chunks.usual;
  }

  std::string run() {
    chunks();
    drop("group", to_.groups);
    drop("checkpoint", to_.checkpoints);
    drop("memory_limit", to_.usual_limit > 0);
    drop("correction", to_.corrects);
    drop("vertical_sync", to_.update == UpdateRule::stash);
    drop("weight_copies", to_.update == UpdateRule::stash);
    drop("accumulation_steps", to_.flushes() && to_.layout != Layout::mirrored);
    if (to_.checkpoints) checkpoints();
    drop("recompute_method", !to_.checkpoints);
    drop("recompute_layers", !to_.checkpoints);
    transfers();
    if (head_moves())
      balance();
    else
      deal_out("split", "layers");
    deal_out("recompute_layers", "recomputed layers");
    recomputation();
    return changes_.empty() ? ""
                            : fmt::format("from '{}' to '{}': {}", from_.name, to_.name, changes_);
  }

 private:
  Value* find(const char* key) const {
    return const_cast<Value*>(value_at(document_, {"pipeline", key}));
  }
  bool is_given(const char* key) const {
    return std::ranges::find(given_, std::vector<std::string>{"pipeline", key}) != given_.end();
  }
  void say(const std::string& change) { changes_ += (changes_.empty() ? "" : "; ") + change; }

  void erase(const Value* value) {
    for (Value::Entry& section : document_.entries)
      std::erase_if(section.value.entries,
                    [&](const Value::Entry& entry) { return &entry.value == value; });
  }

  void drop(const char* key, bool has_meaning) {
    const Value* value = find(key);
    if (has_meaning || value == nullptr || is_given(key)) return;
    say(fmt::format("{} left out", key));
    erase(value);
  }

  void chunks() {
    const auto said = whole(find("chunks"));
    from_chunks_ = is_given("chunks") ? from_.chunks.usual : said.value_or(from_.chunks.usual);
    to_chunks_ = said.value_or(to_.chunks.usual);
    if (!said || is_given("chunks") || admits(to_.chunks, *said)) return;
    to_chunks_ = to_.chunks.usual;
    say(fmt::format("chunks: {}, not {}", to_chunks_, *said));
    erase(find("chunks"));
  }

  /// The key that says the same of torchgpipe, which recomputes by microbatches.
  void checkpoints() {
    Value* recompute = find("recompute");
    const bool full = recompute != nullptr && recompute->text == "full";
    const bool none = recompute != nullptr && recompute->text == "none";
    if (is_given("recompute") || is_given("checkpoint") || (!full && !none)) return;
    for (Value::Entry& section : document_.entries)
      for (Value::Entry& entry : section.value.entries)
        if (&entry.value == recompute) entry.key.text = "checkpoint";
    recompute->text = full ? "always" : "never";
    say(fmt::format("checkpoint: {} for recompute", recompute->text));
  }

  /// A list with an entry for each virtual stage of the file's schedule, which the new one has not.
  Value* list_to_divide(const char* key) const {
    Value* list = find(key);
    const auto depth = whole(find("stages"));
    if (list == nullptr || list->kind != Value::Kind::list || is_given(key) || !depth)
      return nullptr;
    const std::uint32_t old = *depth * listed_chunks(from_, from_chunks_);
    const bool same = listed_chunks(from_, from_chunks_) == listed_chunks(to_, to_chunks_) &&
                      from_.layout == to_.layout;
    const bool of_stages = list->items.size() == old && !same;
    return of_stages && to_.positions.empty() ? list : nullptr;
  }

  std::uint32_t depth() const { return *whole(find("stages")); }
  std::uint32_t new_stages() const { return depth() * listed_chunks(to_, to_chunks_); }

  std::string text_of(const Value& list) const {
    std::string text;
    for (const Value& item : list.items) text += (text.empty() ? "" : ", ") + item.text;
    return fmt::format("[{}]", text);
  }

  /// Is the last stage, with the head of a transformer, on another device than in the file?
  bool head_moves() const {
    if (list_to_divide("split") == nullptr) return false;
    const std::uint32_t before = depth() * listed_chunks(from_, from_chunks_);
    return device_of(from_, before - 1, depth()) != device_of(to_, new_stages() - 1, depth());
  }

  /// The list made room for the head where it is no more.
  void balance() {
    Value* list = list_to_divide("split");
    list->kind = Value::Kind::scalar;
    list->items.clear();
    list->text = "balanced";
    say("split: balanced, not the list: the last stage is on another device");
  }

  /// A device that must send and receive at once waits for itself where it has several stages.
  void transfers() {
    Value* how = const_cast<Value*>(document_.find("transfers"));
    const std::vector<std::string> key{"transfers"};
    const bool is_override = std::ranges::find(given_, key) != given_.end();
    if (how == nullptr || is_override || how->text != "coupled") return;
    if (to_chunks_ < 2 && !to_.pairs && to_.layout != Layout::mirrored) return;
    how->text = "overlapped";
    say("transfers: overlapped, not coupled, with which devices of several stages wait for "
        "themselves");
  }

  /// Every device keeps its layers, evenly in its chunks.
  void deal_out(const char* key, const char* what) {
    Value* list = list_to_divide(key);
    if (list == nullptr) return;
    std::vector<std::uint32_t> layers(depth(), 0);
    for (std::uint32_t s = 0; s < list->items.size(); ++s) {
      std::uint32_t n = 0;  // a stage may have none
      const std::string& text = list->items[s].text;
      if (std::from_chars(text.data(), text.data() + text.size(), n).ec != std::errc()) return;
      layers[device_of(from_, s, depth())] += n;
    }
    const std::uint32_t chunks = listed_chunks(to_, to_chunks_);
    const std::string before = text_of(*list);
    const Value like = list->items.front();
    list->items.assign(new_stages(), like);
    for (std::uint32_t s = 0; s < new_stages(); ++s) {
      const std::uint32_t of_device = layers[device_of(to_, s, depth())];
      const bool one_more = s / depth() < of_device % chunks;
      list->items[s].text = std::to_string(of_device / chunks + (one_more ? 1 : 0));
    }
    if (text_of(*list) != before)
      say(fmt::format("{}: {}, the same {} on each device", key, text_of(*list), what));
  }

  /// Where all chunks of a device do the same.
  void recomputation() {
    Value* list = list_to_divide("recompute");
    if (list == nullptr) return;
    std::vector<const Value*> of_device(depth(), nullptr);
    for (std::uint32_t s = 0; s < list->items.size(); ++s) {
      const Value*& mine = of_device[device_of(from_, s, depth())];
      if (mine != nullptr && mine->text != list->items[s].text) return;
      mine = &list->items[s];
    }
    std::vector<Value> items;
    for (std::uint32_t s = 0; s < new_stages(); ++s)
      items.push_back(*of_device[device_of(to_, s, depth())]);
    list->items = std::move(items);
    say("recompute: the same on each device");
  }

  Value& document_;
  const Schedule &from_, &to_;
  std::vector<std::vector<std::string>> given_;
  std::uint32_t from_chunks_ = 1, to_chunks_ = 1;
  std::string changes_;
};

const Schedule* schedule_named(const Value* value) {
  if (value == nullptr || value->kind != Value::Kind::scalar) return nullptr;
  return find_schedule(value->text);
}

}  // namespace

void carry_over(Value& document, const Value* before, std::span<const std::string> given,
                Diagnostics& diagnostics) {
  const Schedule* from = schedule_named(before);
  const Schedule* to = schedule_named(document.find("schedule"));
  if (from == nullptr || to == nullptr || from == to) return;
  const std::string note = Carrying(document, *from, *to, given).run();
  if (!note.empty()) diagnostics.note(note);
}

}  // namespace penstock
