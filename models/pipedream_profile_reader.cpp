// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "base/output_file.hpp"
#include "base/suggest.hpp"
#include "models/layer_table.hpp"
#include "models/pipedream_profile.hpp"

#include "base/numbers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <set>

namespace penstock {
namespace {

constexpr std::size_t kMostGraphErrors = 50;
constexpr std::size_t kMostNodes = 5'000;  // a balanced split takes layers * stages
constexpr std::size_t kLargestFile = 16'000'000;
constexpr double kMostMilliseconds = 1e9;  // eleven days
constexpr double kMostNodeBytes = 1e15;

/// A part of a line, with where it begins.
struct Word {
  std::string_view text;
  std::size_t line = 0;  // 0-based
  std::size_t begin = 0;
};

Word trimmed(Word w) {
  const std::size_t first = std::min(w.text.find_first_not_of(" \t\r"), w.text.size());
  const std::size_t last = w.text.find_last_not_of(" \t\r");
  const std::size_t size = last == std::string_view::npos ? 0 : last + 1 - first;
  return {w.text.substr(first, size), w.line, w.begin + first};
}

std::vector<Word> split(const Word& whole, std::string_view separator) {
  std::vector<Word> words;
  for (std::size_t at = 0;;) {
    const std::size_t end = std::min(whole.text.find(separator, at), whole.text.size());
    words.push_back(trimmed({whole.text.substr(at, end - at), whole.line, whole.begin + at}));
    if (end == whole.text.size()) return words;
    at = end + separator.size();
  }
}

/// "node2" before "node10": by text, then by the number at the end.
struct NaturalOrder {
  static std::pair<std::string_view, std::string_view> parts(std::string_view id) {
    const std::size_t digits = id.find_last_not_of("0123456789") + 1;
    std::string_view number = id.substr(digits);
    number.remove_prefix(std::min(number.find_first_not_of('0'), number.size()));
    return {id.substr(0, digits), number};
  }
  bool operator()(const std::string& a, const std::string& b) const {
    const auto [text_a, number_a] = parts(a);
    const auto [text_b, number_b] = parts(b);
    if (text_a != text_b) return text_a < text_b;
    if (number_a.size() != number_b.size()) return number_a.size() < number_b.size();
    return number_a != number_b ? number_a < number_b : a < b;  // node1 and node01
  }
};

struct Node {
  ProfiledLayer layer;
  Word id;
  std::set<int> readers, inputs;
};

struct Edge {
  Word from, to;
};

bool is_view(std::string_view description) {
  return description.find("inplace") != std::string_view::npos ||
         description.starts_with("View(") || description.starts_with("Size(") ||
         description.starts_with("__getitem__");
}

class ProfileReader {
 public:
  ProfileReader(const std::string& text, std::string origin)
      : text_(text), origin_(std::move(origin)) {}

  PipedreamProfile read() {
    split_lines();
    check_text();
    fail_if_wrong();
    for (std::size_t i = 0; i < lines_.size(); ++i) read_line({lines_[i], i, 0});
    fail_if_wrong();
    for (const Edge& edge : edges_) join(edge);
    fail_if_wrong();
    leave_out();
    put_in_order();
    return std::move(profile_);
  }

 private:
  void wrong(const Word& where, std::string message) {
    if (wrong_.size() == kMostGraphErrors) return;
    const int line = static_cast<int>(where.line) + 1, column = static_cast<int>(where.begin) + 1;
    wrong_.push_back({{origin_, line, column},
                      std::move(message),
                      std::string(lines_[where.line]),
                      std::max(1, static_cast<int>(where.text.size()))});
  }

  void fail_if_wrong() const {
    if (!wrong_.empty()) throw InputError(wrong_);
  }

  void split_lines() {
    for (std::size_t at = 0; at < text_.size();) {
      const std::size_t end = std::min(text_.find('\n', at), text_.size());
      lines_.push_back(std::string_view(text_).substr(at, end - at));
      at = end + 1;
    }
  }

  /// Errors quote the file: nothing may be in it that a terminal would obey.
  void check_text() {
    const auto strange = [](char c) { return (c < ' ' || c > '~') && c != '\t' && c != '\r'; };
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      const auto at = std::ranges::find_if(lines_[i], strange);
      if (at == lines_[i].end()) continue;
      const auto column = static_cast<int>(at - lines_[i].begin()) + 1;
      throw InputError(
          {{{origin_, static_cast<int>(i) + 1, column},
            fmt::format("byte 0x{:02x} is no plain text; a profile has a layer or an edge per line",
                        static_cast<unsigned char>(*at)),
            "",
            1}});
    }
  }

  void read_line(const Word& line) {
    const Word content = trimmed(line);
    if (content.text.empty()) return;
    const std::vector<Word> parts = split(content, " -- ");
    if (content.begin > 0) return read_edge(content, parts);
    read_node(content, parts);
  }

