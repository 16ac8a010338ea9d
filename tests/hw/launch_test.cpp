// SPDX-License-Identifier: Apache-2.0
#include "hw/launch.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <sstream>

namespace penstock::launch_test {
namespace {

/// A pipe whose ends close themselves.
struct Pipe {
  Pipe() { EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0); }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  void close_end(std::size_t end) {
    if (ends[end] >= 0) ::close(ends[end]);
    ends[end] = -1;
  }
  /// All that comes until every writer has closed it, or `bytes`.
  std::string read(std::size_t bytes = SIZE_MAX) {
    std::string text;
    char c = 0;
    while (text.size() < bytes && ::read(ends[0], &c, 1) == 1) text += c;
    return text;
  }
  std::array<int, 2> ends{-1, -1};
};

/// `processes` shells that run `script`.
LaunchRequest shells(const std::string& script, int processes) {
  LaunchRequest request;
  request.executable = "sh";
  request.arguments = {"-c", script};
  request.processes = processes;
  return request;
}

struct Outcome {
  LaunchResult result;
  std::vector<std::string> lines;  ///< of stderr, sorted
};

Outcome launched(LaunchRequest request) {
  Pipe errors;
  request.errors_fd = errors.ends[1];
  Outcome outcome{launch(request), {}};
  errors.close_end(1);
  std::istringstream text(errors.read());
  for (std::string line; std::getline(text, line);) outcome.lines.push_back(line);
  std::sort(outcome.lines.begin(), outcome.lines.end());
  return outcome;
}

void expect_no_child() {
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(Launch, EveryRankKnowsWhoItIsAndItsLinesSayIt) {
  LaunchRequest request = shells("echo rank $RANK of $WORLD_SIZE, $LOCAL_RANK here, $MORE >&2", 3);
  request.environment = {{"MORE", "a=b c"}};
  const Outcome o = launched(request);
  EXPECT_EQ(o.result.status, (std::vector<int>{0, 0, 0}));
  EXPECT_EQ(o.result.first_failure, 0);
  EXPECT_EQ(o.lines, (std::vector<std::string>{"[rank 0] rank 0 of 3, 0 here, a=b c",
                                               "[rank 1] rank 1 of 3, 1 here, a=b c",
                                               "[rank 2] rank 2 of 3, 2 here, a=b c"}));
  expect_no_child();
}

TEST(Launch, RanksShareAFolderThatIsGoneAfterwards) {
  const Outcome o =
      launched(shells("test -d $PENSTOCK_RENDEZVOUS && echo $PENSTOCK_RENDEZVOUS >&2; "
                      "echo x > $PENSTOCK_RENDEZVOUS/$RANK",
                      2));
  ASSERT_EQ(o.lines.size(), 2U);
  const std::string folder = o.lines[0].substr(9);
  EXPECT_EQ(o.lines[1].substr(9), folder);
  EXPECT_FALSE(folder.empty());
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST(Launch, EachRanksOwnStatusComesBack) {
  LaunchRequest request = shells("exit $((RANK * 3))", 3);
  const Outcome o = launched(request);
  EXPECT_EQ(o.result.status, (std::vector<int>{0, 3, 6}));
  expect_no_child();
}

TEST(Launch, AKilledRankHasTheStatusAShellWouldSay) {
  const Outcome o = launched(shells("kill -KILL $$", 1));
  EXPECT_EQ(o.result.status, std::vector<int>{137});
}

TEST(Launch, APrefixStandsInFrontOfItsOwnRankOnly) {
  LaunchRequest request = shells("echo ${MARK:-none} >&2", 2);
  request.prefixes = {{}, {"env", "MARK=prefixed"}};
  const Outcome o = launched(request);
  EXPECT_EQ(o.lines, (std::vector<std::string>{"[rank 0] none", "[rank 1] prefixed"}));
}

TEST(Launch, AMissingProgramIsNamed) {
  LaunchRequest request;
  request.executable = "no-such-program-here";
  const Outcome o = launched(request);
  EXPECT_EQ(o.result.status, std::vector<int>{127});
  EXPECT_EQ(o.lines,
            std::vector<std::string>{
                "[rank 0] cannot start 'no-such-program-here': No such file or directory"});
}

TEST(Launch, ALastLineWithoutItsEndIsPrinted) {
  EXPECT_EQ(launched(shells("printf 'one\\ntwo' >&2", 1)).lines,
            (std::vector<std::string>{"[rank 0] one", "[rank 0] two"}));
}

TEST(Launch, TheOthersAreTerminatedWhenOneFailsAndTheGracePeriodIsOver) {
  LaunchRequest request = shells("[ $RANK = 1 ] && exit 3; exec tail -f /dev/null", 3);
  request.grace_s = 0.1;
  const Outcome o = launched(request);
  EXPECT_EQ(o.result.status, (std::vector<int>{143, 3, 143}));
  EXPECT_EQ(o.result.first_failure, 3);
  expect_no_child();
}

TEST(Launch, TheOthersMayEndByThemselvesWithinTheGracePeriod) {
  // They end as soon as rank 1 has failed: its end of the pipe closes.
  LaunchRequest request = shells(
      "f=$PENSTOCK_RENDEZVOUS/p; mkfifo $f 2>/dev/null; "
      "if [ $RANK = 1 ]; then exec 9>$f; exit 3; fi; read line <$f; exit 5",
      2);
  request.grace_s = 3600;
  const Outcome o = launched(request);
  EXPECT_EQ(o.result.status, (std::vector<int>{5, 3}));
}

TEST(Launch, WhoIgnoresTermIsKilled) {
  // Rank 0 fails once rank 1 does ignore it.
  LaunchRequest request = shells(
      "f=$PENSTOCK_RENDEZVOUS/p; mkfifo $f 2>/dev/null; "
      "if [ $RANK = 0 ]; then read line <$f; exit 1; fi; "
      "trap '' TERM; echo ready >$f; while :; do read line </dev/zero; done",
      2);
  request.grace_s = 0.05;
  request.kill_s = 0.05;
  EXPECT_EQ(launched(request).result.status, (std::vector<int>{1, 137}));
  expect_no_child();
}

TEST(Launch, AStoppedRankIsEnded) {
  LaunchRequest request =
      shells("[ $RANK = 0 ] && exit 1; kill -STOP $$; exec tail -f /dev/null", 2);
  request.grace_s = 0.05;
  const Outcome o = launched(request);
  EXPECT_EQ(o.result.status, (std::vector<int>{1, 143}));
  expect_no_child();
}

/// A launcher of two endless ranks in a process of its own; they hold `life` open.
struct OtherLauncher {
  OtherLauncher() {
    pid = ::fork();
    if (pid == 0) {
      ::setpgid(0, 0);
      ::fcntl(life.ends[1], F_SETFD, 0);
      LaunchRequest request = shells("echo $PENSTOCK_RENDEZVOUS >&2; exec tail -f /dev/null", 2);
      request.errors_fd = lines.ends[1];
      request.kill_s = 3600;
      const LaunchResult result = launch(request);
      ::_exit(result.interrupted_by == SIGTERM && result.status == std::vector<int>{143, 143} ? 42
                                                                                              : 1);
    }
    lines.close_end(1);
    life.close_end(1);
    // Both ranks have said where they are.
    for (int line = 0; line < 2; ++line) {
      folder.clear();
      for (std::string c; (c = lines.read(1)) != "\n" && !c.empty();) folder += c;
    }
    folder.erase(0, std::string("[rank 0] ").size());
  }
  /// Its status, after everybody who holds `life` has ended.
  int end() {
    EXPECT_EQ(life.read(), "");
    int status = 0;
    ::waitpid(pid, &status, 0);
    return status;
  }
  Pipe lines;
  Pipe life;
  pid_t pid = -1;
  std::string folder;
};

TEST(Launch, NoRankOutlivesALauncherThatIsKilled) {
  OtherLauncher launcher;
  ASSERT_TRUE(std::filesystem::is_directory(launcher.folder)) << launcher.folder;
  ::kill(launcher.pid, SIGKILL);
  const int status = launcher.end();
  EXPECT_TRUE(WIFSIGNALED(status));
  std::filesystem::remove_all(launcher.folder);
}

TEST(Launch, ALauncherThatIsToldToStopPassesItOnAndCleansUp) {
  OtherLauncher launcher;
  ASSERT_TRUE(std::filesystem::is_directory(launcher.folder)) << launcher.folder;
  ::kill(launcher.pid, SIGTERM);
  const int status = launcher.end();
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 42);
  EXPECT_FALSE(std::filesystem::exists(launcher.folder));
}

}  // namespace
}  // namespace penstock::launch_test
