#include "sweep/elsewhere.hpp"

#include "base/json.hpp"
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

using Texts = std::vector<std::string>;

constexpr int kLookAgainMs = 100;  // at the stop flag, and whether rows that wait are fewer

std::vector<Override> overrides_in(const Texts& texts) {
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

class Elsewhere {
 public:
  Elsewhere(int in, int out, const NextPoint& next, const TakeRow& take,
            const WorkerOptions& options)
      : stream_(in, out), next_(next), take_(take), options_(options) {}

  void run(const SweepRecipe& recipe) {
    stream_.add_message(MessageKind::recipe, to_json(recipe));
    while (!done()) {
      if (!stream_.send() || !wait()) throw gone();
      while (const auto message = stream_.next_message()) serve(*message);
      hand_out();
      if (options_.tick) options_.tick();
    }
    stream_.add_message(MessageKind::stop, "");
    stream_.send_all();
  }

 private:
  bool stopping() const { return options_.stop != nullptr && *options_.stop; }
  bool done() const { return (no_more_ || stopping()) && away_ == 0; }

  SystemError gone() const {
    return SystemError(
        fmt::format("who computes the points has ended, with {} points in hand", away_));
  }

  /// False when the other end has closed.
  bool wait() {
    pollfd ready[2] = {{stream_.in(), POLLIN, 0}, {stream_.out(), POLLOUT, 0}};
    if (::poll(ready, stream_.unsent() > 0 ? 2 : 1, kLookAgainMs) <= 0) return true;
    return ready[0].revents == 0 || stream_.receive();
  }

  void serve(const Message& message) {
    if (message.kind == MessageKind::want) {
      wanted_.push_back(decode_number(message.bytes));
    } else if (message.kind == MessageKind::row) {
      take_one(decode(message.bytes));
    } else if (message.kind == MessageKind::lost) {
      ByteReader from(message.bytes);
      const auto number = from.get<std::uint64_t>();
      take_one(failed_row(number, from.text()));
    } else {
      throw Garbled();
    }
  }

  void take_one(Row&& row) {
    if (away_ == 0) throw Garbled();
    --away_;
    take_(std::move(row));
  }

  void hand_out() {
    while (!wanted_.empty() && !no_more_ && !stopping() && !(options_.full && options_.full())) {
      ByteWriter chunk;
      std::uint64_t count = 0;
      for (; count < wanted_.front(); ++count) {
        const auto point = next_();
        if (!point) no_more_ = true;
        if (!point) break;
        chunk.put(point->number);
      }
      wanted_.pop_front();
      away_ += count;
      if (count > 0) stream_.add_message(MessageKind::chunk, chunk.take());
    }
  }

  MessageStream stream_;
  const NextPoint& next_;
  const TakeRow& take_;
  const WorkerOptions& options_;
  std::deque<std::uint64_t> wanted_;
  std::uint64_t away_ = 0;  ///< points handed out that have no row yet
  bool no_more_ = false;
};

}  // namespace

std::string to_json(const SweepRecipe& r) {
  Json documents = Json::array();
  for (const Documents::File& file : r.documents)
    documents.push_back({{"path", file.path}, {"text", file.text}});
  return Json{{"files", r.files},
              {"over", r.over},
              {"zip", r.zip},
              {"where", r.where},
              {"set", r.set},
              {"engine", r.engine},
              {"data_folder", r.data_folder},
              {"documents", documents}}
      .dump();
}

struct RemotePoints::Parts {
  explicit Parts(const Json& json)
      : documents(std::make_shared<Documents>(files_in(json))),
        changes(overrides_in(json["set"].get<Texts>())),
        space(json["files"].get<Texts>(),
              parse_axes(json["over"].get<Texts>(), json["zip"].get<Texts>(), changes),
              json["where"].get<Texts>(), changes, *documents),
        evaluator(json["files"].get<Texts>(), changes,
                  engine_called(json["engine"].get<std::string>()), documents) {}

  static std::vector<Documents::File> files_in(const Json& json) {
    std::vector<Documents::File> files;
    for (const Json& file : json["documents"])
      files.push_back({file["path"].get<std::string>(), file["text"].get<std::string>()});
    return files;
  }

  std::shared_ptr<Documents> documents;
  std::vector<Override> changes;
  Space space;
  Evaluator evaluator;
};

RemotePoints::RemotePoints(const std::string& recipe)
    : parts_(std::make_unique<Parts>(Json::parse(recipe))) {}
RemotePoints::~RemotePoints() = default;

std::string RemotePoints::row(std::uint64_t number) const {
  return encode(parts_->evaluator.row(parts_->space.point(number)));
}

void visit_elsewhere(int in, int out, const SweepRecipe& recipe, const NextPoint& next,
                     const TakeRow& take, const WorkerOptions& options) {
  const WithoutSigpipe quiet;
  Elsewhere(in, out, next, take, options).run(recipe);
}

}  // namespace penstock