  static bool is_id(const Word& word) {
    return !word.text.empty() && word.text.find_first_of(" \t") == std::string_view::npos;
  }

  void read_edge(const Word& line, const std::vector<Word>& parts) {
    if (parts.size() != 2 || !is_id(parts[0]) || !is_id(parts[1]))
      return wrong(line, "an edge is '<tab>ID -- ID'; a layer begins its line");
    edges_.push_back({parts[0], parts[1]});
  }

  void read_node(const Word& line, const std::vector<Word>& parts) {
    if (parts.size() < 3 || parts.size() > 4) {
      return wrong(
          line,
          "a layer is 'ID -- DESCRIPTION -- forward_compute_time=..., "
          "backward_compute_time=..., activation_size=..., parameter_size=...', perhaps with "
          "' -- stage_id=N'; an edge begins with a tab");
    }
    if (nodes_.size() == kMostNodes)
      throw InputError(origin_, fmt::format("has more than {} layers", kMostNodes));
    if (!is_id(parts[0])) return wrong(parts[0], "an id has no blanks");
    Node node;
    node.id = parts[0];
    node.layer.id = parts[0].text;
    node.layer.description = parts[1].text;
    node.layer.view = is_view(parts[1].text);
    node.layer.line = static_cast<int>(parts[0].line) + 1;
    read_fields(parts[2], node.layer);
    if (parts.size() == 4) read_stage(parts[3]);
    const auto [known, fresh] = index_.try_emplace(node.layer.id, static_cast<int>(nodes_.size()));
    if (!fresh) {
      const std::size_t first = nodes_[static_cast<std::size_t>(known->second)].id.line + 1;
      return wrong(parts[0],
                   fmt::format("'{}' is already given in line {}", quoted(parts[0].text), first));
    }
    nodes_.push_back(std::move(node));
  }

  /// An activation may be a list, whose separator is not the one of the fields.
  void read_fields(const Word& fields, ProfiledLayer& layer) {
    static const std::vector<std::string> kNames = {"forward_compute_time", "backward_compute_time",
                                                    "activation_size", "parameter_size"};
    double values[] = {0, 0, 0, 0};
    bool given[] = {false, false, false, false};
    for (const Word& field : split(fields, ",")) {
      const std::size_t sign = std::min(field.text.find('='), field.text.size());
      const std::string name(trimmed({field.text.substr(0, sign), field.line, field.begin}).text);
      const auto known = static_cast<std::size_t>(std::ranges::find(kNames, name) - kNames.begin());
      if (known == kNames.size() || sign == field.text.size()) {
        wrong(field, fmt::format("expected one of {}, each '=' a number{}", fmt::join(kNames, ", "),
                                 known == kNames.size() ? did_you_mean(name, kNames) : ""));
        return;
      }
      if (given[known]) wrong(field, fmt::format("'{}' is given twice", name));
      given[known] = true;
      const Word value = trimmed({field.text.substr(sign + 1), field.line, field.begin + sign + 1});
      values[known] = read_value(value, known < 2 ? kMostMilliseconds : kMostNodeBytes, known == 2);
    }
    for (std::size_t i = 0; i < kNames.size(); ++i)
      if (!given[i]) wrong(fields, fmt::format("'{}' is missing", kNames[i]));
    layer.forward_s = values[0] / 1000;
    layer.backward_s = values[1] / 1000;
    layer.activation_bytes = values[2];
    layer.parameter_bytes = values[3];
  }

  double read_value(const Word& value, double most, bool list) {
    const bool bracketed = list && value.text.starts_with('[') && value.text.ends_with(']');
    if (!bracketed) return read_number(value, most, list);
    const Word inner{value.text.substr(1, value.text.size() - 2), value.line, value.begin + 1};
    double sum = 0;
    for (const Word& part : split(inner, ";")) sum += read_number(part, most, list);
    return sum;
  }

  double read_number(const Word& word, double most, bool list) {
    const auto value = parse_number<double>(word.text);
    if (value && *value >= 0 && *value <= most) return *value;
    wrong(word, fmt::format("expected a number from 0 to {:g}{}, got '{}'", most,
                            list ? ", or a list '[1; 2]'" : "", quoted(word.text)));
    return 0;
  }

  void read_stage(const Word& word) {
    profile_.has_stages = true;
    constexpr std::string_view kName = "stage_id=";
    if (word.text.starts_with(kName) &&
        parse_number<int>(word.text.substr(kName.size())).value_or(-1) >= 0)
      return;
    wrong(word, fmt::format("expected 'stage_id=N', got '{}'", quoted(word.text)));
  }

  static std::string quoted(std::string_view text) {
    constexpr std::size_t kMost = 60;
    return text.size() <= kMost ? std::string(text) : std::string(text.substr(0, kMost)) + "...";
  }

