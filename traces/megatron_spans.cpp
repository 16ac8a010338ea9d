// SPDX-License-Identifier: Apache-2.0
#include "traces/megatron_spans.hpp"

#include "base/error.hpp"
#include "base/json_fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>

namespace penstock {
namespace {

constexpr std::size_t kMostProblems = 20;

struct ExportedSpan {
  std::string name;
  std::int64_t start_ns = 0, end_ns = 0;
  std::optional<std::int64_t> iteration = {}, microbatches = {}, microbatch = {};
};

/// Who exported spans, and where it stands in the job.
struct ExportingRank {
  int position = 0, replica = 0, stages = 1, replicas = 1;
  std::vector<ExportedSpan> spans;
};

/// int64 stands as text in OTLP's JSON; some writers leave it a number.
std::optional<std::int64_t> whole_number(const Json& json) {
  if (!json.is_string() && !json.is_number_integer()) return std::nullopt;
  const std::string text = json.is_string() ? json.get<std::string>() : json.dump();
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

const Json& list_in(const Json& object, const char* key) {
  static const Json kNone = Json::array();
  const Json* found = object.find(key);
  return found != nullptr && found->is_array() ? *found : kNone;
}

std::string text_in(const Json& object, const char* key) {
  const Json* found = object.find(key);
  return found != nullptr && found->is_string() ? found->get<std::string>() : "";
}

/// The value of an attribute, without its type; null where there is none.
Json attribute(const Json& object, std::string_view key) {
  for (const Json& one : list_in(object, "attributes")) {
    const Json* value = one.find("value");
    if (text_in(one, "key") == key && value != nullptr && value->is_object() && !value->empty())
      return value->items().front().value;
  }
  return {};
}

class SpanReader {
 public:
  explicit SpanReader(const std::string& origin) : origin_(origin) {}

  void add_request(const Json& request) {
    for (const Json& resource : list_in(request, "resourceSpans")) add_resource(resource);
  }

  /// By rank. Throws what is wrong with any of them.
  std::map<std::int64_t, ExportingRank> ranks() {
    if (problems_.empty() && ranks_.empty()) add_problem("holds no spans of Megatron-LM");
    if (!problems_.empty())
      throw InputError(origin_, fmt::format("{}", fmt::join(problems_, "; ")));
    return std::move(ranks_);
  }

 private:
  void add_problem(std::string problem) {
    if (problems_.size() < kMostProblems) problems_.push_back(std::move(problem));
  }

  void add_resource(const Json& resource) {
    const Json* found = resource.find("resource");
    const Json about = found != nullptr ? *found : Json::object();
    std::vector<ExportedSpan> spans;
    for (const Json& scope : list_in(resource, "scopeSpans")) {
      for (const Json& span : list_in(scope, "spans"))
        if (text_in(span, "name").starts_with("megatron.")) add_span(span, spans);
    }
    if (spans.empty()) return;
    const auto rank = rank_of(about);
    if (!rank) {
      return add_problem(
          "spans name no rank: their resource needs a service.instance.id '...-rank3' or a "
          "dl.rank");
    }
    add_rank(*rank, about, std::move(spans));
  }

  void add_span(const Json& span, std::vector<ExportedSpan>& spans) {
    ExportedSpan made{.name = text_in(span, "name")};
    const auto time = [&](const char* key) {
      const Json* found = span.find(key);
      return found == nullptr ? std::nullopt : whole_number(*found);
    };
    const auto start = time("startTimeUnixNano"), end = time("endTimeUnixNano");
    if (!start || !end || *start < 0 || *end < *start) {
      return add_problem(fmt::format(
          "a span {} needs a startTimeUnixNano and an endTimeUnixNano that is not before it",
          made.name));
    }
    made.start_ns = *start;
    made.end_ns = *end;
    made.iteration = whole_number(attribute(span, "megatron.iteration"));
    made.microbatches = whole_number(attribute(span, "megatron.num_microbatches"));
    made.microbatch = whole_number(attribute(span, "megatron.microbatch_id"));
    constexpr std::int64_t kMost = 1 << 24;
    if (made.microbatches.value_or(1) < 1 || made.microbatches.value_or(1) > kMost ||
        made.microbatch.value_or(0) < 0 || made.microbatch.value_or(0) >= kMost)
      return add_problem(fmt::format(
          "a span {} has a microbatch_id or num_microbatches that no run has", made.name));
    spans.push_back(std::move(made));
  }

  /// Lens names each process "{run}-rank{rank}".
  static std::optional<std::int64_t> rank_of(const Json& about) {
    if (const auto rank = whole_number(attribute(about, "dl.rank"))) return rank;
    const Json id = attribute(about, "service.instance.id");
    const std::string text = id.is_string() ? id.get<std::string>() : "";
    const std::size_t at = text.rfind("rank");
    if (at == std::string::npos) return std::nullopt;
    return whole_number(Json(text.substr(at + 4)));
  }

  void add_rank(std::int64_t rank, const Json& about, std::vector<ExportedSpan> spans) {
    constexpr std::int64_t kMost = 1 << 20;
    const auto size = [&](const char* axis) {
      const auto stated = whole_number(attribute(about, fmt::format("dl.{}.size", axis)));
      if (stated && (*stated < 1 || *stated > kMost)) {
        add_problem(fmt::format("dl.{}.size is {}, not 1 or more", axis, *stated));
        return std::int64_t{1};
      }
      return stated.value_or(1);
    };
    const std::int64_t stages = size("pipeline_parallel"), replicas = size("data_parallel");
    const std::int64_t within = size("tensor_parallel") * size("context_parallel");
    const std::int64_t position = rank / within / replicas;
    if (rank < 0 || position >= stages) {
      return add_problem(fmt::format("rank {} is none of {} stages x {} replicas x {} GPUs", rank,
                                     stages, replicas, within));
    }
    if (rank % within != 0) return;  // its stage's first rank runs the same ops
    ExportingRank& known = ranks_[rank];
    known.position = static_cast<int>(position);
    known.replica = static_cast<int>(rank / within % replicas);
    known.stages = static_cast<int>(stages);
    known.replicas = static_cast<int>(replicas);
    std::ranges::move(spans, std::back_inserter(known.spans));
  }

  const std::string& origin_;
  std::map<std::int64_t, ExportingRank> ranks_;
  std::vector<std::string> problems_;
};

/// What a rank did in one iteration, each kind in the order of time.
struct RankStep {
  std::vector<ExportedSpan> forward, backward, recv_forward, recv_backward, sync, optimizer;
  std::optional<std::int64_t> microbatches;
};

/// By iteration.
std::map<std::int64_t, RankStep> steps_of(ExportingRank& rank) {
  std::ranges::sort(rank.spans, {}, &ExportedSpan::start_ns);
  std::vector<ExportedSpan> steps;
  for (const ExportedSpan& span : rank.spans)
    if (span.name == "megatron.train_step" && span.iteration) steps.push_back(span);
  std::map<std::int64_t, RankStep> all;
  for (const ExportedSpan& span : rank.spans) {
    const auto after = std::ranges::upper_bound(steps, span.start_ns, {}, &ExportedSpan::start_ns);
    if (after == steps.begin() || span.end_ns > std::prev(after)->end_ns) continue;  // evaluation
    RankStep& step = all[*std::prev(after)->iteration];
    const std::pair<const char*, std::vector<ExportedSpan>*> kinds[] = {
        {"megatron.microbatch.forward", &step.forward},
        {"megatron.microbatch.backward", &step.backward},
        {"megatron.p2p.recv_forward", &step.recv_forward},
        {"megatron.p2p.recv_backward", &step.recv_backward},
        {"megatron.grad_sync.start", &step.sync},
        {"megatron.grad_sync.finish", &step.sync},
        {"megatron.optimizer_step", &step.optimizer}};
    for (const auto& [name, spans] : kinds)
      if (span.name == name) spans->push_back(span);
    if (span.name == "megatron.forward_backward") step.microbatches = span.microbatches;
  }
  std::erase_if(all, [](const auto& one) { return one.second.forward.empty(); });
  return all;
}

class RecordingMaker {
 public:
  RecordingMaker(std::map<std::int64_t, ExportingRank> ranks, const std::string& origin) {
    for (auto& [number, rank] : ranks) {
      spans_.push_back({rank, steps_of(rank)});
      for (const auto& [iteration, step] : spans_.back().steps) {
        iterations_.insert(iteration);
        microbatches_ = std::max<std::int64_t>(
            {microbatches_, step.microbatches.value_or(0), std::ssize(step.forward)});
        zero_ns_ = std::min(zero_ns_, step.forward.front().start_ns);
      }
    }
    if (iterations_.empty())
      throw InputError(origin,
                       "holds no megatron.microbatch.forward within a megatron.train_step: record "
                       "with MEGATRON_OTEL_SPAN_GROUPS=all");
  }

  Recording recording() {
    Recording out;
    out.name = "Megatron-LM's spans";
    out.backend = "megatron";
    out.clock = "wall";
    out.compute = "transformer";
    out.depth = spans_.front().rank.stages;
    out.microbatches = static_cast<std::uint32_t>(microbatches_);
    out.batches = static_cast<std::uint32_t>(iterations_.size());
    RecordedRun& run = out.runs.emplace_back();
    for (const Exported& one : spans_) add_rank(one, run);
    const auto devices = static_cast<std::size_t>(out.depth) *
                         static_cast<std::size_t>(spans_.front().rank.replicas);
    run.complete = spans_.size() == devices;
    if (!run.complete) {
      run.stopped_because = fmt::format(
          "spans of {} of {} stages and replicas were exported "
          "(MEGATRON_OTEL_RANK_STRATEGY=all_ranks "
          "exports all)",
          spans_.size(), devices);
    }
    return out;
  }

 private:
  struct Exported {
    const ExportingRank rank;
    std::map<std::int64_t, RankStep> steps;
  };

  Span span_of(const ExportedSpan& s) const {
    return {static_cast<double>(s.start_ns - zero_ns_) * 1e-9,
            static_cast<double>(s.end_ns - zero_ns_) * 1e-9};
  }

  void add_rank(const Exported& one, RecordedRun& run) const {
    std::uint32_t update = 0;
    for (const std::int64_t iteration : iterations_) {
      if (const auto step = one.steps.find(iteration); step != one.steps.end())
        add_step(one.rank, update, step->second, run);
      ++update;
    }
  }

  void add_step(const ExportingRank& rank, std::uint32_t update, const RankStep& step,
                RecordedRun& run) const {
    const auto width = static_cast<std::uint32_t>(rank.replicas);
    const auto replica = static_cast<std::uint32_t>(rank.replica);
    const auto add = [&](OpKind kind, std::uint32_t local, const Span& span) -> RecordedOp& {
      return run.ops.emplace_back(RecordedOp{rank.replica * rank.stages + rank.position,
                                             {.microbatch = local * width + replica,
                                              .stage = static_cast<std::uint16_t>(rank.position),
                                              .kind = kind},
                                             span});
    };
    const auto first = update * static_cast<std::uint32_t>(microbatches_);
    const auto add_microbatches = [&](OpKind kind, const std::vector<ExportedSpan>& spans,
                                      const std::vector<ExportedSpan>& received, bool last_ones) {
      const std::size_t without =
          last_ones ? spans.size() - std::min(spans.size(), received.size()) : 0;
      for (std::size_t i = 0; i < spans.size(); ++i) {
        const auto number =
            static_cast<std::uint32_t>(spans[i].microbatch.value_or(static_cast<std::int64_t>(i)));
        RecordedOp& op = add(kind, first + number, span_of(spans[i]));
        if (i < without || i - without >= received.size()) continue;
        const Span message = span_of(received[i - without]);
        if (message.end_s <= op.span.start_s) op.message = message;
      }
    };
    add_microbatches(OpKind::forward, step.forward, step.recv_forward, false);
    add_microbatches(OpKind::backward, step.backward, step.recv_backward, true);
    if (width > 1 && !step.sync.empty()) {
      const Span span{span_of(step.sync.front()).start_s, span_of(step.sync.back()).end_s};
      add(OpKind::reduce_grad, update, span).message = span;
    }
    if (!step.optimizer.empty()) add(OpKind::step, update, span_of(step.optimizer.back()));
  }

  std::vector<Exported> spans_;
  std::set<std::int64_t> iterations_;
  std::int64_t microbatches_ = 0, zero_ns_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace

bool is_spans(std::string_view text) {
  constexpr std::size_t kHead = 200;
  return text.substr(0, kHead).find("\"resourceSpans\"") != std::string_view::npos;
}

Recording recording_of_spans(const std::string& text, const std::string& origin) {
  SpanReader reader(origin);
  const std::size_t end = text.find('\n');
  const bool by_line = end != std::string::npos && Json::parse_if(text.substr(0, end)) != nullptr;
  for (std::size_t from = 0; from < text.size();) {
    const std::size_t to = by_line ? std::min(text.find('\n', from), text.size()) : text.size();
    if (text.find_first_not_of(" \t\r\n", from) < to)
      reader.add_request(parse_json(std::string_view(text).substr(from, to - from), origin));
    from = to + 1;
  }
  return RecordingMaker(reader.ranks(), origin).recording();
}

}  // namespace penstock
