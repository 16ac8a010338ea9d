// SPDX-License-Identifier: Apache-2.0
// What scenarios/document.cpp takes of yaml-cpp, for WebAssembly, where there is no package of it:
// the same events from a part of YAML. A text is a value in flow style (which JSON is), or one
// `key: value` a line with values in flow style, as `to_yaml` writes; comments after '#'.
#pragma once

#include <cstddef>
#include <istream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace YAML {

struct Mark {
  int pos = 0, line = 0, column = 0;  ///< from 0, in bytes
  bool is_null() const { return line < 0; }
};

using anchor_t = std::size_t;  ///< always 0: there are no anchors here

struct EmitterStyle {
  enum value { Default, Block, Flow };
};

class Exception : public std::runtime_error {
 public:
  Exception(const Mark& mark_, const std::string& msg_)
      : std::runtime_error(msg_), mark(mark_), msg(msg_) {}
  Mark mark;
  std::string msg;
};

class EventHandler {
 public:
  virtual ~EventHandler() = default;
  virtual void OnDocumentStart(const Mark& mark) = 0;
  virtual void OnDocumentEnd() = 0;
  virtual void OnNull(const Mark& mark, anchor_t anchor) = 0;
  virtual void OnAlias(const Mark& mark, anchor_t anchor) = 0;
  virtual void OnScalar(const Mark& mark, const std::string& tag, anchor_t anchor,
                        const std::string& value) = 0;
  virtual void OnSequenceStart(const Mark& mark, const std::string& tag, anchor_t anchor,
                               EmitterStyle::value style) = 0;
  virtual void OnSequenceEnd() = 0;
  virtual void OnMapStart(const Mark& mark, const std::string& tag, anchor_t anchor,
                          EmitterStyle::value style) = 0;
  virtual void OnMapEnd() = 0;
};

class Parser {
 public:
  explicit Parser(std::istream& in);
  /// The only document; false when it was handled. Throws Exception.
  bool HandleNextDocument(EventHandler& handler);

 private:
  class Text;
  std::string text_;
  bool done_ = false;
};

}  // namespace YAML