  std::optional<int> find(const Word& id) {
    const auto found = index_.find(std::string(id.text));
    if (found != index_.end()) return found->second;
    std::vector<std::string> known;
    for (const Node& node : nodes_) known.push_back(node.layer.id);
    wrong(id,
          fmt::format("no layer has the id '{}'{}", quoted(id.text), did_you_mean(id.text, known)));
    return std::nullopt;
  }

  void join(const Edge& edge) {
    if (wrong_.size() == kMostGraphErrors) return;
    const auto from = find(edge.from), to = find(edge.to);
    if (!from || !to) return;
    if (from == to) return wrong(edge.from, "a layer cannot read its own output");
    at(*from).readers.insert(*to);
    at(*to).inputs.insert(*from);
  }

  Node& at(int node) { return nodes_[static_cast<std::size_t>(node)]; }

  /// Sources of data, and parts of an output that nobody reads.
  void leave_out() {
    for (Node& node : nodes_) {
      const std::string& what = node.layer.description;
      const bool source = node.inputs.empty() && what.starts_with("Input");
      const bool unread = node.readers.empty() && what.starts_with("__getitem__");
      if (source) profile_.input_bytes += node.layer.activation_bytes;
      if (source || unread) left_out_.insert(index_.at(node.layer.id));
    }
    if (left_out_.size() == nodes_.size()) throw InputError(origin_, "holds no layer");
    for (const int gone : left_out_) {
      for (const int reader : at(gone).readers) at(reader).inputs.erase(gone);
      for (const int input : at(gone).inputs) at(input).readers.erase(gone);
    }
  }

  void put_in_order() {
    const auto later = [this](int a, int b) {
      return NaturalOrder()(at(b).layer.id, at(a).layer.id);
    };
    std::priority_queue<int, std::vector<int>, decltype(later)> ready(later);
    std::vector<std::size_t> waits(nodes_.size());
    for (int n = 0; n < static_cast<int>(nodes_.size()); ++n) {
      waits[static_cast<std::size_t>(n)] = at(n).inputs.size();
      if (at(n).inputs.empty() && !left_out_.contains(n)) ready.push(n);
    }
    while (!ready.empty()) {
      Node& node = at(ready.top());
      ready.pop();
      const auto place = static_cast<int>(profile_.layers.size());
      for (const int input : node.inputs) {
        layer_of(input).last_reader = place;
        layer_of(input).readers.push_back(place);
      }
      for (const int reader : node.readers)
        if (--waits[static_cast<std::size_t>(reader)] == 0) ready.push(reader);
      places_[index_.at(node.layer.id)] = place;
      profile_.layers.push_back(std::move(node.layer));
    }
    if (profile_.layers.size() + left_out_.size() < nodes_.size()) refuse_circle(waits);
  }

  ProfiledLayer& layer_of(int node) {
    return profile_.layers[static_cast<std::size_t>(places_.at(node))];
  }

  /// Names an edge of a circle: every layer that waits reads one that waits, too.
  void refuse_circle(const std::vector<std::size_t>& waits) {
    const auto waiting = [&](int n) {
      return waits[static_cast<std::size_t>(n)] > 0 && !left_out_.contains(n);
    };
    int node = 0;
    while (!waiting(node)) ++node;
    std::set<int> seen;
    int reader = node;
    while (seen.insert(node).second) {
      reader = node;
      node = *std::ranges::find_if(at(node).inputs, waiting);
    }
    for (const Edge& edge : edges_) {
      if (index_.at(std::string(edge.from.text)) != node) continue;
      if (index_.at(std::string(edge.to.text)) != reader) continue;
      wrong(edge.from, "this edge closes a circle of layers that read each other");
      break;
    }
    fail_if_wrong();
  }

  const std::string& text_;
  std::string origin_;
  std::vector<std::string_view> lines_;
  std::vector<Diagnostic> wrong_;
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::map<std::string, int> index_;
  std::map<int, int> places_;  // of a node among the layers
  std::set<int> left_out_;
  PipedreamProfile profile_;
};

}  // namespace

PipedreamProfile parse_pipedream_profile(const std::string& text, const std::string& origin) {
  return ProfileReader(text, origin).read();
}

PipedreamProfile parse_profile_file(const std::string& text, const std::string& path) {
  if (text.size() > kLargestFile)
    throw InputError(path, fmt::format("is larger than {} MB", kLargestFile / 1'000'000));
  return path.ends_with(".csv") ? parse_layer_table(text, path)
                                : parse_pipedream_profile(text, path);
}

PipedreamProfile load_pipedream_profile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file && (errno == EMFILE || errno == ENFILE || errno == ENOMEM))
    throw SystemError::from_errno("read", path);
  if (!file) throw InputError(path, "cannot be read");
  note_input(path);
  std::string text(kLargestFile + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) throw SystemError::from_errno("read", path);
  text.resize(static_cast<std::size_t>(file.gcount()));
  return parse_profile_file(text, path);
}

}  // namespace penstock
