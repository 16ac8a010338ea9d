// SPDX-License-Identifier: Apache-2.0
#include "sweep/elsewhere.hpp"

#include "base/json_fields.hpp"
#include "sweep/axes.hpp"
#include "sweep/bytes.hpp"
#include "sweep/evaluate.hpp"
#include "sweep/messages.hpp"
#include "sweep/space.hpp"
#include "sweep/worker.hpp"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <csignal>

namespace penstock {
namespace {

constexpr int kLookAgainMs = 100;  // at the stop flag, and whether rows that wait are fewer

std::vector<Override> overrides_in(const std::vector<std::string>& texts) {
  std::vector<Override> overrides;
  for (const std::string& text : texts) overrides.push_back(parse_override(text));
  return overrides;
}

EngineChoice engine_called(const std::string& name) {
  const auto* const named = std::ranges::find(kEngineNames, name);
  if (named == std::end(kEngineNames)) throw InputError("engine", "is none of ours: " + name);
  return EngineChoice(named - kEngineNames);
}

/// Who has gone away is noticed where we write to it.
class WithoutSigpipe {
 public:
  WithoutSigpipe() : was_(std::signal(SIGPIPE, SIG_IGN)) {}
  ~WithoutSigpipe() { std::signal(SIGPIPE, was_); }
  WithoutSigpipe(const WithoutSigpipe&) = delete;
  WithoutSigpipe& operator=(const WithoutSigpipe&) = delete;

 private:
  void (*was_)(int);
};

bool stopping(const WorkerOptions& options) { return options.stop != nullptr && *options.stop; }

}  // namespace

Elsewhere::Elsewhere(int in, int out, const std::string& recipe) : stream_(in, out) {
  stream_.add_message(MessageKind::recipe, recipe);
}

void Elsewhere::serve_items(const WorkItems& items, const WorkerOptions& options) {
  const WithoutSigpipe quiet;
  no_more_ = false;
  while (!((no_more_ || stopping(options)) && away_ == 0)) {
    if (!stopping(options) && !(options.full && options.full())) hand_out(items, options);
    if (!stream_.send() || !wait()) throw gone();
    while (const auto message = stream_.next_message()) serve(*message, items);
    if (options.tick) options.tick();
  }
}

void Elsewhere::end() {
  const WithoutSigpipe quiet;
  stream_.add_message(MessageKind::stop, "");
  stream_.send_all();
}

SystemError Elsewhere::gone() const {
  return SystemError(
      fmt::format("who does the work elsewhere has ended, with {} items in hand", away_));
}

/// False when the other end has closed.
bool Elsewhere::wait() {
  if (no_more_ && away_ == 0) return true;
  pollfd ready[2] = {{stream_.in(), POLLIN, 0}, {stream_.out(), POLLOUT, 0}};
  if (::poll(ready, stream_.unsent() > 0 ? 2 : 1, kLookAgainMs) <= 0) return true;
  return ready[0].revents == 0 || stream_.receive();
}

void Elsewhere::serve(const Message& message, const WorkItems& items) {
  if (message.kind == MessageKind::want) {
    wanted_.push_back(decode_number(message.bytes));
    most_wanted_ = std::max(most_wanted_, wanted_.size());
    return;
  }
  if (message.kind != MessageKind::row && message.kind != MessageKind::lost) throw Garbled();
  if (away_ == 0) throw Garbled();
  --away_;
  if (message.kind == MessageKind::row) return items.take_answer(message.bytes);
  ByteReader from(message.bytes);
  const std::string item = from.text();
  items.lost(item, from.text());
}

/// What is wanted; of the last items a part for each, lest all wait for one worker at the end, but
/// none so small that handing it out costs more than waiting for it.
std::uint64_t Elsewhere::chunk_size(const WorkItems& items, const WorkerOptions& options) const {
  const auto most = std::min<std::uint64_t>(wanted_.front(), items.most_in_chunk);
  if (!options.left) return most;
  const std::uint64_t left = options.left();
  const std::uint64_t here = left - std::min(left, away_);
  constexpr std::uint64_t kLeastShare = 8;  // of what is wanted: 40 ms of what a task lasts
  return std::min(most,
                  std::max({std::uint64_t{1}, most / kLeastShare, here / (2 * most_wanted_)}));
}

void Elsewhere::hand_out(const WorkItems& items, const WorkerOptions& options) {
  while (!wanted_.empty() && !no_more_) {
    const std::uint64_t most = chunk_size(items, options);
    ByteWriter chunk;
    std::uint64_t count = 0;
    for (; count < most; ++count) {
      const auto item = items.next();
      if (!item) no_more_ = true;
      if (!item) break;
      chunk.put(*item);
    }
    if (count == 0) return;
    wanted_.pop_front();
    away_ += count;
    stream_.add_message(MessageKind::chunk, chunk.take_bytes());
  }
}

void each_field(Like<Documents::File> auto& f, auto&& visit) { VISIT_FIELDS(visit, f, path, text); }

void each_field(Like<SweepRecipe> auto& r, auto&& visit) {
  VISIT_FIELDS(visit, r, files, over, zip, where, set, engine, data_folder, documents);
}

std::string to_json(const SweepRecipe& recipe) { return to_field(recipe).dump(); }

namespace {

SweepRecipe recipe_in(const std::string& text) {
  JsonProblems problems("recipe");
  const Place whole(problems);
  SweepRecipe recipe;
  take_value(whole, parse_json(text, "recipe"), recipe);
  problems.throw_if_any();
  return recipe;
}

}  // namespace

struct RemotePoints::Parts {
  explicit Parts(const SweepRecipe& r)
      : documents(std::make_shared<Documents>(r.documents)),
        changes(overrides_in(r.set)),
        space(r.files, parse_axes(r.over, r.zip, changes), r.where, changes, *documents),
        evaluator(r.files, changes, engine_called(r.engine), documents) {}

  std::shared_ptr<Documents> documents;
  std::vector<Override> changes;
  Space space;
  Evaluator evaluator;
};

RemotePoints::RemotePoints(const std::string& recipe)
    : parts_(std::make_unique<Parts>(recipe_in(recipe))) {}
RemotePoints::~RemotePoints() = default;

std::string RemotePoints::answer(std::string_view number) const {
  return encode(parts_->evaluator.row(parts_->space.point(decode_number(number))));
}

void visit_elsewhere(int in, int out, const SweepRecipe& recipe, const NextPoint& next,
                     const TakeRow& take, const WorkerOptions& options) {
  Elsewhere work(in, out, to_json(recipe));
  work.serve_items({[&]() -> std::optional<std::string> {
                      const auto point = next();
                      return point ? std::optional(encode(point->number)) : std::nullopt;
                    },
                    [&](std::string_view answer) { take(decode(answer)); },
                    [&](const std::string& item, const std::string& why) {
                      take(failed_row(decode_number(item), why));
                    }},
                   options);
  work.end();
}

}  // namespace penstock
