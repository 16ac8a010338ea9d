// SPDX-License-Identifier: Apache-2.0
#include "sweep/python_workers.hpp"

#include "base/child_process.hpp"
#include "base/error.hpp"
#include "base/module_path.hpp"

#include <fmt/format.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>

namespace penstock {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPipes = "pipes:";

std::array<int, 2> descriptors_in(const std::string& where) {
  std::array<int, 2> numbers{};
  const char* at = where.data() + kPipes.size();
  const char* const end = where.data() + where.size();
  const auto first = std::from_chars(at, end, numbers[0]);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ',')
    throw InputError("--on", "must name two descriptors as pipes:IN,OUT, got '" + where + "'");
  const auto second = std::from_chars(first.ptr + 1, end, numbers[1]);
  if (second.ec != std::errc() || second.ptr != end || ::fcntl(numbers[0], F_GETFD) < 0 ||
      ::fcntl(numbers[1], F_GETFD) < 0)
    throw InputError("--on", "must name two open descriptors, got '" + where + "'");
  return numbers;
}

/// Where the package lies that belongs to this program: beside it in the build tree, with its
/// modules where it is installed, around it where pip has installed both; none: Python knows.
std::string folder_of_package() {
  const fs::path prefix = program_path().parent_path().parent_path();
  for (const fs::path& folder :
       {prefix / "python", prefix / "lib/penstock/python", prefix.parent_path()}) {
    std::error_code ignored;
    if (fs::exists(folder / "penstock" / "elsewhere.py", ignored)) return folder.string();
  }
  return "";
}

/// What Python is started with to run main() of a module of the package: where the package lies,
/// the module's name and its arguments follow. Isolated (-I), so that nothing in the current folder
/// is imported, be it called penstock or json; that leaves out more, which is put in again:
/// absolute folders of PYTHONPATH and what the user has installed.
constexpr const char* kMain = R"(
import os, site, sys
theirs = os.environ.get("PYTHONPATH", "").split(os.pathsep)
sys.path[:0] = filter(os.path.isabs, [sys.argv[1], *theirs])
if sys.prefix == sys.base_prefix and not os.environ.get("PYTHONNOUSERSITE"):
    site.addsitedir(site.getusersitepackages())
del sys.argv[:2]
import importlib
try:
    module = importlib.import_module(sys.argv[0])
except ImportError as error:
    sys.exit(f"penstock: this needs the package for Python (docs/python.md), and {sys.executable} says: {error}")
module.main()
)";

/// Returns when it cannot be started.
void exec_python(const std::vector<std::string>& words) {
  const std::string program = python_program(), package = folder_of_package();
  std::vector<char*> arguments;
  for (const char* word : {program.c_str(), "-I", "-c", kMain, package.c_str()})
    arguments.push_back(const_cast<char*>(word));
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  ::execvp(program.c_str(), arguments.data());
}

/// main() of penstock.elsewhere, with two pipes as its standard streams.
class PythonProcess {
 public:
  explicit PythonProcess(const std::string& where) {
    std::array<int, 2> to{}, from{};
    if (::pipe2(to.data(), O_CLOEXEC) != 0 || ::pipe2(from.data(), O_CLOEXEC) != 0)
      throw SystemError::from_errno("make", "a pipe");
    const pid_t parent = ::getpid();
    pid_ = ::fork();
    if (pid_ < 0) throw SystemError::from_errno("start", python_program());
    if (pid_ == 0) {
      end_with_parent(parent);
      ::dup2(to[0], STDIN_FILENO);
      ::dup2(from[1], STDOUT_FILENO);
      exec_python({"penstock.elsewhere", where});
      ::_exit(127);
    }
    ::close(to[0]);
    ::close(from[1]);
    in = from[0];
    out = to[1];
  }
  ~PythonProcess() { wait(); }
  PythonProcess(const PythonProcess&) = delete;
  PythonProcess& operator=(const PythonProcess&) = delete;

  /// How it ended, as waitpid() says it.
  int wait() {
    while (pid_ > 0 && ::waitpid(pid_, &status_, 0) < 0 && errno == EINTR) continue;
    pid_ = -1;
    return status_;
  }

  int in = -1, out = -1;  ///< closed by who visits

 private:
  pid_t pid_ = -1;
  int status_ = 0;
};

}  // namespace

void become_python(const std::vector<std::string>& words) {
  exec_python(words);
  throw SystemError::from_errno("start", python_program());
}

void work_on(const std::string& where, const std::function<void(int in, int out)>& work) {
  if (where.starts_with(kPipes)) {
    const auto [in, out] = descriptors_in(where);
    return work(in, out);
  }
  PythonProcess workers(where);
  try {
    work(workers.in, workers.out);
  } catch (const SystemError& error) {
    const int status = workers.wait();
    if (status == 0) throw;
    throw SystemError(fmt::format("{} ({}, which asks {}, ended {})", error.what(),
                                  python_program(), where, how_it_ended(status)));
  }
}

void visit_on(const std::string& where, const SweepRecipe& recipe, const NextPoint& next,
              const TakeRow& take, const WorkerOptions& options) {
  work_on(where, [&](int in, int out) { visit_elsewhere(in, out, recipe, next, take, options); });
}

}  // namespace penstock
