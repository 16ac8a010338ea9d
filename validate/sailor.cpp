// SPDX-License-Identifier: Apache-2.0
#include "validate/sailor.hpp"

#include "base/child_process.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "base/module_path.hpp"
#include "scenarios/scenario.hpp"
#include "traces/byte_sink.hpp"

#include <fmt/format.h>

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace penstock {
namespace {

constexpr const char* kConverter = "validate/sailor_runs.py";
constexpr int kRefused = 2;  // the converter's status where an input is wrong

/// A file in memory, which has no name and no place on a disk.
class Scratch {
 public:
  Scratch() : file_(::memfd_create("runs", 0)) {
    if (file_ < 0) throw SystemError::from_errno("make", "a file in memory");
  }
  ~Scratch() { ::close(file_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  int descriptor() const { return file_; }
  std::string text() const { return read_back(fmt::format("/proc/self/fd/{}", file_)); }

 private:
  int file_;
};

/// Runs a program with its standard output going to `output`. Returns its status, as waitpid()
/// says it.
int run_program(const std::vector<std::string>& words, int output) {
  const ChildResult child = run_in_child(words.front(), [&] {
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    ::dup2(output, STDOUT_FILENO);
    ::execvp(arguments.front(), arguments.data());
    return std::string("it could not be started");
  });
  if (!child.answer.value_or("").empty())
    throw SystemError(fmt::format("cannot start '{}'", words.front()));
  return child.status;
}

/// Returns the error that the converter has written as a list of [file, line, column, message].
InputError error_in(const std::string& problems) {
  std::vector<Diagnostic> diagnostics;
  for (const Json& one : Json::parse(problems))
    diagnostics.push_back({{one[0].get<std::string>(), one[1].get<int>(), one[2].get<int>()},
                           one[3].get<std::string>(),
                           "",
                           1});
  return InputError(std::move(diagnostics));
}

}  // namespace

std::vector<RunRow> sailor_rows(const std::vector<std::string>& files, const RowOptions& options) {
  std::vector<std::string> words{python_program(),
                                 "-I",
                                 data_folder() + "/" + kConverter,
                                 "--problems=json",
                                 "--profiles=" + options.profiles,
                                 "--model=" + options.model,
                                 "--"};
  for (const std::string& file : files) {
    static_cast<void>(read_file(file));  // it is there, no giant, and nothing that this run writes
    words.push_back(file);
  }
  const Scratch table;
  const int status = run_program(words, table.descriptor());
  if (WIFEXITED(status) && WEXITSTATUS(status) == kRefused) throw error_in(table.text());
  if (status != 0)
    throw SystemError(fmt::format("{} {} ended {}", words[0], words[2], how_it_ended(status)));
  return parse_run_table(table.text(), files.front());
}

}  // namespace penstock
